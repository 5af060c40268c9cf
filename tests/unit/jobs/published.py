"""Snapshots in a repository for tests, and what the stores of each hold."""

from __future__ import annotations

import struct
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from statecore.filesystem import file_sha256
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.segments import Segmentation, default_segment_interval, segment_name
from statecore.formats.topic_partition import TopicPartition
from statecore.images.identity import image_identity
from statecore.images.linked_bases import ImageBase, ImageBases, checked_bases
from statecore.images.model import BaseDatabases, Run, RunFile
from statecore.images.runs import RunBuilder
from statecore.images.runs_digest import merged_digest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import create_repository
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.stores.rocksdb.manifest_guard import remove_guard_record
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.unit.images.changelog import Record, batches, stored_rows

RETENTION = 600_000
TOPIC_ID = "0123456789abcdef0123456789abcdef"
CUT = 1_795_251_600.0


def spec(guarantee: str = "at_least_once", **more: Any) -> ApplicationSpec:
    stores = {"plain": {"kind": "key-value"}, "clicks": {"kind": "window", "retention": "10m"}, **more}
    return parse_spec(
        {
            "application_id": "orders",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": guarantee,
            "subtopologies": {"0": {"stores": stores}},
            "global_stores": {"names": {"kind": "key-value", "topic": "names"}},
        }
    )


