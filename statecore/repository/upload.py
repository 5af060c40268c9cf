"""Ways into a repository for files: each once, under its hash; small ones together in a pack.

What is small costs a request and nothing else, so files below :data:`SMALL` that are put together share a blob::

    packs/<sha256 of the whole>     file │ file │ file │ ...      each found by its place, and known by its own hash

The same files in the same order make the same pack, so a second attempt moves no byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.blobs.base import Blobs
from statecore.repository.layout import Layout
from statecore.repository.manifest import Extent

SMALL = 1 << 20
"""Bytes from which on a file is a blob of its own."""

PACK_BYTES = 64 << 20
"""Bytes of small files from which on another pack is begun."""

_AT_ONCE = 8


@dataclass(frozen=True)
class LocalFile:
    """A finished file of this machine.

    Attributes:
        path: the file.
        sha256: hex digest of it.
        bytes: its size.
    """

    path: Path
    sha256: str
    bytes: int


def put_files(
    blobs: Blobs, names: Layout, files: Sequence[LocalFile], done: Callable[[int], None] = lambda _: None
) -> list[Extent]:
    """Put files, and say where each of them lies, in their order. All are durable when this returns.

    Args:
        blobs: the repository's.
        names: of the application.
        files: what is put; two may be the same.
        done: told the bytes of each that is there.

    Raises:
        Invalid, Capacity, Retryable: see :meth:`Blobs.put_if_absent`.
    """
    found: dict[str, Extent] = {}
    large = {file.sha256: file for file in files if file.bytes >= SMALL}
    small = list({file.sha256: file for file in files if file.bytes < SMALL}.values())
    if len(small) == 1:
        alone = small.pop()
        large[alone.sha256] = alone

    def put_alone(file: LocalFile) -> None:
        name = names.file(file.sha256)
        put_whole(blobs, name, file.path, file.bytes)
        found[file.sha256] = Extent(name, 0, file.bytes)
        done(file.bytes)

    if len(large) == 1:
        put_alone(*large.values())
    elif large:
        with ThreadPoolExecutor(min(_AT_ONCE, len(large)), "statecore-upload") as pool:
            for _ in pool.map(put_alone, large.values()):
                pass
    for together in _packs(small):
        content = b"".join(file.path.read_bytes() for file in together)
        name = names.pack(sha256(content).hexdigest())
        put_whole(blobs, name, content, len(content))
        start = 0
        for file in together:
            found[file.sha256] = Extent(name, start, file.bytes)
            start += file.bytes
        done(len(content))
    return [found[file.sha256] for file in files]


def put_whole(blobs: Blobs, name: str, content: bytes | Path, size: int) -> None:
    """Put a blob that is named by what it holds; one of that name with another size is replaced."""
    while not blobs.put_if_absent(name, content) and blobs.head(name).size != size:
        blobs.delete(name)


def _packs(files: Sequence[LocalFile]) -> list[list[LocalFile]]:
    packs: list[list[LocalFile]] = []
    room = 0
    for file in files:
        if not packs or file.bytes > room:
            packs.append([])
            room = PACK_BYTES
        packs[-1].append(file)
        room -= file.bytes
    return packs
