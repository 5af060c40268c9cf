"""Which applications a checkpoint is due for, told by what the repository and the brokers say and by nothing else.

Somebody looks at every *tick*, at many applications one beside the other. Nobody keeps what was decided before, so a
tick that comes late, early, twice or never changes what the next one finds::

    head            when was the newest snapshot made that is no fold?      long enough ago, by the interval?
    word            is a long checkpoint under way (under_way.py)?          only where it was
    manifest, parts at which offsets does the newest snapshot end?          only where there is none
    brokers         where do the changelogs end?                            is anything new?

An interval is a whole number of ticks as a rule, and a tick comes some seconds early or late. An application whose
interval would be over half a tick from now is due now: at the next tick it would be late by more than that. So between
two checkpoints lie one interval and one tick at most, and half an interval at least.

An application of which nothing is new is left alone, until the moment up to which that is known has become so old that
deletes might be gone that lie behind it (:mod:`statecore.changelog.soundness`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import committed_offsets
from statecore.changelog.horizon import ENDLESS_MS, horizon_seen, shortest_horizon_ms
from statecore.changelog.model import TopicDescription
from statecore.errors import Reason, Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import moment
from statecore.jobs.bases.base import Key
from statecore.jobs.checkpoint.changed_tasks import is_aged, oldest_cut
from statecore.jobs.checkpoint.request import DEFAULT_VERSIONED_MS
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.in_progress_marker import heard_of
from statecore.jobs.planning.plan import consumed, end_of, is_left
from statecore.jobs.planning.selection import check_partitions, select_stores
from statecore.jobs.versioned_start import VersionedStart
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.compatibility import differences
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Manifest, StoreSnapshot
from statecore.spec.derived import is_source, task_of
from statecore.spec.duration import format_duration
from statecore.spec.model import DEFAULT_CHECKPOINT_INTERVAL_MS, ApplicationSpec, StoreSpec

DEFAULT_TICK_MS = 60_000
"""How often somebody looks, where nobody says otherwise."""

FOLD = "fold"
"""Origin of snapshots that hold nothing new (:mod:`statecore.jobs.compact.run`, which loads too much to look)."""

NO_SNAPSHOT = "none"
"""Where a snapshot is named: there is none. No id is it."""

LOOK_SECONDS = 30.0
"""How long one application may keep whoever looks."""

AT_ONCE = 16
"""Applications that are looked at one beside the other."""


@dataclass(frozen=True)
class Verdict:
    """What was decided of an application.

    Attributes:
        is_due: whether a checkpoint is due; an application that nobody could look at is.
        why: the reason, with its code and values.
        error: why nobody could look; ``None`` where somebody could.
        upon: where it is due, the last snapshot then that is no fold, or :data:`NO_SNAPSHOT`; who begins long after
            this was decided finds out by it that somebody else was faster. ``None`` where nobody looked.
    """

    is_due: bool
    why: Reason
    error: StatecoreError | None = None
    upon: str | None = None


def is_due(made_ms: int, now_ms: int, interval_ms: int, tick_ms: int) -> bool:
    """Whether it is time for a checkpoint.

    Args:
        made_ms: when the last one was made, in ms since the epoch.
        now_ms: now.
        interval_ms: between two of them.
        tick_ms: between two looks.
    """
    passed = now_ms - made_ms
    if passed < -interval_ms:  # a clock was wrong, once; nobody waits until it is right
        return True
    return passed >= interval_ms - min(tick_ms, interval_ms) // 2


def last_made(entries: Sequence[SnapshotEntry]) -> SnapshotEntry | None:
    """The newest snapshot that is no fold.

    Args:
        entries: the snapshots that count, newest first.
    """
    return next((one for one in entries if one.origin != FOLD), None)


def made_since(entries: Sequence[SnapshotEntry], upon: str | None) -> Reason | None:
    """Who has made the checkpoint that was due already, in words; ``None`` where nobody has, or it is wanted anyway.

    Args:
        entries: the snapshots that count, newest first.
        upon: what was the last one when it was found to be due (:attr:`Verdict.upon`); ``None`` where nobody looked.
    """
    last = last_made(entries)
    if last is None or upon in (None, last.snapshot):
        return None
    return Reason(
        f"Nothing was done: since this was found to be due, {last.snapshot} was made at {last.made}.",
        "made-by-another",
        snapshot=last.snapshot,
        made=last.made,
    )


def made_ms(entries: Sequence[SnapshotEntry], interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS) -> int | None:
    """When the newest snapshot was made that is no fold: when its ends were read, else when it was published.

    Where the two lie further apart than an interval, some task is quiet whose end nobody could be sure of since; where
    they lie the other way round, the clock of the machine that published is not the cluster's.

    Args:
        entries: the snapshots that count, newest first.
        interval_ms: between two checkpoints.

    Returns:
        In ms since the epoch; ``None`` where there is none.
    """
    entry = last_made(entries)
    if entry is None:
        return None
    published = moment(entry.made)
    made = 0 if published is None else int(published.timestamp() * 1000)
    return made if entry.cut_ms is None or not 0 <= made - entry.cut_ms <= interval_ms else entry.cut_ms


def look(
    shelf: ApplicationRepository,
    spec: ApplicationSpec,
    *,
    tick_ms: int = DEFAULT_TICK_MS,
    versioned: VersionedStart = VersionedStart.HISTORY,
    versioned_ms: int = DEFAULT_VERSIONED_MS,
    timeout: float = 10.0,
    clock: Callable[[], float] = time.time,
    cluster: Callable[..., Cluster] = Cluster,
) -> Verdict:
    """Look whether a checkpoint of an application is due.

    Args:
        shelf: its snapshots.
        spec: the application.
        tick_ms: between two looks, in ms.
        versioned: what the checkpoint will be asked to do with versioned stores.
        versioned_ms: how long it will leave them as they are, in ms.
        timeout: seconds that a broker may take.
        clock: seconds since the epoch.
        cluster: makes a client of the brokers.

    Raises:
        StatecoreError: nobody could look.
    """
    now_ms = int(clock() * 1000)
    found = shelf.read_head()
    newest = None if found is None else found.head.newest
    if found is None or newest is None:
        if (under_way := _under_way(shelf, now_ms)) is not None:
            return under_way
        with cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as brokers:
            _Asked.of(brokers, spec, versioned)  # else its task would wait for brokers that are away, at every tick
        return Verdict(True, Reason("it has no snapshot yet", "no-snapshot"), upon=NO_SNAPSHOT)
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
    if (under_way := _under_way(shelf, now_ms)) is not None:
        return under_way
    manifest = shelf.manifest(newest).value
    read = shelf.parts(manifest.parts)
    there = {(one.task, store.store): store for one in manifest.parts for store in read[one.task].part.stores}
    with cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as brokers:
        asked = _Asked.of(brokers, spec, versioned)
    since = "no checkpoint yet" if made is None else f"the last one was {_ago(made, now_ms)}, {every}"
    news = asked.news(there, now_ms - versioned_ms) or asked.age(manifest, there, now_ms)
    last = last_made(found.head.snapshots)
    upon = NO_SNAPSHOT if last is None else last.snapshot
    found_out = news or Reason("nothing is new", "nothing-new")
    why = Reason(
        f"{found_out}; {since}",
        found_out.code,
        **found_out.context,
        age_ms=None if made is None else now_ms - made,
        interval_ms=interval_ms,
    )
    return Verdict(news is not None, why, upon=upon)


def _under_way(shelf: ApplicationRepository, now_ms: int) -> Verdict | None:
    heard = heard_of(shelf, now_ms / 1000)
    if heard is None:
        return None
    return Verdict(False, Reason(f"one is under way, and said so {heard:.0f} s ago", "in-progress", heard_s=heard))


@dataclass(frozen=True)
class _Asked:
    """What the brokers say of an application."""

    spec: ApplicationSpec
    versioned: VersionedStart
    topics: Mapping[str, TopicDescription]
    stores: Mapping[Key, tuple[StoreSpec, frozenset[TopicPartition]]]
    ends: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int]

    @staticmethod
    def of(cluster: Cluster, spec: ApplicationSpec, versioned: VersionedStart) -> _Asked:
        declared = select_stores(spec)
        topics = cluster.describe_topics(sorted({store.changelog for store in declared}))
        stores: dict[Key, tuple[StoreSpec, set[TopicPartition]]] = {}
        for store, numbers in check_partitions(declared, topics).items():
            for number in numbers:
                partitions = stores.setdefault((task_of(store, number), store.name), (store, set()))[1]
                partitions.add(TopicPartition(store.changelog, number))
        frozen = {key: (store, frozenset(partitions)) for key, (store, partitions) in stores.items()}
        ends, log_ends = _ends(cluster, spec, frozen.values(), versioned)
        return _Asked(spec, versioned, topics, frozen, ends, log_ends)

    def news(self, there: Mapping[Key, StoreSnapshot], kept_since_ms: int) -> Reason | None:
        """What a checkpoint would find that the newest snapshot has not; ``None`` where nothing. Versioned stores that
        are younger than that moment it takes over as they are.
        """
        behind: dict[TopicPartition, int] = {}
        for (task, name), (declared, partitions) in self.stores.items():
            store = there.get((task, name))
            if store is None:
                return Reason(f"store {name} of task {task} is in no snapshot", "store-new", task=task, store=name)
            left = is_left(declared, self.versioned)
            if left != store.left_to_restore or differences(task, store, self.spec, empty=left):
                return Reason(
                    f"store {name} of task {task} is declared otherwise than it was",
                    "store-redeclared",
                    task=task,
                    store=name,
                )
            if left:
                continue
            known = {end.topic_partition: end for end in store.changelogs}
            if known.keys() != partitions:
                return Reason(
                    f"{declared.changelog} has other partitions than it had",
                    "partitions-changed",
                    topic=declared.changelog,
                )
            for part, end in known.items():
                now = self.topics[part.topic].topic_id
                if end.topic_id.strip("0") and now.strip("0") and end.topic_id != now:
                    return Reason(f"{part.topic} was created anew", "topic-recreated", topic=part.topic)
                if self.ends[part] != end.end and not _is_kept(store, kept_since_ms):
                    behind[part] = self.ends[part] - end.end
        if not behind:
            return None
        return Reason(
            f"{sum(behind.values()):,} offsets are new in {len(behind)} partitions",
            "offsets-new",
            offsets=sum(behind.values()),
            partitions=len(behind),
        )

    def age(self, manifest: Manifest, there: Mapping[Key, StoreSnapshot], now_ms: int) -> Reason | None:
        """Why a snapshot of which nothing is new is published all the same. Tasks behind whose ends something lies that
        a checkpoint does not read are none of it, because it could not say of them that nothing does.
        """
        horizon = shortest_horizon_ms(self.topics.values())
        quiet = {task for task, _ in self.stores} - {key[0] for key in self.stores if self._lags(there[key])}
        oldest = oldest_cut(manifest, quiet)
        if (lowered := self._lowered(manifest, quiet)) is not None:
            return Reason(
                f"nothing is new, and deletes are kept for {format_duration(lowered)} now, and were for longer",
                "retention-lowered",
                retention_ms=lowered,
            )
        if not quiet or not is_aged(oldest, now_ms, horizon):
            return None
        since = "nobody knows since when" if oldest is None else f"known {_ago(oldest, now_ms)}"
        return Reason(
            f"nothing is new, {since}, and deletes are kept for {format_duration(horizon or 0)}",
            "parent-age-unknown" if oldest is None else "parent-too-old",
            retention_ms=horizon,
        )

    def _lowered(self, manifest: Manifest, tasks: Collection[str]) -> int | None:
        """The time for which deletes are kept in changelogs of a task, where a snapshot says a longer one of it."""
        seen: dict[str, int] = {}
        for (task, _), (store, _) in self.stores.items():
            if task in tasks and not is_left(store, self.versioned):
                seen[task] = min(horizon_seen(self.topics[store.changelog]), seen.get(task, ENDLESS_MS))
        known = {part.task: part.horizon_ms for part in manifest.parts}
        lowered = (now for task, now in seen.items() if (then := known.get(task)) is not None and now < then)
        return min(lowered, default=None)

    def _lags(self, store: StoreSnapshot) -> bool:
        """Whether something lies behind the ends of a store."""
        return not store.left_to_restore and any(
            end.end < self.log_ends[end.topic_partition] for end in store.changelogs
        )


def _is_kept(store: StoreSnapshot, since_ms: int) -> bool:
    """Whether a checkpoint takes a store over as it is, because it is versioned, and young enough."""
    return store.kind.is_versioned and (store.cut_ms or 0) >= since_ms


def _ends(
    cluster: Cluster,
    spec: ApplicationSpec,
    stores: Collection[tuple[StoreSpec, frozenset[TopicPartition]]],
    versioned: VersionedStart,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where a checkpoint would stop to read now, and where the logs end."""
    read = {part for store, partitions in stores if not is_left(store, versioned) for part in partitions}
    sources = {part for store, partitions in stores if is_source(spec, store) for part in partitions} & read
    logs = cluster.log_offsets(read)
    committed = committed_offsets(cluster, spec.application_id, sources)
    log_ends = {part: end_of(log, spec.processing_guarantee) for part, log in logs.items()}
    seen = logs | {part: consumed(logs[part], committed[part]) for part in sources}
    return {part: end_of(log, spec.processing_guarantee) for part, log in seen.items()}, log_ends


