"""Checks with the brokers whether Kafka Streams can continue a standby copy from its changelogs.

Kafka Streams applies the tail to whatever it finds. So a copy is refused if its topic was recreated, its log was
truncated, or it is older than the deletes that compaction retains (:mod:`statecore.changelog.soundness`).
``statecore standby`` reads the tail, so it knows more, and rebuilds stores that cannot continue. Here the tail is not
read: where it may lack a delete, the copy is refused until the standby has followed it.

A grace buffer with a tail is refused too: Kafka Streams would restore the tail under wrong keys
(``grace-buffer-miskeyed``); the standby writes the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.changelog.delete_retention import (
    CLOCK_MARGIN_MS,
    ENDLESS_MS,
    recorded_retention_ms,
)
from statecore.changelog.soundness import BaseEnd, age_of, refusal
from statecore.errors import Invalid, Reason, Retryable, StatecoreError
from statecore.formats.integers import min_known
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition, is_known_topic_id
from statecore.jobs.failures import as_statecore_error
from statecore.spec.model import ApplicationSpec
from statecore.spec.units import format_duration
from statecore.tasks.standby_log_state import StandbyLogStates
from statecore.tasks.standby_store import StandbyStoreSpec

if TYPE_CHECKING:
    from statecore.tasks.changelog_ends import ChangelogEnd

Ask = Callable[[Collection[StandbyStoreSpec], Mapping[TopicPartition, int]], "Mapping[TopicPartition, ChangelogEnd]"]
"""Reads the changelog ends of stores, and the ends of the given leader epochs."""

FOLLOW = "Run statecore standby --once to update it, or to rebuild it where that is necessary; then run this again."
_OFFLINE = "Or use --offline: then it is not checked whether the copy still belongs to these topics."


@dataclass(frozen=True)
class StandbyCopy:
    """A store of a standby copy, for validation."""

    store: StandbyStoreSpec  # the followed store
    position: int  # first offset that was not applied; 0 if none was
    identities: frozenset[str] = frozenset()  # RocksDB's ids of its databases


def ask_brokers(application: ApplicationSpec, timeout: float) -> Ask:
    """Return an `Ask` that opens a connection to the application's brokers for each call; timeout in seconds."""

    def ask(
        stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ChangelogEnd]:
        from statecore.changelog.cluster import Cluster
        from statecore.tasks.changelog_ends import changelog_ends

        with Cluster(application.bootstrap_servers, application.kafka, timeout=timeout) as cluster:
            return changelog_ends(cluster, application, stores, epochs)

    return ask


@dataclass(frozen=True)
class ChangelogCheck:
    """Result of validating standby copies."""

    refused: Mapping[str, StatecoreError]  # tasks whose copies cannot be promoted, with the reason
    # changelog ends by task; tasks whose ends could not be read are missing
    ends: Mapping[str, Mapping[TopicPartition, ChangelogEnd]]


def check_changelogs(tasks: Mapping[str, tuple[Path, Sequence[StandbyCopy]]], ask: Ask) -> ChangelogCheck:
    """Validate the copies of tasks against their changelogs."""
    logs: dict[str, StandbyLogStates] = {}
    refused: dict[str, StatecoreError] = {}
    known: dict[str, Mapping[TopicPartition, ChangelogEnd]] = {}
    for task, (file, _) in tasks.items():
        try:
            (one := StandbyLogStates(file)).read()
            logs[task] = one
        except (StatecoreError, OSError) as unread:
            refused[task] = as_statecore_error(unread, f"{file} was read", task=task)
    for task, ends in _ends({task: tasks[task][1] for task in logs}, logs, ask).items():
        if isinstance(ends, StatecoreError):
            refused[task] = ends
            continue
        known[task] = ends
        for copy in tasks[task][1]:
            if (error := _error(task, copy, logs[task], ends[copy.store.changelog])) is not None:
                refused[task] = error
                break
    return ChangelogCheck(refused, known)


