"""``SortedRows``: an in-memory sorted map with copy-on-write snapshots.

Values are in a dict. Keys are only sorted when a scan needs it, so that a processor that only gets and puts pays for
the dict alone; then they are in blocks of up to some thousand: a key costs one bisection and one short move::

    values   {b"a": b"1", b"c": None, b"b": b"2"}        None: deleted
    placed   2                                            number of keys, the first put, that are in blocks
    blocks   [[b"a", b"c"], ...]

A snapshot copies nothing. While it lives, every change first stores the previous value in its ``before``, which it
reads first (``_ABSENT`` for a key that did not exist). Deleted keys stay as ``None`` until :meth:`purge`.

There is no locking here; callers that share rows between threads lock. A signal handler may raise anywhere: every
operation can be repeated.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

_BLOCK_KEYS = 1024
_CHUNK_KEYS = 256
_SNAPSHOTS = 64

ROW_OVERHEAD_BYTES = 160
"""Memory of one row besides its bytes: headers of the two objects, dict entry, position in order."""


class _Absent:
    """Type of the sentinel for a missing key."""


_ABSENT: Final = _Absent()


class SortedRows:
    """A dict of rows with key order and snapshots; a value of ``None`` marks a deleted row."""

    __slots__ = ("_blocks", "_greatest", "_placed", "_prune_at", "_snapshots", "_value_bytes", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}  # The rows, public for the fastest lookup; changed here alone
        self._placed = 0
        self._blocks: list[list[bytes]] = []
        self._greatest: list[bytes] = []  # the last key of each block
        self._snapshots: list[weakref.ref[RowsSnapshot]] = []
        self._value_bytes = 0
        self._prune_at = _SNAPSHOTS

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, key: object) -> bool:
        return key in self.values

    def __getitem__(self, key: bytes) -> bytes | None:
        return self.values[key]

    def get(self, key: bytes, default: T | None = None) -> bytes | T | None:
        """The row of a key, ``None`` if deleted, ``default`` without an entry."""
        return self.values.get(key, default)

    def items(self) -> Iterable[tuple[bytes, bytes | None]]:
        """All rows in order of their first put."""
        return self.values.items()

    @property
    def watched(self) -> bool:
        """Whether snapshots may exist, which must be informed of changes."""
        return bool(self._snapshots)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the rows."""
        return self._value_bytes + ROW_OVERHEAD_BYTES * len(self.values)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the row of a key.

        Another thread may create a snapshot meanwhile: the interpreter switches threads only at calls and loops, so
        none is created after the check for snapshots.
        """
        values = self.values
        old = values.get(key, _ABSENT)
        size = 0 if value is None else len(value)
        if old is _ABSENT:
            size += len(key)
        elif old is not None:
            size -= len(old)  # type: ignore[arg-type]
        if self._snapshots:
            self._preserve_in_snapshots(key)
        values[key] = value
        self._value_bytes += size

    def put_all(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Set the rows of many keys; the last one of a key wins."""
        values = self.values
        keys = [key for key, _ in rows]
        if self._snapshots or not values.keys().isdisjoint(keys):
            for key, value in rows:
                self.put(key, value)
            return
        fresh = dict(rows)
        values.update(fresh)
        self._value_bytes += sum(map(len, fresh)) + sum(map(len, filter(None, fresh.values())))

    def purge(self, keys: Iterable[bytes]) -> bool:
        """Remove these keys, unless a snapshot might still read them; return whether they were removed."""
        self._snapshots = [reference for reference in self._snapshots if reference() is not None]
        if self._snapshots:
            return False
        self._sort_new_keys()
        for key in keys:
            if key not in self.values:
                continue
            at = bisect_left(self._greatest, key)
            if at < len(self._blocks):  # else an interrupted call has already removed it from its block
                block = self._blocks[at]
                index = bisect_left(block, key)
                if block[index : index + 1] == [key]:
                    del block[index]
                if block:
                    self._greatest[at] = block[-1]
                else:
                    del self._blocks[at], self._greatest[at]
            value = self.values[key]
            size = len(key) + (0 if value is None else len(value))
            self._placed -= 1
            del self.values[key]
            self._value_bytes -= size
        return True

    def snapshot(self) -> RowsSnapshot:
        """The current rows, preserved as long as the snapshot is referenced."""
        snapshot = RowsSnapshot(self)
        if len(self._snapshots) >= self._prune_at:  # rows that are only read: no put removes dead references
            self._snapshots = [reference for reference in self._snapshots if reference() is not None]
            self._prune_at = max(2 * len(self._snapshots), _SNAPSHOTS)
        self._snapshots.append(weakref.ref(snapshot))
        return snapshot

    def _preserve_in_snapshots(self, key: bytes) -> None:
        before = self.values.get(key, _ABSENT)
        gone = False
        for reference in self._snapshots:
            snapshot = reference()
            if snapshot is None:
                gone = True
            else:
                snapshot.before.setdefault(key, before)
        if gone:
            self._snapshots = [reference for reference in self._snapshots if reference() is not None]

    def keys_from(self, key: bytes | None, *, reverse: bool) -> list[bytes]:
        """The next few keys in order: those ``>= key``, or in reverse those ``< key``; empty at the end."""
        if self._placed < len(self.values):
            self._sort_new_keys()
        blocks = self._blocks
        if not blocks:
            return []
        if not reverse:
            at = 0 if key is None else bisect_left(self._greatest, key)
            if at == len(blocks):
                return []
            block = blocks[at]
            start = 0 if key is None else bisect_left(block, key)
            return block[start : start + _CHUNK_KEYS]
        at = len(blocks) - 1 if key is None else min(bisect_left(self._greatest, key), len(blocks) - 1)
        end = len(blocks[at]) if key is None else bisect_left(blocks[at], key)
        if end == 0:
            if at == 0:
                return []
            at -= 1
            end = len(blocks[at])
        return blocks[at][max(end - _CHUNK_KEYS, 0) : end][::-1]

    def _sort_new_keys(self) -> None:
        """Insert keys put since the last call into the blocks: one by one if few, else by sorting all."""
        fresh = _newest(self.values, self._placed)
        count = self._placed + len(fresh)
        if len(fresh) * 8 > count:
            keys = sorted(self.values)  # in one step; may include keys put meanwhile
            count = len(keys)
            blocks = [keys[at : at + _BLOCK_KEYS] for at in range(0, count, _BLOCK_KEYS)]
            greatest = [block[-1] for block in blocks]
            self._blocks = blocks
            self._greatest = greatest
        else:
            for key in sorted(fresh):
                self._insert(key)
        self._placed = count

    def _insert(self, key: bytes) -> None:
        at = min(bisect_left(self._greatest, key), len(self._blocks) - 1)
        block = self._blocks[at]
        index = bisect_right(block, key)
        if index and block[index - 1] == key:
            return  # placed by an interrupted call
        block.insert(index, key)
        if len(block) > 2 * _BLOCK_KEYS:
            self._blocks[at : at + 1] = [block[:_BLOCK_KEYS], block[_BLOCK_KEYS:]]
            self._greatest[at : at + 1] = [block[_BLOCK_KEYS - 1], block[-1]]
        else:
            self._greatest[at] = block[-1]