def _ago(then_ms: int, now_ms: int) -> str:
    return f"{max(now_ms - then_ms, 0) / 1000:,.0f} s ago"


def beside_each_other(
    looks: Mapping[str, Callable[[], Verdict]],
    *,
    at_once: int = AT_ONCE,
    patience: float = LOOK_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Verdict]:
    """Look at many applications at a time. None of them keeps the others waiting, whatever becomes of it.

    Args:
        looks: by name, what looks at an application.
        at_once: how many are looked at at a time.
        patience: seconds that one may take; who takes longer is left to itself, and counts as an error.
        clock: monotonic seconds.

    Returns:
        The verdicts, in the same order.
    """
    answers: queue.SimpleQueue[tuple[str, Verdict]] = queue.SimpleQueue()
    waiting, under_way = deque(looks), dict[str, float]()
    found: dict[str, Verdict] = {}

    def answer(name: str) -> None:
        answers.put((name, _verdict(name, looks[name])))

    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            name = waiting.popleft()
            under_way[name] = clock() + patience
            # Nobody waits for one that hangs, not even the end of the process.
            threading.Thread(target=answer, args=(name,), name=f"look-{name}", daemon=True).start()
        try:
            name, verdict = answers.get(timeout=max(0.0, min(under_way.values()) - clock()))
        except queue.Empty:
            for late in [name for name, until in under_way.items() if until <= clock()]:
                del under_way[late]
                found[late] = _failed(_too_late(late, patience))
        else:
            if under_way.pop(name, None) is not None:
                found[name] = verdict
    return {name: found[name] for name in looks}


def _verdict(name: str, look: Callable[[], Verdict]) -> Verdict:
    try:
        return look()
    except Exception as error:
        return _failed(as_statecore_error(error, f"it was looked whether a checkpoint of {name} is due"))


def _failed(error: StatecoreError) -> Verdict:
    return Verdict(True, Reason(error.what, error.code, **error.context), error)


def _too_late(name: str, patience: float) -> Retryable:
    return Retryable(
        f"Nobody knows whether a checkpoint of {name} is due: to look took longer than {patience:g} s.",
        code="due-check-timeout",
        action="Look at its brokers and at the repository. It is looked at again at the next tick.",
        application_id=name,
    )
