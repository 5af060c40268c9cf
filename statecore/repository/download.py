"""Ways out of a repository for files: in parallel, in pieces, hashed while they come, each under its hash.

::

    <directory>/files/<sha256>        whole, durable, and what its name says
    <directory>/partial/<random>      on its way

A file that is there already is kept, so whoever was killed goes on with the files that it had. Files that lie side by
side in a pack come in one request. Memory is bounded: so many pieces are on their way at once, whatever the sizes.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.errors import Corrupted
from statecore.filesystem import link_or_copy, make_directories, sync_file
from statecore.repository.manifest import Extent
from statecore.repository.shelf import Shelf
from statecore.system_errors import system_error

FILES = "files"
"""Below this name in a directory lie whole files."""

PIECE_BYTES = 8 << 20
_FILES_AT_ONCE = 4
_PIECES_AHEAD = 4

_PARTIAL = "partial"


@dataclass(frozen=True)
class Wanted:
    """A file that is wanted.

    Attributes:
        sha256: hex digest of it.
        extent: where its bytes lie.
        what: what it is, for messages.
    """

    sha256: str
    extent: Extent
    what: str


@dataclass(frozen=True)
class Downloaded:
    """What came, and what was there.

    Attributes:
        bytes: bytes that came.
        files: files that came.
        kept_bytes: bytes of files that were there already.
        kept: files that were there already.
    """

    bytes: int
    files: int
    kept_bytes: int
    kept: int


def download(
    shelf: Shelf,
    wanted: Iterable[Wanted],
    directory: Path,
    *,
    at_hand: Mapping[str, Path] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Downloaded:
    """Bring files into ``<directory>/files``, except those that are there.

    Args:
        shelf: where they are.
        wanted: the files.
        directory: where they are brought.
        at_hand: files of this machine by hash that are known to be whole; they are linked.
        advance: told the bytes that came, and those that were there, as it goes.

    Raises:
        Corrupted: one is missing, shorter than it should be, or not what its hash says; others may have come.
        Retryable: the repository could not be reached.
        Capacity, Invalid: the disk is full, or may not be written to.
    """
    with _said(directory):
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
    with (
        ThreadPoolExecutor(_FILES_AT_ONCE * _PIECES_AHEAD, "statecore-piece") as pieces,
        ThreadPoolExecutor(_FILES_AT_ONCE, "statecore-file") as files,
    ):
        stopped = threading.Event()
        work = [
            files.submit(_bring, shelf, together, directory, pieces, advance, stopped)
            for together in _together(missing)
        ]
        try:
            for one_work in as_completed(work):
                one_work.result()
        except BaseException:
            stopped.set()
            files.shutdown(wait=True, cancel_futures=True)
            raise
    return Downloaded(sum(one.extent.bytes for one in missing), len(missing), kept_bytes, kept)


def _is_there(one: Wanted, directory: Path, at_hand: Path | None) -> bool:
    final = directory / FILES / one.sha256
    partial = directory / _PARTIAL / uuid.uuid4().hex
    with _said(final), suppress(FileNotFoundError):
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


def _together(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
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
        room = PIECE_BYTES - extent.bytes
    return sorted(groups, key=lambda group: -sum(one.extent.bytes for one in group))


def _bring(
    shelf: Shelf,
    together: Sequence[Wanted],
    directory: Path,
    pieces: ThreadPoolExecutor,
    advance: Callable[[int], None],
    stopped: threading.Event,
) -> None:
    """Bring files that lie side by side: the next pieces are on their way while one is written.

    Where another file could not be brought, this one is not waited for.
    """
    first, size = together[0], sum(one.extent.bytes for one in together)
    start = first.extent.start
    spans = deque((at, min(at + PIECE_BYTES, start + size)) for at in range(start, start + size, PIECE_BYTES))
    coming: deque[tuple[int, Future[bytes]]] = deque()

    def ask() -> None:
        if spans:
            low, high = spans.popleft()
            extent = Extent(first.extent.blob, low, high - low)
            coming.append((high - low, pieces.submit(shelf.read, extent, first.what)))

    for _ in range(_PIECES_AHEAD):
        ask()
    rest = deque(together)
    writing = _File(rest.popleft(), directory)
    try:
        while coming and not stopped.is_set():
            expected, future = coming.popleft()
            piece = future.result()
            ask()
            if len(piece) != expected:
                raise _shorter(shelf, first)
            view = memoryview(piece)
            while len(view):
                view = view[writing.take(view) :]
                if writing.is_full:
                    writing.finish(shelf)
                    if not rest:
                        break
                    writing = _File(rest.popleft(), directory)
            advance(expected)
        while not (writing.finished or coming):  # files without a byte
            writing.finish(shelf)
            if rest:
                writing = _File(rest.popleft(), directory)
    finally:
        writing.discard()
        for _, future in coming:
            future.cancel()


class _File:
    """A file on its way."""

    def __init__(self, wanted: Wanted, directory: Path) -> None:
        self.wanted = wanted
        self.finished = False
        self._final = directory / FILES / wanted.sha256
        self._path = directory / _PARTIAL / uuid.uuid4().hex
        self._digest = sha256()
        self._left = wanted.extent.bytes
        with _said(self._path):
            self._file = self._path.open("xb", buffering=0)

    @property
    def is_full(self) -> bool:
        """Whether all of its bytes have come."""
        return not self._left

    def take(self, view: memoryview) -> int:
        """Write what is of this file; how much that was."""
        mine = view[: self._left]
        self._digest.update(mine)
        with _said(self._path):
            written = 0
            while written < len(mine):
                written += self._file.write(mine[written:])
        self._left -= len(mine)
        return len(mine)

    def finish(self, shelf: Shelf) -> None:
        """Give it its name, durable.

        Raises:
            Corrupted: it is not what its hash says.
        """
        if self._digest.hexdigest() != self.wanted.sha256:
            raise Corrupted(
                f"{self.wanted.what} is not what was written: the SHA-256 of the {self.wanted.extent.bytes} bytes from "
                f"{self.wanted.extent.start} of {self.wanted.extent.blob} in {shelf.url} differs.",
                action="Take another snapshot (statecore snapshots lists them), and look at the object store.",
                blob=self.wanted.extent.blob,
            )
        with _said(self._path):
            self._file.close()
            sync_file(self._path)
            self._path.replace(self._final)
        self.finished = True

    def discard(self) -> None:
        """Take away what is not whole."""
        self._file.close()
        if not self.finished:
            self._path.unlink(missing_ok=True)


def _shorter(shelf: Shelf, one: Wanted) -> Corrupted:
    return Corrupted(
        f"{one.what} is shorter than it should be: the blob {one.extent.blob} in {shelf.url} has fewer than "
        f"{one.extent.start + one.extent.bytes} bytes.",
        action="Take another snapshot (statecore snapshots lists them), and look at the object store.",
        blob=one.extent.blob,
    )


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """What the system says, as one of the kinds of error."""
    try:
        yield
    except OSError as error:
        raise system_error(
            error,
            f"{path} could not be written",
            action="Look at the disk, then run this again: files that came whole are kept.",
            room="Free room there, then run this again: files that came whole are kept.",
            path=str(path),
        ) from error
