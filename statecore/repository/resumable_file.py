"""A file on its way: its pieces come in any order, are written where they belong, and hashed in their order.

::

    hashed ──────────────▶│ wait  │ missing │ wait │         a piece that comes next is hashed from memory,
    0                     │       │         │      │  bytes  and after it those that had waited, from the file

Nothing but the file holds a piece that waits, so memory does not grow where one piece is late. Whoever brings the piece
that was missing hashes; others bring more meanwhile.
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
from typing import IO

from statecore.filesystem import FileMoment, sync_file
from statecore.system_errors import system_error

_CHUNK = 1 << 20


class ResumableFile:
    """A file of which some has come. It is opened when the first piece comes.

    Args:
        size: its bytes.
        directory: where it lies until it is whole.
        keeps: whether files that are whole stay there when others fail.
        clock: ns since the epoch, by the clock of the file system.
    """

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
        """Write a piece; several threads may do so at once.

        Args:
            start: where it begins in the file.
            piece: its bytes; the file's empty one counts, too.

        Returns:
            Whether the file is whole now, and hashed: true once.
        """
        with said(self._path, keeps=self._keeps):
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
            return self._hash_on(descriptor, start + len(piece))

    def _hash_on(self, descriptor: int, end: int) -> bool:
        """Hash what has waited for the piece that ends here."""
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

    def finish(self, final: Path) -> FileMoment | None:
        """Give it its name, durable; what it is then, as far as that can be told."""
        assert self._opened is not None
        with said(self._path, keeps=self._keeps):
            self._opened.close()
            sync_file(self._path)
            moment = FileMoment.of(self._path, self._clock)
            self._path.replace(final)
            self._opened = None
        return moment

    def discard(self) -> None:
        """Take away what is not finished."""
        if self._opened is not None:
            self._opened.close()
            self._path.unlink(missing_ok=True)


@contextmanager
def said(path: Path, *, keeps: bool = True) -> Iterator[None]:
    """What the system says of a file, as one of the kinds of error.

    Args:
        path: the file.
        keeps: whether files that came whole stay when the job has failed.
    """
    again = "run this again: files that came whole are kept." if keeps else "run this again; nothing is kept meanwhile."
    try:
        yield
    except OSError as error:
        raise system_error(
            error,
            f"{path} could not be written",
            action=f"Look at the disk, then {again}",
            room=f"Free room there{'' if keeps else ', or let TMPDIR name a larger disk'}, then {again}",
            path=str(path),
        ) from error
