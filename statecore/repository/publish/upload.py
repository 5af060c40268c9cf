"""Uploads files: each once, named by its hash; small ones (below :data:`SMALL`) that are put together share a pack.

The same files in the same order make the same pack, so a second attempt moves no byte. Existing blobs are verified, and
damaged ones replaced (:mod:`statecore.repository.blob_verification`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.errors import NotFound, Retryable
from statecore.filesystem import file_sha256
from statecore.objectstore.base import Blobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import file_changed, is_intact
from statecore.repository.layout import Layout
from statecore.repository.manifest import BaseFile, Extent
from statecore.system_errors import system_error

SMALL = 1 << 20  # Files of this size and more are blobs of their own
PACK_BYTES = 64 << 20  # Size from which on another pack is begun
_AT_ONCE = 8
_TRIES = 8


@dataclass(frozen=True)
class LocalFile:
    """A finished local file, its hex SHA-256 and its size."""

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
    """Upload files; their extents, in order. All are durable when this returns."""
    found: dict[str, Extent] = {}
    large = {file.sha256: file for file in files if file.bytes >= small}
    packed = list({file.sha256: file for file in files if file.bytes < small}.values())
    if len(packed) == 1:
        single = packed.pop()
        large[single.sha256] = single

    def put_single(file: LocalFile) -> None:
        name = names.file(file.sha256)
        if _size(file) != file.bytes:
            raise file_changed(file.path, file.bytes, file.sha256)
        put_verified(blobs, name, file.path, file.bytes, file.sha256)
        found[file.sha256] = Extent(name, 0, file.bytes)
        done(file.bytes)

    if len(large) == 1:
        put_single(*large.values())
    elif large:
        with ThreadPoolExecutor(min(_AT_ONCE, len(large)), "statecore-upload") as pool:
            for _ in pool.map(put_single, large.values()):
                pass
    for together in _packs(packed, pack_bytes):
        content = b"".join(map(_content, together))
        digest = sha256(content).hexdigest()
        name = names.pack(digest)
        put_verified(blobs, name, content, len(content), digest)
        start = 0
        for file in together:
            found[file.sha256] = Extent(name, start, file.bytes)
            start += file.bytes
        done(len(content))
    return [found[file.sha256] for file in files]


def put_verified(blobs: Blobs, name: str, content: bytes | Path, size: int, digest: str) -> None:
    """Put a blob that has the SHA-256 ``digest``; an existing one is replaced if it is damaged."""
    for _ in range(_TRIES):
        if blobs.put_if_absent(name, content):
            return
        with suppress(NotFound):  # of a blob that exists: it was deleted just now, or is hidden
            if not is_intact(blobs, name, content, size, digest):
                blobs.replace(name, content)
            return
    raise Retryable(
        f"The blob {name} could not be put: {_TRIES} times it existed, and could not be read then.",
        code="object-store-inconsistent",
        action="Check the object store and which processes write to it, then try again.",
        blob=name,
    )


def _size(file: LocalFile) -> int | None:
    """The size of a file; for an unreadable one the expected size, because reading it raises a better error."""
    try:
        return file.path.stat().st_size
    except OSError:
        return file.bytes


def _content(file: LocalFile) -> bytes:
    """The bytes of a small file, verified: damage of one file in a pack would not be found later."""
    try:
        content = file.path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"The file {file.path} to be uploaded does not exist.",
            code="upload-file-missing",
            action="Rebuild it.",
            path=str(file.path),
        ) from error
    except OSError as error:
        raise system_error(
            error, f"{file.path} could not be read", action="Check that it can be read.", path=str(file.path)
        ) from error
    if sha256(content).hexdigest() != file.sha256:
        raise file_changed(file.path, file.bytes, file.sha256)
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


def hash_files(paths: Sequence[Path], done: Callable[[int], None] = lambda _: None) -> dict[Path, LocalFile]:
    """Hash files with a thread per core; ``done`` gets the bytes of each, one call at a time."""

    def hash_file(path: Path) -> LocalFile:
        return LocalFile(path, file_sha256(path), path.stat().st_size)

    found = {}
    with ThreadPoolExecutor(os.cpu_count() or 1, "statecore-hash") as pool:
        for path, file in zip(paths, _in_order(pool, hash_file, paths), strict=True):
            found[path] = file
            done(file.bytes)
    return found


def _in_order(
    pool: ThreadPoolExecutor, hash_file: Callable[[Path], LocalFile], paths: Sequence[Path]
) -> Iterator[LocalFile]:
    try:
        yield from pool.map(hash_file, paths)
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise


def put_bases(
    app_repository: ApplicationRepository,
    bases: Sequence[Sequence[LocalFile]],
    known: Mapping[str, Extent],
    done: Callable[[int], None] = lambda _: None,
) -> list[tuple[BaseFile, ...]]:
    """Upload the files of bases that are not ``known``; all are durable when this returns."""
    new = {file.sha256: file for files in bases for file in files if file.sha256 not in known}
    extents = dict(
        zip(new, put_files(app_repository.blobs, app_repository.names, list(new.values()), done), strict=True)
    )
    where = {**known, **extents}
    return [tuple(BaseFile(file.path.name, file.sha256, where[file.sha256]) for file in files) for files in bases]
