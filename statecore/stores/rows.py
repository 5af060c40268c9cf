"""``ReadableRows``, ``WritableRows``, ``TransactionalRows``: the row interfaces of stores, transactions and query
views.

Names are those of Kafka Streams' ``ReadOnlyKeyValueStore`` and ``KeyValueStore``; keys are ordered as unsigned bytes,
as there. All ordered reads are built on :meth:`ReadableRows.scan` over a half-open interval::

    range(first, last)     [first, last + 00)          both ends included
    prefix_scan(prefix)    [prefix, next prefix)       the next prefix of 61 ff is 62; ff ff has none
    all()                  everything
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from statecore.errors import Invalid
from statecore.formats.integers import INT32_MAX
from statecore.formats.topic_partition import TopicPartition

Row = tuple[bytes, bytes]  # A key and its value


class ReadableRows(ABC):
    """Rows that can be read by key and in key order."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys, in their order, ``None`` for absent ones; errors as for :meth:`get`."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with ``lower <= key < upper`` in key order, or from the greatest key down.

        Shows the rows as of this call, whatever is written, committed or dropped during the iteration.
        """

    def range(self, first: bytes | None, last: bytes | None) -> Iterator[Row]:
        """Rows with ``first <= key <= last`` in key order, both ends included; ``None`` leaves an end open."""
        return self.scan(first, after(last))

    def reverse_range(self, first: bytes | None, last: bytes | None) -> Iterator[Row]:
        """The rows of :meth:`range`, greatest key first."""
        return self.scan(first, after(last), reverse=True)

    def prefix_scan(self, prefix: bytes) -> Iterator[Row]:
        """Rows whose key begins with ``prefix``, in key order."""
        return self.scan(prefix, next_prefix(prefix))

    def reverse_prefix_scan(self, prefix: bytes) -> Iterator[Row]:
        """The rows of :meth:`prefix_scan`, greatest key first."""
        return self.scan(prefix, next_prefix(prefix), reverse=True)

    def all(self) -> Iterator[Row]:
        """All rows in key order."""
        return self.scan(None, None)

    def reverse_all(self) -> Iterator[Row]:
        """All rows, greatest key first."""
        return self.scan(None, None, reverse=True)


class WritableRows(ReadableRows):
    """Rows that can also be written; an object reads its own writes at once."""

    @abstractmethod
    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the row of a key; ``None`` deletes it."""

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """:meth:`put` for each row, in order; a list or tuple with an invalid row is rejected as a whole."""
        for key, value in rows:
            self.put(key, value)

    def put_if_absent(self, key: bytes, value: bytes | None) -> bytes | None:
        """Set the row of a key unless it has one; return that one, or ``None``."""
        present = self.get(key)
        if present is None:
            self.put(key, value)
        return present

    def delete(self, key: bytes) -> None:
        """Delete the row of a key, if any."""
        self.put(key, None)


class TransactionalRows(WritableRows):
    """Rows whose writes are staged until they are committed together or dropped: a store's, or its transaction's."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish staged writes together with these offsets, atomically; see :meth:`StateStore.commit`."""

    @abstractmethod
    def abort(self) -> None:
        """Drop staged writes."""

    @property
    @abstractmethod
    def uncommitted_bytes(self) -> int:
        """Approximate memory of staged writes, in bytes (``approximateNumUncommittedBytes`` of KIP-892)."""


MAX_ROW_BYTES = INT32_MAX
"""Maximum bytes of a key and its value together.

No Kafka record can be larger, and no Java application could read more. RocksDB holds up to nearly 4 GiB, the limit of
its memtable; its ``WriteBatch`` drops a value of 4 GiB or more, and rocksdict does not report it.
"""


def check_row(key: object, value: object) -> None:
    """Validate key and value of a row."""
    if type(key) is not bytes or (value is not None and type(value) is not bytes):
        raise Invalid(
            f"Keys and values of a store are bytes, not {type(key).__name__} and {type(value).__name__}.",
            code="row-not-bytes",
            action="Convert them with bytes(), or with the serializers of the store's format.",
        )
    size = len(key) + (0 if value is None else len(value))
    if size > MAX_ROW_BYTES:
        raise Invalid(
            f"A row of {size:,} bytes is too large: key and value have at most {MAX_ROW_BYTES:,} together.",
            code="row-too-large",
            action="Split the value over several keys; a Kafka record cannot be as large either.",
            size=size,
        )


def check_rows(rows: Sequence[tuple[object, object]]) -> None:
    """:func:`check_row` for many rows, faster."""
    keys = [key for key, _ in rows]
    values = [value for _, value in rows if value is not None]
    if {*map(type, keys), *map(type, values)} <= {bytes}:
        most = max(map(len, keys), default=0) + max(map(len, values), default=0)  # type: ignore[arg-type]
        if most <= MAX_ROW_BYTES:
            return
    for key, value in rows:
        check_row(key, value)


def check_key(key: object) -> None:
    """Validate a key; databases and dicts would each treat other types differently."""
    if type(key) is not bytes:
        raise Invalid(
            f"Keys of a store are bytes, not {type(key).__name__}.",
            code="row-not-bytes",
            action="Convert them with bytes(), or with the serializers of the store's format.",
        )


def after(key: bytes | None) -> bytes | None:
    """The smallest key greater than ``key``; ``None`` stays ``None``."""
    if key is None:
        return None
    check_key(key)
    return key + b"\0"


def next_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key that begins with ``prefix``; ``None`` if there is none."""
    check_key(prefix)
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
