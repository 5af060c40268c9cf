"""Garbage: what no head reaches any more, and never will; and the lists of it that a collection puts before it deletes.

Blobs have the collection number of the head under which they were put in their names. Each collection raises it, and a
publication names a blob that the head does not reach only if its number is that of the head or the one before
(:meth:`statecore.repository.publish.conflicts.Conflicts.refuse_collected`). So an older blob that one head does not
reach is reached by no later one: it is garbage for ever, whatever clocks, late requests and frozen processes do. The
same holds for a manifest that a head does not name, if it was made for that head or an earlier one.

``docs/repository-format.md`` (Collection) has the proof, and ``tests/unit/repository/maintenance/collection_model.py``
visits every interleaving of a small model.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from statecore.documents import DocumentType, compact, parse_json
from statecore.errors import Corrupted, NotFound
from statecore.objectstore.base import Blob
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import parallel_map
from statecore.repository.head import Head
from statecore.repository.incoming_file import file_errors
from statecore.repository.layout import is_collected
from statecore.repository.maintenance.found_manifests import readable_manifest
from statecore.repository.manifest import OTHER_RELEASE, VERSION, Manifest, TaskManifestReference

_READ_BYTES = 8 << 20
_PIECE = 1 << 16
_LEVEL = 6


class NameSet:
    """Names of blobs, in 8 bytes of memory each.

    Two names may have the same hash. So use it where a name that is wrongly found in it only stays a little longer.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hashes = array("Q", sorted({hash64(name) for name in names}))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: str) -> bool:
        wanted = hash64(name)
        at = bisect_left(self._hashes, wanted)
        return at < len(self._hashes) and self._hashes[at] == wanted


def hash64(name: str) -> int:
    """A hash of a blob's name."""
    return int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())


