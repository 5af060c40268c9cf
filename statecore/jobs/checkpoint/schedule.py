"""Decide which applications are due for a checkpoint, from the repository and the brokers alone.

The check runs at every *tick*, for many applications concurrently (:func:`check_all`). It keeps no state, so a tick
that is late, early, repeated or missing does not change what the next one finds::

    head            when was the newest snapshot made, compactions apart?   long enough ago, by the interval?
    marker          is a long checkpoint in progress?                       only if it is due
    manifests       at which offsets does the newest snapshot end?          only if none is in progress
    brokers         where do the changelogs end?                            is anything new?

An interval is usually a whole number of ticks, and a tick comes some seconds early or late. So an application whose
interval ends within half a tick is due now; at the next tick it would be later than that. Between two checkpoints there
are at most one interval and one tick, and at least half an interval.

An application without new records is left alone until the time up to which its snapshot is complete is so old that
deletes written later might be gone (:mod:`statecore.changelog.soundness`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from statecore.changelog.cluster import Cluster
from statecore.errors import Reason, Retryable, StatecoreError
from statecore.jobs.checkpoint.broker_state import BrokerState
from statecore.jobs.checkpoint.last_checkpoint import NO_SNAPSHOT, last_made, made_ms
from statecore.jobs.checkpoint.replaced_changelogs import last_before
from statecore.jobs.checkpoint.request import DEFAULT_VERSIONED_MS
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.in_progress_marker import marker_age
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.maintenance.verification_record import VerifiedLevel
from statecore.spec.model import ApplicationSpec
from statecore.spec.units import format_duration

DEFAULT_TICK_MS = 60_000
"""Time between two checks."""

CHECK_SECONDS = 30.0
"""Time limit for checking one application."""

AT_ONCE = 16
"""Applications that are checked concurrently."""

_TIMEOUT = 10.0  # seconds that the brokers have for one answer


@dataclass(frozen=True)
class DueVerdict:
    """Whether a checkpoint of an application is due.

    Attributes:
        is_due: also true if the application could not be checked.
        last_snapshot: the last snapshot that is no compaction, or :data:`NO_SNAPSHOT`, at the time of the check; by it
            a checkpoint that begins much later finds out that another job was faster. ``None`` if the check failed.
        newest: the newest snapshot at the time of the check; ``None`` without one, or if the check failed.
        current_ms: a time at which the newest snapshot had all records, in ms since the epoch; ``None`` if not known.
        verified: the verified levels of the snapshots; empty if they were never verified, or that could not be read.
        kept: the last snapshot before changelogs were replaced, until a person unpins it; ``None`` without one.
    """

    is_due: bool
    why: Reason
    error: StatecoreError | None = None
    last_snapshot: str | None = None
    newest: SnapshotEntry | None = None
    current_ms: int | None = None
    verified: tuple[VerifiedLevel, ...] = ()
    kept: SnapshotEntry | None = None


def is_due(made_ms: int, now_ms: int, interval_ms: int, tick_ms: int) -> bool:
    passed = now_ms - made_ms
    if passed < -interval_ms:  # the last one has a time in the future, by a wrong clock
        return True
    return passed >= interval_ms - min(tick_ms, interval_ms) // 2


def check_due(
    repository: ApplicationRepository,
    spec: ApplicationSpec,
    *,
    tick_ms: int = DEFAULT_TICK_MS,
    versioned: VersionedStart = VersionedStart.HISTORY,
    versioned_ms: int = DEFAULT_VERSIONED_MS,
    clock: Callable[[], float] = time.time,
    cluster: Callable[..., Cluster] = Cluster,
) -> DueVerdict:
    now_ms = int(clock() * 1000)
    found = repository.read_head()
    newest = None if found is None else found.head.newest
    if found is None or newest is None:
        if (running := _in_progress(repository, now_ms)) is not None:
            return running
        with cluster(spec.bootstrap_servers, spec.kafka, timeout=_TIMEOUT) as brokers:
            BrokerState.of(brokers, spec, versioned)  # fails while they are away, lest every tick starts a checkpoint
        return DueVerdict(True, Reason("it has no snapshot yet", "no-snapshot"), last_snapshot=NO_SNAPSHOT)
    interval_ms, kept = spec.checkpoint_interval_ms, last_before(found.head.snapshots)
    made = made_ms(found.head.snapshots, interval_ms)
    every = f"one every {format_duration(interval_ms)}"
    if made is not None and not is_due(made, now_ms, interval_ms, tick_ms):
        return DueVerdict(
            False,
            Reason(
                f"the last one was {_ago(made, now_ms)}, {every}",
                "interval-not-over",
                age_ms=now_ms - made,
                interval_ms=interval_ms,
            ),
            newest=newest,
            current_ms=made,
            kept=kept,
        )
    if (running := _in_progress(repository, now_ms)) is not None:
        return replace(running, newest=newest, current_ms=made, kept=kept)
    manifest = repository.manifest(newest).value
    read = repository.task_manifests(manifest.task_manifests)
    there = {
        (one.task, store.store): store for one in manifest.task_manifests for store in read[one.task].manifest.stores
    }
    with cluster(spec.bootstrap_servers, spec.kafka, timeout=_TIMEOUT) as brokers:
        state = BrokerState.of(brokers, spec, versioned)
    since = "no checkpoint yet" if made is None else f"the last one was {_ago(made, now_ms)}, {every}"
    reason = state.reason_to_advance(there, now_ms - versioned_ms) or state.reason_to_confirm(manifest, there, now_ms)
    last = last_made(found.head.snapshots)
    last_snapshot = NO_SNAPSHOT if last is None else last.snapshot
    found_out = reason or Reason("nothing is new", "nothing-new")
    why = Reason(
        f"{found_out}; {since}",
        found_out.code,
        **found_out.context,
        age_ms=None if made is None else now_ms - made,
        interval_ms=interval_ms,
    )
    current_ms = now_ms if reason is None else made
    return DueVerdict(
        reason is not None, why, last_snapshot=last_snapshot, newest=newest, current_ms=current_ms, kept=kept
    )


def _in_progress(repository: ApplicationRepository, now_ms: int) -> DueVerdict | None:
    age_s = marker_age(repository, now_ms / 1000)
    if age_s is None:
        return None
    return DueVerdict(False, Reason(f"one is in progress, marked {age_s:.0f} s ago", "in-progress", heard_s=age_s))


def _ago(then_ms: int, now_ms: int) -> str:
    return f"{max(now_ms - then_ms, 0) / 1000:,.0f} s ago"


def check_all(
    checks: Mapping[str, Callable[[], DueVerdict]],
    *,
    at_once: int = AT_ONCE,
    timeout: float = CHECK_SECONDS,
) -> dict[str, DueVerdict]:
    """Check many applications concurrently, none of which delays the others; returns the verdicts in the same order."""
    answers: queue.SimpleQueue[tuple[str, DueVerdict]] = queue.SimpleQueue()
    waiting, running = deque(checks), dict[str, float]()
    found: dict[str, DueVerdict] = {}

    def answer(name: str) -> None:
        answers.put((name, _verdict(name, checks[name])))

    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.popleft()
            running[name] = time.monotonic() + timeout
            # A daemon thread, so that a check that hangs does not delay the end of the process.
            threading.Thread(target=answer, args=(name,), name=f"check-{name}", daemon=True).start()
        try:
            name, verdict = answers.get(timeout=max(0.0, min(running.values()) - time.monotonic()))
        except queue.Empty:
            for late in [name for name, until in running.items() if until <= time.monotonic()]:
                del running[late]
                found[late] = _failed(_too_late(late, timeout))
        else:
            if running.pop(name, None) is not None:
                found[name] = verdict
    return {name: found[name] for name in checks}


def _verdict(name: str, check: Callable[[], DueVerdict]) -> DueVerdict:
    try:
        return check()
    except Exception as error:
        return _failed(as_statecore_error(error, f"it was checked whether a checkpoint of {name} is due"))


def _failed(error: StatecoreError) -> DueVerdict:
    return DueVerdict(True, Reason(error.what, error.code, **error.context), error)


def _too_late(name: str, timeout: float) -> Retryable:
    return Retryable(
        f"Checking whether a checkpoint of {name} is due took longer than {timeout:g} s.",
        code="due-check-timeout",
        action="Check its brokers and the repository. The check is repeated at the next tick.",
        application_id=name,
    )
