"""A file being downloaded: pieces arrive in any order, are written in place, and hashed in order.

::

    hashed ──────────────▶│ wait  │ missing │ wait │         a piece that comes next is hashed from memory,
    0                     │       │         │      │  bytes  and after it those that waited, from the file

Only the file holds a waiting piece, so memory does not grow where one piece is late. The thread that brings the missing
piece hashes, while other threads download more.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from statecore.errors import Capacity
from statecore.filesystem import FileState, sync_file
from statecore.system_errors import system_error

_CHUNK = 1 << 20


class IncomingFile:
    """A partial file, opened when the first piece arrives."""

    def __init__(
        self, size: int, directory: Path, *, keeps: bool = True, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._size, self._keeps, self._clock = size, keeps, clock
        self._path = directory / uuid.uuid4().hex
        self._digest = sha256()
        self._hashed = 0
        self._waiting: dict[int, int] = {}
        self._is_hashing = False
        self._lock = threading.Lock()
        self._opened: IO[bytes] | None = None

    def take(self, start: int, piece: memoryview) -> bool:
        """Write a piece, from any thread (an empty file has an empty one); return, once, that the file is complete."""
        with file_errors(self._path, keeps=self._keeps):
            with self._lock:
                if self._opened is None:
                    self._opened = self._path.open("x+b", buffering=0)
                descriptor = self._opened.fileno()
            written = 0
            while written < len(piece):
                written += os.pwrite(descriptor, piece[written:], start + written)
            with self._lock:
                if self._is_hashing or start != self._hashed:
                    self._waiting[start] = len(piece)
                    return False
                self._is_hashing = True
            self._digest.update(piece)
            return self._hash_waiting(descriptor, start + len(piece))

    def _hash_waiting(self, descriptor: int, end: int) -> bool:
        """Hash the pieces that waited for the one that ends here."""
        while True:
            with self._lock:
                self._hashed = end
                size = self._waiting.pop(end, None)
                if size is None:
                    self._is_hashing = False
                    return end == self._size
            for at in range(end, end + size, _CHUNK):
                chunk = os.pread(descriptor, min(_CHUNK, end + size - at), at)
                self._digest.update(chunk)
            end += size

    @property
    def sha256(self) -> str:
        """Hex digest of what was hashed."""
        return self._digest.hexdigest()

    def finish(self, final: Path) -> FileState | None:
        """Sync the file and rename it to its final name; its state then, as far as that can be told."""
        assert self._opened is not None
        with file_errors(self._path, keeps=self._keeps):
            self._opened.close()
            sync_file(self._path)
            moment = FileState.of(self._path, self._clock)
            self._path.replace(final)
            self._opened = None
        return moment

    def discard(self) -> None:
        """Delete the file if it is unfinished."""
        if self._opened is not None:
            self._opened.close()
            self._path.unlink(missing_ok=True)


@contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """A temporary directory; ``Capacity`` if there is no room for one, as on a full or a read-only disk."""
    try:
        made = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise Capacity(
            f"No temporary directory could be made: {error.strerror or error}.",
            code="no-space",
            action="Free space, or let TMPDIR name a directory with room, as /dev/shm, then run this again.",
        ) from error
    with made as directory:
        yield Path(directory)


@contextmanager
def file_errors(path: Path, *, keeps: bool = True) -> Iterator[None]:
    """Convert ``OSError`` on a file into one of statecore's errors; ``keeps`` says whether complete files are kept."""
    retry = "run this again: complete files are kept." if keeps else "run this again; nothing is kept."
    try:
        yield
    except OSError as error:
        raise system_error(
            error,
            f"{path} could not be written",
            action=f"Check the disk, then {retry}",
            room=f"Free space there{'' if keeps else ', or let TMPDIR name a larger disk'}, then {retry}",
            path=str(path),
        ) from error
