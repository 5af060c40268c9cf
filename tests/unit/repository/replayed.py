"""Stores of rows that are known, and jobs that publish them above one another: what a replay of the changelog has must
equal a snapshot, in any order of publications.

A changelog is a list of records for each partition, and a run is what it left of a range: key → value, or ``None`` for
a delete. A record has a time where the store has segments, and lies in the segment of that time. Jobs are planned upon
the newest snapshot, and publish later, when others may have published:

- a *checkpoint* puts runs above its base. It leaves deletes out where its base has no database, and databases that
  have expired by the latest time that it has seen;
- a *rebuild* makes all runs anew, perhaps of a log that was compacted, where the latest time may be missing;
- a *directory* is published as base files, whose latest time is unknown;
- a *compaction* makes one run of some, without deletes where nothing lies below, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby, pairwise
from random import Random

from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import first_live_segment
from statecore.images.model import Run, RunFormat, StoreDigest, segment_order
from statecore.repository.identity import store_identity
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.repository.publish.rebase import Compaction, rebase_advance, rebase_compaction
from statecore.repository.task_manifest_validation import contradictions_in

TOPIC = "orders-left-changelog"
INTERVAL_MS = 10
RETENTIONS_MS = (10, 20, 25)
_JOBS = ("checkpoint", "checkpoint", "checkpoint", "compaction", "compaction", "compaction", "rebuild", "directory")

Row = tuple[int, str]
"""Partition and key."""
Rows = dict[Row, int | None]
"""Values; ``None`` for a delete."""
Segment = int | None
Ends = dict[int, int]
"""End by partition."""


@dataclass(frozen=True)
class Record:
    """A record of a changelog; ``value`` is ``None`` for a delete, and ``time`` is -1 where no row expires."""

    key: str
    value: int | None
    time: int

    @property
    def segment(self) -> Segment:
        """Where it lies."""
        return None if self.time < 0 else self.time // INTERVAL_MS


@dataclass(frozen=True)
class Job:
    """Something that was planned: the newest store then, and how far it goes."""

    kind: str
    base: StoreSnapshot | None
    ends: Ends
    compactions: tuple[Compaction, ...] = ()


@dataclass
class History:
    """One store, and everything that becomes of it.

    Attributes:
        chance: what decides.
        met: what happened, and how often.
    """

    chance: Random
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.shape = self.chance.choice(("plain", "plain", "segments", "segments", "segments", "global"))
        self.retention_ms = self.chance.choice(RETENTIONS_MS) if self.shape == "segments" else None
        self.logs: dict[int, list[Record]] = {number: [] for number in range(2 if self.shape == "global" else 1)}
        self.rows: dict[str, Rows] = {}
        self.newest: StoreSnapshot | None = None
        self._values = 0
        self._time = 20
        self._jobs: list[Job] = []

    def run(self, steps: int) -> None:
        """Let everything happen."""
        self._grow()
        for _ in range(steps):
            self.chance.choice((self._grow, self._plan, self._plan, self._publish, self._publish))()
        while self._jobs:
            self._publish()

    def _grow(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            time = -1
            if self.shape == "segments":
                time = max(0, self._time + self.chance.choice((-25, -15, -10, -5, 0, 0, 3, 5, 10)))
                self._time = max(self._time, time)
            self._values += 1
            value = None if self.chance.random() < 0.5 else self._values
            self.logs[self.chance.choice(list(self.logs))].append(Record(self.chance.choice("ab"), value, time))

    def _plan(self) -> None:
        kind = self.chance.choice(_JOBS)
        if self.newest is None:
            kind = "rebuild"
        if self.shape == "global" and kind == "directory":
            kind = "rebuild"
        ends = {number: len(log) for number, log in self.logs.items()}
        if self.newest is not None and kind in ("rebuild", "directory") and self.chance.random() < 0.7:
            ends = ends_of(self.newest)
        compactions = self._compactions(self.newest) if kind == "compaction" and self.newest is not None else ()
        if kind != "compaction" or compactions:
            self._jobs.append(Job(kind, self.newest, ends, compactions))

    def _compactions(self, store: StoreSnapshot) -> tuple[Compaction, ...]:
        """Some runs of each database, side by side and of one partition, become one."""
        made = []
        for database in store.databases:
            at = 0
            for _, group in groupby(database.runs, lambda stored: stored.run.partition):
                runs = list(group)
                if len(runs) > 1 and self.chance.random() < 0.8:
                    first = self.chance.choice((0, self.chance.randrange(len(runs) - 1)))
                    behind = self.chance.choice((len(runs), self.chance.randint(first + 2, len(runs))))
                    is_lowest = at + first == 0 and not database.base
                    inputs = [stored.run for stored in runs[first:behind]]
                    rows = without_deletes(self._merged(inputs)) if is_lowest else self._merged(inputs)
                    one = inputs[0]
                    output = self._stored(database.segment, one.partition, one.start, inputs[-1].end, rows)
                    self.met["a compaction has left nothing"] += output is None
                    made.append(Compaction(store.store, database.segment, tuple(inputs), output, is_lowest))
                at += len(runs)
        return tuple(made)

    def _publish(self) -> None:
        """One of the jobs publishes what it has made, as :class:`Others` has it."""
        if not self._jobs:
            return
        job = self._jobs.pop(self.chance.randrange(len(self._jobs)))
        theirs = self.newest
        if job.kind == "compaction":
            assert theirs is not None
            done = rebase_compaction(job.compactions, TaskManifest(self.task, (theirs,)))
            self.met["compaction: " + ("nothing" if done is None else "published")] += 1
            if done is not None:
                self._take(done, theirs)
            return
        mine = self._made(job)
        if job.kind in ("rebuild", "directory") and self.chance.random() < 0.7:  # beside nobody
            if theirs == job.base and not is_ahead(ends_of(theirs), ends_of(mine)):
                self.met[f"{job.kind}: in their place"] += 1
                self._take(TaskManifest(self.task, (mine,)), theirs)
            return
        base = TaskManifest(self.task, () if job.base is None else (job.base,))
        if theirs is None:
            self._take(TaskManifest(self.task, (mine,)), None)
            return
        try:
            done = rebase_advance(TaskManifest(self.task, (mine,)), TaskManifest(self.task, (theirs,)), base)
        except Fenced:
            assert job.kind != "checkpoint" or ends_of(theirs) != ends_of(job.base), "it stood upon the same offsets"
            self.met[f"{job.kind}: fenced"] += 1
            return
        if done is None:
            assert not is_ahead(ends_of(mine), ends_of(theirs)), "it was told that nothing was left, and had more"
            self.met[f"{job.kind}: nothing"] += 1
            return
        if is_ahead(ends_of(theirs), ends_of(done.stores[0])):
            return  # which ``Others`` refuses
        self._count(job, mine, theirs, done.stores[0])
        self._take(done, theirs)

    def _count(self, job: Job, mine: StoreSnapshot, theirs: StoreSnapshot, done: StoreSnapshot) -> None:
        self.met[f"{job.kind}: {'as it was made' if done == mine else 'above theirs'}"] += 1
        if done == mine or job.base is None:
            return
        known, there, made, now = ({one.segment for one in of.databases} for of in (job.base, theirs, mine, done))
        for segment in known | there | made:
            of = "".join(letter for letter, one in zip("ptm", (known, there, made), strict=True) if segment in one)
            self.met[f"above {self.shape}: {of}{' stays' if segment in now else ' goes'}"] += 1
        self.met["above a base"] += any(one.base for one in theirs.databases)

    def _take(self, task_manifest: TaskManifest, before: StoreSnapshot | None) -> None:
        """Look at what was published."""
        (store,) = task_manifest.stores
        assert contradictions_in(task_manifest) == []
        self._check(store)
        assert before is None or not is_ahead(ends_of(before), ends_of(store)), "it goes back"
        self.newest = store

    def _check(self, store: StoreSnapshot) -> None:
        """A store has what the changelog says."""
        found = {one.segment: self._rows_of(one) for one in store.databases}
        wanted, latest = self._replayed(ends_of(store))
        segments = [one.segment for one in store.databases]
        assert segments == sorted(segments, key=segment_order), "databases are in order"
        assert all(one.runs or one.base for one in store.databases), "no database is empty"
        if store.stream_time is None:  # who knows the time less than well may have what has expired, and less of it
            live = {segment for segment in wanted | found if is_live(segment, latest, self.retention_ms)}
        else:
            assert store.stream_time <= latest
            live = {one for one in wanted | found if is_live(one, store.stream_time, self.retention_ms)}
            assert set(segments) <= live, "no database has expired"
        for segment in live:
            assert found.get(segment, {}) == wanted.get(segment, {}), f"the rows of {segment}"
        together = {(segment, *row): value for segment, rows in found.items() for row, value in rows.items()}
        assert store.content in (None, content_of(together)), "what it says of its rows"
        segment = None if self.retention_ms is None else max(store.stream_time or 0, 0) // INTERVAL_MS
        assert store.identity == store_identity(store.kind, store.databases, store.offsets, segment)

    @property
    def task(self) -> str:
        """The task of the store."""
        return "global" if self.shape == "global" else "0_0"

    def _replayed(self, ends: Ends) -> tuple[dict[Segment, Rows], int]:
        """The rows of each segment after all records up to some ends, expired or not, and the latest time."""
        rows: dict[Segment, Rows] = {}
        latest = -1
        for number, end in ends.items():
            for record in self.logs[number][:end]:
                rows.setdefault(record.segment, {})[number, record.key] = record.value
                latest = max(latest, record.time)
        return {segment: without_deletes(of) for segment, of in rows.items()}, latest

    def _made(self, job: Job) -> StoreSnapshot:
        """What a job makes."""
        if job.kind == "directory":
            return self._directory(job)
        base = job.base if job.kind == "checkpoint" else None
        compacts = base is None and self.chance.random() < 0.4
        databases = {one.segment: one for one in (() if base is None else base.databases)}
        begun = ends_of(base) if base is not None else dict.fromkeys(self.logs, 0)
        latest = -1 if base is None else seen(base)
        for number, end in job.ends.items():
            start = begun[number]
            cuts = [start, *sorted(self.chance.sample(range(start + 1, end), max(0, min(end - start - 1, 2)))), end]
            for first, behind in pairwise(cuts) if start < end else ():
                records = self._read(number, first, behind, end, compacts=compacts)
                latest = max([latest, *(record.time for record in records)])
                for segment in sorted({record.segment for record in records}, key=segment_order):
                    rows: Rows = {(number, one.key): one.value for one in records if one.segment == segment}
                    below = databases.get(segment, StoredDatabase(segment, ()))
                    is_first = not below.runs and not below.base
                    run = self._stored(segment, number, first, behind, without_deletes(rows) if is_first else rows)
                    if run is not None:
                        runs = sorted((*below.runs, run), key=lambda stored: stored.run.partition)
                        databases[segment] = replace(below, runs=tuple(runs))
        is_known = base is None or base.stream_time is not None
        kept = [one for segment, one in databases.items() if is_live(segment, latest, self.retention_ms)]
        return self._store(kept, job.ends, latest if is_known else None)

    def _read(self, number: int, first: int, behind: int, end: int, *, compacts: bool) -> list[Record]:
        """Records of a range; of a compacted log the last of each key, and no deletes."""
        log = self.logs[number]
        if not compacts:
            return log[first:behind]
        last = {(record.key, record.segment): offset for offset, record in enumerate(log[:end])}
        return [log[at] for at in range(first, behind) if at in last.values() and log[at].value is not None]

    def _directory(self, job: Job) -> StoreSnapshot:
        """A state directory: files, and no runs."""
        wanted, latest = self._replayed(job.ends)
        databases = []
        for segment, rows in sorted(wanted.items(), key=lambda item: segment_order(item[0])):
            if is_live(segment, latest, self.retention_ms) and (rows or self.chance.random() < 0.5):
                name = self._digest(["base", segment, *job.ends.values(), self.chance.randrange(2), rows])
                self.rows[name] = rows
                databases.append(StoredDatabase(segment, (), (BaseFile("1.sst", name, Extent("b", 0, 10)),)))
        return self._store(databases, job.ends, -1 if self.retention_ms is None else None)

    def _store(self, databases: Iterable[StoredDatabase], ends: Ends, stream_time: int | None) -> StoreSnapshot:
        made = tuple(sorted(databases, key=lambda one: segment_order(one.segment)))
        rows = {(one.segment, *row): value for one in made for row, value in self._rows_of(one).items()}
        content = content_of(rows) if self.chance.random() < 0.5 else None
        kind = StoreKind.KEY_VALUE if self.retention_ms is None else StoreKind.WINDOW
        is_global = self.shape == "global"
        changelogs = tuple(
            StoredEnd(TOPIC, number, "0" * 32, end if is_global else end - 1, end) for number, end in ends.items()
        )
        segment = None if self.retention_ms is None else max(stream_time or 0, 0) // INTERVAL_MS
        identity = store_identity(kind, made, {one.topic_partition: one.offset for one in changelogs}, segment)
        return StoreSnapshot(
            "left",
            kind,
            identity,
            changelogs,
            "read_committed",
            made,
            stream_time=stream_time,
            retention_ms=self.retention_ms,
            segment_interval_ms=None if self.retention_ms is None else INTERVAL_MS,
            rows=None if content is None else content.rows,
            bytes=None if content is None else content.bytes,
            digest=None if content is None else content.digest,
        )

    def _stored(self, segment: Segment, partition: int, start: int, end: int, rows: Rows) -> StoredRun | None:
        if not rows:
            return None
        digest = self._digest(rows)
        self.rows[digest] = rows
        of = {"store": "left", "topic": TOPIC, "partition": partition}
        run = Run(digest, RunFormat.SST, 1, 0, 1, 10, digest[:32], "00", "ff", segment, start, end, **of)  # type: ignore[arg-type]
        return StoredRun(run, Extent("b", 0, 10))

    def _digest(self, of: object) -> str:
        return sha256(repr(sorted(of.items()) if isinstance(of, dict) else of).encode()).hexdigest()

    def _merged(self, runs: Iterable[Run]) -> Rows:
        return {row: value for run in runs for row, value in self.rows[run.sha256].items()}

    def _rows_of(self, database: StoredDatabase) -> Rows:
        """What a database shows."""
        rows = {row: value for file in database.base for row, value in self.rows[file.sha256].items()}
        return without_deletes(rows | self._merged(stored.run for stored in database.runs))


def without_deletes(rows: Rows) -> Rows:
    """The rows that are there."""
    return {row: value for row, value in rows.items() if value is not None}


def content_of(rows: Mapping[tuple[Segment, int, str], int | None]) -> StoreDigest:
    """What a store of these rows says of them."""
    return StoreDigest(len(rows), len(rows), sha256(repr(sorted(rows.items(), key=repr)).encode()).hexdigest()[:32])


def ends_of(store: StoreSnapshot | None) -> Ends:
    """Where a store ends."""
    return {} if store is None else {one.partition: one.end for one in store.changelogs}


def is_ahead(ends: Ends, others: Ends) -> bool:
    """Whether some ends are further than others in any partition."""
    return any(end > others.get(number, end) for number, end in ends.items())


def is_live(segment: Segment, latest: int, retention_ms: int | None) -> bool:
    """Whether a segment has not expired."""
    return segment is None or retention_ms is None or segment >= first_live_segment(latest, retention_ms, INTERVAL_MS)


def seen(store: StoreSnapshot) -> int:
    """The latest time that a checkpoint upon a store goes by; of the newest segment at least, where nobody knows it."""
    if store.stream_time is not None:
        return store.stream_time
    return max((one.segment or 0 for one in store.databases), default=0) * INTERVAL_MS
