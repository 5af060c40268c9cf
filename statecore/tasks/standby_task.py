"""A standby task: its stores follow their changelogs, one round at a time.

A round reads the records between each store's offset and the end that the caller got from the brokers, in batches.
Each batch becomes a run, which is ingested and committed. When to run a round is the caller's business.

Before a store is advanced, it is validated whether that may be done at all (:mod:`statecore.changelog.soundness`), and
after each batch whether records were missing. A store whose rows cannot be continued is left as it is and is stale: it
has to be emptied (:meth:`StandbyTask.rebuild`). A recreated topic may also mean another cluster, so that is a failure
for an operator. The other stores of the task go on either way.
"""

from __future__ import annotations

import statecore.extras.pipeline

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import recorded_retention_ms, with_shorter_retention
from statecore.changelog.model import OffsetRange, ReadStatistics
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.changelog.soundness import BaseEnd, missed_deletes, refusal, start_moved
from statecore.errors import Invalid, Reason, StatecoreError
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.registry import row_format
from statecore.formats.topic_partition import TopicPartition, is_known_topic_id, is_same_topic
from statecore.images.runs import RunBuilder
from statecore.isolation import IsolationLevel
from statecore.statedir.work_directory import STANDBY_LOGS
from statecore.tasks.changelog_ends import ChangelogEnd, LocalAges, uptime_ms
from statecore.tasks.checkpoint_policy import CheckpointPolicy, CheckpointSettings
from statecore.tasks.standby_log_state import StandbyLogStates
from statecore.tasks.standby_store import StandbyStore
from statecore.tasks.task_offsets import NextReader
from statecore.tasks.task_stores import TaskStores, translated_errors


@dataclass(frozen=True)
class StandbySettings:
    """How a standby task reads.

    Attributes:
        memory_bytes: memory for records of one store before they go to the disk, in bytes.
        batch_offsets: offsets to read before their rows are ingested and committed.
        timeout: seconds without progress after which a broker counts as unreachable.
    """

    memory_bytes: int = 64 << 20
    batch_offsets: int = 2_000_000
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if self.memory_bytes < 1 or self.batch_offsets < 1 or self.timeout <= 0:
            raise Invalid(
                "A standby task needs memory, offsets to read and time.",
                code="setting-invalid",
                action="Give positive numbers.",
            )


@dataclass(frozen=True)
class FollowResult:
    """What one round did with one changelog.

    Attributes:
        start: the store's position before.
        end: the store's position after.
        records: records read.
    """

    start: int
    end: int
    records: int


@dataclass(frozen=True)
class RoundResult:
    """Result of one round of a task.

    Attributes:
        followed: by changelog what was applied, of stores that had something to apply.
        stale: by store why its rows cannot be continued, and have to be rebuilt.
        failed: by store the error that stopped it.
        skipped: stores that the round had no time for, or whose ends were not given.
    """

    followed: Mapping[TopicPartition, FollowResult] = field(default_factory=dict)
    stale: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, StatecoreError] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()

    @property
    def records(self) -> int:
        """Records read."""
        return sum(one.records for one in self.followed.values())


