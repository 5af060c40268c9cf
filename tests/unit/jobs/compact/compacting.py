"""An application whose snapshots are advanced run by run, to be folded, and what its stores must hold."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import RETAINED_KINDS, StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.model import Image, RunFile, RunOrigin, segment_order
from statecore.jobs.compact.report import CompactionReport
from statecore.jobs.compact.run import compact
from statecore.jobs.context import ignore
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import FILES, download
from statecore.repository.identity import store_identity
from statecore.repository.manifest import StoredDatabase, StoredEnd, StoredRun, StoreSnapshot, TaskManifest
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.rebase import rebase_advance
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import create_repository
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec, retention_of, segment_interval_of
from tests.harness.job_contexts import context_of
from tests.harness.reference_digest import digest_of
from tests.harness.verify_image import verify_image
from tests.unit.images.sst_files import Rows, written

APPLICATION = "orders"
STEP = 100
"""Offsets of each run."""
RETENTION = 36_000_000
TOPIC_ID = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class At:
    """Where rows are written.

    Attributes:
        task: the task.
        store: the store.
        segment: the segment; ``None`` where the store has none.
        partition: of a global store, the partition that they come from.
    """

    task: str
    store: str
    segment: int | None = None
    partition: int = 0


def segments(kind: StoreKind) -> list[int | None]:
    """The segments of a store that can have rows, newest last; its stream time lies in that."""
    if not kind.is_segmented:
        return [None]
    return [0] if kind is StoreKind.GRACE_BUFFER else [999, 1000]


def spec_of(kinds: Mapping[str, StoreKind], *, globals_: Mapping[str, StoreKind] | None = None) -> ApplicationSpec:
    """An application with these stores."""
    stores = [
        StoreSpec(
            name,
            kind,
            -1 if name in (globals_ or {}) else 0,
            f"{APPLICATION}-{name}-changelog",
            RETENTION if kind in RETAINED_KINDS else None,
        )
        for name, kind in sorted({**kinds, **(globals_ or {})}.items())
    ]
    return ApplicationSpec(APPLICATION, "broker:9", ProcessingGuarantee.AT_LEAST_ONCE, tuple(stores))


@dataclass
class Farm:
    """The application.

    Attributes:
        root: a directory for all of it.
        spec: as it is declared.
        url: the repository; ``None`` for one in the directory.
        rows: the last write of each key, by where it was written.
        end: the offset that all stores have come to.
    """

    root: Path
    spec: ApplicationSpec
    url: str = ""
    rows: dict[At, Rows] = field(default_factory=dict)
    end: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.url = self.url or (self.root / "repository").as_uri()
        create_repository(self.url)

    @property
    def app_repository(self) -> ApplicationRepository:
        return ApplicationRepository.open(self.url, APPLICATION)

    def task_manifests(self) -> dict[str, TaskManifest]:
        """The tasks of the newest snapshot."""
        found = self.app_repository.read_head()
        if found is None or found.head.newest is None:
            return {}
        read = self.app_repository.task_manifests(self.app_repository.manifest(found.head.newest).value.task_manifests)
        return {task: one.manifest for task, one in read.items()}

    def store(self, task: str, store: str) -> StoreSnapshot:
        return next(one for one in self.task_manifests()[task].stores if one.store == store)

    def runs(self, at: At) -> tuple[StoredRun, ...]:
        """The runs of a database in the newest snapshot."""
        databases = self.store(at.task, at.store).databases
        return next((one.runs for one in databases if one.segment == at.segment), ())

    def checkpoint(self, *changes: Mapping[At, Rows]) -> Published:
        """Advance the newest snapshot by changes, each a run of every database that it names."""
        app_repository = self.app_repository
        publication = Publication(
            app_repository, self.spec, request=uuid.uuid4().hex, origin="tests", clock=lambda: 1.7e9 + self.end
        )
        before = publication.task_manifests()
        made: list[tuple[At, RunFile]] = []
        for change in changes:
            for at, rows in change.items():
                made.append((at, self._run(at, rows)))
                self.rows.setdefault(at, {}).update(rows)
            self.end += STEP
        extents = put_files(
            app_repository.blobs, app_repository.names, [LocalFile(f.path, f.sha256, f.file_bytes) for _, f in made]
        )
        new: dict[str, dict[str, list[StoredRun]]] = {}
        for (at, file), extent in zip(made, extents, strict=True):
            new.setdefault(at.task, {}).setdefault(at.store, []).append(StoredRun(file.run, extent))
        task_manifests = [
            TaskManifest(
                task, tuple(self._advanced(task, store, before.get(task), stores[store]) for store in sorted(stores))
            )
            for task, stores in sorted(new.items())
        ]
        published = publication.publish(
            task_manifests,
            drops_other_tasks=False,
            rebase=lambda mine, theirs: rebase_advance(mine, theirs, before.get(mine.task)),
        )
        assert published is not None
        return published

    def fold(
        self, *, faults: FaultPoints = NO_FAULTS, say: Callable[[str], None] = ignore, **options: object
    ) -> CompactionReport:
        context = context_of(self.app_repository, self.spec, faults, say)
        return compact(context, scratch=self.root, **options)  # type: ignore[arg-type]

    def image(self, task: str, store: str) -> Image:
        """The store, built of the newest snapshot; every row is read."""
        snapshot = self.store(task, store)
        directory = Path(tempfile.mkdtemp(dir=self.root))
        download(self.app_repository, StoreToFetch(task, snapshot, placed_empty=False).wanted, directory)
        runs = [
            RunFile.of(stored.run, directory / FILES / stored.run.sha256)
            for database in snapshot.databases
            for stored in database.runs
        ]
        segmented = None
        if snapshot.kind.is_segmented:
            assert snapshot.segmentation is not None
            segmented = SegmentedRuns(store, snapshot.segmentation, snapshot.stream_time or -1)
        image = build_image(directory / "image", snapshot.kind, runs, snapshot.offsets, segmented=segmented)
        assert image.identity == snapshot.identity
        assert snapshot.content in (None, image.content)
        read = verify_image(directory / "image", snapshot.kind, list(snapshot.offsets))
        assert read.content == image.content
        return image

    def digest(self, task: str, store: str) -> str:
        """The digest that the store must have."""
        last: dict[tuple[int | None, bytes], bytes | None] = {}
        for at, rows in sorted(self.rows.items(), key=_order):
            if (at.task, at.store) == (task, store):
                last |= {(at.segment, key): value for key, value in rows.items()}
        return digest_of((key, value) for (_, key), value in last.items() if value is not None)

    def check(self) -> None:
        """Every store of the newest snapshot holds what it must, and ends where it must."""
        for task, task_manifest in self.task_manifests().items():
            for store in task_manifest.stores:
                assert self.image(task, store.store).digest == self.digest(task, store.store), (task, store.store)

    def _kind(self, store: str) -> StoreKind:
        return self._declared(store).kind

    def _declared(self, store: str) -> StoreSpec:
        found = self.spec.store(store)
        assert found is not None
        return found

    def _changelog(self, at: At) -> TopicPartition:
        partition = at.partition if at.task == GLOBAL else int(at.task.rpartition("_")[2])
        return TopicPartition(f"{APPLICATION}-{at.store}-changelog", partition)

    def _run(self, at: At, rows: Rows) -> RunFile:
        file = written(Path(tempfile.mkdtemp(dir=self.root)) / "run", rows)
        origin = RunOrigin(at.store, self._kind(at.store), self._changelog(at))
        return origin.of(replace(file, segment=at.segment, start=self.end, end=self.end + STEP, stream_time=-1))

    def _advanced(
        self, task: str, store: str, task_manifest: TaskManifest | None, new: list[StoredRun]
    ) -> StoreSnapshot:
        before = next((one for one in (task_manifest.stores if task_manifest else ()) if one.store == store), None)
        kind = self._kind(store)
        newest = segments(kind)[-1]
        retention, interval = retention_of(self._declared(store)), segment_interval_of(self._declared(store))
        known = {} if before is None else {database.segment: database for database in before.databases}
        for stored in new:
            database = known.get(stored.run.segment, StoredDatabase(stored.run.segment, ()))
            runs = sorted((*database.runs, stored), key=lambda one: one.run.partition)  # which keeps their order
            known[stored.run.segment] = replace(database, runs=tuple(runs))
        databases = tuple(known[segment] for segment in sorted(known, key=segment_order))
        is_global = task == GLOBAL
        partitions = {self._changelog(At(task, store)).partition}
        if is_global:
            partitions = {stored.run.partition for database in databases for stored in database.runs}
            partitions |= set() if before is None else {end.partition for end in before.changelogs}
        topic = f"{APPLICATION}-{store}-changelog"
        ends = tuple(
            StoredEnd(topic, number, TOPIC_ID, self.end - (not is_global), self.end, 0, self.end, 1)
            for number in sorted(partitions)
        )
        offsets = {end.topic_partition: end.offset for end in ends}
        return StoreSnapshot(
            store,
            kind,
            store_identity(kind, databases, offsets, newest),
            ends,
            "read_uncommitted",
            databases,
            read_at_ms=1_700_000_000_000 + self.end,
            stream_time=-1 if newest is None or interval is None else newest * interval,
            retention_ms=retention,
            segment_interval_ms=interval,
            statecore_release="tests",
        )


def _order(item: tuple[At, object]) -> tuple[str, str, int, int]:
    at = item[0]
    return at.task, at.store, segment_order(at.segment), at.partition


def some_rows(number: int, count: int = 20, *, of: str = "") -> Rows:
    """Changes that overwrite, and delete, what earlier ones have written.

    Args:
        number: of the change.
        count: how many rows.
        of: whose rows they are; those of others are others.
    """
    return {
        b"key-%04d" % ((number * 7 + key * 3) % 60): None
        if (number + key) % 5 == 0
        else b"%d of %d%s" % (key, number, of.encode())
        for key in range(count)
    }


def old_rows(count: int = 2000) -> Rows:
    """What outweighs many such changes."""
    return {b"key-%04d" % key: b"old " * 20 for key in range(count)}
