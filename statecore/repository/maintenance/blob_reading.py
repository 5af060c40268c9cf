"""Reads files in a repository and compares their bytes with their hashes; nothing is kept.

Each thread reads a file, or adjacent small ones, piece after piece, so memory is bounded by the pieces in flight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from hashlib import sha256
from queue import SimpleQueue

from statecore.errors import Invalid, NotFound, Retryable
from statecore.objectstore.base import Blobs
from statecore.repository.blob_verification import NamedFile
from statecore.repository.download import PIECE_BYTES, PIECES_AT_ONCE, adjacent_groups

_TOLD_SECONDS = 0.2  # How often progress is told
# Codes of files that could not be read, by the code of the error
_UNREADABLE = {"disk-failed": "blob-damaged", "blob-archived": "blob-archived"}


def damaged_files(
    blobs: Blobs,
    files: Iterable[NamedFile],
    advance: Callable[[int], None] = lambda _: None,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> dict[NamedFile, str]:
    """Read files; the code of each that is damaged. ``advance`` gets the bytes that were read, in this thread.

    After an error, such as ``Retryable``, no more requests are sent.
    """
    left = iter(adjacent_groups(files, piece_bytes))
    damaged: dict[NamedFile, str] = {}
    counted: SimpleQueue[int] = SimpleQueue()
    lock, stopped = threading.Lock(), threading.Event()

    def read_groups() -> None:
        while not stopped.is_set():
            with lock:
                group = next(left, None)
            if group is None:
                return
            damaged.update(_damaged_in(blobs, group, counted.put, piece_bytes, stopped))

    with ThreadPoolExecutor(PIECES_AT_ONCE, "statecore-verify") as pool:
        pending = {pool.submit(read_groups) for _ in range(PIECES_AT_ONCE)}
        try:
            while pending:
                done, pending = wait(pending, _TOLD_SECONDS, FIRST_COMPLETED)
                for one in done:
                    one.result()
                while not counted.empty():
                    advance(counted.get())
        finally:
            stopped.set()
    return damaged


def _damaged_in(
    blobs: Blobs,
    files: Sequence[NamedFile],
    advance: Callable[[int], None],
    piece_bytes: int,
    stopped: threading.Event,
) -> dict[NamedFile, str]:
    """Read adjacent files of one blob."""
    blob, at = files[0].extent.blob, files[0].extent.start
    end = files[-1].extent.start + files[-1].extent.bytes
    damaged: dict[NamedFile, str] = {}
    left, digest = list(files[::-1]), sha256()  # the next one is the last
    while left and not stopped.is_set():
        high = min(at + piece_bytes, end)
        try:
            content = memoryview(blobs.get(blob, at, high))
        except NotFound:
            return damaged | dict.fromkeys(left, "blob-missing")
        except (Invalid, Retryable) as error:
            if error.code not in _UNREADABLE:
                raise
            return damaged | dict.fromkeys(left, _UNREADABLE[error.code])
        advance(len(content))
        is_short = len(content) < high - at
        while left:
            one = left[-1].extent
            mine = content[: one.start + one.bytes - at]
            digest.update(mine)
            content, at = content[len(mine) :], at + len(mine)
            if at < one.start + one.bytes:
                break
            if digest.hexdigest() != left[-1].sha256:
                damaged[left[-1]] = "blob-damaged"
            left.pop()
            digest = sha256()
        if is_short:
            return damaged | dict.fromkeys(left, "blob-truncated")
    return damaged