def too_old(end: BaseEnd, now: ChangelogEnd) -> Reason | None:
    """Why the tail after a copy may lack deletes; ``None`` if it cannot."""
    retention_ms = min_known((end.delete_retention_ms, recorded_retention_ms(now.topic)))
    if retention_ms == ENDLESS_MS or end.end >= now.log.last_stable:  # compaction stops at the last stable offset
        return None
    name = str(end.topic_partition)
    behind = f"{name} has records after offset {end.end}, and compaction may have removed deletes from there"
    age = age_of(end.read_at_ms, retention_ms, now.read_at_ms, behind)
    if isinstance(age, Reason):
        return age
    if age.keeps_deletes:
        return None
    return Reason(
        f"{behind}: the copy was at the end {age.age_ms / 1000:,.0f} s ago, which has to be within delete.retention.ms "
        f"({format_duration(age.retention_ms)}) less {CLOCK_MARGIN_MS / 60_000:.0f} min of clock skew",
        "deletes-compacted",
        age_ms=age.age_ms,
        retention_ms=age.retention_ms,
    )


def _unknown_topic(end: BaseEnd, now: ChangelogEnd) -> Reason | None:
    """Refuse a copy with a tail if the topic id it belongs to is not recorded."""
    if is_known_topic_id(end.topic_id) or end.end >= now.log.last_stable:
        return None
    return Reason(
        f"{end.topic_partition} has records after offset {end.end}, and the topic id of the copy is not recorded",
        "topic-id-unknown",
        topic=end.topic_partition.topic,
        partition=end.topic_partition.partition,
        end=end.end,
        log_end=now.log.last_stable,
    )


def _error(task: str, copy: StandbyCopy, logs: StandbyLogStates, now: ChangelogEnd) -> Invalid | None:
    partition = copy.store.changelog
    where = {"task": task, "store": copy.store.name, "topic": partition.topic, "partition": partition.partition}
    if copy.position:
        end = logs.end_of(copy.store.changelog, copy.position, copy.identities)
        why = (
            refusal(end, now.topic, now.log, now.epoch_end if end.leader_epoch >= 0 else None)
            or _unknown_topic(end, now)
            or too_old(end, now)
        )
        if why is not None:
            return Invalid(
                f"The standby copy of {copy.store.name} in {task} cannot be continued: {why}.",
                code="standby-store-stale",
                action=FOLLOW,
                **{**why.context, **where, "reason": why.code},
            )
    if copy.store.kind is StoreKind.GRACE_BUFFER and copy.position < now.end:
        return Invalid(
            f"The standby copy of the grace buffer {copy.store.name} in {task} is at {copy.position} of "
            f"{copy.store.changelog}, which ends at {now.end}: Kafka Streams would restore the rest under wrong "
            "keys and never emit it (grace-buffer-miskeyed).",
            code="grace-buffer-behind",
            action="Stop the application, run statecore standby --once to update the copy, and run this again.",
            **where,
            offset=copy.position,
            end=now.end,
        )
    return None


def _ends(
    tasks: Mapping[str, Sequence[StandbyCopy]], logs: Mapping[str, StandbyLogStates], ask: Ask
) -> dict[str, Mapping[TopicPartition, ChangelogEnd] | StatecoreError]:
    """The ends by task, or why there are none. Raises ``Retryable`` where no broker answers, or for no task."""
    from statecore.tasks.changelog_ends import ends_of_tasks

    def asked(names: Collection[str]) -> Mapping[TopicPartition, ChangelogEnd]:
        epochs = {at: epoch for name in names for at, epoch in logs[name].epochs().items()}
        return ask([copy.store for name in names for copy in tasks[name]], epochs)

    found: dict[str, Mapping[TopicPartition, ChangelogEnd] | StatecoreError] = {}
    topics = {name: {copy.store.changelog.topic for copy in copies} for name, copies in tasks.items()}
    for names, ends in ends_of_tasks(topics, asked):
        found.update(dict.fromkeys(names, ends))
        if isinstance(ends, Retryable) and (
            not ends.context.get("topics") or all(isinstance(found.get(name), Retryable) for name in tasks)
        ):
            raise ends.restated(ends.what, action=f"{ends.action} {_OFFLINE}") from ends
    return found
