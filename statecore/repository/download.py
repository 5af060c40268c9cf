"""Downloads files: in parallel, in pieces, hashed as they arrive, each named by its hash.

::

    <directory>/files/<sha256>        complete, durable and verified
    <directory>/partial/<random>      incomplete

Existing files are kept, so a restarted job continues with them. Files that are adjacent in a pack are read in one
request. Memory is bounded: the number of pieces in flight is fixed, and pieces that arrive out of order are written to
the file (:mod:`statecore.repository.incoming_file`).
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statecore.cores import usable_cores
from statecore.errors import Corrupted
from statecore.filesystem import FileState, link_or_copy, make_directories, sync_file
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import existing_blobs, parallel_map
from statecore.repository.incoming_file import IncomingFile, file_errors
from statecore.repository.manifest import Extent

FILES = "files"  # Subdirectory of complete files
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = max(4, min(16, 2 * usable_cores()))
"""Requests at the same time; more than the cores can decrypt, hash and write only slow each other down."""

_PARTIAL = "partial"


class _Stored(Protocol):
    @property
    def extent(self) -> Extent: ...


StoredT = TypeVar("StoredT", bound=_Stored)


@dataclass(frozen=True)
class RemoteFile:
    """A file to download."""

    sha256: str  # its hex SHA-256
    extent: Extent  # its bytes in the repository
    what: str  # its name for messages
    context: Mapping[str, Any] = field(default_factory=dict, compare=False)  # fields of errors for machines


@dataclass(frozen=True)
class DownloadResult:
    """What was downloaded and what existed."""

    bytes: int  # bytes downloaded
    files: int  # files downloaded
    existing_bytes: int  # bytes of files that existed
    existing: int  # files that existed
    # size and times of each downloaded file when it was hashed, by hash
    hashed: Mapping[str, FileState | None] = field(default_factory=dict, compare=False)


def download(
    app_repository: ApplicationRepository,
    files: Iterable[RemoteFile],
    directory: Path,
    *,
    local_files: Mapping[str, Path] | None = None,
    advance: Callable[[int], None] = lambda _: None,
    keeps: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> DownloadResult:
    """Download files into ``<directory>/files``, except those that exist there."""
    with file_errors(directory, keeps=keeps):
        make_directories(directory / FILES)
        make_directories(directory / _PARTIAL)
    local = local_files or {}
    missing: list[RemoteFile] = []
    existing = existing_bytes = 0
    for one in {one.sha256: one for one in files}.values():
        if _exists(one, directory, local.get(one.sha256)):
            existing, existing_bytes = existing + 1, existing_bytes + one.extent.bytes
            advance(one.extent.bytes)
        else:
            missing.append(one)
    incoming = [
        [_Incoming(one, IncomingFile(one.extent.bytes, directory / _PARTIAL, keeps=keeps)) for one in together]
        for together in adjacent_groups(missing, piece_bytes)
    ]
    try:
        pieces = [piece for files in incoming for piece in _pieces(files, piece_bytes)]
        hashed = _fetch_all(app_repository, pieces, directory, advance)
    finally:
        for each in chain.from_iterable(incoming):
            each.file.discard()
    return DownloadResult(sum(one.extent.bytes for one in missing), len(missing), existing_bytes, existing, hashed)


def check_present(app_repository: ApplicationRepository, files: Iterable[RemoteFile]) -> None:
    """Raise the error that a download would if a blob is missing, too short or archived; no file is read.

    The requests are a HEAD for each blob, or a listing if there are hundreds.
    """
    wanted = [one for one in files if one.extent.bytes]
    blobs = app_repository.blobs
    with app_repository.named_in_errors():
        found = existing_blobs(blobs, {one.extent.blob for one in wanted}, app_repository.names.root)
        archived = sorted(blob.name for blob in found.values() if blob.is_archived)
        parallel_map(lambda name: blobs.get(name, 0, 1), archived)  # the object store refuses unless they are restored
    for one in wanted:
        blob = found.get(one.extent.blob)
        if blob is None:
            app_repository.read(one.extent, one.what, **one.context)
        elif blob.size < one.extent.start + one.extent.bytes:
            raise _truncated(app_repository, one)


def delete_partial(directory: Path) -> None:
    """Delete partial files of killed jobs; the caller must be the only user of the directory."""
    shutil.rmtree(directory / _PARTIAL, ignore_errors=True)


def _fetch_all(
    app_repository: ApplicationRepository, pieces: Sequence[_Piece], directory: Path, advance: Callable[[int], None]
) -> dict[str, FileState | None]:
    """Download by several threads, file after file; after a failure no more requests are sent."""
    left = iter(pieces)
    hashed: dict[str, FileState | None] = {}
    next_lock = threading.Lock()
    stopped = threading.Event()

    def fetch_pieces() -> None:
        while not stopped.is_set():
            with next_lock:
                piece = next(left, None)
            if piece is None:
                return
            hashed.update(_fetch_piece(app_repository, piece, directory))
            advance(piece.extent.bytes)

    with ThreadPoolExecutor(PIECES_AT_ONCE, "statecore-download") as pool:
        work = [pool.submit(fetch_pieces) for _ in pieces[:PIECES_AT_ONCE]]
        try:
            for one in as_completed(work):
                one.result()
        finally:
            stopped.set()
    return hashed


def _exists(one: RemoteFile, directory: Path, local_file: Path | None) -> bool:
    final = directory / FILES / one.sha256
    partial = directory / _PARTIAL / uuid.uuid4().hex
    with file_errors(final), suppress(FileNotFoundError):
        if final.exists():
            if final.stat().st_size == one.extent.bytes:
                return True
            final.unlink()
        if local_file is not None:
            try:
                link_or_copy(local_file, partial)
                sync_file(partial)  # a copy counts as partial until it is complete
                partial.replace(final)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
            return True
    return False


def adjacent_groups(files: Iterable[StoredT], piece_bytes: int) -> list[list[StoredT]]:
    """Group adjacent files up to one piece per request; a large file is alone; largest group first."""
    groups: list[list[StoredT]] = []
    room = 0
    for one in sorted(files, key=lambda one: (one.extent.blob, one.extent.start)):
        extent = one.extent
        if groups and extent.bytes <= room:
            last = groups[-1][-1].extent
            if (last.blob, last.start + last.bytes) == (extent.blob, extent.start):
                groups[-1].append(one)
                room -= extent.bytes
                continue
        groups.append([one])
        room = piece_bytes - extent.bytes
    return sorted(groups, key=lambda group: -sum(one.extent.bytes for one in group))


@dataclass(frozen=True)
class _Incoming:
    """A file being downloaded."""

    remote: RemoteFile
    file: IncomingFile


@dataclass(frozen=True)
class _Piece:
    """One request: small adjacent files, or a piece of a large one; ``start`` is the offset in the first file."""

    extent: Extent
    files: Sequence[_Incoming]
    start: int


def _pieces(files: Sequence[_Incoming], piece_bytes: int) -> Iterator[_Piece]:
    first, size = files[0].remote.extent, sum(one.remote.extent.bytes for one in files)
    for at in range(0, max(1, size), piece_bytes):
        yield _Piece(Extent(first.blob, first.start + at, min(piece_bytes, size - at)), files, at)


def _fetch_piece(
    app_repository: ApplicationRepository, piece: _Piece, directory: Path
) -> Iterator[tuple[str, FileState | None]]:
    """Download a piece; yield the files that are complete with it, and their state when hashed."""
    extent, first = piece.extent, piece.files[0].remote
    content = app_repository.read(extent, first.what, **first.context) if extent.bytes else b""
    if len(content) != extent.bytes:
        raise _truncated(app_repository, first)
    left, start = memoryview(content), piece.start
    for one in piece.files:
        mine = left[: one.remote.extent.bytes - start]
        if one.file.take(start, mine):
            if one.file.sha256 != one.remote.sha256:
                raise _damaged(app_repository, one.remote)
            yield one.remote.sha256, one.file.finish(directory / FILES / one.remote.sha256)
        left, start = left[len(mine) :], 0


def _damaged(app_repository: ApplicationRepository, one: RemoteFile) -> Corrupted:
    return Corrupted(
        f"{one.what} is damaged: the SHA-256 of the {one.extent.bytes:,} bytes from {one.extent.start} of "
        f"{one.extent.blob} in {app_repository.url} differs from that recorded.",
        code="blob-damaged",
        action=app_repository.fallback_advice,
        **_where(app_repository, one),
    )


def _truncated(app_repository: ApplicationRepository, one: RemoteFile) -> Corrupted:
    return Corrupted(
        f"{one.what} is shorter than it should be: the blob {one.extent.blob} in {app_repository.url} has fewer than "
        f"{one.extent.start + one.extent.bytes} bytes.",
        code="blob-truncated",
        action=app_repository.fallback_advice,
        **_where(app_repository, one),
    )


def _where(app_repository: ApplicationRepository, one: RemoteFile) -> dict[str, Any]:
    extent = one.extent
    where = {"repository": app_repository.url, "blob": extent.blob, "start": extent.start, "bytes": extent.bytes}
    return {**one.context, **where}
