"""Ways out of a repository for files: in parallel, in pieces, hashed while they come, each under its hash.

::

    <directory>/files/<sha256>        whole, durable, and what its name says
    <directory>/partial/<random>      on its way

A file that is there already is kept, so whoever was killed goes on with the files that it had. Files that lie side by
side in a pack come in one request. Memory is bounded: so many pieces are on their way at once, whatever the sizes, and
what came too early is in the file (:mod:`statecore.repository.resumable_file`).
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
from typing import Any

from statecore.cores import usable_cores
from statecore.errors import Corrupted
from statecore.filesystem import FileMoment, link_or_copy, make_directories, sync_file
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Extent
from statecore.repository.resumable_file import ResumableFile, said

FILES = "files"
"""Below this name in a directory lie whole files."""

PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = max(4, min(16, 2 * usable_cores()))
"""Requests at the same time: more than the cores can decrypt, hash and write only stand in one another's way."""

_PARTIAL = "partial"


@dataclass(frozen=True)
class Wanted:
    """A file that is wanted.

    Attributes:
        sha256: hex digest of it.
        extent: where its bytes lie.
        what: what it is, for messages.
        context: whose it is, as fields, for machines.
    """

    sha256: str
    extent: Extent
    what: str
    context: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Downloaded:
    """What came, and what was there.

    Attributes:
        bytes: bytes that came.
        files: files that came.
        kept_bytes: bytes of files that were there already.
        kept: files that were there already.
        hashed: what the files that came were when they were hashed, by hash.
    """

    bytes: int
    files: int
    kept_bytes: int
    kept: int
    hashed: Mapping[str, FileMoment | None] = field(default_factory=dict, compare=False)


