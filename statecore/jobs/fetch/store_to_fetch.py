"""A store of a snapshot to fetch: its files, and what is built from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from statecore.filesystem import FileState
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import StoreDigest
from statecore.images.universal_compaction import runs_to_merge
from statecore.jobs.bases.base_database import BaseFiles
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.repository.download import RemoteFile
from statecore.repository.manifest import StoreSnapshot, TaskManifest

COUNTED_BYTES = 64 << 20
"""File size up to which all rows of a store without a known digest are read. That takes less than 0.1 s; for a large
store it would take as long as the download."""

_ROW_BYTES = 100
"""Estimated bytes of a row; work is measured in rows."""


@dataclass(frozen=True)
class StoreToFetch:
    """One store of one task.

    Attributes:
        placed_empty: whether it has no rows, so that Kafka Streams restores it.
    """

    task: str
    snapshot: StoreSnapshot
    placed_empty: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.task, self.snapshot.store

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        known = self.snapshot.offsets
        return dict.fromkeys(known, OFFSET_UNKNOWN) if self.placed_empty else known

    @property
    def wanted(self) -> Iterator[RemoteFile]:
        of = f"of store {self.snapshot.store!r} of task {self.task}"
        whose = {"task": self.task, "store": self.snapshot.store}
        for database in () if self.placed_empty else self.snapshot.databases:
            for stored in database.runs:
                yield RemoteFile(stored.run.sha256, stored.extent, f"A run {of}", whose)
            for file in database.base:
                yield RemoteFile(file.sha256, file.extent, f"The file {file.name} {of}", whose)

    @property
    def data_files(self) -> Iterator[RemoteFile]:
        """Files with rows (SST and blob files), which never change in a database."""
        names = {file.sha256: file.name for database in self.snapshot.databases for file in database.base}
        return (one for one in self.wanted if names.get(one.sha256, ".sst").endswith(DATA_SUFFIXES))

    @property
    def merged_bytes(self) -> int:
        """Upper bound of the disk space that merging its runs adds."""
        if self.placed_empty or self.snapshot.kind.is_versioned:
            return 0
        total = 0
        for database in self.snapshot.databases:
            runs = [stored.run for stored in database.runs]
            base = [file.extent.bytes for file in database.base if file.name.endswith(".sst")]
            groups = runs_to_merge(runs, base if database.base else None)
            total += sum(run.file_bytes for group in groups for run in runs[group])
        return total

    def is_counted(self, content: StoreDigest | None, *, asked: bool = False) -> bool:
        """Whether all rows of its runs are read for the digest; ``asked`` forces it whatever the size."""
        return asked or content is not None or self.snapshot.file_bytes <= COUNTED_BYTES

    def is_linked(self, content: StoreDigest | None, *, asked: bool = False) -> bool:
        """Whether its databases only need hard links: no runs to merge, no rows to read."""
        if self.placed_empty:
            return True
        databases = self.snapshot.databases
        is_known = not self.is_counted(content, asked=asked) or all(len(one.runs) < 2 for one in databases)
        is_known = is_known and not (asked and any(one.base for one in databases))
        is_known = is_known or content is not None
        return is_known and not self.merged_bytes and not self.snapshot.kind.is_versioned

    def built(
        self, hashed: Mapping[str, FileState | None], content: StoreDigest | None, *, count: bool = False
    ) -> StoreToBuild:
        store = self.snapshot
        runs = tuple(stored.run for database in store.databases for stored in database.runs)
        bases = tuple(
            BaseFiles(database.segment, {file.name: file.sha256 for file in database.base})
            for database in store.databases
            if database.base
        )
        stream_time = -1 if store.stream_time is None else store.stream_time
        return StoreToBuild(
            self.task,
            store.store,
            store.kind,
            self.offsets,
            () if self.placed_empty else (AppliedRuns(runs, stream_time),),
            store.segmentation,
            () if self.placed_empty else bases,
            0 if self.placed_empty else store.file_bytes // _ROW_BYTES,
            {one.sha256: hashed[one.sha256] for one in self.wanted if one.sha256 in hashed},
            None if self.placed_empty else content,
            self.is_counted(content, asked=count),
            scans_bases=count,
        )


def stores_to_fetch(task_manifests: Collection[TaskManifest], versioned: VersionedStart) -> list[StoreToFetch]:
    history = versioned is VersionedStart.HISTORY
    return [
        StoreToFetch(
            task_manifest.task, store, store.restored_by_kafka_streams or (history and store.kind.is_versioned)
        )
        for task_manifest in task_manifests
        for store in task_manifest.stores
    ]


def distinct_files(stores: Iterable[StoreToFetch]) -> list[RemoteFile]:
    """The files of the stores; one that several stores share is listed once, as it is downloaded."""
    return list({one.sha256: one for store in stores for one in store.wanted}.values())


def bytes_of_files(stores: Iterable[StoreToFetch]) -> int:
    return bytes_of(distinct_files(stores))


def bytes_of(files: Iterable[RemoteFile]) -> int:
    return sum(one.extent.bytes for one in files)