def _newest(values: dict[bytes, bytes | None], known: int) -> list[bytes]:
    """The keys after the first ``known``; another thread may put more meanwhile."""
    while True:
        count = len(values)
        try:
            newest = list(islice(reversed(values), count - known))
        except RuntimeError:  # it grew
            continue
        if len(values) == count:
            return newest


class RowsSnapshot:
    """:class:`SortedRows` at a point in time; ``before`` has the values that were changed since."""

    __slots__ = ("__weakref__", "_rows", "before")

    def __init__(self, rows: SortedRows) -> None:
        self._rows = rows
        self.before: dict[bytes, bytes | _Absent | None] = {}

    def get(self, key: bytes, default: T | None = None) -> bytes | T | None:
        """The row of a key, ``None`` if it was deleted, ``default`` without an entry."""
        found = self._rows.get(key, default)  # read first: it may change before the next line
        if key not in self.before:
            return found
        value = self.before[key]
        return default if isinstance(value, _Absent) else value

    def cursor(self, lower: bytes | None, upper: bytes | None, *, reverse: bool) -> RowsCursor:
        """A cursor over the entries with ``lower <= key < upper``."""
        return RowsCursor(self, self._rows, lower, upper, reverse)


class RowsCursor:
    """Reads a snapshot in key order, some rows at a time."""

    def __init__(
        self, snapshot: RowsSnapshot, rows: SortedRows, lower: bytes | None, upper: bytes | None, reverse: bool
    ) -> None:
        self._snapshot: RowsSnapshot | None = snapshot
        self._rows = rows
        self._lower = lower
        self._upper = upper
        self._reverse = reverse

    def chunk(self) -> list[tuple[bytes, bytes | None]]:
        """The next entries, deleted ones as ``None``; empty after the last."""
        found: list[tuple[bytes, bytes | None]] = []
        while not found and self._snapshot is not None:
            keys = self._keys()
            if not keys:
                self._snapshot = None  # stops preserving changed values
                break
            before, values = self._snapshot.before, self._rows
            found = [(key, values[key]) for key in keys]
            if before:  # read last: the old value is stored before a change
                changed = [(key, before.get(key, value)) for key, value in found]
                found = [(key, value) for key, value in changed if not isinstance(value, _Absent)]
        return found

    def _keys(self) -> list[bytes]:
        """The next keys within the bounds; moves the bound past them."""
        if self._lower is not None and self._upper is not None and self._lower >= self._upper:
            return []
        keys = self._rows.keys_from(self._upper if self._reverse else self._lower, reverse=self._reverse)
        if self._reverse:
            if keys and self._lower is not None and keys[-1] < self._lower:
                keys = [key for key in keys if key >= self._lower]
            if keys:
                self._upper = keys[-1]
            return keys
        if keys and self._upper is not None and keys[-1] >= self._upper:
            keys = keys[: bisect_left(keys, self._upper)]
        if keys:
            self._lower = keys[-1] + b"\0"
        return keys