def download(
    shelf: ApplicationRepository,
    wanted: Iterable[Wanted],
    directory: Path,
    *,
    at_hand: Mapping[str, Path] | None = None,
    advance: Callable[[int], None] = lambda _: None,
    keeps: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> Downloaded:
    """Bring files into ``<directory>/files``, except those that are there.

    Args:
        shelf: where they are.
        wanted: the files.
        directory: where they are brought.
        at_hand: files of this machine by hash that are known to be whole; they are linked.
        advance: told the bytes that came, and those that were there, as it goes.
        keeps: whether the directory outlives a job that fails; words for the operator.
        piece_bytes: what one request brings at most.

    Raises:
        Corrupted: one is missing, shorter than it should be, or not what its hash says; others may have come.
        Retryable: the repository could not be reached.
        Capacity, Invalid: the disk is full, or may not be written to.
    """
    with said(directory, keeps=keeps):
        make_directories(directory / FILES)
        make_directories(directory / _PARTIAL)
    here = at_hand or {}
    missing: list[Wanted] = []
    kept = kept_bytes = 0
    for one in {one.sha256: one for one in wanted}.values():
        if _is_there(one, directory, here.get(one.sha256)):
            kept, kept_bytes = kept + 1, kept_bytes + one.extent.bytes
            advance(one.extent.bytes)
        else:
            missing.append(one)
    coming = [
        [_Coming(one, ResumableFile(one.extent.bytes, directory / _PARTIAL, keeps=keeps)) for one in together]
        for together in _together(missing, piece_bytes)
    ]
    try:
        pieces = [piece for files in coming for piece in _pieces(files, piece_bytes)]
        hashed = _bring_all(shelf, pieces, directory, advance)
    finally:
        for each in chain.from_iterable(coming):
            each.file.discard()
    return Downloaded(sum(one.extent.bytes for one in missing), len(missing), kept_bytes, kept, hashed)


def forget_partial(directory: Path) -> None:
    """Delete what those who were killed have left half; whoever calls is alone there."""
    shutil.rmtree(directory / _PARTIAL, ignore_errors=True)


def _bring_all(
    shelf: ApplicationRepository, pieces: Sequence[_Piece], directory: Path, advance: Callable[[int], None]
) -> dict[str, FileMoment | None]:
    """Bring files by several threads, file after file; after a failure no more is asked for."""
    left = iter(pieces)
    hashed: dict[str, FileMoment | None] = {}
    next_one = threading.Lock()
    stopped = threading.Event()

    def bring() -> None:
        while not stopped.is_set():
            with next_one:
                piece = next(left, None)
            if piece is None:
                return
            hashed.update(_bring(shelf, piece, directory))
            advance(piece.extent.bytes)

    with ThreadPoolExecutor(PIECES_AT_ONCE, "statecore-download") as pool:
        work = [pool.submit(bring) for _ in pieces[:PIECES_AT_ONCE]]
        try:
            for one in as_completed(work):
                one.result()
        finally:
            stopped.set()
    return hashed


def _is_there(one: Wanted, directory: Path, at_hand: Path | None) -> bool:
    final = directory / FILES / one.sha256
    partial = directory / _PARTIAL / uuid.uuid4().hex
    with said(final), suppress(FileNotFoundError):
        if final.exists():
            if final.stat().st_size == one.extent.bytes:
                return True
            final.unlink()
        if at_hand is not None:
            try:
                link_or_copy(at_hand, partial)
                sync_file(partial)  # a copy is a file on its way, as long as it is not whole
                partial.replace(final)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
            return True
    return False


def _together(wanted: Sequence[Wanted], piece_bytes: int) -> list[list[Wanted]]:
    """Files that come in one request: those that lie side by side, up to a piece; a large one alone; largest first."""
    groups: list[list[Wanted]] = []
    room = 0
    for one in sorted(wanted, key=lambda one: (one.extent.blob, one.extent.start)):
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
class _Coming:
    """A file that is brought."""

    wanted: Wanted
    file: ResumableFile


@dataclass(frozen=True)
class _Piece:
    """What one request brings: small files that lie side by side, or a piece of a large one.

    Attributes:
        extent: where it lies.
        files: what it is of, in order.
        start: where it begins in the first of them.
    """

    extent: Extent
    files: Sequence[_Coming]
    start: int


def _pieces(files: Sequence[_Coming], piece_bytes: int) -> Iterator[_Piece]:
    first, size = files[0].wanted.extent, sum(one.wanted.extent.bytes for one in files)
    for at in range(0, max(1, size), piece_bytes):
        yield _Piece(Extent(first.blob, first.start + at, min(piece_bytes, size - at)), files, at)


def _bring(shelf: ApplicationRepository, piece: _Piece, directory: Path) -> Iterator[tuple[str, FileMoment | None]]:
    """Bring a piece; those files that are whole with it, and what they were when they were hashed."""
    extent, first = piece.extent, piece.files[0].wanted
    content = shelf.read(extent, first.what, **first.context) if extent.bytes else b""
    if len(content) != extent.bytes:
        raise _shorter(shelf, first)
    left, start = memoryview(content), piece.start
    for one in piece.files:
        mine = left[: one.wanted.extent.bytes - start]
        if one.file.take(start, mine):
            if one.file.sha256 != one.wanted.sha256:
                raise _changed(shelf, one.wanted)
            yield one.wanted.sha256, one.file.finish(directory / FILES / one.wanted.sha256)
        left, start = left[len(mine) :], 0


def _changed(shelf: ApplicationRepository, one: Wanted) -> Corrupted:
    return Corrupted(
        f"{one.what} is not what was written: the SHA-256 of the {one.extent.bytes} bytes from {one.extent.start} of "
        f"{one.extent.blob} in {shelf.url} differs.",
        code="blob-damaged",
        action=shelf.instead,
        **_where(shelf, one),
    )


def _shorter(shelf: ApplicationRepository, one: Wanted) -> Corrupted:
    return Corrupted(
        f"{one.what} is shorter than it should be: the blob {one.extent.blob} in {shelf.url} has fewer than "
        f"{one.extent.start + one.extent.bytes} bytes.",
        code="blob-truncated",
        action=shelf.instead,
        **_where(shelf, one),
    )


def _where(shelf: ApplicationRepository, one: Wanted) -> dict[str, Any]:
    extent = one.extent
    where = {"repository": shelf.url, "blob": extent.blob, "start": extent.start, "bytes": extent.bytes}
    return {**one.context, **where}
