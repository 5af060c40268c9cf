"""Decide which applications are due for a checkpoint, from the repository and the brokers alone.

The check runs at every *tick*, for many applications concurrently. It keeps no state, so a tick that is late, early,
repeated or missing does not change what the next one finds::

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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import ENDLESS_MS, min_current_retention_ms, recorded_retention_ms
from statecore.changelog.groups import committed_offsets
from statecore.changelog.model import TopicDescription
from statecore.errors import Reason, Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import moment
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.changed_tasks import is_aged, oldest_read_at
from statecore.jobs.checkpoint.request import DEFAULT_VERSIONED_MS
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.in_progress_marker import marker_age
from statecore.jobs.planning.plan import consumed, end_of, is_restored_by_kafka_streams
from statecore.jobs.planning.selection import check_partitions, select_stores
from statecore.jobs.request_fields import VersionedStart
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.compatibility import differences
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Manifest, StoreSnapshot
from statecore.spec.model import DEFAULT_CHECKPOINT_INTERVAL_MS, ApplicationSpec, StoreSpec, is_source, task_of
from statecore.spec.units import format_duration

DEFAULT_TICK_MS = 60_000
"""Time between two checks."""

COMPACTION = "compaction"
"""Origin of snapshots made by compaction (:mod:`statecore.jobs.compact.run`, which is too costly to import here)."""

NO_SNAPSHOT = "none"
"""Stands for "no snapshot" in place of an id."""

LOOK_SECONDS = 30.0
"""Time limit for checking one application."""

AT_ONCE = 16
"""Applications that are checked concurrently."""


@dataclass(frozen=True)
class Verdict:
    """Whether a checkpoint of an application is due.

    Attributes:
        is_due: also true if the application could not be checked.
        why: the reason, with its code and values.
        error: why the check failed; ``None`` if it did not.
        last_snapshot: the last snapshot that is no compaction, or :data:`NO_SNAPSHOT`, at the time of the check; by it
            a checkpoint that begins much later finds out that another job was faster. ``None`` if the check failed.
    """

    is_due: bool
    why: Reason
    error: StatecoreError | None = None
    last_snapshot: str | None = None


def is_due(made_ms: int, now_ms: int, interval_ms: int, tick_ms: int) -> bool:
    """Whether it is time for a checkpoint."""
    passed = now_ms - made_ms
    if passed < -interval_ms:  # the last one has a time in the future, by a wrong clock
        return True
    return passed >= interval_ms - min(tick_ms, interval_ms) // 2


def last_made(entries: Sequence[SnapshotEntry]) -> SnapshotEntry | None:
    """The newest snapshot that is no compaction; ``entries`` are newest first."""
    return next((one for one in entries if one.origin != COMPACTION), None)


def made_since(entries: Sequence[SnapshotEntry], last_snapshot: str | None) -> Reason | None:
    """Reason not to checkpoint if another job has made one since the check; ``None`` if none has."""
    last = last_made(entries)
    if last is None or last_snapshot in (None, last.snapshot):
        return None
    return Reason(
        f"Nothing was done: since this was found to be due, {last.snapshot} was made at {last.created_at}.",
        "made-by-another",
        snapshot=last.snapshot,
        created_at=last.created_at,
    )


def made_ms(entries: Sequence[SnapshotEntry], interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS) -> int | None:
    """When the newest snapshot that is no compaction was made: when its ends were read, else when it was published.

    If the two times are further apart than an interval, some unchanged task could not be confirmed; if they are the
    wrong way round, the publishing machine's clock differs from the brokers'. Then the time of publication counts.

    Returns:
        In ms since the epoch; ``None`` if there is none.
    """
    entry = last_made(entries)
    if entry is None:
        return None
    published = moment(entry.created_at)
    made = 0 if published is None else int(published.timestamp() * 1000)
    return made if entry.read_at_ms is None or not 0 <= made - entry.read_at_ms <= interval_ms else entry.read_at_ms


def check_due(
    repository: ApplicationRepository,
    spec: ApplicationSpec,
    *,
    tick_ms: int = DEFAULT_TICK_MS,
    versioned: VersionedStart = VersionedStart.HISTORY,
    versioned_ms: int = DEFAULT_VERSIONED_MS,
    timeout: float = 10.0,
    clock: Callable[[], float] = time.time,
    cluster: Callable[..., Cluster] = Cluster,
) -> Verdict:
    """Check whether a checkpoint of an application is due."""
    now_ms = int(clock() * 1000)
    found = repository.read_head()
    newest = None if found is None else found.head.newest
    if found is None or newest is None:
        if (running := _in_progress(repository, now_ms)) is not None:
            return running
        with cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as brokers:
            _BrokerState.of(
                brokers, spec, versioned
            )  # fails while brokers are away; else a checkpoint would start at every tick
        return Verdict(True, Reason("it has no snapshot yet", "no-snapshot"), last_snapshot=NO_SNAPSHOT)
    interval_ms = spec.checkpoint_interval_ms
    made = made_ms(found.head.snapshots, interval_ms)
    every = f"one every {format_duration(interval_ms)}"
    if made is not None and not is_due(made, now_ms, interval_ms, tick_ms):
        return Verdict(
            False,
            Reason(
                f"the last one was {_ago(made, now_ms)}, {every}",
                "interval-not-over",
                age_ms=now_ms - made,
                interval_ms=interval_ms,
            ),
        )
    if (running := _in_progress(repository, now_ms)) is not None:
        return running
    manifest = repository.manifest(newest).value
    read = repository.task_manifests(manifest.task_manifests)
    there = {
        (one.task, store.store): store for one in manifest.task_manifests for store in read[one.task].manifest.stores
    }
    with cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as brokers:
        brokers_state = _BrokerState.of(brokers, spec, versioned)
    since = "no checkpoint yet" if made is None else f"the last one was {_ago(made, now_ms)}, {every}"
    news = brokers_state.news(there, now_ms - versioned_ms) or brokers_state.age(manifest, there, now_ms)
    last = last_made(found.head.snapshots)
    last_snapshot = NO_SNAPSHOT if last is None else last.snapshot
    found_out = news or Reason("nothing is new", "nothing-new")
    why = Reason(
        f"{found_out}; {since}",
        found_out.code,
        **found_out.context,
        age_ms=None if made is None else now_ms - made,
        interval_ms=interval_ms,
    )
    return Verdict(news is not None, why, last_snapshot=last_snapshot)


def _in_progress(repository: ApplicationRepository, now_ms: int) -> Verdict | None:
    heard = marker_age(repository, now_ms / 1000)
    if heard is None:
        return None
    return Verdict(False, Reason(f"one is in progress, marked {heard:.0f} s ago", "in-progress", heard_s=heard))


@dataclass(frozen=True)
class _BrokerState:
    """What the brokers say about an application."""

    spec: ApplicationSpec
    versioned: VersionedStart
    topics: Mapping[str, TopicDescription]
    stores: Mapping[Key, tuple[StoreSpec, frozenset[TopicPartition]]]
    ends: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int]

    @staticmethod
    def of(cluster: Cluster, spec: ApplicationSpec, versioned: VersionedStart) -> _BrokerState:
        declared = select_stores(spec)
        topics = cluster.describe_topics(sorted({store.changelog for store in declared}))
        stores: dict[Key, tuple[StoreSpec, set[TopicPartition]]] = {}
        for store, numbers in check_partitions(declared, topics).items():
            for number in numbers:
                partitions = stores.setdefault((task_of(store, number), store.name), (store, set()))[1]
                partitions.add(TopicPartition(store.changelog, number))
        frozen = {key: (store, frozenset(partitions)) for key, (store, partitions) in stores.items()}
        ends, log_ends = _ends(cluster, spec, frozen.values(), versioned)
        return _BrokerState(spec, versioned, topics, frozen, ends, log_ends)

    def news(self, there: Mapping[Key, StoreSnapshot], inherited_since_ms: int) -> Reason | None:
        """What a checkpoint would find new; ``None`` if nothing.

        Versioned stores younger than ``inherited_since_ms`` are inherited.
        """
        behind: dict[TopicPartition, int] = {}
        for (task, name), (declared, partitions) in self.stores.items():
            store = there.get((task, name))
            if store is None:
                return Reason(f"store {name} of task {task} is in no snapshot", "store-new", task=task, store=name)
            left = is_restored_by_kafka_streams(declared, self.versioned)
            if left != store.restored_by_kafka_streams or differences(task, store, self.spec, empty=left):
                return Reason(
                    f"the declaration of store {name} of task {task} has changed",
                    "store-redeclared",
                    task=task,
                    store=name,
                )
            if left:
                continue
            known = {end.topic_partition: end for end in store.changelogs}
            if known.keys() != partitions:
                return Reason(
                    f"the partitions of {declared.changelog} have changed",
                    "partitions-changed",
                    topic=declared.changelog,
                )
            for part, end in known.items():
                now = self.topics[part.topic].topic_id
                if end.topic_id.strip("0") and now.strip("0") and end.topic_id != now:
                    return Reason(f"{part.topic} was recreated", "topic-recreated", topic=part.topic)
                if self.ends[part] != end.end and not _is_inherited(store, inherited_since_ms):
                    behind[part] = self.ends[part] - end.end
        if not behind:
            return None
        return Reason(
            f"{sum(behind.values()):,} new offsets in {len(behind)} partitions",
            "offsets-new",
            offsets=sum(behind.values()),
            partitions=len(behind),
        )

    def age(self, manifest: Manifest, there: Mapping[Key, StoreSnapshot], now_ms: int) -> Reason | None:
        """Why a snapshot is published although nothing is new.

        Tasks with records beyond their ends that a checkpoint does not read are excluded, because it could not confirm
        them.
        """
        horizon = min_current_retention_ms(self.topics.values())
        quiet = {task for task, _ in self.stores} - {key[0] for key in self.stores if self._lags(there[key])}
        oldest = oldest_read_at(manifest, quiet)
        if (lowered := self._lowered(manifest, quiet)) is not None:
            return Reason(
                f"nothing is new, and delete retention was lowered to {format_duration(lowered)}",
                "retention-lowered",
                retention_ms=lowered,
            )
        if not quiet or not is_aged(oldest, now_ms, horizon):
            return None
        since = "since an unknown time" if oldest is None else f"confirmed {_ago(oldest, now_ms)}"
        return Reason(
            f"nothing is new, {since}, and deletes are kept for {format_duration(horizon or 0)}",
            "base-age-unknown" if oldest is None else "base-too-old",
            retention_ms=horizon,
        )

    def _lowered(self, manifest: Manifest, tasks: Collection[str]) -> int | None:
        """The current delete retention of a task's changelogs if a snapshot recorded a longer one."""
        seen: dict[str, int] = {}
        for (task, _), (store, _) in self.stores.items():
            if task in tasks and not is_restored_by_kafka_streams(store, self.versioned):
                seen[task] = min(recorded_retention_ms(self.topics[store.changelog]), seen.get(task, ENDLESS_MS))
        known = {reference.task: reference.delete_retention_ms for reference in manifest.task_manifests}
        lowered = (now for task, now in seen.items() if (then := known.get(task)) is not None and now < then)
        return min(lowered, default=None)

    def _lags(self, store: StoreSnapshot) -> bool:
        """Whether records lie beyond the ends of a store."""
        return not store.restored_by_kafka_streams and any(
            end.end < self.log_ends[end.topic_partition] for end in store.changelogs
        )