def reachable_names(
    app_repository: ApplicationRepository, head: Head, advance: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Names of all blobs that the snapshots of a head need, and of the digests saved for their stores.

    ``advance`` is called for each snapshot. Raises ``Corrupted`` if a manifest or task manifest cannot be read: nobody
    knows then what it needs.
    """
    seen: set[str] = set()
    for entry in head.snapshots:
        yield from names_of_snapshot(app_repository, app_repository.manifest(entry).value, seen)
        advance()


def names_of_snapshot(app_repository: ApplicationRepository, manifest: Manifest, seen: set[str]) -> Iterator[str]:
    """The same of one snapshot; ``seen`` has the hashes of task manifests that were read, and those read now."""
    yield app_repository.names.manifest(manifest.snapshot)
    new: list[TaskManifestReference] = []
    for reference in manifest.task_manifests:
        yield reference.extent.blob
        if reference.sha256 not in seen:
            seen.add(reference.sha256)
            new.append(reference)
    for read in app_repository.task_manifests(new).values():
        for store in read.manifest.stores:
            yield app_repository.names.content(store.identity)
            for _, extent in store.extents:
                yield extent.blob


_NAMED_BY_CONTENT = ("files", "packs", "task-manifests")
OF_JOBS = ("jobs", "staging")


@dataclass(frozen=True)
class GarbageRule:
    """Which of the blobs that a head does not reach are garbage.

    Attributes:
        manifests: epoch and generation of manifests that the head does not name, by blob; others are no garbage yet.
        now_ms: the object store's time.
        unused_ms: the age at which files of jobs, which no snapshot needs, are garbage.
    """

    head: Head
    manifests: Mapping[str, tuple[int, int]]
    now_ms: int
    unused_ms: int

    def is_garbage(self, blob: Blob, kind: str) -> bool:
        """Whether no later head can reach a blob that this one does not; ``kind`` is as ``Layout.kind_of`` gives it."""
        if kind in _NAMED_BY_CONTENT:
            return is_collected(blob.name, self.head.collection)
        if kind == "manifests":
            order = self.manifests.get(blob.name)
            return order is not None and order <= self.head.order
        if kind in OF_JOBS:
            return self.now_ms - blob.modified * 1000 > self.unused_ms
        return kind == "contents"


def unnamed_manifests(app_repository: ApplicationRepository, head: Head) -> dict[str, tuple[int, int]]:
    """Epoch and generation of the manifests of an application that a head does not name, by blob; not of damaged ones.

    Raises ``Invalid`` if one may not be read, or is of another release.
    """
    named = {app_repository.names.manifest(entry.snapshot) for entry in head.snapshots}
    listed = app_repository.names.listed(app_repository.blobs, "manifests")
    names = [blob.name for blob in listed if blob.name not in named]

    found = parallel_map(lambda name: readable_manifest(app_repository, name), names)
    return {name: one.order for name, one in zip(names, found, strict=True) if one is not None}


@dataclass(frozen=True)
class GarbageList:
    """The first line of a list of garbage; a line for each blob follows: its name and bytes."""

    application_id: str
    repository_id: str
    epoch: int  # of the head that does not reach them
    generation: int
    snapshots: tuple[str, ...]  # those that the head named: no other manifest up to its generation ever counts
    collection: int

    @property
    def order(self) -> tuple[int, int]:
        """Epoch and generation of the head that it was made for."""
        return self.epoch, self.generation

    def excludes(self, manifest: Manifest) -> bool:
        """Whether no head can ever name a manifest, even if it was put after the list."""
        return manifest.order <= self.order and manifest.snapshot not in self.snapshots


GARBAGE_LIST = DocumentType("list of garbage", VERSION, GarbageList, OTHER_RELEASE)


def write_list(
    app_repository: ApplicationRepository, head: Head, garbage: Iterable[Blob], directory: Path
) -> tuple[str, Path]:
    """Write a list of blobs that a head does not reach, in the order of their deletion; its name, and the file."""
    header = GarbageList(
        app_repository.application_id,
        app_repository.repository.descriptor.id,
        head.epoch,
        head.generation,
        tuple(entry.snapshot for entry in head.snapshots),
        head.collection,
    )
    path, digest, stream = directory / "garbage", sha256(), zlib.compressobj(_LEVEL)
    with file_errors(path, keeps=False), path.open("wb") as file:
        for line in chain([GARBAGE_LIST.to_json(header)], ([blob.name, blob.size] for blob in garbage)):
            content = stream.compress(compact(line) + b"\n")
            digest.update(content)
            file.write(content)
        content = stream.flush()
        digest.update(content)
        file.write(content)
    return app_repository.names.garbage_list(head.epoch, head.generation, digest.hexdigest()), path


class ListedGarbage(NamedTuple):
    """A list in the repository, and a copy of it here, whose bytes are verified."""

    blob: Blob
    header: GarbageList
    path: Path

    @property
    def garbage(self) -> Iterator[tuple[str, int]]:
        """Name and bytes of each blob."""
        lines = _lines(self.path)
        next(lines)
        for line in lines:
            name, size = parse_json(line)
            yield name, size


def read_lists(app_repository: ApplicationRepository, directory: Path) -> list[ListedGarbage]:
    """The lists of an application, the oldest first. Raises ``Corrupted`` if one is damaged."""
    found = []
    for number, blob in enumerate(app_repository.names.listed(app_repository.blobs, "garbage")):
        with suppress(NotFound):  # another collection has deleted what it names, and then the list
            found.append(_read_list(app_repository, blob, directory / str(number)))
    return found


def list_orders(app_repository: ApplicationRepository) -> list[tuple[int, int]]:
    """Epoch and generation of the head that each list of an application was made for, as its name has them."""
    prefix = app_repository.names.garbage_lists
    listed = app_repository.names.listed(app_repository.blobs, "garbage")
    names = (blob.name.removeprefix(prefix).split("-") for blob in listed)
    return [(int(epoch), int(generation)) for epoch, generation, _ in names]


def _read_list(app_repository: ApplicationRepository, blob: Blob, path: Path) -> ListedGarbage:
    digest = sha256()
    with file_errors(path, keeps=False), path.open("wb") as file:
        for start in range(0, blob.size, _READ_BYTES):
            content = app_repository.blobs.get(blob.name, start, start + _READ_BYTES)
            digest.update(content)
            file.write(content)
    listed = None
    if digest.hexdigest() != blob.name.rpartition("-")[2]:
        why = "its SHA-256 is not the one in its name"
    else:
        try:
            if first := next(_lines(path), None):
                listed = ListedGarbage(blob, GARBAGE_LIST.decode(first), path)
            why = "it has no header" if listed is None else _why_foreign(app_repository, listed)
        except (zlib.error, ValueError, TypeError) as error:
            listed, why = None, f"it cannot be read ({error})"
    if listed is not None and not why:
        return listed
    raise Corrupted(
        f"The list of garbage {blob.name} is damaged: {why}. Nothing was deleted.",
        code="garbage-list-damaged",
        action="Check the object store, then delete this blob: the next prune (of a replica the next copy) lists the "
        "same again. If the head is missing, damaged or was put back, delete it only while no prune of this repository "
        f"is running, and rebuild the head at once: {app_repository.repair_command} --apply",
        blob=blob.name,
        repository=app_repository.url,
        application_id=app_repository.application_id,
    )


def _why_foreign(app_repository: ApplicationRepository, listed: ListedGarbage) -> str:
    """What shows that a list is not of this application; empty where nothing does."""
    header, names = listed.header, app_repository.names
    if (header.application_id, header.repository_id) != (names.application_id, app_repository.repository.descriptor.id):
        return f"it is of {header.application_id} in the repository {header.repository_id}"
    listed_names = (name for name, _ in listed.garbage)
    strange = next((name for name in listed_names if not name.startswith(names.root) or name in names.records), None)
    return "" if strange is None else f"it names {strange!a}"


def _lines(path: Path) -> Iterator[bytes]:
    stream, rest = zlib.decompressobj(), b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            *lines, rest = (rest + stream.decompress(piece)).split(b"\n")
            yield from lines
