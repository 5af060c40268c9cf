"""The rows of a database as its application would read them, from current and older column families.

A store that was upgraded in place has rows of older formats in older column families. Kafka Streams reads them below
the newer ones, converted (``DualColumnFamilyAccessor``). So does this module: the newer row wins, and an older value
gets the prefix of the newer format::

    kind                                    older family             prefix of the value
    --------------------------------------  -----------------------  ---------------------------
    timestamped-key-value, -window          default                  timestamp -1
    headers-key-value, headers-window       keyValueWithTimestamp    no headers (00)
    headers-key-value, headers-window       default                  no headers, timestamp -1
    headers-session                         default                  no headers

For a store of unknown kind each family is read as it is; ``offsets`` has no rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY
from statecore.statedir.readonly_database import Database

Chunk = tuple[list[bytes], list[bytes]]
"""Keys, ascending, and their values."""

_NO_TIME = b"\xff" * 8
_NO_HEADERS = b"\0"
_TIMESTAMPED = StoreKind.TIMESTAMPED_KEY_VALUE.data_column_family

_VALUE_PREFIXES: Mapping[StoreKind, Mapping[str, bytes]] = MappingProxyType(
    {
        StoreKind.TIMESTAMPED_KEY_VALUE: {DEFAULT_COLUMN_FAMILY: _NO_TIME},
        StoreKind.TIMESTAMPED_WINDOW: {DEFAULT_COLUMN_FAMILY: _NO_TIME},
        StoreKind.HEADERS_KEY_VALUE: {_TIMESTAMPED: _NO_HEADERS, DEFAULT_COLUMN_FAMILY: _NO_HEADERS + _NO_TIME},
        StoreKind.HEADERS_WINDOW: {_TIMESTAMPED: _NO_HEADERS, DEFAULT_COLUMN_FAMILY: _NO_HEADERS + _NO_TIME},
        StoreKind.HEADERS_SESSION: {DEFAULT_COLUMN_FAMILY: _NO_HEADERS},
    }
)
"""Kind → older family → prefix of its values when they are read; the newer families first."""


def layers(kind: StoreKind, families: Iterable[str]) -> tuple[str, ...]:
    """The families that are compared separately: that of the kind, or all if the kind is unknown."""
    if kind.can_be_built:
        return (kind.data_column_family,)
    return tuple(sorted(set(families) - {OFFSETS_COLUMN_FAMILY}))


def check_families(database: Database, kind: StoreKind) -> None:
    """Raise ``Invalid`` for a database with a column family that the kind does not have."""
    if not kind.can_be_built:
        return
    known = {kind.data_column_family, *kind.older_column_families, DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    strange = sorted(database.families - known)
    if strange:
        raise Invalid(
            f"{database.path} has the column family {', '.join(strange)}, which a {kind} store does not have.",
            code="kind-mismatch",
            action="Check the kind of the store in the spec, and whether both sides are of the same application.",
            database=str(database.path),
            kind=str(kind),
            families=strange,
        )


def current_rows(database: Database, kind: StoreKind, layer: str) -> Iterator[Chunk]:
    """Rows in key order, some megabytes at a time."""
    newest = database.chunks(layer)
    if not kind.can_be_built:
        return newest
    streams = [newest]
    in_front = _VALUE_PREFIXES.get(kind, {})
    for family in (*in_front, *sorted(kind.older_column_families - in_front.keys())):
        if next(database.rows(family), None) is None:
            continue
        if family not in in_front:
            raise Invalid(
                f"{database.path} has rows in the column family {family}; how Kafka Streams reads those of a {kind} "
                "store is not known here.",
                code="older-rows-unsupported",
                action="Rebuild the store, or leave it out of the comparison (--store).",
                database=str(database.path),
                kind=str(kind),
                families=[family],
            )
        streams.append(_converted(database.chunks(family), in_front[family]))
    rows = streams[-1]
    for newer in reversed(streams[:-1]):
        rows = _merge(newer, rows)
    return rows


class Rows:
    """Buffered rows of a stream in key order, taken up to a key."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._keys: list[bytes] = []
        self._values: list[bytes] = []

    @property
    def last(self) -> bytes | None:
        """The greatest buffered key; ``None`` at the end of the stream."""
        while not self._keys:
            chunk = next(self._chunks, None)
            if chunk is None:
                return None
            self._keys, self._values = chunk
        return self._keys[-1]

    def take_until(self, key: bytes) -> Chunk:
        """Take the buffered rows up to and including a key."""
        if not self._keys or self._keys[-1] <= key:
            taken = self._keys, self._values
            self._keys, self._values = [], []
            return taken
        at = bisect_right(self._keys, key)
        taken = self._keys[:at], self._values[:at]
        self._keys, self._values = self._keys[at:], self._values[at:]
        return taken


def aligned_by_key(left: Iterator[Chunk], right: Iterator[Chunk]) -> Iterator[tuple[Chunk, Chunk]]:
    """Two streams in pieces with the same key range; a piece of one side may be empty."""
    one, other = Rows(left), Rows(right)
    while True:
        ends = one.last, other.last
        present = [end for end in ends if end is not None]
        if not present:
            return
        bound = min(present)
        yield one.take_until(bound), other.take_until(bound)


def _converted(chunks: Iterator[Chunk], in_front: bytes) -> Iterator[Chunk]:
    for keys, values in chunks:
        yield keys, [in_front + value for value in values]


def _merge(newer: Iterator[Chunk], older: Iterator[Chunk]) -> Iterator[Chunk]:
    """Merge two streams; the newer one wins."""
    for (keys, values), (older_keys, older_values) in aligned_by_key(newer, older):
        if not older_keys:
            yield keys, values
        elif not keys:
            yield older_keys, older_values
        else:
            rows = dict(zip(older_keys, older_values, strict=True)) | dict(zip(keys, values, strict=True))
            ordered = sorted(rows)
            yield ordered, [rows[key] for key in ordered]
