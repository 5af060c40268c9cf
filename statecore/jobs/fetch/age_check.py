"""Checks the age of the stores of a snapshot, by the clock of this machine: the one check that needs no brokers.

Deletes stay in a compacted changelog for ``delete.retention.ms``. An instance that starts from an older store may miss
them, and keeps the deleted keys. With brokers :mod:`statecore.jobs.fetch.topic_check` knows more: an older store is
right where its log has not grown.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS, ENDLESS_MS
from statecore.errors import Invalid
from statecore.jobs.attempt import age
from statecore.jobs.fetch.job import FetchJob
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.progress import seconds_in_words
from statecore.spec.units import format_duration


class _Age(NamedTuple):
    age_ms: int
    most_ms: int
    store: StoreToFetch


def check_age(job: FetchJob, plan: FetchPlan) -> tuple[str, ...]:
    """Refuse stores that are older than the request allows; returns notes on what it could not check, and on ages."""
    stores = [store for store in plan.stores if not store.placed_empty]
    if not stores or (job.request.max_age is None and job.context.bootstrap_servers):
        return ()
    newer = job.snapshots.delete_retention_since(plan.found)
    now_ms = int(job.context.clock() * 1000)
    ages, unknown = [], []
    for store in stores:
        read_at_ms, most_ms = store.snapshot.read_at_ms, job.request.max_age
        if most_ms is None and store.snapshot.delete_retention_ms is not None:
            most_ms = min(store.snapshot.delete_retention_ms, newer.get(store.task, ENDLESS_MS))
        if read_at_ms is None or most_ms is None:
            unknown.append(store)
        if read_at_ms is not None:
            ages.append(_Age(now_ms - read_at_ms, ENDLESS_MS if most_ms is None else most_ms, store))
    if ahead := [one for one in ages if one.age_ms < -CLOCK_MARGIN_MS and one.most_ms < ENDLESS_MS]:
        raise _clock_behind(plan, min(ahead, key=lambda one: one.age_ms))
    if old := [one for one in ages if one.age_ms > one.most_ms + CLOCK_MARGIN_MS]:
        raise _too_old(job, plan, max(old, key=lambda one: one.age_ms - one.most_ms))
    return tuple(_notes(ages if job.request.max_age is None else [], unknown, now_ms))


def _notes(ages: list[_Age], unknown: list[StoreToFetch], now_ms: int) -> list[str]:
    notes = []
    if ages:
        oldest = min(ages, key=lambda one: one.most_ms - one.age_ms)
        kept = f"; deletes are kept for {format_duration(oldest.most_ms)}" if oldest.most_ms < ENDLESS_MS else ""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        when = age(now - timedelta(milliseconds=oldest.age_ms), now)
        notes.append(f"No brokers were asked, and the stores are of {when}{kept}.")
    if unknown:
        names = sorted({store.snapshot.store for store in unknown})
        notes.append(
            f"The snapshot does not record the age or the delete retention of {', '.join(names)}: such a store may "
            "keep keys that were deleted since."
        )
    return notes


def _clock_behind(plan: FetchPlan, newest: _Age) -> Invalid:
    store, snapshot = newest.store, plan.found.entry.snapshot
    return Invalid(
        f"By the clock of this machine store {store.snapshot.store} of task {store.task} in the snapshot {snapshot} "
        f"was read {seconds_in_words(-newest.age_ms / 1000)} from now, so its age is not known.",
        code="clock-behind",
        action="Set the clock of this machine. Without --max-age, --bootstrap-servers decides by the brokers' clock.",
        snapshot=snapshot,
        task=store.task,
        store=store.snapshot.store,
        age_ms=newest.age_ms,
    )


def _too_old(job: FetchJob, plan: FetchPlan, oldest: _Age) -> Invalid:
    age_ms, most_ms, store = oldest
    is_asked = job.request.max_age is not None
    limit = "--max-age" if is_asked else "delete.retention.ms, as the snapshot recorded it"
    return Invalid(
        f"The snapshot {plan.found.entry.snapshot} is too old: store {store.snapshot.store} of task {store.task} is "
        f"{seconds_in_words(age_ms / 1000)} old, and {limit} is {format_duration(most_ms)}.",
        code="snapshot-too-old",
        action="Publish a new snapshot (statecore checkpoint), or let Kafka Streams restore the stores."
        + (
            ""
            if is_asked
            else " With --bootstrap-servers an older one is used if nothing was written since; "
            "--max-age overrides the limit."
        ),
        snapshot=plan.found.entry.snapshot,
        task=store.task,
        store=store.snapshot.store,
        age_ms=age_ms,
        max_age_ms=most_ms,
    )
