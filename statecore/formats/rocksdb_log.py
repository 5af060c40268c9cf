"""Reads RocksDB's log format: the MANIFEST and the write-ahead log (WAL), without opening a database.

Both are files of records (``db/log_format.h``), in blocks of 32 KiB; a record that does not fit is cut into fragments::

    fragment = crc32c (4, masked), length (2), type (1), [number of the log (4), where files are recycled], payload

A MANIFEST's records are ``VersionEdit``s (``db/version_edit.h``), fields of a tag and a value each: added and deleted
SST files, added blob files and the garbage in each. A WAL's records are ``WriteBatch``es, which begin with the sequence
number of their first row and a count. Numbers are little-endian or varints.

Unknown content raises ``ValueError``: it proves nothing. A record of a MANIFEST whose checksum is wrong is
:class:`DamagedRecord`: RocksDB refuses it, and what its bytes seem to say means nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from crc32c import crc32c

BLOCK = 32 * 1024  # Bytes of a block
BLOB_SUFFIX = ".blob"
DATA_SUFFIXES = (".sst", BLOB_SUFFIX)  # Suffixes of files with rows, which RocksDB never changes once they are finished
_HEADER = struct.Struct("<IHB")
_BATCH = struct.Struct("<QI")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLED = 4
_OF_RECYCLED_LOGS = frozenset({5, 6, 7, 8, 11})  # types of fragments that have the number of their log
_RECYCLED_HEADER = _HEADER.size + 4

_LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE, _NEW_FILE = 4, 5, 6, 103
_GROUP_LEFT = 300
_FILE_FIELDS_END = 1
_FILE_OLDEST_BLOB, _FILE_CREATED, _FILE_IDENTITY, _FILE_PATH = 4, 6, 12, 65
_NOT_IGNORABLE = 1 << 6  # a reader that does not know a file field with this bit must stop
_COLUMN_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED = 200, 201, 202
_BLOB_FILE_ADDED, _BLOB_FILE_GARBAGE = 400, 401
_SLICES = frozenset({1, _FAMILY_ADDED})  # comparator
_LOG, _GREATEST_FAMILY = 2, 203
_NUMBERS = frozenset({_LOG, 3, _LAST_SEQUENCE, 9, 10, _COLUMN_FAMILY, _GREATEST_FAMILY, _GROUP_LEFT})
_IGNORABLE = 1 << 13  # such a tag is followed by a length, so that older versions can skip it


class FilesElsewhere(ValueError):
    """A MANIFEST names files in other directories than that of its database (``db_paths``, ``cf_paths``)."""


class DamagedRecord(ValueError):
    """A record of a MANIFEST has another checksum than its header says."""


@dataclass(frozen=True)
class LiveFile:
    """A live SST file of a MANIFEST."""

    number: int  # its number, from which its name follows
    family: str
    level: int
    size: int  # its bytes
    # the whole entry of the MANIFEST: level, number, size, first and last key, sequence numbers, and further fields,
    # among them the identity of a file that RocksDB wrote itself
    entry: bytes
    # random, of the session that wrote the file and its number there; empty where it is not recorded
    identity: bytes = b""
    # seconds since the epoch when the flush of the newest of its rows began, as far as this MANIFEST has it: a
    # compaction adds no row, so its files have the newest time of their inputs. 0 where it is not recorded.
    flushed_at: int = field(default=0, compare=False)
    # whether this MANIFEST shows it as a flushed memtable; also true for a file of a compaction that is older than the
    # MANIFEST, which starts new when the database is opened
    is_flushed: bool = field(default=True, compare=False)
    oldest_blob: int = field(default=0, compare=False)  # number of the oldest blob file that it refers to; 0 for none

    @property
    def name(self) -> str:
        """File name in the database's directory."""
        return f"{self.number:06d}.sst"


def blob_name(number: int) -> str:
    """File name of a blob file in its database's directory."""
    return f"{number:06d}{BLOB_SUFFIX}"


