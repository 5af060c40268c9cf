"""SST and blob files that have changed where they lie. RocksDB never writes to one again, so that is damage, no news.

A file is known by its database (``IDENTITY``) and its number. But two instances that started from one snapshot have the
same database, and each of them goes on to give the next numbers to files of its own. So where hashes differ, the
MANIFESTs are asked, which say of every SST file the random identity that RocksDB gave it: no large file is read for
that. A blob file has none. It is the same one where the same SST file refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from statecore.errors import Corrupted
from statecore.formats.rocksdb_log import DATA_SUFFIXES, LiveFile, blob_name, read_manifest
from statecore.jobs.backup.copies import StoreCopy
from statecore.jobs.backup.task_manifests import Files, Newest, key
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import BaseFile
from statecore.repository.upload import LocalFile
from statecore.spec.derived import segment_interval_of
from statecore.stores.rocksdb.files import understood

_IDENTITY = "IDENTITY"


def refuse_changed(shelf: ApplicationRepository, copies: Iterable[StoreCopy], files: Files, newest: Newest) -> None:
    """Make sure that no SST file and no blob file has other bytes now than the newest snapshot has of the same file.

    Args:
        shelf: where the newest snapshot lies.
        copies: the stores that are to be published.
        files: of these.
        newest: what counts.

    Raises:
        Corrupted: one has.
        Invalid, Retryable: nobody could look.
    """
    for copy in copies:
        before = newest.store(key(copy))
        stored = {} if before is None else {database.segment: database.base for database in before.databases}
        for segment, found in files[key(copy)].items():
            for file, digest in _changed(shelf, found, stored.get(segment, ())):
                raise Corrupted(
                    f"Nothing was published: {copy.taken.name} has a file that has changed since the newest snapshot, "
                    f"and RocksDB never writes to one again. {_source(copy, segment) / file.path.name} has the SHA-256 "
                    f"{file.sha256}, and that snapshot says {digest}.",
                    code="immutable-file-changed",
                    action="Look who writes to it, and at the disk. Then take the store from a snapshot (statecore "
                    "fetch --replace), or have it built again (statecore restore --replace).",
                    task=copy.taken.task,
                    store=copy.taken.spec.name,
                    path=str(_source(copy, segment) / file.path.name),
                    expected=digest,
                    found=file.sha256,
                )


def _changed(
    shelf: ApplicationRepository, found: Sequence[LocalFile], stored: Sequence[BaseFile]
) -> list[tuple[LocalFile, str]]:
    """The files of rows of a database that have changed, each with the hash that it had."""
    there = {file.name: file for file in stored}
    differ = [file for file in found if file.path.name in there and file.sha256 != there[file.path.name].sha256]
    if any(file.path.name == _IDENTITY for file in differ) or _IDENTITY not in there:
        return []
    differ = [file for file in differ if file.path.suffix in DATA_SUFFIXES]
    if not differ:
        return []
    same = _identities(_stored_entries(shelf, stored)) & _identities(_entries(found))
    names = {name for name, _ in same}
    return [(file, there[file.path.name].sha256) for file in differ if file.path.name in names]


def _identities(entries: Mapping[int, LiveFile]) -> set[tuple[str, bytes]]:
    """Names of SST files, and of the blob files that they refer to, each with the identity of the SST file."""
    found = {(file.name, file.identity) for file in entries.values() if file.identity}
    linked = [file for file in entries.values() if file.identity and file.oldest_blob]
    return found | {(blob_name(file.oldest_blob), file.identity) for file in linked}


def _entries(found: Iterable[LocalFile]) -> Mapping[int, LiveFile]:
    (path,) = (file.path for file in found if file.path.name.startswith("MANIFEST-"))
    return understood(path.parent, path.read_bytes()).files


def _stored_entries(shelf: ApplicationRepository, stored: Iterable[BaseFile]) -> Mapping[int, LiveFile]:
    """What the MANIFEST in the repository says; nothing where it is damaged, and so does not tell which files are the
    same."""
    for file in stored:
        if file.name.startswith("MANIFEST-"):
            try:
                content = shelf.read(file.extent, f"{file.name} of the newest snapshot")
                return read_manifest(content).files if sha256(content).hexdigest() == file.sha256 else {}
            except (Corrupted, ValueError):
                return {}
    return {}


def _source(copy: StoreCopy, segment: int | None) -> Path:
    """The database that a copy was made of."""
    directory, interval = copy.taken.directory, segment_interval_of(copy.taken.spec)
    for one in directory.segments:
        if interval and one.start is not None and one.start // interval == segment:
            return one.path
    return directory.path