class StandbyTask:
    """The open stores of a task, and the changelogs that they follow; for one thread.

    Args:
        stores: the stores of the task; :meth:`open` opens them.
        cluster: the cluster with the changelogs.
        isolation: how they are read.
        settings: how much is read at once.
        checkpoints: how often ``.checkpoint`` is written.
    """

    def __init__(
        self,
        stores: TaskStores,
        cluster: Cluster,
        isolation: IsolationLevel,
        settings: StandbySettings = StandbySettings(),
        *,
        checkpoints: CheckpointSettings | None = None,
        uptime: Callable[[], int] = uptime_ms,
    ) -> None:
        self.stores, self._uptime_ms = stores, uptime
        self._cluster = cluster
        self._reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=settings.timeout))
        self._isolation = isolation
        self._settings = settings
        self._policy = CheckpointPolicy(checkpoints or CheckpointSettings())
        self._logs = StandbyLogStates(stores.work_path / STANDBY_LOGS)
        self._ends: dict[TopicPartition, int] = {}
        self._latest_ends: dict[TopicPartition, ChangelogEnd] = {}
        self._local_ages = LocalAges()
        self._discardable: set[str] = set()
        """Stale stores whose rows are all in the log, or that were never read to the end: nothing is lost with them."""
        self._failed: frozenset[str] = frozenset()
        """Stores that failed in the last round that reached them."""
        self._is_recycled = False

    @property
    def name(self) -> str:
        """The task id: ``0_1``."""
        return self.stores.name

    def open(self) -> None:
        """Open the stores; see :meth:`TaskStores.open`. After :meth:`close` it opens them again, at their offsets."""
        self._logs.read(store.changelog for store in self.stores.stores)
        self.stores.open()
        self._ends.clear()
        self._local_ages.clear()
        self._discardable.clear()
        self._policy.restart()

    @property
    def is_open(self) -> bool:
        """Whether the task is open. One that an error has closed may be opened again."""
        return self.stores.is_open

    def offsets(self) -> dict[TopicPartition, int]:
        """The last applied offset of each changelog of the task; -4 where nothing was applied."""
        return self.stores.offsets()

    def epochs(self) -> dict[TopicPartition, int]:
        """The leader epochs whose ends the brokers have to be asked for, by changelog."""
        return self._logs.epochs()

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each store is behind the end of the last round; empty before the first one."""
        return {
            store.changelog: max(0, self._ends[store.changelog] - store.position)
            for store in self.stores.stores
            if store.changelog in self._ends
        }

    def follow(
        self, ends: Mapping[TopicPartition, ChangelogEnd], stopped: Callable[[], bool] = lambda: False
    ) -> RoundResult:
        """Bring every store to the end of its changelog and commit it; that with the least to read first.

        Args:
            ends: of the changelogs, as just told by the brokers; stores of others are passed over.
            stopped: called between two batches: whether the round is to end early.

        Returns:
            What was applied, and which stores could not go on. A store that fails does not stop the others; one that
            failed in an earlier round is opened again, where it was closed.

        Raises:
            Invalid: the stores were given away (:meth:`recycle`).
            Fenced: the application's lock was lost.
            Invalid, Capacity, Retryable: ``.checkpoint``, or the changelog states, cannot be written.
        """
        self._check_not_recycled()
        self.stores.check_locked()
        followed: dict[TopicPartition, FollowResult] = {}
        stale: dict[str, str] = {}
        failed: dict[str, StatecoreError] = {}
        skipped = {store.name for store in self.stores.stores}
        for store, now in self._shortest_tail_first(ends):
            if stopped():
                break
            skipped.discard(store.name)
            self._ends[store.changelog] = now.end
            self._latest_ends[store.changelog] = now
            start, records = store.position, 0
            why: str | None = None
            self._discardable.discard(store.name)
            try:
                self.stores.reopen(store.name)
                start = store.position
                why = self._refuse(store, now)
                if why is None:
                    for read in self._apply_batches(store, now):
                        if isinstance(read, str):
                            why = read
                            break
                        records += read.records
                        if stopped():
                            break
            except StatecoreError as error:
                failed[store.name] = error
            if why is not None:
                stale[store.name] = why
            if store.position > start:
                followed[store.changelog] = FollowResult(start, store.position, records)
        self._failed = frozenset(failed) | (self._failed & skipped)
        self.stores.check_locked()
        self._logs.write()
        if self._policy.due:
            self.stores.checkpoint()
            self._policy.restart()
        return RoundResult(followed, stale, failed, frozenset(skipped))

    def _shortest_tail_first(
        self, ends: Mapping[TopicPartition, ChangelogEnd]
    ) -> list[tuple[StandbyStore, ChangelogEnd]]:
        """Stores with known ends, short tails first, so that a stop in a long one has had them; failed ones last."""
        found = [(store, ends[store.changelog]) for store in self.stores.stores if store.changelog in ends]
        return sorted(
            found,
            key=lambda one: (one[0].name in self._failed, one[1].end - max(one[0].position, one[1].log.log_start)),
        )

    def rebuild(self, store: str) -> None:
        """Empty a store; the next round reads its changelog from the start.

        Its rows are moved aside and kept for a week (``.statecore/stale``), unless the round has found that the
        changelog has all of them.

        Raises:
            NotFound: there is no such store.
            Invalid, Capacity, Retryable: it could not be emptied, or the stores were given away.
        """
        self._check_not_recycled()
        self.stores.faults.reach("standby.before-reset")
        self.stores.reset(store, discard=store in self._discardable)
        self._discardable.discard(store)
        self.stores.faults.reach("standby.after-reset")
        # Last: after a kill before the store is empty, it must be found stale again.
        self._logs.forget(self.stores.store(store).changelog)
        self._logs.write()

    def record_ends(self, ends: Mapping[TopicPartition, ChangelogEnd]) -> None:
        """Record the brokers' ends of changelogs that another task writes; see :meth:`read_committed_offsets`."""
        self._latest_ends |= ends

    def read_committed_offsets(self) -> None:
        """Read the offsets that a writer of the changelogs has committed to the databases of the stores.

        The changelog states are written to the disk with ``.checkpoint``, when that is due, or by :meth:`recycle`. No
        other writer's records are beyond the new offsets, so none were when the brokers were last asked
        (:meth:`follow`, :meth:`record_ends`).

        Raises:
            Invalid: the stores were given away, or are not open.
            Fenced: the application's lock was lost.
            Invalid, Capacity: a file cannot be written.
        """
        self._check_not_recycled()
        self.stores.check_locked()
        for store in self.stores.stores:
            before, known = store.position, self._logs.end_of(store.changelog, store.position, store.identities)
            store.read_committed_offset()
            if store.position:
                epoch = known.leader_epoch if store.position == before else -1
                seen = self._latest_ends.get(store.changelog)
                age = (None, None) if seen is None else (seen.read_at_ms, seen.delete_retention_ms)
                end = BaseEnd(store.changelog, known.topic_id, store.position, epoch, *age)
                self._logs.record_end(end, store.identities)
        if self._policy.due:
            self._logs.write()
            self.stores.checkpoint()
            self._policy.restart()

    def recycle(self) -> TaskStores:
        """Give the open stores away, to an active task or another standby; nothing is closed, and no lock is released.

        Between two calls of :meth:`follow` nothing is half applied, so there is nothing to finish. Afterwards this task
        follows nothing, and its :meth:`close` leaves the stores alone.

        Returns:
            The stores, each at its last commit.

        Raises:
            Invalid: they were given away before.
            Fenced: the application's lock was lost; they were not given away.
            Invalid, Capacity: the changelog states cannot be written; they were not given away.
        """
        self._check_not_recycled()
        self.stores.check_locked()
        self._logs.write()
        self._is_recycled = True
        return self.stores

    def close(self, next_reader: NextReader = NextReader.KAFKA_STREAMS_4_3) -> None:
        """Close the stores; see :meth:`TaskStores.close`. Does nothing where they were given away."""
        if not self._is_recycled:
            self.stores.close(next_reader)

    def _check_not_recycled(self) -> None:
        if self._is_recycled:
            raise Invalid(
                f"The stores of task {self.name} were given to another task; this standby task has none.",
                code="stores-recycled",
                action="Use the other task.",
                task=self.name,
            )

    def _refuse(self, store: StandbyStore, now: ChangelogEnd) -> str | None:
        """Why the rows of a store cannot be continued. Raises ``Invalid`` where an operator has to decide."""
        if store.offset is None:
            if other_changelogs := ", ".join(map(str, store.other_changelogs)):
                raise Invalid(
                    f"Store {store.name} of task {self.name} has offsets of {other_changelogs}, and its changelog is "
                    f"{store.changelog}.",
                    code="changelog-mismatch",
                    action="Correct the spec, or put the directory back where it belongs; or move the store's "
                    "directory away: it is rebuilt.",
                    task=self.name,
                    store=store.name,
                    topic=store.changelog.topic,
                    partition=store.changelog.partition,
                )
            return f"it has rows, and it is unknown up to which offset of {store.changelog}"
        if store.offset == OFFSET_UNKNOWN:
            if not store.has_rows:
                return None
            if self._logs.has_started(store.changelog, store.identities):
                self._discardable.add(store.name)
            return "a process was killed before it had committed its first rows"
        if self._logs.is_damaged(store.changelog):
            what = f"the record of its changelog is damaged, so it is unknown of which {store.changelog} its rows are"
            return Reason(what, "changelog-record-damaged")
        end = self._logs.end_of(store.changelog, store.position, store.identities)
        why = refusal(end, now.topic, now.log, now.epoch_end if end.leader_epoch >= 0 else None)
        if why is None:
            return None
        is_known = is_known_topic_id(end.topic_id) and is_known_topic_id(now.topic.topic_id)
        if is_same_topic(end.topic_id, now.topic.topic_id) and (is_known or now.log.log_start > end.end):
            return why
        raise Invalid(
            f"Store {store.name} of task {self.name} cannot follow {store.changelog}: {why}.",
            code="changelog-replaced",
            action="Check that this is the right cluster. If it is, move the store's directory away: it is rebuilt.",
            task=self.name,
            store=store.name,
            topic=store.changelog.topic,
            partition=store.changelog.partition,
            offset=store.offset,
            reason=why.code,
        )

    def _apply_batches(self, store: StandbyStore, now: ChangelogEnd) -> Iterable[ReadStatistics | str]:
        """Read and apply batch after batch; yields statistics of each read, or at last why it cannot be applied."""
        known = self._logs.end_of(store.changelog, store.position, store.identities)
        if store.position >= now.end:
            self._save_end(store, now, known)
            return
        is_first = store.offset == OFFSET_UNKNOWN
        if is_first:
            began = BaseEnd(store.changelog, now.topic.topic_id, 0, -1, now.read_at_ms, now.delete_retention_ms)
            self._logs.record_end(began, store.identities)
            self._logs.write()
            self._local_ages.observe(now, store.changelog, is_at_end=True)
            known = replace(began, end=now.log.log_start)
        read: list[ReadStatistics] = []
        while store.position < now.end:
            self.stores.check_locked()
            start = min(max(store.position, now.log.log_start), now.end) if is_first else store.position
            end = min(now.end, start + self._settings.batch_offsets)
            with translated_errors(self.name, store.name, "could not be advanced"):
                builder = self._read(store, now, start, end)
                if start < end:
                    read.append(self._reader.statistics)
                why = self._why_unsound(store, now, known, read, is_first=is_first)
                if why is not None:
                    yield why
                    return
                runs = builder.finish(end)
            self.stores.apply(store.name, runs, end, builder.statistics.stream_time)
            self._save_end(store, now, known)
            self._logs.write()
            if read:
                yield read[-1]

    def _read(self, store: StandbyStore, now: ChangelogEnd, start: int, end: int) -> RunBuilder:
        """Read a batch into runs. Raises ``OSError`` besides our own errors."""
        scratch = self.stores.scratch / "runs"
        with suppress(FileNotFoundError):
            shutil.rmtree(scratch)
        scratch.mkdir(parents=True)
        builder = RunBuilder(
            store.spec.kind,
            scratch,
            memory_budget=self._settings.memory_bytes,
            base=store.base_databases,
            segmentation=store.spec.segmentation,
            changelog=store.changelog,
            store=store.name,
            start=start,
            stream_time=store.stream_time,
        )
        if start < end:
            span = OffsetRange(store.changelog.topic, store.changelog.partition, start, end)
            headers = row_format(store.spec.kind).needs_headers
            for batch in self._reader.read(span, self._isolation, headers=headers, topic_id=now.topic.topic_id):
                builder.add(batch)
        return builder

    def _why_unsound(
        self, store: StandbyStore, now: ChangelogEnd, known: BaseEnd, read: list[ReadStatistics], *, is_first: bool
    ) -> str | None:
        """Why what was read cannot be applied. In a store's first batch there are no rows that could miss a delete."""
        moved = start_moved(known, read)
        appended = read[1:] if is_first else read
        why = moved
        if moved is None and any(one.removed for one in appended):
            finished_ms = self._cluster.time_ms()
            if finished_ms is None or known.delete_retention_ms is None:
                known, finished_ms = self._local_ages.with_local_age(known), self._uptime_ms()
            topics = {now.topic.name: now.topic}
            topic = with_shorter_retention(topics, self._cluster.describe_topics(topics))[now.topic.name]
            why = missed_deletes(known, topic, appended, finished_ms)
        if why is not None and (is_first or (moved is None and now.log.log_start == 0)):
            self._discardable.add(store.name)
        return why

    def _save_end(self, store: StandbyStore, now: ChangelogEnd, known: BaseEnd) -> None:
        """Save what is known of the store's position. A log is not compacted beyond its last stable offset."""
        read_at_ms, delete_retention_ms = known.read_at_ms, known.delete_retention_ms
        self._local_ages.observe(now, store.changelog, is_at_end=store.position >= now.log.last_stable)
        if store.position >= now.log.last_stable and now.read_at_ms is not None:
            read_at_ms, delete_retention_ms = now.read_at_ms, now.delete_retention_ms
        elif delete_retention_ms is not None:
            delete_retention_ms = min(delete_retention_ms, recorded_retention_ms(now.topic))
        if store.position:
            epoch = now.log.leader_epoch
            end = BaseEnd(store.changelog, now.topic.topic_id, store.position, epoch, read_at_ms, delete_retention_ms)
            self._logs.record_end(end, store.identities)
