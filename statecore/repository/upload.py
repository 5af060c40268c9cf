"""Ways into a repository for files: each once, under its hash; small ones together in a pack.

What is small costs a request and nothing else, so files below :data:`SMALL` that are put together share a blob::

    packs/<sha256 of the whole>     file │ file │ file │ ...      each found by its place, and known by its own hash

The same files in the same order make the same pack, so a second attempt moves no byte. What is there already is looked
at, and put in the place of what is damaged (:mod:`statecore.repository.blob_verification`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.errors import NotFound, Retryable
from statecore.objectstore.base import Blobs
from statecore.repository.blob_verification import changed, is_whole
from statecore.repository.layout import Layout
from statecore.repository.manifest import Extent
from statecore.system_errors import system_error

SMALL = 1 << 20
"""Bytes from which on a file is a blob of its own."""

PACK_BYTES = 64 << 20
"""Bytes of small files from which on another pack is begun."""

_AT_ONCE = 8
_TRIES = 8


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
    blobs: Blobs,
    names: Layout,
    files: Sequence[LocalFile],
    done: Callable[[int], None] = lambda _: None,
    *,
    small: int = SMALL,
    pack_bytes: int = PACK_BYTES,
) -> list[Extent]:
    """Put files, and say where each of them lies, in their order. All are durable when this returns.

    Args:
        blobs: the repository's.
        names: of the application.
        files: what is put; two may be the same.
        done: told the bytes of each that is there.
        small: bytes from which on a file is a blob of its own.
        pack_bytes: bytes of small files from which on another pack is begun.

    Raises:
        Corrupted: a file is not what its hash says, or has another size.
        NotFound: a file is not there.
        Invalid, Capacity, Retryable: see :meth:`Blobs.put_if_absent`.
    """
    found: dict[str, Extent] = {}
    large = {file.sha256: file for file in files if file.bytes >= small}
    packed = list({file.sha256: file for file in files if file.bytes < small}.values())
    if len(packed) == 1:
        alone = packed.pop()
        large[alone.sha256] = alone

    def put_alone(file: LocalFile) -> None:
        name = names.file(file.sha256)
        if _size(file) != file.bytes:
            raise changed(file.path, file.bytes, file.sha256)
        put_whole(blobs, name, file.path, file.bytes)
        found[file.sha256] = Extent(name, 0, file.bytes)
        done(file.bytes)

    if len(large) == 1:
        put_alone(*large.values())
    elif large:
        with ThreadPoolExecutor(min(_AT_ONCE, len(large)), "statecore-upload") as pool:
            for _ in pool.map(put_alone, large.values()):
                pass
    for together in _packs(packed, pack_bytes):
        content = b"".join(map(_content, together))
        name = names.pack(sha256(content).hexdigest())
        put_whole(blobs, name, content, len(content))
        start = 0
        for file in together:
            found[file.sha256] = Extent(name, start, file.bytes)
            start += file.bytes
        done(len(content))
    return [found[file.sha256] for file in files]


def put_whole(blobs: Blobs, name: str, content: bytes | Path, size: int) -> None:
    """Put a blob that is named by what it holds; one of that name that is seen to be damaged is replaced.

    Raises:
        Corrupted: a file differs from the blob, and is not what its hash says: the blob stays as it is.
        Invalid, Capacity, Retryable: see :meth:`Blobs.put_if_absent`.
    """
    for _ in range(_TRIES):
        if blobs.put_if_absent(name, content):
            return
        with suppress(NotFound):  # of a blob that is said to be there: it was deleted just now, or is there and hidden
            if not is_whole(blobs, name, content, size):
                blobs.replace(name, content)
            return
    raise Retryable(
        f"The blob {name} could not be put: {_TRIES} times there was one, and none when it was looked at.",
        code="object-store-inconsistent",
        action="Look at the object store and who else writes to it, then try again.",
        blob=name,
    )


def _size(file: LocalFile) -> int | None:
    """The size of a file; that of one which cannot be looked at is for those to say who read it."""
    try:
        return file.path.stat().st_size
    except OSError:
        return file.bytes


def _content(file: LocalFile) -> bytes:
    """The bytes of a small file, which share their blob with others: what is wrong with one is not found later."""
    try:
        content = file.path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"There is no file {file.path} to be put.",
            code="upload-file-missing",
            action="Make it anew.",
            path=str(file.path),
        ) from error
    except OSError as error:
        raise system_error(
            error, f"{file.path} could not be read", action="Check that it can be read.", path=str(file.path)
        ) from error
    if sha256(content).hexdigest() != file.sha256:
        raise changed(file.path, file.bytes, file.sha256)
    return content


def _packs(files: Sequence[LocalFile], pack_bytes: int) -> list[list[LocalFile]]:
    packs: list[list[LocalFile]] = []
    room = 0
    for file in files:
        if not packs or file.bytes > room:
            packs.append([])
            room = pack_bytes
        packs[-1].append(file)
        room -= file.bytes
    return packs
