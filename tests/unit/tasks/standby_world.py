"""A standby task over a changelog in memory, from which records can be taken as retention and compaction take them.

``python -m tests.unit.tasks.standby_world STATE_DIR POINT NTH`` reads :func:`with_gaps` for the first time, and dies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from statecore.changelog.cluster import Cluster
from statecore.changelog.decoder import CHANGELOG_SCHEMA
from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, ReadStatistics, TopicDescription
from statecore.errors import Reason
from statecore.faults import NO_FAULTS, FaultPoints, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.changelog_ends import ChangelogEnd, uptime_ms
from statecore.tasks.standby_task import RoundResult, StandbySettings, StandbyTask
from statecore.tasks.task_stores import TaskStores

APPLICATION, STORE, TASK = "app", "plain", "0_0"
CHANGELOG = TopicPartition("app-plain-changelog", 0)
DAY_MS = 86_400_000


def changelog_of(store: str) -> TopicPartition:
    """The changelog of a store."""
    return TopicPartition(f"{APPLICATION}-{store}-changelog", 0)


def spec_of(*stores: StoreSpec, exactly_once: bool = False) -> ApplicationSpec:
    """An application with these stores, or with one that is one database."""
    guarantee = ProcessingGuarantee.EXACTLY_ONCE_V2 if exactly_once else ProcessingGuarantee.AT_LEAST_ONCE
    return ApplicationSpec(APPLICATION, "nowhere:9092", guarantee, stores or (store_of(STORE),), ())


def store_of(name: str, kind: StoreKind = StoreKind.KEY_VALUE, *, logged: bool = True) -> StoreSpec:
    """A declared store."""
    retention = 600_000 if kind.is_segmented or kind.is_versioned else None
    return StoreSpec(name, kind, 0, changelog_of(name).topic if logged else "none", retention_ms=retention)


@dataclass
class Log:
    """The changelog of the store.

    Attributes:
        records: what is there, by offset.
        start: where the log begins.
        end: where it ends.
        topic_id: of its topic.
        configs: of its topic.
    """

    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    topic_id: str = "1" * 32
    configs: dict[str, str] = field(default_factory=lambda: {"cleanup.policy": "compact,delete"})

    def put(self, key: str, value: str | None) -> int:
        """Append a record."""
        self.records[self.end] = key.encode(), None if value is None else value.encode()
        self.end += 1
        return self.end - 1

    def ends(self, now_ms: int) -> dict[TopicPartition, ChangelogEnd]:
        """What the brokers tell."""
        topic = TopicDescription(CHANGELOG.topic, self.topic_id, 1, self.configs)
        return {CHANGELOG: ChangelogEnd(self.end, LogOffsets(self.start, self.end, self.end, 1), topic, None, now_ms)}


@dataclass
class Reader:
    """Reads it, as :class:`statecore.changelog.reader.ChangelogReader` does."""

    log: Log
    before: Callable[[OffsetRange], None] = lambda _: None
    spans: list[tuple[int, int]] = field(default_factory=list)
    statistics: ReadStatistics = field(default_factory=ReadStatistics)

    def read(
        self, span: OffsetRange, isolation: IsolationLevel, *, headers: bool, topic_id: str
    ) -> Iterator[pa.RecordBatch]:
        """One batch with all that is there."""
        self.before(span)
        self.spans.append((span.start, span.end))
        offsets = [at for at in sorted(self.log.records) if max(span.start, self.log.start) <= at < span.end]
        rows = {
            "key": [self.log.records[at][0] for at in offsets],
            "value": [self.log.records[at][1] for at in offsets],
            "offset": offsets,
            "timestamp": [0 for _ in offsets],
        }
        yield pa.RecordBatch.from_pydict(rows, schema=CHANGELOG_SCHEMA)
        self.statistics = ReadStatistics(
            records=len(offsets),
            position=span.end,
            log_start_moved_to=self.log.start if span.start < self.log.start else None,
            removed=span.end - span.start - len(offsets),
        )


class World:
    """A directory, its log, and the task that follows it.

    Attributes:
        log: the changelog.
        now: seconds since the epoch.
    """

    def __init__(self, state_dir: Path, spec: ApplicationSpec | None = None, faults: FaultPoints = NO_FAULTS) -> None:
        self.directory = StateDirectory(state_dir, APPLICATION)
        self.spec = spec or spec_of()
        self.log = Log()
        self.now, self.tells_time = 1_000_000.0, True
        self.faults = faults
        self.reader = Reader(self.log)

    def stores(self) -> TaskStores:
        """The stores, closed."""
        return TaskStores(self.spec, self.directory, TASK, faults=self.faults, now=lambda: self.now)

    def task(self, piece_offsets: int = 2_000_000, uptime: Callable[[], int] = uptime_ms) -> StandbyTask:
        """The task, closed."""
        settings = StandbySettings(batch_offsets=piece_offsets)
        made = StandbyTask(self.stores(), cast(Cluster, self), IsolationLevel.READ_UNCOMMITTED, settings, uptime=uptime)
        made._reader = cast(Any, self.reader)
        return made

    def time_ms(self) -> int | None:
        """As :meth:`Cluster.time_ms`."""
        return int(self.now * 1000) if self.tells_time else None

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """As :meth:`Cluster.describe_topics`."""
        topic = TopicDescription(CHANGELOG.topic, self.log.topic_id, 1, self.log.configs)
        return dict.fromkeys(names, topic)

    def follow(self, task: StandbyTask, stopped: Callable[[], bool] = lambda: False) -> RoundResult:
        """One round to the end of the log."""
        return task.follow(self.log.ends(int(self.now * 1000)), stopped)

    def compact(self, *offsets: int) -> None:
        """Take records out of the log."""
        for offset in offsets:
            del self.log.records[offset]


def rows_of(task: StandbyTask, store: str = STORE) -> Mapping[bytes, bytes]:
    """The rows of a store that is one database."""
    (database,) = task.stores.store(store)._databases.values()
    return {key: value for keys, values in database.scan_lists() for key, value in zip(keys, values, strict=True)}


def with_gaps(world: World) -> None:
    """A changelog of 30 offsets, of which compaction has taken some of every ten."""
    for number in range(30):
        world.log.put(f"k{number % 7}", None if number == 27 else f"v{number}")
    world.compact(3, 12, 13, 14, 21)


def main(state_dir: Path, point: str, nth: int) -> None:
    """Die at a fault point in pieces of ten offsets."""
    world = World(state_dir, faults=InjectedFault(point, "kill", nth))
    with_gaps(world)
    with world.directory.lock():
        task = world.task(piece_offsets=10)
        task.open()
        world.follow(task)
    raise SystemExit(f"{point} was not reached")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))


def code_of(why: str) -> str:
    """The code of why a store is stale."""
    assert isinstance(why, Reason)
    return why.code


def stop_after(pieces: int) -> Any:
    """Asked once before the first piece, and after each."""
    asked = iter(range(pieces + 1))
    return lambda: next(asked, None) == pieces
