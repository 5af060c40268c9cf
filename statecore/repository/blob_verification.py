"""Whether files lie where an earlier manifest says that they do, before a new one says so too.

A publication does not send again what is there. So what is damaged there would be damaged in every later snapshot,
unless somebody looks. To look, nothing is moved over the network; each blob is asked for once, whatever it holds:

====================================  ==================================================================================
that it is there, and long enough     always
its bytes, in a directory             they are read and hashed, up to :data:`READ_BYTES` of them each time
its bytes, in S3                      the checksum that S3 keeps is compared with that of the files at hand, likewise:
                                      it tells of an object that somebody has written over, and not of bits that turned
                                      below a server that does not look itself
====================================  ==================================================================================

Which of more bytes are looked at is drawn anew each time, so whoever publishes often comes round to all of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from statecore.errors import Corrupted, NotFound
from statecore.filesystem import file_sha256
from statecore.objectstore.base import Blob, Blobs
from statecore.objectstore.checksum import Checksum
from statecore.repository.manifest import Extent
from statecore.system_errors import Refusal, refusal_of, system_error

READ_BYTES = 4 << 30
"""Bytes that are read for one publication to look at what it believes: a few seconds of a disk and of hashing."""

AT_ONCE = 16
"""Requests at the same time."""

_LISTED_FROM = 200
"""Blobs from which on their names are listed, a thousand in one request, before each is asked for by itself."""

_LISTED_AT_MOST = 20
"""How many times as many names as are wanted a listing may bring before it is given up."""

_CHUNK = 1 << 20

T = TypeVar("T")
R = TypeVar("R")


class Named(NamedTuple):
    """A file that somebody names.

    Attributes:
        sha256: hex digest of it.
        extent: where its bytes should lie.
    """

    sha256: str
    extent: Extent


def is_whole(blobs: Blobs, name: str, content: bytes | Path, size: int) -> bool:
    """Whether a blob is what it should be, as far as can be told without moving its bytes over the network.

    Args:
        blobs: the repository's.
        name: the blob, which is named by its hash.
        content: what it should be.
        size: bytes of that.

    Raises:
        NotFound: there is no such blob.
        Corrupted: the blob and the file on this machine differ, and it is the file that is not what its hash says.
        Invalid, Retryable: nobody could look.
    """
    whole = _is_whole(blobs, name, content, size)
    if not whole and isinstance(content, Path):
        refuse_changed(content, size, name.rpartition("/")[2])
    return whole


def _is_whole(blobs: Blobs, name: str, content: bytes | Path, size: int) -> bool:
    found = blobs.head(name)
    if found.size != size:
        return False
    if found.checksum is not None:
        return _sum_of(content, found.checksum.part) == found.checksum
    path = blobs.local_path(name)
    return path is None or _is_same(path, content) or _hash_of(path, 0, size) == name.rpartition("/")[2]


def refuse_changed(file: Path, size: int, digest: str) -> None:
    """Make sure that a finished file is what it was, before a blob that differs from it is taken for damaged.

    Args:
        file: the file.
        size: its size when it was finished.
        digest: hex SHA-256 of it then.

    Raises:
        Corrupted: it is not.
        NotFound: it is not there.
        Invalid: it may not be read.
    """
    try:
        is_same = file_sha256(file) == digest
    except OSError as error:
        raise _unread(error, file) from error
    if not is_same:
        raise changed(file, size, digest)


def changed(file: Path, size: int, digest: str) -> Corrupted:
    """The error for a finished file that is not what it was any more."""
    return Corrupted(
        f"{file} is not what it was when it was finished ({size} bytes with the SHA-256 {digest}).",
        code="upload-file-changed",
        action="Look who writes to it, or at the disk, and make it anew. Nothing of it was put.",
        path=str(file),
        expected=digest,
    )


def lost(
    blobs: Blobs, named: Iterable[Named], at_hand: Mapping[str, Path] | None = None, *, read: int | None = READ_BYTES
) -> set[Named]:
    """The files of some that are not where they should be.

    Args:
        blobs: the repository's.
        named: the files.
        at_hand: the same files on this machine, by hash, as far as it has them.
        read: bytes that may be read to look at theirs; ``None`` for all, 0 for none.

    Raises:
        Corrupted: a blob and the files on this machine differ, and one of these is not what its hash says.
        Invalid, Retryable: nobody could look.
    """
    by_blob: dict[str, list[Named]] = {}
    for one in sorted(set(named), key=lambda one: (one.extent.blob, one.extent.start, one.extent.bytes)):
        by_blob.setdefault(one.extent.blob, []).append(one)
    left = _Budget(read)

    def look(blob: str) -> list[Named]:
        together = by_blob[blob]
        try:
            return _lost_of(blobs, blobs.head(blob), together, at_hand or {}, left)
        except NotFound:
            return together

    order = list(by_blob)
    if read is not None and sum(one.extent.bytes for together in by_blob.values() for one in together) > read:
        random.shuffle(order)
    return {one for gone in each(look, order) for one in gone}


def sizes(blobs: Blobs, names: Iterable[str], below: str, *, listed_from: int = _LISTED_FROM) -> dict[str, int]:
    """The sizes of blobs; those that are not there have none.

    Args:
        blobs: the repository's.
        names: of the blobs.
        below: what all of these begin with.
        listed_from: blobs from which on their names are listed before each is asked for by itself.

    Raises:
        Invalid, Retryable: nobody could look.
    """
    wanted = set(names)
    found: dict[str, int] = {}
    if len(wanted) >= listed_from:
        for number, blob in enumerate(blobs.list(below)):
            if number >= _LISTED_AT_MOST * len(wanted):
                break
            if blob.name in wanted:
                found[blob.name] = blob.size

    def look(name: str) -> int | None:
        try:
            return blobs.head(name).size
        except NotFound:
            return None

    unseen = sorted(wanted - found.keys())
    asked = zip(unseen, each(look, unseen), strict=True)
    return found | {name: size for name, size in asked if size is not None}


def each(look: Callable[[T], R], at: Sequence[T]) -> list[R]:
    """What a function says of each of some things; many at the same time."""
    if len(at) < 2 or AT_ONCE < 2:
        return [look(one) for one in at]
    with ThreadPoolExecutor(min(AT_ONCE, len(at)), "statecore-look") as pool:
        try:
            return list(pool.map(look, at))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Budget:
    """So many bytes may be read; the first file may be larger."""

    def __init__(self, left: int | None) -> None:
        self._left, self._lock = left, threading.Lock()

    def take(self, count: int) -> bool:
        """Whether so many bytes may be read as well."""
        with self._lock:
            if self._left is None:
                return True
            allowed = self._left > 0
            self._left -= count if allowed else 0
            return allowed


def _lost_of(
    blobs: Blobs, found: Blob, together: Sequence[Named], at_hand: Mapping[str, Path], left: _Budget
) -> list[Named]:
    """Those of the files of one blob that are not there."""
    gone = [one for one in together if one.extent.start + one.extent.bytes > found.size]
    rest = [one for one in together if one not in gone]
    if not rest or not left.take(sum(one.extent.bytes for one in rest)):
        return gone
    if found.checksum is not None:
        said = _sum_of_files(rest, at_hand, found)
        if said in (None, found.checksum):
            return gone
        for one in rest:
            refuse_changed(at_hand[one.sha256], one.extent.bytes, one.sha256)
        return list(together)
    path = blobs.local_path(found.name)
    if path is None:
        return gone
    return gone + [one for one in rest if not _holds(path, one, at_hand.get(one.sha256))]


def _holds(path: Path, one: Named, at_hand: Path | None) -> bool:
    if at_hand is not None and one.extent.start == 0 and _is_same(path, at_hand):
        return True
    return _hash_of(path, one.extent.start, one.extent.bytes) == one.sha256


def _is_same(path: Path, content: bytes | Path) -> bool:
    """Whether a blob is a second name of a file, and so was read when the file was."""
    try:
        return isinstance(content, Path) and path.samefile(content)
    except OSError:
        return False


def _hash_of(path: Path, start: int, size: int) -> str | None:
    """Hex digest of a part of a blob's file; ``None`` where the disk has lost it.

    Raises:
        NotFound: it is not there.
        Invalid, Retryable: it may not be read.
    """
    digest, left = sha256(), size
    try:
        with path.open("rb") as file:
            file.seek(start)
            while left and (piece := file.read(min(_CHUNK, left))):
                digest.update(piece)
                left -= len(piece)
    except FileNotFoundError as error:
        raise NotFound(
            f"There is no {path}.", code="blob-not-found", action="Look who deletes from the repository."
        ) from error
    except OSError as error:
        if refusal_of(error) is Refusal.FAILED:
            return None
        raise system_error(error, f"{path} could not be read", action="Give this user the right to read it.") from error
    return digest.hexdigest()


def _sum_of_files(files: Sequence[Named], at_hand: Mapping[str, Path], found: Blob) -> Checksum | None:
    """The checksum that a blob of these files should have; ``None`` where they are not all of it, or not at hand."""
    assert found.checksum is not None
    end = 0
    for one in files:
        if one.extent.start != end or one.sha256 not in at_hand:
            return None
        end += one.extent.bytes
    if end != found.size:
        return None
    paths = [at_hand[one.sha256] for one in files]
    if len(paths) == 1:
        return _sum_of(paths[0], found.checksum.part)
    return _sum_of(b"".join(_content(path) for path in paths), found.checksum.part)


def _sum_of(content: bytes | Path, part: int) -> Checksum:
    try:
        return Checksum.of(content, part)
    except OSError as error:
        raise _unread(error, content) from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unread(error, path) from error


def _unread(error: OSError, content: bytes | Path) -> Exception:
    if isinstance(error, FileNotFoundError):
        return NotFound(
            f"There is no file {content!s} to be put.",
            code="upload-file-missing",
            action="Make it anew.",
            path=str(content),
        )
    return system_error(error, f"{content!s} could not be read", action="Check that it can be read.")
