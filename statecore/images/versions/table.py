"""Every record of a run, sorted by key and then by offset, with the kernels of ``sort_source``."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from statecore.formats.row_format import Records
from statecore.images.key_table import KeyTable
from statecore.images.model import RunFile
from statecore.images.versions import kernel
from statecore.images.versions.sorted_records import SortedRecords, write_records
from statecore.kernels.library import address_of

# Of a record, besides the batches: its position, target, two times, value position, stream time.
_BYTES_PER_RECORD = 40
_BYTES_AT_ONCE = 1 << 20


class RecordTable(KeyTable):
    """A key table that keeps every record, not only the last of each key, with its stream time."""

    def __init__(self) -> None:
        super().__init__(timestamps=True)
        self._stream_times: list[npt.NDArray[np.int64]] = []
        self._records = 0

    @property
    def bytes_to_sort(self) -> int:
        """Memory in use, plus the memory that sorting needs."""
        return self.bytes + self._records * _BYTES_PER_RECORD

    def add_records(self, records: Records, stream_times: npt.NDArray[np.int64]) -> None:
        """Hold the records of a batch that is not empty, by reference, with their stream times (ms)."""
        self._stream_times.append(np.ascontiguousarray(stream_times))
        self._records += len(stream_times)
        self.add(records.keys, records.values, records.timestamps)

    def write(self, path: Path) -> RunFile:
        """Write the records with a key, of which there must be at least one, as a file of sorted records."""
        ids = self.in_key_order(np.arange(self.keys, dtype=np.uint32))
        first_records, where = self._sorted(ids)
        count, batches = len(where), self._batches()
        streams = np.array([address_of(one) for one in self._stream_times], np.int64)
        times, stream_times, places = (
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count + 1, np.int64),
        )
        kernel.run(
            "describe_records",
            batches=batches,
            where=where,
            count=count,
            stream=streams,
            times=times,
            stream_times=stream_times,
            places=places,
        )
        key_offsets = np.zeros(len(ids) + 1, np.int64)
        keys = np.empty(int(self._lengths(ids).sum()), np.uint8)
        kernel.run(
            "gather_keys",
            entries=self._entries,
            arena=self._arena,
            ids=ids,
            count=len(ids),
            offsets=key_offsets,
            keys=keys,
        )
        records = SortedRecords(key_offsets, keys, first_records, times, stream_times, places)
        return write_records(path, records, _values(batches, where, places))

    def _sorted(self, ids: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Index of the first record of each key, in the order of the ids, and the position of each record."""
        batches = [held.ids for held in self._held if held is not None]  # a table that never shrinks has all of them
        counts = np.zeros(self.keys, np.int64)
        for batch in batches:
            kernel.run("count_records", ids=batch, rows=len(batch), counts=counts)
        first_records = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(counts[ids], out=first_records[1:])
        counts[ids] = first_records[:-1]
        where = np.empty(int(first_records[-1]), np.int64)
        for number, batch in enumerate(batches):
            kernel.run("place_records", ids=batch, rows=len(batch), batch=number, places=counts, out=where)
        return first_records, where


def _values(
    batches: npt.NDArray[np.int64], where: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the values in the order of the records, about a megabyte at a time."""
    starts = places >> 1
    low = 0
    while low < len(where):
        high = max(low + 1, int(np.searchsorted(starts, starts[low] + _BYTES_AT_ONCE, side="right")) - 1)
        values = np.empty(int(starts[high] - starts[low]), np.uint8)
        kernel.run("gather_values", batches=batches, where=where, places=places, low=low, high=high, values=values)
        yield values
        low = high
