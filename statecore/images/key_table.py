"""The distinct keys of a run and the last write of each: memory of :mod:`statecore.images.kernels.kernel`.

Values are not copied when they are added. A batch is held by reference until the table knows which of its rows still
count; ``shrink`` then copies those and releases the batch.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.images.kernels import kernel
from statecore.images.kernels.addresses import binary_column
from statecore.images.kernels.kernel import BATCH, NEEDED, USED, Batch, Live, Needed, Used
from statecore.kernels.library import address_of

_FIRST_TABLE_BITS = 10
_LAST_TABLE_BITS = 31


@dataclass
class _Held:
    """A held batch: addresses for the kernels and the objects that keep them alive."""

    ids: npt.NDArray[np.uint32]
    offsets: int
    width: int
    data: int
    valid: npt.NDArray[np.uint8] | None
    stamps: int
    bytes: int
    keep: tuple[Any, ...]


class Columns(NamedTuple):
    """Records as Arrow columns."""

    keys: pa.Array  # binary or large binary; null for a record without a key
    values: pa.Array  # binary or large binary; null for a delete
    timestamps: pa.Array  # int64, in ms


class Chunk(NamedTuple):
    """Rows in key order as contiguous buffers."""

    key_offsets: npt.NDArray[np.int64]  # start of each key in keys, and end of the last one
    keys: npt.NDArray[np.uint8]  # bytes of the keys
    value_offsets: npt.NDArray[np.int64]  # the same for the values; a tombstone has length zero
    values: npt.NDArray[np.uint8]  # bytes of the record values
    valid: npt.NDArray[np.uint8]  # 1 per row with a value, 0 per tombstone
    timestamps: npt.NDArray[np.int64]  # record timestamps in ms; zeros when the table keeps none


class KeyTable:
    """Interns keys and keeps the last write of each; with record timestamps if ``timestamps``."""

    def __init__(self, *, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._bits = _FIRST_TABLE_BITS
        self._table = np.zeros(1 << self._bits, np.uint64)
        self._entries = np.empty((512, kernel.ENTRY_WORDS), np.uint64)
        self._arena = np.empty(1 << 12, np.uint64)
        self._used = np.array(Used(), np.int64)
        self._held: list[_Held | None] = []
        self._free: list[int] = []
        self.held_bytes = 0

    @property
    def keys(self) -> int:
        """Number of distinct keys."""
        return int(self._used[USED.keys])

    @property
    def null_keys(self) -> int:
        """Number of records without a key, which a store skips."""
        return int(self._used[USED.null_keys])

    @property
    def bytes(self) -> int:
        """Memory in use: batches and the table itself, by capacity."""
        return self.held_bytes + self._table.nbytes + self._entries.nbytes + self._arena.nbytes

    def add(self, keys: pa.Array, values: pa.Array, timestamps: pa.Array) -> None:
        """Make every row of a batch the last write of its key."""
        rows = len(keys)
        if rows == 0:
            return
        column = binary_column(keys)
        ids = np.empty(rows, np.uint32)
        kernel.run(
            "tag_keys",
            offsets=column.offsets,
            width=column.width,
            data=column.data,
            valid=column.valid,
            ids=ids,
            rows=rows,
        )
        number = self._hold(ids, values, timestamps)
        row = 0
        while True:
            row = kernel.run(
                "intern_keys",
                offsets=column.offsets,
                width=column.width,
                data=column.data,
                valid=column.valid,
                ids=ids,
                rows=rows,
                row=row,
                batch=number,
                table=self._table,
                bits=self._bits,
                entries=self._entries,
                capacity=len(self._entries),
                arena=self._arena,
                arena_capacity=self._arena.nbytes,
                used=self._used,
            )
            if row == rows:
                return
            self._grow(len(keys[row].as_buffer()))

    def append(self, keys: pa.Array, values: pa.Array, timestamps: pa.Array) -> None:
        """Append keys that are not in the table, each once and none null. No other rows can be added afterwards."""
        rows = len(keys)
        if rows == 0:
            return
        column = binary_column(keys)
        more = int(keys.get_total_buffer_size()) + 8 * rows  # long keys, each at a multiple of eight
        self._reserve(self.keys + rows, int(self._used[USED.arena_bytes]) + more)
        ids = np.empty(rows, np.uint32)
        kernel.run(
            "append_keys",
            offsets=column.offsets,
            width=column.width,
            data=column.data,
            ids=ids,
            rows=rows,
            batch=self._hold(ids, values, timestamps),
            entries=self._entries,
            arena=self._arena,
            used=self._used,
        )

    def _hold(self, ids: npt.NDArray[np.uint32], values: pa.Array, timestamps: pa.Array) -> int:
        column = binary_column(values)
        # Whole buffers, not their slices: holding the batch keeps them alive.
        size = ids.nbytes + int(values.get_total_buffer_size()) + (0 if column.valid is None else column.valid.nbytes)
        stamps, keep = 0, (values, None)
        if self._timestamps:
            stamps = timestamps.buffers()[1].address + 8 * timestamps.offset
            size += int(timestamps.get_total_buffer_size())
            keep = (values, timestamps)
        held = _Held(ids, column.offsets, column.width, column.data, column.valid, stamps, size, keep)
        self.held_bytes += size
        if self._free:
            number = self._free.pop()
            self._held[number] = held
            return number
        self._held.append(held)
        return len(self._held) - 1

    def _grow(self, key_bytes: int) -> None:
        """Make room for at least one more key of that length."""
        if self.keys * 2 >= len(self._table):
            if self._bits == _LAST_TABLE_BITS:
                raise OverflowError(
                    "more than 2^30 distinct keys in one table; the memory budget is too large for them"
                )
            bits = self._bits + (2 if self._bits < 20 else 1)
            table = np.zeros(1 << bits, np.uint64)
            kernel.run("rehash", old=self._table, old_slots=len(self._table), new=table, bits=bits)
            self._table, self._bits = table, bits
        self._reserve(self.keys + 1, int(self._used[USED.arena_bytes]) + key_bytes + 8)

    def _reserve(self, keys: int, arena_bytes: int) -> None:
        """Make room for this many keys and bytes of long keys; grow at least by a factor of two."""
        if keys > len(self._entries):
            entries = np.empty((max(keys, 2 * len(self._entries)), kernel.ENTRY_WORDS), np.uint64)
            entries[: self.keys] = self._entries[: self.keys]
            self._entries = entries
        if arena_bytes > self._arena.nbytes:
            used = int(self._used[USED.arena_bytes])
            arena = np.empty(max(2 * self._arena.nbytes, arena_bytes) // 8 + 1, np.uint64)
            arena[: used // 8] = self._arena[: used // 8]
            self._arena = arena

    def shrink(self) -> None:
        """Copy the live rows out of batches where most rows are overwritten, and release those batches."""
        live = np.array(Live(), np.int64)
        for number, held in enumerate(self._held):
            if held is None:
                continue
            kernel.run(
                "count_live",
                ids=held.ids,
                rows=len(held.ids),
                batch=number,
                entries=self._entries,
                offsets=held.offsets,
                width=held.width,
                valid=held.valid,
                live=live,
            )
            rows, size = Live(*live.tolist())
            after = size + rows * (4 + 8 + 1 + (8 if self._timestamps else 0)) + 8
            if rows == 0:
                self.held_bytes -= held.bytes
                self._held[number] = None
                self._free.append(number)
            elif after < held.bytes:
                self._held[number] = self._live_rows(number, held, rows, size)
                self.held_bytes += after - held.bytes

    def _live_rows(self, number: int, held: _Held, rows: int, size: int) -> _Held:
        ids, offsets = np.empty(rows, np.uint32), np.empty(rows + 1, np.int64)
        data, valid = np.empty(size, np.uint8), np.empty(rows, np.uint8)
        stamps = np.empty(rows if self._timestamps else 0, np.int64)
        kernel.run(
            "keep_live",
            ids=held.ids,
            rows=len(held.ids),
            batch=number,
            entries=self._entries,
            offsets=held.offsets,
            width=held.width,
            valid=held.valid,
            data=held.data,
            stamps=held.stamps,
            new_ids=ids,
            new_offsets=offsets,
            new_data=data,
            new_valid=valid,
            new_stamps=stamps,
        )
        total = ids.nbytes + offsets.nbytes + data.nbytes + valid.nbytes + stamps.nbytes
        where = address_of(stamps) if self._timestamps else 0
        return _Held(ids, address_of(offsets), 8, address_of(data), valid, where, total, (offsets, data, stamps))

    def survivors(self, *, tombstones: bool) -> npt.NDArray[np.uint32]:
        """Ids of the keys to write, in the order of first occurrence."""
        ids = np.empty(self.keys, np.uint32)
        batches = self._batches()
        kept = kernel.run(
            "survivors", entries=self._entries, count=self.keys, batches=batches, tombstones=int(tombstones), out=ids
        )
        return ids[:kept]

    def _batches(self) -> npt.NDArray[np.int64]:
        table = np.zeros((len(self._held) + 1, len(BATCH)), np.int64)
        for number, held in enumerate(self._held):
            if held is not None:
                valid = 0 if held.valid is None else address_of(held.valid)
                table[number] = Batch(held.offsets, held.width, held.data, valid, held.stamps)
        return table

    def in_key_order(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Sort ids by the bytes of their keys, as RocksDB's bytewise comparator does."""
        ids = np.ascontiguousarray(ids)
        if len(ids) < 2:
            return ids
        pending = [(0, len(ids), 0)]
        table = {"entries": self._entries, "arena": self._arena}
        while pending:
            low, high, depth = pending.pop()
            part, count = ids[low:high], high - low
            depth = kernel.run("common_prefix", **table, ids=part, count=count, depth=depth)
            words = np.empty(count, np.uint64)
            kernel.run("words_at", **table, ids=part, count=count, depth=depth, out=words)
            counts = np.zeros((8, 256), np.int64)
            kernel.run(
                "sort_words",
                words=words,
                ids=part,
                count=count,
                to_words=np.empty_like(words),
                to_ids=np.empty_like(part),
                counts=counts,
            )
            if words[0] == words[-1]:
                # They are equal in eight bytes after their common prefix: padding. One is a prefix of the others.
                lengths = self._lengths(part)
                order = np.argsort(lengths, kind="stable")
                part[:] = part[order]
                # Only keys that end inside the padding are distinguished by length; the rest is compared one word
                # deeper.
                ended = int(np.searchsorted(lengths[order], depth + 8, side="right"))
                if count - ended > 1:
                    pending.append((low + ended, high, depth + 8))
                continue
            large = np.empty((count // kernel.SMALL_GROUP + 1, 2), np.int64)
            groups = kernel.run("order_ties", **table, ids=part, count=count, words=words, depth=depth, large=large)
            pending.extend((low + a, low + b, depth) for a, b in large[:groups].tolist())
        return ids

    def _lengths(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        lengths = np.zeros(len(ids), np.int64)
        kernel.run("key_lengths", entries=self._entries, ids=ids, count=len(ids), out=lengths)
        return lengths

    def times(self, ids: npt.NDArray[np.uint32], at: int) -> npt.NDArray[np.int64]:
        """Big-endian int64 at a position of each key, counted from its end when negative; keys must be long enough."""
        found = np.empty(len(ids), np.int64)
        kernel.run("key_times", entries=self._entries, arena=self._arena, ids=ids, count=len(ids), at=at, out=found)
        return found

    def gather(self, ids: npt.NDArray[np.uint32], *, rows_at_once: int, bytes_at_once: int) -> Iterator[Chunk]:
        """Yield keys and last values in the order of ``ids`` as chunks with buffers of their own."""
        batches = self._batches()
        needed = np.array(Needed(), np.int64)
        key_room = value_room = bytes_at_once
        low = 0
        while low < len(ids):
            part = ids[low : low + rows_at_once]
            keys, values = np.empty(key_room, np.uint8), np.empty(value_room, np.uint8)
            key_offsets, value_offsets = np.zeros(len(part) + 1, np.int64), np.zeros(len(part) + 1, np.int64)
            valid, stamps = np.empty(len(part), np.uint8), np.zeros(len(part), np.int64)
            done = kernel.run(
                "gather",
                entries=self._entries,
                arena=self._arena,
                batches=batches,
                ids=part,
                count=len(part),
                key_offsets=key_offsets,
                keys=keys,
                keys_room=len(keys),
                value_offsets=value_offsets,
                values=values,
                values_room=len(values),
                valid=valid,
                stamps=stamps,
                needed=needed,
            )
            if done == 0:
                key_room, value_room = (
                    max(key_room, int(needed[NEEDED.key_bytes])),
                    max(value_room, int(needed[NEEDED.value_bytes])),
                )
                continue
            key_room = value_room = bytes_at_once
            low += done
            key_offsets, value_offsets = key_offsets[: done + 1], value_offsets[: done + 1]
            yield Chunk(
                key_offsets,
                keys[: key_offsets[-1]],
                value_offsets,
                values[: value_offsets[-1]],
                valid[:done],
                stamps[:done],
            )
