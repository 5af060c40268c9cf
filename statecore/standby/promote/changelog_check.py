"""Whether what lies behind a warm copy may be put above it: asked of the brokers before anything is handed over.

Kafka Streams puts the tail above whatever it finds. So a copy of a topic that was created again, of a log that was
truncated, or one that is older than the deletes that compaction has kept is not handed over
(:mod:`statecore.changelog.soundness`). ``statecore standby`` reads the tail, so it can tell more, and makes anew what
cannot be mended. Here the tail is not read: where it may lack a delete, the copy is left to the standby.

A grace buffer with a tail is left to it as well: Kafka Streams would restore the tail under wrong keys
(``grace-buffer-miskeyed``), and the standby writes the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.changelog.horizon import CLOCK_MARGIN_MS, ENDLESS_MS, horizon_seen, least_horizon_ms
from statecore.changelog.soundness import NO_TIME, BaseEnd, refusal
from statecore.errors import Invalid, Reason, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.failures import as_statecore_error
from statecore.spec.duration import format_duration
from statecore.spec.model import ApplicationSpec
from statecore.tasks.standby_log_state import StandbyLogStates
from statecore.tasks.standby_store import FollowedSpec

if TYPE_CHECKING:
    from statecore.tasks.changelog_ends import ChangelogEnd

Ask = Callable[[Collection[FollowedSpec], Mapping[TopicPartition, int]], "Mapping[TopicPartition, ChangelogEnd]"]
"""Asks for the ends of the changelogs of stores, with the leader epochs whose ends are to be found out."""

FOLLOW = "Let statecore standby --once follow it, which makes anew what cannot be mended; then run this again."
_OFFLINE = "Or do without the brokers (--offline): then nobody looks whether the copy is still of these topics."


@dataclass(frozen=True)
class Copy:
    """A store of a warm copy, for who judges it.

    Attributes:
        store: what it follows.
        position: the first offset that it has not; 0 where nothing was applied.
        identities: what RocksDB calls its databases.
    """

    store: FollowedSpec
    position: int
    identities: frozenset[str] = frozenset()


def ask_brokers(application: ApplicationSpec, timeout: float) -> Ask:
    """Who asks the brokers of an application, with a connection for each question.

    Args:
        application: whose brokers.
        timeout: seconds that any one call may take.
    """

    def ask(
        stores: Collection[FollowedSpec], epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ChangelogEnd]:
        from statecore.changelog.cluster import Cluster
        from statecore.tasks.changelog_ends import changelog_ends

        with Cluster(application.bootstrap_servers, application.kafka, timeout=timeout) as cluster:
            return changelog_ends(cluster, application, stores, epochs)

    return ask


@dataclass(frozen=True)
class Judged:
    """What the brokers have to say.

    Attributes:
        refused: the tasks whose copy cannot be handed over, each with the reason.
        ends: by task its changelogs; a task is not there whose changelogs could not be asked for.
    """

    refused: Mapping[str, StatecoreError]
    ends: Mapping[str, Mapping[TopicPartition, ChangelogEnd]]


def judge(tasks: Mapping[str, tuple[Path, Sequence[Copy]]], ask: Ask) -> Judged:
    """Hold the copies of tasks against their changelogs.

    Args:
        tasks: by task the file in which the standby has kept what it knows of the changelogs, and its stores.
        ask: asks the brokers.

    Raises:
        Retryable: no broker answered; nothing was changed.
    """
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
    return Judged(refused, known)


def too_old(end: BaseEnd, now: ChangelogEnd) -> Reason | None:
    """Why the tail behind a copy may lack deletes, or ``None`` where it cannot.

    Args:
        end: of the copy.
        now: its changelog.
    """
    horizon = least_horizon_ms((end.horizon_ms, horizon_seen(now.topic)))
    if horizon == ENDLESS_MS or end.end >= now.log.last_stable:  # a log is not compacted behind its last stable offset
        return None
    name = str(end.topic_partition)
    behind = f"{name} goes on behind offset {end.end}, and compaction may have removed deletes from there"
    if end.read_at_ms is None:
        return Reason(f"{behind}: nobody knows since when", "parent-age-unknown")
    if horizon is None:
        return Reason(
            f"{behind}: nobody knows for how long deletes were kept when it was at the end", "retention-unknown"
        )
    if now.asked_at_ms is None:
        return Reason(f"{behind}: {NO_TIME}", "cluster-time-unknown")
    age = now.asked_at_ms - end.read_at_ms
    if age < -CLOCK_MARGIN_MS:
        return Reason(
            f"{behind}: by the clocks the copy was followed {-age / 1000:,.0f} s after now, so they are wrong",
            "clocks-disagree",
            age_ms=age,
        )
    if age + CLOCK_MARGIN_MS < horizon:
        return None
    return Reason(
        f"{behind}: it was at the end {age / 1000:,.0f} s ago, and must have been within delete.retention.ms "
        f"({format_duration(horizon)}) less {CLOCK_MARGIN_MS / 60_000:.0f} min for clocks that differ",
        "deletes-compacted",
        age_ms=age,
        retention_ms=horizon,
    )


def _of_unknown_topic(end: BaseEnd, now: ChangelogEnd) -> Reason | None:
    """Why nobody can tell whether what lies behind a copy is of its topic, or ``None`` where nothing does."""
    if end.topic_id or end.end >= now.log.last_stable:
        return None
    return Reason(
        f"{end.topic_partition} goes on behind offset {end.end}, and there is no sound record of the topic it is of",
        "topic-id-unknown",
        topic=end.topic_partition.topic,
        partition=end.topic_partition.partition,
        end=end.end,
        log_end=now.log.last_stable,
    )


def _error(task: str, copy: Copy, logs: StandbyLogStates, now: ChangelogEnd) -> Invalid | None:
    partition = copy.store.changelog
    where = {"task": task, "store": copy.store.name, "topic": partition.topic, "partition": partition.partition}
    if copy.position:
        end = logs.end_of(copy.store.changelog, copy.position, copy.identities)
        why = (
            refusal(end, now.topic, now.log, now.epoch_end if end.leader_epoch >= 0 else None)
            or _of_unknown_topic(end, now)
            or too_old(end, now)
        )
        if why is not None:
            return Invalid(
                f"The warm copy of {copy.store.name} in {task} cannot be continued: {why}.",
                code="standby-store-stale",
                action=FOLLOW,
                **{**why.context, **where, "reason": why.code},
            )
    if copy.store.kind is StoreKind.GRACE_BUFFER and copy.position < now.end:
        return Invalid(
            f"The warm copy of the grace buffer {copy.store.name} in {task} is at {copy.position} of "
            f"{copy.store.changelog}, which goes on to {now.end}: Kafka Streams would restore the rest under wrong "
            "keys and never emit it (grace-buffer-miskeyed).",
            code="grace-buffer-behind",
            action="Stop the application, let statecore standby --once follow the copy to the end, and run this again.",
            **where,
            offset=copy.position,
            end=now.end,
        )
    return None


def _ends(
    tasks: Mapping[str, Sequence[Copy]], logs: Mapping[str, StandbyLogStates], ask: Ask
) -> dict[str, Mapping[TopicPartition, ChangelogEnd] | StatecoreError]:
    """The ends of all tasks, asked for at once; task by task where the brokers have no answer to that.

    A task whose changelogs have no leader is refused for that, and the others are judged.
    """

    def asked(names: Collection[str]) -> Mapping[TopicPartition, ChangelogEnd]:
        epochs = {at: epoch for name in names for at, epoch in logs[name].epochs().items()}
        return ask([copy.store for name in names for copy in tasks[name]], epochs)

    found: dict[str, Mapping[TopicPartition, ChangelogEnd] | StatecoreError] = {}
    left = list(tasks)
    try:
        while left:
            try:
                return {**found, **dict.fromkeys(left, asked(left))}
            except Retryable as error:
                away = set(error.context.get("topics", ()))
                stuck = [name for name in left if away & {copy.store.changelog.topic for copy in tasks[name]}]
                if len(stuck) in (0, len(left)):
                    raise
                found.update(dict.fromkeys(stuck, error))
                left = [name for name in left if name not in stuck]
            except StatecoreError:
                for task in left:
                    try:
                        found[task] = asked([task])
                    except Retryable as error:
                        if not error.context.get("topics"):  # no broker answers
                            raise
                        found[task] = error
                    except StatecoreError as error:
                        found[task] = error
                return found
        return found
    except Retryable as error:
        raise error.restated(error.what, action=f"{error.action} {_OFFLINE}") from error
