"""Detects damaged SST and blob files: RocksDB never rewrites one, so changed content is damage.

A file is identified by its database (``IDENTITY``) and its number. But two instances that started from one snapshot
have the same database identity, and each continues with the next numbers for its own files. So where hashes differ, the
MANIFESTs are compared, which record RocksDB's random identity of every SST file; no large file is read for that. A blob
file has none; it is the same if the same SST file refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.rocksdb_log import DATA_SUFFIXES, LiveFile, blob_name, read_manifest
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.files import Files
from statecore.jobs.backup.newest_snapshot import IDENTITY, NewestSnapshot
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import BaseFile
from statecore.repository.publish.upload import LocalFile
from statecore.spec.model import segment_interval_of
from statecore.stores.rocksdb.files import parse_manifest


def refuse_changed(
    repository: ApplicationRepository, copies: Iterable[StoreCopy], files: Files, newest: NewestSnapshot
) -> None:
    """Check that no SST or blob file differs from the same file in the newest snapshot."""
    for copy in copies:
        before = newest.store(copy.key)
        stored = {} if before is None else {database.segment: database.base for database in before.databases}
        for segment, found in files[copy.key].items():
            for file, digest in _changed(repository, found, stored.get(segment, ())):
                raise Corrupted(
                    f"Nothing was published: a file of {copy.selected.name} has changed since the newest snapshot, and "
                    f"RocksDB never rewrites one. {_source(copy, segment) / file.path.name} has the SHA-256 "
                    f"{file.sha256}, and the snapshot records {digest}.",
                    code="immutable-file-changed",
                    action="Find out what wrote to it, and check the disk. Then replace the store from a snapshot "
                    "(statecore fetch --replace), or rebuild it (statecore restore --replace).",
                    task=copy.selected.task,
                    store=copy.selected.spec.name,
                    path=str(_source(copy, segment) / file.path.name),
                    expected=digest,
                    found=file.sha256,
                )


def _changed(
    repository: ApplicationRepository, found: Sequence[LocalFile], stored: Sequence[BaseFile]
) -> list[tuple[LocalFile, str]]:
    """Changed data files of a database, each with its earlier hash."""
    stored_files = {file.name: file for file in stored}
    differ = [
        file for file in found if file.path.name in stored_files and file.sha256 != stored_files[file.path.name].sha256
    ]
    if any(file.path.name == IDENTITY for file in differ) or IDENTITY not in stored_files:
        return []
    differ = [file for file in differ if file.path.suffix in DATA_SUFFIXES]
    if not differ:
        return []
    same = _identities(_stored_entries(repository, stored)) & _identities(_entries(found))
    names = {name for name, _ in same}
    return [(file, stored_files[file.path.name].sha256) for file in differ if file.path.name in names]


def _identities(entries: Mapping[int, LiveFile]) -> set[tuple[str, bytes]]:
    """Names of SST files and of the blob files they refer to, each with the identity of the SST file."""
    found = {(file.name, file.identity) for file in entries.values() if file.identity}
    linked = [file for file in entries.values() if file.identity and file.oldest_blob]
    return found | {(blob_name(file.oldest_blob), file.identity) for file in linked}


def _entries(found: Iterable[LocalFile]) -> Mapping[int, LiveFile]:
    (path,) = (file.path for file in found if file.path.name.startswith("MANIFEST-"))
    return parse_manifest(path.parent, path.read_bytes()).files


def _stored_entries(repository: ApplicationRepository, stored: Iterable[BaseFile]) -> Mapping[int, LiveFile]:
    """Live files of the MANIFEST in the repository; none if it is damaged."""
    for file in stored:
        if file.name.startswith("MANIFEST-"):
            try:
                content = repository.read(file.extent, f"{file.name} of the newest snapshot")
                return read_manifest(content).files if sha256(content).hexdigest() == file.sha256 else {}
            except (Corrupted, ValueError):
                return {}
    return {}


def _source(copy: StoreCopy, segment: int | None) -> Path:
    """The database that was copied."""
    directory, interval = copy.selected.directory, segment_interval_of(copy.selected.spec)
    for one in directory.segments:
        if interval and one.start is not None and one.start // interval == segment:
            return one.path
    return directory.path
