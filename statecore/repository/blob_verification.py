"""Verify files that an earlier manifest names, before a new manifest names them too.

A publication does not upload again what the repository has, so damage there would spread to every later snapshot.
Nothing is moved over the network. Existence and length of each blob are always checked, once for all its files. Up to
:data:`READ_BYTES` are read and hashed in a directory; in S3 the checksum that it keeps is compared with that of the
local files, which detects an overwritten object, and no bit rot below a server that does not check itself. Above that
limit the files are drawn at random each time, so frequent publications cover all of them.

The checksum of a pack can be compared only if all its files are local; else its existence and length are all that is
known. A pack that was cut lacks the files behind the cut. In an encrypted one those before it, but in the same frame,
cannot be decrypted any more either, which only a reader finds.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from statecore.errors import Corrupted, Invalid, NotFound, Retryable
from statecore.filesystem import file_sha256
from statecore.objectstore.base import Blob, Blobs
from statecore.objectstore.checksum import Checksum
from statecore.repository.manifest import Extent
from statecore.system_errors import Cause, cause_of, system_error

READ_BYTES = 4 << 30  # Bytes read for one publication to verify inherited files: a few seconds of disk and hashing
CONCURRENT_REQUESTS = 16  # Requests at the same time
_LISTED_FROM = 200  # From this many blobs on, their names are listed (a thousand in one request) before single requests
_LISTED_AT_MOST = 20  # A listing is abandoned after this many times as many names as are wanted
_CHUNK = 1 << 20

T = TypeVar("T")
R = TypeVar("R")


class NamedFile(NamedTuple):
    """A file that a manifest names, by its hex SHA-256."""

    sha256: str
    extent: Extent


def is_intact(blobs: Blobs, name: str, content: bytes | Path, size: int, digest: str) -> bool:
    """Whether a blob has the content it should have, of this SHA-256, without moving its bytes over the network."""
    whole = _is_whole(blobs, name, content, size, digest)
    if not whole and isinstance(content, Path):
        refuse_changed(content, size, digest)
    return whole


def _is_whole(blobs: Blobs, name: str, content: bytes | Path, size: int, digest: str) -> bool:
    found = blobs.head(name)
    if found.size != size:
        return False
    if found.checksum is not None:
        return _checksum_of(blobs, name, content, found.checksum.part) == found.checksum
    path = blobs.local_path(name)
    if path is None:
        return not blobs.is_local or _hash_of_content(blobs, name, 0, size) == digest
    return _is_same(path, content) or _hash_of(path, 0, size) == digest


def refuse_changed(file: Path, size: int, digest: str) -> None:
    """Refuse a finished local file that changed, before a blob that differs from it is taken for damaged."""
    try:
        is_same = file_sha256(file) == digest
    except OSError as error:
        raise _unreadable(error, file) from error
    if not is_same:
        raise file_changed(file, size, digest)


def file_changed(file: Path, size: int, digest: str) -> Corrupted:
    """The error for a finished file that has changed."""
    return Corrupted(
        f"{file} has changed since it was finished ({size} bytes with the SHA-256 {digest}).",
        code="upload-file-changed",
        action="Check which process writes to it, and the disk; then rebuild it. Nothing of it was uploaded.",
        path=str(file),
        expected=digest,
    )


def missing_files(
    blobs: Blobs,
    named: Iterable[NamedFile],
    local_files: Mapping[str, Path] | None = None,
    *,
    read_limit: int | None = READ_BYTES,
) -> set[NamedFile]:
    """Named files that are missing or damaged in the repository."""
    by_blob: dict[str, list[NamedFile]] = {}
    for one in sorted(set(named), key=lambda one: (one.extent.blob, one.extent.start, one.extent.bytes)):
        by_blob.setdefault(one.extent.blob, []).append(one)
    budget = _Budget(read_limit)

    def lost_in(blob: str) -> list[NamedFile]:
        together = by_blob[blob]
        try:
            return _lost_in_blob(blobs, blobs.head(blob), together, local_files or {}, budget)
        except NotFound:
            return together

    order = list(by_blob)
    if (
        read_limit is not None
        and sum(one.extent.bytes for together in by_blob.values() for one in together) > read_limit
    ):
        random.shuffle(order)
    return {one for missing in parallel_map(lost_in, order) for one in missing}


def existing_blobs(
    blobs: Blobs, names: Iterable[str], prefix: str, *, listed_from: int = _LISTED_FROM
) -> dict[str, Blob]:
    """The blobs that exist, by name."""
    wanted = set(names)
    found: dict[str, Blob] = {}
    if len(wanted) >= listed_from:
        for number, blob in enumerate(blobs.list(prefix)):
            if number >= _LISTED_AT_MOST * len(wanted):
                break
            if blob.name in wanted:
                found[blob.name] = blob

    def head(name: str) -> Blob | None:
        try:
            return blobs.head(name)
        except NotFound:
            return None

    unseen = sorted(wanted - found.keys())
    asked = zip(unseen, parallel_map(head, unseen), strict=True)
    return found | {name: blob for name, blob in asked if blob is not None}


def is_archive_refusing(blobs: Blobs, name: str) -> bool:
    """Whether an archived blob cannot be read, because it was not restored; one that was deleted since is not."""
    try:
        blobs.get(name, 0, 1)
    except NotFound:
        return False
    except Invalid as error:
        if error.code != "blob-archived":
            raise
        return True
    return False


def parallel_map(function: Callable[[T], R], items: Sequence[T], at_once: int = 1 << 10) -> list[R]:
    """Map a function over a sequence, ``at_once`` and at most :data:`CONCURRENT_REQUESTS` calls at the same time."""
    if len(items) < 2 or CONCURRENT_REQUESTS < 2:
        return [function(one) for one in items]
    with ThreadPoolExecutor(min(CONCURRENT_REQUESTS, at_once, len(items)), "statecore-verify") as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Budget:
    """How many bytes may still be read; the first file may exceed it."""

    def __init__(self, limit: int | None) -> None:
        self._remaining, self._lock = limit, threading.Lock()

    def take(self, count: int) -> bool:
        """Take so many bytes from the budget, if any is left."""
        with self._lock:
            if self._remaining is None:
                return True
            allowed = self._remaining > 0
            self._remaining -= count if allowed else 0
            return allowed


def _lost_in_blob(
    blobs: Blobs, found: Blob, files: Sequence[NamedFile], local_files: Mapping[str, Path], budget: _Budget
) -> list[NamedFile]:
    """Files of one blob that are missing or damaged."""
    missing = [one for one in files if one.extent.start + one.extent.bytes > found.size]
    rest = [one for one in files if one not in missing]
    if not rest or not budget.take(sum(one.extent.bytes for one in rest)):
        return missing
    if found.checksum is not None:
        expected = _checksum_of_files(blobs, rest, local_files, found)
        if expected in (None, found.checksum):
            return missing
        for one in rest:
            refuse_changed(local_files[one.sha256], one.extent.bytes, one.sha256)
        return list(files)
    path = blobs.local_path(found.name)
    if path is None and not blobs.is_local:
        return missing
    return missing + [one for one in rest if not _holds(blobs, path, one, local_files.get(one.sha256))]


def _holds(blobs: Blobs, path: Path | None, one: NamedFile, local_file: Path | None) -> bool:
    if path is None:
        return _hash_of_content(blobs, one.extent.blob, one.extent.start, one.extent.bytes) == one.sha256
    if local_file is not None and one.extent.start == 0 and _is_same(path, local_file):
        return True
    return _hash_of(path, one.extent.start, one.extent.bytes) == one.sha256


def _is_same(path: Path, content: bytes | Path) -> bool:
    """Whether a blob is a hard link of a local file, which was already read."""
    try:
        return isinstance(content, Path) and path.samefile(content)
    except OSError:
        return False


def _hash_of(path: Path, start: int, size: int) -> str | None:
    """Hex SHA-256 of a range of a blob's file; ``None`` where the disk cannot read it."""
    digest, remaining = sha256(), size
    try:
        with path.open("rb") as file:
            file.seek(start)
            while remaining and (piece := file.read(min(_CHUNK, remaining))):
                digest.update(piece)
                remaining -= len(piece)
    except FileNotFoundError as error:
        raise NotFound(
            f"There is no {path}.", code="blob-not-found", action="Check which process deletes from the repository."
        ) from error
    except OSError as error:
        if cause_of(error) is Cause.FAILED:
            return None
        raise system_error(error, f"{path} could not be read", action="Give this user the right to read it.") from error
    return digest.hexdigest()


