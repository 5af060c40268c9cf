"""Small applications and their snapshots: what the tests of the repository publish, and how they look at it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.identity import image_identity
from statecore.images.model import Run, RunFormat
from statecore.objectstore.base import Blobs
from statecore.objectstore.pointers import Pointers
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.blob_verification import NamedFile, missing_files
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, HASH, RepositoryDescriptor, Role
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    Manifest,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
    TaskManifestReference,
    extents_of,
)
from statecore.repository.object_store import ObjectStore
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import Repository
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from tests.harness.simulated_store import Network, SimulatedBlobs, Storage

APPLICATION = "orders"
KIND = StoreKind.KEY_VALUE
STORES = ("left", "right")
NOW = 1_795_392_000.0
FOREIGN = [
    f"apps/{APPLICATION}/{rest}"
    for rest in (
        "",  # folders, as consoles of S3 make them
        "contents/",
        "garbage/",
        "manifests/",
        "contents/README.md",
        "contents/my notes.txt",
        "files/ab/without-number",
        "files/copy-of-the-release.1",
        "garbage/list~",
        "jobs/README.md",
        "jobs/request.plan~",
        "manifests/20261123T010203Z-5f3a9c21.json~",
        "manifests/\udcff.json",  # a file's name that is no UTF-8
        "notes/of-mine",
        "packs/none.json",
    )
]
"""Names that somebody else has put among those of the application."""

Ends = Mapping[str, Mapping[str, int]]
"""The end of each store, by task and store."""
Spans = Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]
"""First offset and end of each run of each store, by task and store."""


def spec(*stores: str, kind: StoreKind = KIND, application_id: str = APPLICATION) -> ApplicationSpec:
    """An application with these stores in one subtopology."""
    declared = tuple(StoreSpec(name, kind, 0, f"{APPLICATION}-{name}-changelog") for name in sorted(stores or STORES))
    return ApplicationSpec(application_id, "broker:9092", ProcessingGuarantee.EXACTLY_ONCE_V2, declared)


def repository(blobs: Blobs, pointers: Pointers, *, identifier: str = "r1", role: Role = Role.PRIMARY) -> Repository:
    """A repository that was opened."""
    copy_of = "memory:///primary" if role is Role.REPLICA else ""
    mark = RepositoryDescriptor(identifier, HASH, "2026-11-23T00:00:00Z", "tests", role=role, copy_of=copy_of)
    return Repository(ObjectStore("memory:///", blobs, pointers, lambda: None), mark)


def file_of(directory: Path, content: bytes) -> LocalFile:
    """A finished file."""
    digest = sha256(content).hexdigest()
    path = directory / digest
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return LocalFile(path, digest, len(content))


def content_of(task: str, store: str, start: int, end: int, bytes_: int = 40) -> bytes:
    """The bytes of a run: the same ones for the same offsets."""
    return f"{task} {store} [{start}, {end}) ".encode().ljust(bytes_, b".")


def run_of(file: LocalFile, task: str, store: str, start: int, end: int) -> Run:
    """The run that a file is."""
    return Run(
        sha256=file.sha256,
        format=RunFormat.SST,
        rows=end - start,
        deletes=0,
        bytes=end - start,
        file_bytes=file.bytes,
        digest=file.sha256[:32],
        min_key="00",
        max_key="ff",
        start=start,
        end=end,
        store=store,
        kind=KIND,
        topic=f"{APPLICATION}-{store}-changelog",
        partition=int(task.rpartition("_")[2]),
    )


def store_of(
    task: str,
    store: str,
    runs: Sequence[StoredRun],
    *,
    end: int,
    topic_id: str = "2" * 32,
    base: Sequence[BaseFile] = (),
    restored_by_kafka_streams: bool = False,
) -> StoreSnapshot:
    """A store that has come to an end."""
    partition = TopicPartition(f"{APPLICATION}-{store}-changelog", int(task.rpartition("_")[2]))
    offset = -4 if restored_by_kafka_streams else end - 1
    identity = image_identity(KIND, {None: (None, [one.run for one in runs])}, {partition: offset})
    return StoreSnapshot(
        store,
        KIND,
        identity,
        (StoredEnd(*partition, topic_id, offset, 0 if restored_by_kafka_streams else end, 0, end, 1),),
        "read_committed",
        () if restored_by_kafka_streams else (StoredDatabase(None, tuple(runs), tuple(base)),),
        read_at_ms=int(NOW * 1000),
        restored_by_kafka_streams=restored_by_kafka_streams,
        statecore_release="tests",
    )


def uploaded(
    app_repository: ApplicationRepository,
    directory: Path,
    ends: Ends,
    *,
    every: int = 50,
    topic_id: str = "2" * 32,
    bytes_: int = 40,
    before: Iterable[TaskManifest] = (),
) -> list[TaskManifest]:
    """Parts whose files are in the repository: a run for each so many offsets.

    Runs of earlier task manifests are expected to exist, after a check.
    """
    spans = {
        task: {store: list(pairwise([*range(0, end, every), end])) for store, end in stores.items()}
        for task, stores in ends.items()
    }
    task_manifests = []
    for task, runs in uploaded_runs(app_repository, directory, spans, bytes_=bytes_, before=before).items():
        of = ends[task]
        task_manifests.append(
            TaskManifest(
                task, tuple(store_of(task, name, runs[name], end=of[name], topic_id=topic_id) for name in sorted(of))
            )
        )
    return task_manifests


def uploaded_runs(
    app_repository: ApplicationRepository,
    directory: Path,
    spans: Spans,
    *,
    bytes_: int = 40,
    before: Iterable[TaskManifest] = (),
) -> dict[str, dict[str, list[StoredRun]]]:
    """Runs of these offsets, whose files are in the repository, by task and store.

    Runs of earlier task manifests are expected to exist, after a check.
    """
    known = extents_of(before)
    made = {}
    for task, stores in spans.items():
        wanted = [(store, *span) for store, its in stores.items() for span in its]
        files = [file_of(directory, content_of(task, *span, bytes_)) for span in wanted]
        named = {NamedFile(file.sha256, known[file.sha256]) for file in files if file.sha256 in known}
        there = dict(named - missing_files(app_repository.blobs, named, {file.sha256: file.path for file in files}))
        new = [file for file in files if file.sha256 not in there]
        where = there | dict(
            zip((one.sha256 for one in new), put_files(app_repository.blobs, app_repository.names, new), strict=True)
        )
        runs: dict[str, list[StoredRun]] = {store: [] for store in stores}
        for (store, start, end), file in zip(wanted, files, strict=True):
            runs[store].append(StoredRun(run_of(file, task, store, start, end), where[file.sha256]))
        made[task] = runs
    return made


def publication(
    app_repository: ApplicationRepository,
    request: str = "request",
    *,
    stores: Sequence[str] = STORES,
    origin: str = "tests",
    faults: FaultPoints = NO_FAULTS,
    **more: object,
) -> Publication:
    """A publication that begins now."""
    if isinstance(app_repository.blobs, SimulatedBlobs):
        app_repository.blobs.storage.blobs.setdefault(
            DESCRIPTOR_NAME, (DESCRIPTOR.encode(app_repository.repository.descriptor), NOW)
        )  # it was not created
    options = {"clock": lambda: NOW, "faults": faults, **more}
    return Publication(app_repository, spec(*stores), request=request, origin=origin, **options)  # type: ignore[arg-type]


def ends_of(app_repository: ApplicationRepository) -> dict[str, dict[str, int]]:
    """The ends of the newest snapshot, by task and store."""
    newest = app_repository.head().newest
    assert newest is not None
    return {
        task: {store.store: store.changelogs[0].end for store in read.manifest.stores}
        for task, read in app_repository.task_manifests(app_repository.manifest(newest).value.task_manifests).items()
    }


def fetched(
    app_repository: ApplicationRepository, left_out: Collection[str] = ()
) -> dict[str, dict[str, ReadTaskManifest]]:
    """The task manifests of every snapshot that counts; all their files were read and match their hashes.

    Of older ones the blobs in ``left_out`` are not read.
    """
    found: dict[str, dict[str, ReadTaskManifest]] = {}
    for entry in app_repository.head().snapshots:
        manifest = app_repository.manifest(entry).value
        task_manifests = app_repository.task_manifests(manifest.task_manifests)
        assert sorted(task_manifests) == [reference.task for reference in manifest.task_manifests]
        assert (manifest.identity, manifest.file_bytes) == (entry.identity, entry.file_bytes)
        for reference in manifest.task_manifests:
            task_manifest = task_manifests[reference.task].manifest
            assert (task_manifest.identity, task_manifest.file_bytes) == (reference.identity, reference.file_bytes)
            for store in task_manifest.stores:
                for digest, extent in store.extents:
                    if not found or extent.blob not in left_out:
                        assert sha256(app_repository.read(extent, "A file")).hexdigest() == digest
        found[entry.snapshot] = task_manifests
    return found


def reference_of(task: str, digest: str = "a" * 64, blob: str = "b") -> TaskManifestReference:
    """Where a task manifest may be."""
    return TaskManifestReference(task, "c" * 64, digest, Extent(blob, 0, 10), 100, 5)


Stores = dict[str, dict[str, int]]


BOTH: Stores = {"0_0": {"left": 50, "right": 50}, "0_1": {"left": 50, "right": 50}}


def blobs_of(storage: Storage, kind: str) -> list[str]:
    return sorted(name for name in storage.blobs if name.split("/")[2:3] == [kind])


def damaged(storage: Storage, name: str, kind: str) -> None:
    content = storage.blobs.pop(name)[0]
    if kind == "shorter":
        storage.blobs[name] = (content[:-1], 0.0)


class Clock:
    """The object store's clock, which a test sets."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one application in a repository in memory."""

    app_repository: ApplicationRepository
    storage: Storage
    network: Network
    directory: Path

    def upload(self, ends: Ends, **more: Any) -> list[TaskManifest]:
        """Task manifests of stores that end there, with their runs put."""
        return uploaded(self.app_repository, self.directory, ends, **more)

    def upload_runs(self, runs: Any, **more: Any) -> Any:
        """Runs of these offsets, put."""
        return uploaded_runs(self.app_repository, self.directory, runs, **more)

    def begin(self, request: str = "request", **more: Any) -> Publication:
        """A publication that begins now."""
        return publication(self.app_repository, request, **more)

    def publish(self, request: str, ends: Ends, *, drops_other_tasks: bool = False, **more: Any) -> Published:
        """Begin and publish stores that end there."""
        return self.begin(request, **more).publish(self.upload(ends), drops_other_tasks=drops_other_tasks)

    def fetched(self) -> dict[str, dict[str, ReadTaskManifest]]:
        """See :func:`fetched`."""
        return fetched(self.app_repository)

    @property
    def ends(self) -> dict[str, dict[str, int]]:
        """The ends of the newest snapshot, by task and store."""
        return ends_of(self.app_repository)

    @property
    def requests(self) -> list[str]:
        """The request ids of the snapshots, the newest first."""
        return [entry.request_id for entry in self.app_repository.head().snapshots]

    @property
    def newest(self) -> Manifest:
        """The manifest of the newest snapshot."""
        return self.app_repository.manifest(self.app_repository.head().snapshots[0]).value
