"""Decodes the record data of one Fetch response to Arrow record batches, without a broker.

Per record only the kernel runs; per batch two native calls, CRC-32C and decompression; everything else once per
response. `scan` and `batches` are separate so that the next request can be sent while this response is decoded.
"""

from __future__ import annotations

import statecore.extras.pipeline

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from statecore.changelog import batch_scan
from statecore.changelog.codecs import LARGEST_BATCH, DecompressionFailed, Scratch
from statecore.changelog.legacy_batches import MalformedMessage, converted
from statecore.changelog.model import CODEC_BITS, IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import Corrupted
from statecore.kernels.library import address_of

CHANGELOG_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
    ]
)
"""Columns of a decoded batch, in offset order. Null keys and values are nulls; timestamps are in ms since the epoch."""

HEADERS_FIELD = pa.field("headers", pa.binary(), nullable=False)
"""Optional column: each record's headers as on the wire, ``varint(count) {varint(len) key varint(len or -1)
value}*``."""


if TYPE_CHECKING:
    from statecore.changelog.batch_scan import Columns, Scan

DECODED_BYTES = 64 << 20
"""Decompressed bytes after which a record batch is returned, so that a well compressed response does not fill the
memory.
"""

NO_ABORTED = np.empty((0, 2), np.int64)  # Aborted transactions of a response without any
_CRC_START = 40  # from the field after the CRC to the first record
_EPOCH = struct.Struct(">i")
_EPOCH_BACK = 49  # from the leader epoch to the first record


