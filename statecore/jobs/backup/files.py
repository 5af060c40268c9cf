"""Files of copied stores: listed for a plan, hashed, and uploaded."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statecore.filesystem import file_sha256
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.stores import StoreKey
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Extent, StoredDatabase
from statecore.repository.publish.upload import SMALL, LocalFile, hash_files, put_bases
from statecore.stores.rocksdb.checkpoint import named_files

Files = Mapping[StoreKey, Mapping[int | None, Sequence[LocalFile]]]
"""The files of each store, by segment."""


def listed_files(copy: StoreCopy) -> dict[int | None, list[LocalFile]]:
    """Files of a store by segment, for a plan; large data files are not read and have no hash."""
    found: dict[int | None, list[LocalFile]] = {}
    for segment, database in copy.databases.items():
        sizes = [(file, file.stat().st_size) for file in named_files(database)]
        found[segment] = [
            LocalFile(file, "" if size >= SMALL and file.suffix in DATA_SUFFIXES else file_sha256(file), size)
            for file, size in sizes
        ]
    return found


def hashed_files(copies: Sequence[StoreCopy], progress: Progress) -> Files:
    """Files of stores, all read from the disk."""
    paths = {
        (copy.key, segment): named_files(database) for copy in copies for segment, database in copy.databases.items()
    }
    every = [file for named in paths.values() for file in named]
    progress.phase("hash", sum(file.stat().st_size for file in every), "bytes")
    found = hash_files(every, progress.advance)
    progress.done()
    files: dict[StoreKey, dict[int | None, list[LocalFile]]] = {copy.key: {} for copy in copies}
    for (of, segment), named in paths.items():
        files[of][segment] = [found[file] for file in named]
    return files


class UploadedFiles(NamedTuple):
    """Databases in the repository.

    Attributes:
        new: bytes of each file that was uploaded, by hash.
    """

    databases: Mapping[StoreKey, tuple[StoredDatabase, ...]]
    new: Mapping[str, int]


def upload_files(
    repository: ApplicationRepository, files: Files, known: Mapping[str, Extent], progress: Progress
) -> UploadedFiles:
    """Upload files of stores, except those that are known to be there."""
    databases = [(of, segment, found) for of, segments in files.items() for segment, found in segments.items()]
    new = {file.sha256: file.bytes for *_, found in databases for file in found if file.sha256 not in known}
    counting = threading.Lock()

    def done(count: int) -> None:  # called by several threads
        with counting:
            progress.advance(count)

    progress.phase("upload", sum(new.values()), "bytes")
    bases = put_bases(repository, [found for *_, found in databases], known, done)
    progress.done()
    stored: dict[StoreKey, list[StoredDatabase]] = {of: [] for of in files}
    for (of, segment, _), base in zip(databases, bases, strict=True):
        stored[of].append(StoredDatabase(segment, (), base))
    return UploadedFiles({of: tuple(its) for of, its in stored.items()}, new)