def _hash_of_content(blobs: Blobs, name: str, start: int, size: int) -> str | None:
    """The same of a range of a blob that is local, and has no file of this content: it is encrypted."""
    digest = sha256()
    try:
        for at in range(start, start + size, _CHUNK):
            digest.update(blobs.get(name, at, min(at + _CHUNK, start + size)))
    except Retryable as error:
        if error.code != "disk-failed":
            raise
        return None
    return digest.hexdigest()


def _checksum_of_files(
    blobs: Blobs, files: Sequence[NamedFile], local_files: Mapping[str, Path], found: Blob
) -> Checksum | None:
    """The expected checksum of a blob made of these files; ``None`` unless all of them are local and cover it."""
    assert found.checksum is not None
    end = 0
    for one in files:
        if one.extent.start != end or one.sha256 not in local_files:
            return None
        end += one.extent.bytes
    if end != found.size:
        return None
    paths = [local_files[one.sha256] for one in files]
    if len(paths) == 1:
        return _checksum_of(blobs, found.name, paths[0], found.checksum.part)
    return _checksum_of(blobs, found.name, b"".join(map(_content, paths)), found.checksum.part)


def _checksum_of(blobs: Blobs, name: str, content: bytes | Path, part: int) -> Checksum:
    try:
        return blobs.checksum_of(name, content, part)
    except OSError as error:
        raise _unreadable(error, content) from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(error, path) from error


def _unreadable(error: OSError, content: bytes | Path) -> Exception:
    if isinstance(error, FileNotFoundError):
        return NotFound(
            f"The file {content!s} to be uploaded does not exist.",
            code="upload-file-missing",
            action="Rebuild it.",
            path=str(content),
        )
    return system_error(error, f"{content!s} could not be read", action="Check that it can be read.")