def records(store: str, partition: int, count: int) -> list[Record]:
    """Keys come again, and some are deleted; of windows, they go on with the time."""
    found: list[Record] = []
    for number in range(count):
        key = b"%s-%d-%03d" % (store.encode(), partition, number % 70)
        if store == "clicks":
            key += struct.pack(">qi", 60_000 * (number // 40), 0)
        found.append((key, None if number % 11 == 0 else b"value %d " % number * 20))
    return found


def rows_after(all_records: Sequence[Record]) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for key, value in all_records:
        assert key is not None
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


@dataclass
class Shop:
    """An application with a repository of its own: two tasks of two stores each, and a global store.

    Attributes:
        root: a directory for all of it.
        declared: the application.
        whole: whether snapshots say what the stores hold.
    """

    root: Path
    declared: ApplicationSpec = field(default_factory=spec)
    whole: bool = True
    _made: int = 0

    @property
    def url(self) -> str:
        return (self.root / "repository").as_uri()

    @property
    def app_repository(self) -> ApplicationRepository:
        create_repository(self.url)
        return ApplicationRepository.open(self.url, "orders")

    def publish(
        self, cuts: Sequence[int], *, based: bool = False, cut: float = CUT, **more: Mapping[str, StoreSnapshot]
    ) -> Published:
        """A snapshot whose runs end at these offsets, in every partition of every store.

        Args:
            cuts: where the runs end.
            based: the first of them is no run, but a database as RocksDB has it.
            cut: when the ends were read, in seconds since the epoch.
            more: further stores of a task, such as ``task_0_0``.
        """
        task_manifests = []
        for partition in (0, 1):
            task = f"0_{partition}"
            stores = [
                self.store(task, store, kind, [partition], cuts, based=based, cut=cut)
                for store, kind in (("clicks", StoreKind.WINDOW), ("plain", StoreKind.KEY_VALUE))
            ]
            task_manifests.append(TaskManifest(task, (*stores, *more.get(f"task_{task}", {}).values())))
        names = self.store(GLOBAL, "names", StoreKind.KEY_VALUE, [0, 1], cuts, based=based, cut=cut)
        task_manifests.append(TaskManifest(GLOBAL, (names,)))
        self._made += 1
        request = f"request {uuid.uuid4().hex}"
        publication = Publication(
            self.app_repository, self.declared, request=request, origin="restore", clock=lambda: cut + self._made
        )
        return publication.publish(task_manifests, drops_other_tasks=True)

    def store(
        self,
        task: str,
        store: str,
        kind: StoreKind,
        partitions: Sequence[int],
        cuts: Sequence[int],
        *,
        based: bool = False,
        cut: float = CUT,
    ) -> StoreSnapshot:
        """A store of it, its files put."""
        topic = "names" if task == GLOBAL else f"orders-{store}-changelog"
        segmentation = Segmentation(RETENTION, default_segment_interval(kind, RETENTION)) if kind.is_segmented else None
        files: list[RunFile] = []
        stream_time = -1
        for partition in partitions:
            for start, end in zip([0, *cuts], cuts, strict=False):
                (self.root / "runs").mkdir(exist_ok=True)
                directory = Path(tempfile.mkdtemp(dir=self.root / "runs"))
                changelog = TopicPartition(topic, partition)
                builder = RunBuilder(
                    kind,
                    directory,
                    base=BaseDatabases.ALL if start else BaseDatabases.NONE,
                    segmentation=segmentation,
                    changelog=changelog,
                    store=store,
                    start=start,
                )
                for batch in batches(records(store, partition, end), 50):
                    if batch.column(2)[0].as_py() >= start:
                        builder.add(batch)
                files += builder.finish(end)
                stream_time = max(stream_time, builder.statistics.stream_time)
        is_global = task == GLOBAL
        ends = {TopicPartition(topic, partition): cuts[-1] - (not is_global) for partition in partitions}
        first = {TopicPartition(topic, partition): cuts[0] - (not is_global) for partition in partitions}
        by_segment: dict[int | None, list[RunFile]] = {}
        for file in files:
            by_segment.setdefault(file.segment, []).append(file)
        databases, made_of, contents = [], {}, []
        for segment in sorted(by_segment, key=lambda segment: -1 if segment is None else segment):
            its = by_segment[segment]
            below: tuple[BaseFile, ...] = ()
            identity = None
            if based:
                under = [file for file in its if file.end <= cuts[0]]
                its = [file for file in its if file.end > cuts[0]]
                below, identity = self._base(store, kind, under, first, segmentation, segment)
            databases.append(StoredDatabase(segment, self._put(its), below))
            made_of[segment] = (identity, its)
            contents.append(merged_digest(its, [file.path for file in its]))
        snapshot = StoreSnapshot(
            store,
            kind,
            image_identity(kind, made_of, ends),
            tuple(
                StoredEnd(*partition, TOPIC_ID, offset, offset + (not is_global), 0, offset + (not is_global))
                for partition, offset in ends.items()
            ),
            str(self.declared.processing_guarantee.isolation),
            tuple(databases),
            read_at_ms=int(cut * 1000),
            stream_time=None if based else stream_time,
            retention_ms=None if segmentation is None else segmentation.retention_ms,
            segment_interval_ms=None if segmentation is None else segmentation.interval_ms,
        )
        if not self.whole or based or kind.is_segmented:
            return snapshot
        (content,) = contents
        return replace(snapshot, rows=content.rows, bytes=content.bytes, digest=content.digest)

    def _put(self, files: Sequence[RunFile]) -> tuple[StoredRun, ...]:
        extents = self._extents([LocalFile(file.path, file.sha256, file.file_bytes) for file in files])
        return tuple(StoredRun(file.run, extent) for file, extent in zip(files, extents, strict=True))

    def _extents(self, files: Sequence[LocalFile]) -> list[Extent]:
        return put_files(self.app_repository.blobs, self.app_repository.names, files)

    def _base(
        self,
        store: str,
        kind: StoreKind,
        runs: Sequence[RunFile],
        offsets: Mapping[TopicPartition, int],
        segmentation: Segmentation | None,
        segment: int | None,
    ) -> tuple[tuple[BaseFile, ...], str]:
        """A database that RocksDB has written, of the rows of these runs."""
        name = store if segmentation is None else segment_name(store, segment or 0, segmentation.interval_ms)
        directory = self.root / "bases" / f"{self._made}-{len(list(self.root.rglob('IDENTITY')))}-{name}"
        directory.parent.mkdir(exist_ok=True)
        with RocksDBStore(directory, kind, create=True, settings=KEEP_FILES) as database:
            for run in runs:
                copy = directory.parent / f"{directory.name}.{run.sha256}"
                copy.write_bytes(run.path.read_bytes())
                database.ingest([copy])
            database.commit(offsets)
        remove_guard_record(directory)
        files = [file for file in sorted(directory.iterdir()) if file.is_file() and file.name != "LOCK"]
        local = [LocalFile(file, file_sha256(file), file.stat().st_size) for file in files]
        below = tuple(
            BaseFile(one.path.name, one.sha256, extent) for one, extent in zip(local, self._extents(local), strict=True)
        )
        bases = ImageBases({segment: ImageBase(directory)}, {at: offset + 1 for at, offset in offsets.items()})
        return below, checked_bases(bases, kind, list(offsets))[segment].identity


def rows_in(state_dir: Path) -> dict[str, dict[bytes, bytes]]:
    """The rows of every store in a state directory, by ``<task>/<store>``."""
    found: dict[str, dict[bytes, bytes]] = {}
    tasks = [
        path for path in (state_dir / "orders").glob("*") if not path.name.startswith(".")
    ]  # there a thread deletes
    for database in sorted(path.parent for task in tasks for path in task.rglob("CURRENT")):
        relative = database.relative_to(state_dir / "orders").parts
        kind = StoreKind.WINDOW if relative[1] == "clicks" else StoreKind.KEY_VALUE
        name = f"{relative[0]}/{relative[1] if relative[1] == 'clicks' else relative[2]}"
        found.setdefault(name, {}).update(stored_rows(database, kind))
    return found


def expected(count: int) -> dict[str, dict[bytes, bytes]]:
    """The rows of every store after so many records of each partition."""
    return {
        **{
            f"0_{partition}/{store}": rows_after(records(store, partition, count))
            for partition in (0, 1)
            for store in ("clicks", "plain")
        },
        "global/names": {**rows_after(records("names", 0, count)), **rows_after(records("names", 1, count))},
    }


def run_of(snapshot: StoreSnapshot) -> Run:
    return snapshot.databases[0].runs[0].run