@dataclass(frozen=True)
class BlobFile:
    """A live blob file of a MANIFEST: values outside the SST files (``enable_blob_files``)."""

    number: int  # its number, from which its name follows
    family: str
    size: int  # its bytes
    entry: bytes  # its entry in the MANIFEST when it was added: number, count and bytes of its blobs, checksum

    @property
    def name(self) -> str:
        """File name in the database's directory."""
        return blob_name(self.number)


@dataclass(frozen=True)
class Manifest:
    """The content of a MANIFEST."""

    valid_bytes: int  # end of its last whole record; RocksDB silently drops what follows
    last_sequence: int  # greatest sequence number in an SST file
    files: Mapping[int, LiveFile]  # its live SST files, by number
    missing_edits: int = 0  # edits still missing of an atomic group at its end, of which RocksDB drops every edit
    blobs: Mapping[int, BlobFile] = field(default_factory=dict)  # its live blob files, by number
    families: frozenset[str] = frozenset()  # names of its column families
    greatest_family: int = 0  # greatest number that a column family has, or had
    log: int = 0  # number of the oldest log of which no row is in an SST file of any family
    last_flushed: int = 0  # greatest sequence number of a row in an SST file

    def flushed_since(self, name: str, family: str) -> bool:
        """Whether a family was flushed since the MANIFEST ``name`` began: younger files have greater numbers."""
        begun = int(name.rpartition("-")[2])
        return any(one.family == family and one.is_flushed and one.number > begun for one in self.files.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its SST and blob files, ordered by number."""
        every: dict[int, LiveFile | BlobFile] = {**self.files, **self.blobs}
        return tuple(every[number].name for number in sorted(every))


@dataclass(frozen=True)
class _Fragment:
    at: int
    kind: int
    start: int
    end: int


def read_manifest(data: bytes) -> Manifest:
    """Parse a MANIFEST."""
    version, group = _Version(), list[_Edit]()
    last_sequence = whole = missing = 0
    for end, record in _records(data, checked=True):
        try:
            edit = _edit(record)
        except IndexError as error:
            raise ValueError("a field of a version edit ends early") from error
        if group and _GROUP_LEFT not in edit.numbers:
            raise ValueError("a version edit within the atomic group of others")
        group.append(edit)
        missing = edit.numbers.get(_GROUP_LEFT, 0)
        if not missing:
            last_sequence = max(last_sequence, *(_apply(one, version) for one in group))
            group.clear()
        whole = end
    files, blobs, families = version.live_files(), version.live_blobs(), frozenset(version.families.values())
    return Manifest(
        whole, last_sequence, files, missing, blobs, families,
        version.greatest_family, max(version.logs.values(), default=0), version.last_flushed,
    )  # fmt: skip


def endless_record(blocks: Iterable[bytes]) -> int | None:
    """Position of the record, in a MANIFEST's or a log's 32 KiB blocks, that RocksDB reads for ever; ``None`` if none.

    It does not get past a record of a recycled log that follows another one (``Reader::ReadPhysicalRecord``). A wrong
    byte makes such a record of any other, because the type is read before the checksum. After damage that it notices,
    RocksDB goes on at the next block.
    """
    has_read = recycled = False
    for number, block in enumerate(blocks):
        at = 0
        while at + _HEADER.size <= len(block):
            _, length, kind = _HEADER.unpack_from(block, at)
            if kind in _OF_RECYCLED_LOGS:
                if has_read and not recycled:
                    return number * BLOCK + at
                recycled = True
            elif kind == 0:
                break
            has_read |= kind in (_FULL, _LAST, _FULL + _RECYCLED, _LAST + _RECYCLED)
            at += length + (_RECYCLED_HEADER if kind in _OF_RECYCLED_LOGS else _HEADER.size)
    return None


def first_sequence(log: bytes) -> int | None:
    """Sequence number of the first row in a WAL's first block; ``None`` without a whole record at its start."""
    for fragment in _fragments(log):
        begins = fragment.kind in (_FULL, _FIRST) and fragment.end - fragment.start >= _BATCH.size
        if begins and _crc_matches(log, fragment):
            return int(_BATCH.unpack_from(log, fragment.start)[0])
        return None
    return None


def last_sequence(blocks: Iterable[bytes]) -> int | None:
    """Sequence number of a WAL's last row, from its 32 KiB blocks, last first; ``None`` without a whole record."""
    ended = False  # whether the record that begins in an earlier fragment is whole
    for block in blocks:
        for fragment in reversed(list(_fragments(block))):
            if fragment.kind == _LAST:
                ended = True
            elif fragment.kind == _FULL or (fragment.kind == _FIRST and ended):
                if fragment.end - fragment.start >= _BATCH.size:
                    sequence, count = _BATCH.unpack_from(block, fragment.start)
                    return int(sequence + max(count - 1, 0))
                ended = False
            elif fragment.kind == _FIRST:
                ended = False
    return None


_OF_BATCH: Mapping[int, tuple[bool, int]] = {
    **{
        tag: (False, slices)
        for tag, slices in ((0, 1), (1, 2), (2, 2), (3, 1), (7, 1), (13, 0), (15, 2), (17, 2), (22, 2))
    },
    **{tag: (True, slices) for tag, slices in ((4, 1), (5, 2), (6, 2), (8, 1), (14, 2), (16, 2), (23, 2))},
}
"""Tag of an entry of a ``WriteBatch`` (``db/dbformat.h``) → whether a column family follows, and how many slices."""
_NO_ROW = frozenset({3, 13})  # data for the log alone, and nothing


def families_of_log(log: bytes) -> frozenset[int]:
    """Numbers of the column families with rows in the beginning of a WAL, up to an entry that is not understood."""
    found = set[int]()
    with suppress(IndexError, ValueError):
        for _, batch in _records(log):
            at = _BATCH.size
            while at < len(batch):
                tag, at = batch[at], at + 1
                if tag not in _OF_BATCH:
                    return frozenset(found)
                has_family, slices = _OF_BATCH[tag]
                family, at = _varint(batch, at) if has_family else (0, at)
                for _ in range(slices):
                    at = _past_slice(batch, at)
                if tag not in _NO_ROW:
                    found.add(family)
    return frozenset(found)


def _fragments(data: bytes) -> Iterator[_Fragment]:
    """The whole fragments at the beginning of a file."""
    at = 0
    while True:
        if (left := BLOCK - at % BLOCK) < _HEADER.size:
            at += left
        if at + _HEADER.size > len(data):
            return
        _, length, kind = _HEADER.unpack_from(data, at)
        if kind == 0:  # preallocated space, or zeros after a power loss
            return
        header = _HEADER.size
        if _LAST < kind <= _LAST + _RECYCLED:
            kind, header = kind - _RECYCLED, _RECYCLED_HEADER
        if kind > _LAST:
            raise ValueError(f"a record of type {kind}")
        end = at + header + length
        if end > len(data):
            return
        yield _Fragment(at, kind, at + header, end)
        at = end


def _records(data: bytes, *, checked: bool = False) -> Iterator[tuple[int, bytes]]:
    """Records with their ends. Raises :class:`DamagedRecord` where their checksums are ``checked``."""
    parts = b""
    for fragment in _fragments(data):
        if checked and not _crc_matches(data, fragment):
            raise DamagedRecord(f"the record at byte {fragment.at} has a wrong checksum")
        payload = data[fragment.start : fragment.end]
        parts = payload if fragment.kind in (_FULL, _FIRST) else parts + payload
        if fragment.kind in (_FULL, _LAST):
            yield fragment.end, parts


def _crc_matches(data: bytes, fragment: _Fragment) -> bool:
    masked = _HEADER.unpack_from(data, fragment.at)[0]
    crc = crc32c(data[fragment.at + _HEADER.size - 1 : fragment.end])
    return bool(masked == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@dataclass(frozen=True)
class _File:
    """An added SST file: see :class:`LiveFile`; with the number of its family."""

    level: int
    size: int
    entry: bytes
    identity: bytes
    flushed_at: int
    is_flushed: bool = True
    family: int = 0
    oldest_blob: int = 0


@dataclass
class _Blob:
    """An added blob file: see :class:`BlobFile`; with the number of its family and its number of garbage blobs."""

    count: int
    size: int
    entry: bytes
    family: int = 0
    garbage: int = 0


@dataclass
class _Version:
    """State after a sequence of version edits: column families by number, and files with their families' numbers."""

    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    files: dict[int, _File] = field(default_factory=dict)
    blobs: dict[int, _Blob] = field(default_factory=dict)
    logs: dict[int, int] = field(default_factory=dict)  # by family, the oldest log with rows that are in no SST file
    greatest_family: int = 0
    last_flushed: int = 0

    def live_blobs(self) -> dict[int, BlobFile]:
        """Live blob files: those not older than the oldest one that an SST file of their family refers to.

        A younger one is dropped when it is no SST file's oldest and all of its blobs are garbage
        (``VersionBuilder::SaveBlobFilesTo``).
        """
        linked = {(file.family, file.oldest_blob) for file in self.files.values() if file.oldest_blob}
        oldest: dict[int, int] = {}
        for family, number in linked:
            oldest[family] = min(number, oldest.get(family, number))
        return {
            number: BlobFile(number, self.families[blob.family], blob.size, blob.entry)
            for number, blob in self.blobs.items()
            if blob.family in self.families
            and number >= oldest.get(blob.family, number + 1)
            and ((blob.family, number) in linked or blob.garbage < blob.count)
        }

    def live_files(self) -> dict[int, LiveFile]:
        return {
            number: LiveFile(
                number, self.families[file.family], file.level, file.size, file.entry, file.identity,
                file.flushed_at, file.is_flushed, file.oldest_blob,
            )
            for number, file in self.files.items()
            if file.family in self.families
        }  # fmt: skip


@dataclass
class _Edit:
    """Fields of one version edit of one column family."""

    numbers: dict[int, int] = field(default_factory=dict)
    slices: dict[int, bytes] = field(default_factory=dict)
    added: dict[int, _File] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)
    blobs: dict[int, _Blob] = field(default_factory=dict)
    garbage: list[tuple[int, int]] = field(default_factory=list)
    is_family_dropped: bool = False
    last_sequence: int = 0


def _edit(data: bytes) -> _Edit:
    """Parse a version edit of one column family."""
    edit, at = _Edit(), 0
    while at < len(data):
        tag, at = _varint(data, at)
        at = _read_field(edit, tag, data, at)
    return edit


def _apply(edit: _Edit, version: _Version) -> int:
    """Apply a version edit; returns its greatest sequence number."""
    family = edit.numbers.get(_COLUMN_FAMILY, 0)
    version.greatest_family = max(version.greatest_family, family, edit.numbers.get(_GREATEST_FAMILY, 0))
    version.last_flushed = max(version.last_flushed, edit.last_sequence)
    if _LOG in edit.numbers:
        version.logs[family] = edit.numbers[_LOG]
    if _FAMILY_ADDED in edit.slices:
        version.families[family] = edit.slices[_FAMILY_ADDED].decode(errors="replace")
    if edit.is_family_dropped:
        version.families.pop(family, None)
        version.logs.pop(family, None)
    _add(version, family, edit.added, [version.files.pop(one) for one in edit.deleted if one in version.files])
    version.blobs |= {number: replace(blob, family=family) for number, blob in edit.blobs.items()}
    for number, count in edit.garbage:
        if number not in version.blobs:
            raise ValueError(f"garbage in the unknown blob file {number}")
        version.blobs[number].garbage += count
    return max(edit.last_sequence, edit.numbers.get(_LAST_SEQUENCE, 0))


def _read_field(edit: _Edit, tag: int, data: bytes, at: int) -> int:
    """Read the field after a tag; returns its end."""
    if tag == _NEW_FILE:
        number, largest, edit.added[number], at = _new_file(data, at)
        edit.last_sequence = max(edit.last_sequence, largest)
    elif tag == _DELETED_FILE:
        (_, number), at = _varints(data, at, 2)
        edit.deleted.append(number)
    elif tag == _COMPACT_CURSOR:
        _, at = _varint(data, at)
        at = _past_slice(data, at)
    elif tag in _NUMBERS:
        edit.numbers[tag], at = _varint(data, at)
    elif tag in _SLICES or tag & _IGNORABLE:
        _, start = _varint(data, at)
        at = _past_slice(data, at)
        edit.slices[tag] = data[start:at]
    elif tag == _FAMILY_DROPPED:
        edit.is_family_dropped = True
    elif tag == _BLOB_FILE_ADDED:
        number, edit.blobs[number], at = _blob_file(data, at)
    elif tag == _BLOB_FILE_GARBAGE:
        (number, count, _), at = _varints(data, at, 3)
        edit.garbage.append((number, count))
        at = _past_blob_fields(data, at)
    else:
        raise ValueError(f"tag {tag} of a version edit")
    return at


def _add(version: _Version, family: int, added: Mapping[int, _File], made_of: Sequence[_File]) -> None:
    """Add files to a family; outputs of a compaction get the newest flush time of their inputs."""
    for number, file in added.items():
        if made_of:
            file = replace(file, flushed_at=max(one.flushed_at for one in made_of), is_flushed=_is_moved(file, made_of))
        version.files[number] = replace(file, family=family)


def _is_moved(file: _File, made_of: Sequence[_File]) -> bool:
    """Whether a flushed file only moves unchanged to another level."""
    (first, *more) = made_of
    return not more and first.is_flushed and (file.size, file.identity) == (first.size, first.identity)


def _new_file(edit: bytes, at: int) -> tuple[int, int, _File, int]:
    """Read an added file: number, greatest sequence number, entry, end."""
    begin = at
    level, at = _varint(edit, at)
    number, at = _varint(edit, at)
    size, at = _varint(edit, at)
    at = _past_slice(edit, _past_slice(edit, at))  # smallest and largest key
    _, at = _varint(edit, at)
    largest, at = _varint(edit, at)
    identity, numbers = b"", {_FILE_CREATED: 0, _FILE_OLDEST_BLOB: 0}
    while True:
        tag, at = _varint(edit, at)
        if tag == _FILE_FIELDS_END:
            file = _File(level, size, edit[begin:at], identity, numbers[_FILE_CREATED])
            return number, largest, replace(file, oldest_blob=numbers[_FILE_OLDEST_BLOB]), at
        _, start = _varint(edit, at)
        at = _past_slice(edit, at)
        if tag == _FILE_IDENTITY:
            identity = edit[start:at]
        elif tag in numbers:
            numbers[tag], _ = _varint(edit, start)
        elif tag == _FILE_PATH:
            raise FilesElsewhere(f"{number:06d}.sst is in another directory (db_paths or cf_paths)")
        elif tag & _NOT_IGNORABLE:
            raise ValueError(f"field {tag} of a file")


_BLOB_HEADER_BYTES, _BLOB_FOOTER_BYTES = 30, 32
"""Bytes before and after the records of a blob file (``db/blob/blob_log_format.h``)."""


def _blob_file(edit: bytes, at: int) -> tuple[int, _Blob, int]:
    """Read an added blob file: number, entry, end."""
    begin = at
    (number, count, size), at = _varints(edit, at, 3)
    at = _past_slice(edit, _past_slice(edit, at))  # method and value of a checksum
    at = _past_blob_fields(edit, at)
    return number, _Blob(count, size + _BLOB_HEADER_BYTES + _BLOB_FOOTER_BYTES, edit[begin:at]), at


def _past_blob_fields(edit: bytes, at: int) -> int:
    """Skip further fields of a blob file, up to a 0."""
    while True:
        tag, at = _varint(edit, at)
        if tag == 0:
            return at
        if tag & _NOT_IGNORABLE:
            raise ValueError(f"field {tag} of a blob file")
        at = _past_slice(edit, at)


def _varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values = []
    for _ in range(count):
        value, at = _varint(data, at)
        values.append(value)
    return values, at


def _past_slice(data: bytes, at: int) -> int:
    length, at = _varint(data, at)
    return at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
