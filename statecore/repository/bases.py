"""Base files that RocksDB wrote: hashed once, and uploaded unless the repository has them.

The identity of a base is a hash over the names and hashes of its files, so equal files have equal identities. It begins
with ``files:``; the identity of a base whose files are not read begins otherwise (:mod:`statecore.images.bases`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from statecore.filesystem import file_sha256
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import BaseFile, Extent
from statecore.repository.upload import LocalFile, put_files


def base_identity(files: Iterable[BaseFile]) -> str:
    """The identity of a base with these files."""
    listed = sorted([file.name, file.sha256] for file in files)
    return f"files:{sha256(json.dumps(listed, separators=(',', ':')).encode()).hexdigest()}"


def hashed(paths: Sequence[Path], done: Callable[[int], None] = lambda _: None) -> dict[Path, LocalFile]:
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