def _is_inherited(store: StoreSnapshot, since_ms: int) -> bool:
    """Whether a checkpoint inherits a store because it is versioned and young enough."""
    return store.kind.is_versioned and (store.read_at_ms or 0) >= since_ms


def _ends(
    cluster: Cluster,
    spec: ApplicationSpec,
    stores: Collection[tuple[StoreSpec, frozenset[TopicPartition]]],
    versioned: VersionedStart,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where a checkpoint would stop reading now, and where the logs end."""
    read = {
        part
        for store, partitions in stores
        if not is_restored_by_kafka_streams(store, versioned)
        for part in partitions
    }
    sources = {part for store, partitions in stores if is_source(spec, store) for part in partitions} & read
    logs = cluster.log_offsets(read)
    committed = committed_offsets(cluster, spec.application_id, sources)
    log_ends = {part: end_of(log, spec.processing_guarantee) for part, log in logs.items()}
    seen = logs | {part: consumed(logs[part], committed[part]) for part in sources}
    return {part: end_of(log, spec.processing_guarantee) for part, log in seen.items()}, log_ends


def _ago(then_ms: int, now_ms: int) -> str:
    return f"{max(now_ms - then_ms, 0) / 1000:,.0f} s ago"


def check_all(
    looks: Mapping[str, Callable[[], Verdict]],
    *,
    at_once: int = AT_ONCE,
    patience: float = LOOK_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Verdict]:
    """Check many applications concurrently; none of them delays the others.

    Returns:
        The verdicts, in the same order.
    """
    answers: queue.SimpleQueue[tuple[str, Verdict]] = queue.SimpleQueue()
    waiting, running = deque(looks), dict[str, float]()
    found: dict[str, Verdict] = {}

    def answer(name: str) -> None:
        answers.put((name, _verdict(name, looks[name])))

    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.popleft()
            running[name] = clock() + patience
            # A daemon thread, so that a check that hangs does not delay the end of the process.
            threading.Thread(target=answer, args=(name,), name=f"look-{name}", daemon=True).start()
        try:
            name, verdict = answers.get(timeout=max(0.0, min(running.values()) - clock()))
        except queue.Empty:
            for late in [name for name, until in running.items() if until <= clock()]:
                del running[late]
                found[late] = _failed(_too_late(late, patience))
        else:
            if running.pop(name, None) is not None:
                found[name] = verdict
    return {name: found[name] for name in looks}


def _verdict(name: str, look: Callable[[], Verdict]) -> Verdict:
    try:
        return look()
    except Exception as error:
        return _failed(as_statecore_error(error, f"it was checked whether a checkpoint of {name} is due"))


def _failed(error: StatecoreError) -> Verdict:
    return Verdict(True, Reason(error.what, error.code, **error.context), error)


def _too_late(name: str, patience: float) -> Retryable:
    return Retryable(
        f"Checking whether a checkpoint of {name} is due took longer than {patience:g} s.",
        code="due-check-timeout",
        action="Check its brokers and the repository. The check is repeated at the next tick.",
        application_id=name,
    )