class RangeDecoder:
    """Decodes the responses of one range, in order, and counts records."""

    def __init__(
        self,
        whole: OffsetRange,
        isolation: IsolationLevel,
        *,
        headers: bool = False,
        decoded_bytes: int = DECODED_BYTES,
    ) -> None:
        self.statistics = ReadStatistics(position=whole.start)
        self.leader_epoch = -1  # Leader epoch of the last scanned batch; -1 before the first
        self.schema = CHANGELOG_SCHEMA.append(HEADERS_FIELD) if headers else CHANGELOG_SCHEMA
        self._range = whole
        self._committed = isolation is IsolationLevel.READ_COMMITTED
        self._headers = headers
        self._decoded_bytes = decoded_bytes
        self._scanner = batch_scan.Scanner()
        self._scratch = Scratch()
        self._scan: Scan | None = None
        self._start = whole.start
        self._control = 0
        self._data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def scan(self, data: npt.NDArray[np.uint8], position: int, aborted: npt.NDArray[np.int64] = NO_ABORTED) -> int:
        """Read the batch headers of a response; return the next offset, or `position` itself without a whole batch."""
        if len(aborted) > 1:
            aborted = np.ascontiguousarray(aborted[np.argsort(aborted[:, 1], kind="stable")])

        def scan() -> Scan:
            return self._scanner.scan(
                data, position=position, end=self._range.end, committed=self._committed, aborted=aborted
            )

        found = scan()
        if found.code is batch_scan.Code.OLD_MAGIC:
            try:
                data = np.frombuffer(converted(data.data), np.uint8)
            except MalformedMessage as error:
                self._corrupted(error.offset, error.what)
            found = scan()
        if found.code is not batch_scan.Code.OK:
            at = int(found.meta[-1, batch_scan.BATCH.last_offset]) + 1 if len(found.meta) else position
            self._corrupted(at, batch_scan.MEANING[found.code])
        if len(found.meta):
            (self.leader_epoch,) = _EPOCH.unpack_from(
                data.data, found.meta[-1, batch_scan.BATCH.records_start] - _EPOCH_BACK
            )
        self._scan = found
        self._start = position  # a batch may begin before what was asked for
        self._data = data
        return found.position

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Verify, decompress and decode the scanned batches; usually one record batch, none if no rows remain."""
        found = self._scan
        if found is None:
            return
        self._scan = None
        self._control += found.control
        self._count(aborted=found.aborted, batches=len(found.meta), bytes_fetched=found.consumed, fetches=1)
        view = self._data.data
        base = address_of(self._data)
        scratch = self._scratch
        scratch.clear()
        starts: list[int] = []
        ends: list[int] = []
        packed: list[int] = []
        first = rows = size = 0
        for index, row in enumerate(found.meta.tolist()):
            offset, _, start, end, attributes, _, _, count, crc, mode = row
            if crc32c(view[start - _CRC_START : end]) != crc:
                self._corrupted(offset, "has a wrong checksum (CRC-32C)")
            codec = attributes & CODEC_BITS
            if mode == batch_scan.MODE_SKIP:
                starts.append(0)
                ends.append(0)
                continue
            if codec:
                begin = scratch.used
                try:
                    stop = scratch.append(codec, view[start:end])
                except DecompressionFailed as error:
                    self._corrupted(offset, f"cannot be decompressed ({error})")
                packed.append(index - first)
                starts.append(begin)
                ends.append(stop)
                length = stop - begin
            else:
                starts.append(base + start)
                ends.append(base + end)
                length = end - start
            if length > LARGEST_BATCH:
                self._corrupted(offset, f"has {length} bytes, more than a column can hold")
            if count * batch_scan.SMALLEST_RECORD > length:
                self._corrupted(offset, f"announces {count} records in {length} bytes")
            rows += count
            size += length
            if size >= self._decoded_bytes:
                yield from self._decode(found.meta[first : index + 1], starts, ends, packed, rows, size)
                scratch.clear()
                starts, ends, packed = [], [], []
                first, rows, size = index + 1, 0, 0
        if rows:
            yield from self._decode(found.meta[first:], starts, ends, packed, rows, size)

    def reached(self, position: int) -> None:
        """Record that everything before `position` was delivered or no longer exists."""
        now = self.statistics
        # Each record has its own offset (the kernel checks it), so counts give the number of offsets without a record.
        present = now.records + now.aborted + self._control
        self.statistics = replace(now, position=position, removed=position - self._range.start - present)

    def moved(self, log_start: int) -> None:
        """Record that the log start moved past the position."""
        self.statistics = replace(self.statistics, position=log_start, log_start_moved_to=log_start)

    def _decode(
        self, meta: npt.NDArray[np.int64], starts: list[int], ends: list[int], packed: list[int], rows: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        places = np.array((starts, ends), np.int64).T.copy()
        if packed:
            places[packed] += address_of(self._scratch.array)  # only now: the buffer moves when it grows
        columns = batch_scan.decode(
            meta, places, start=self._start, end=self._range.end, rows=rows, size=size, headers=self._headers
        )
        if columns.code is not batch_scan.Code.OK:
            self._corrupted(
                int(meta[columns.batch, batch_scan.BATCH.base_offset]), batch_scan.MEANING[columns.code], columns.offset
            )
        self._count(
            records=columns.rows,
            tombstones=columns.null_values,
            null_keys=columns.null_keys,
            aborted=columns.aborted,
            bytes_decoded=size,
        )
        if columns.rows:
            newest = max(self.statistics.max_timestamp, columns.newest)
            self.statistics = replace(self.statistics, max_timestamp=newest)
            yield self._to_arrow(columns)

    def _to_arrow(self, columns: Columns) -> pa.RecordBatch:
        rows = columns.rows
        arrays = [
            pa.Array.from_buffers(
                pa.binary(),
                rows,
                [
                    pa.py_buffer(columns.key_valid) if columns.null_keys else None,
                    pa.py_buffer(columns.key_ends[: rows + 1]),
                    pa.py_buffer(columns.key_data[: columns.key_bytes]),
                ],
                columns.null_keys,
            ),
            pa.Array.from_buffers(
                pa.binary(),
                rows,
                [
                    pa.py_buffer(columns.value_valid) if columns.null_values else None,
                    pa.py_buffer(columns.value_ends[: rows + 1]),
                    pa.py_buffer(columns.value_data[: columns.value_bytes]),
                ],
                columns.null_values,
            ),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets[:rows])], 0),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.timestamps[:rows])], 0),
        ]
        if columns.header_ends is not None and columns.header_data is not None:
            buffers = [
                None,
                pa.py_buffer(columns.header_ends[: rows + 1]),
                pa.py_buffer(columns.header_data[: columns.header_bytes]),
            ]
            arrays.append(pa.Array.from_buffers(pa.binary(), rows, buffers, 0))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _count(self, **more: int) -> None:
        now = self.statistics
        self.statistics = replace(now, **{name: getattr(now, name) + value for name, value in more.items()})

    def _corrupted(self, batch: int, what: str, record: int | None = None) -> NoReturn:
        topic, partition = self._range.topic, self._range.partition
        near = "" if record is None else f" near offset {record}"
        raise Corrupted(
            f"Topic {topic}, partition {partition}: the record batch at offset {batch} {what}{near}.",
            code="record-batch-corrupted",
            action="Check the broker's disk and the network; move leadership to another replica, then run this again.",
            topic=topic,
            partition=partition,
            offset=batch if record is None else record,
        )
