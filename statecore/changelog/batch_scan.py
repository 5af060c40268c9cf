"""Scans and decodes record batches: the interface of two kernels (`statecore.changelog.batch_scan_source`).

:mod:`statecore.kernels.library` describes how kernels are called.
"""

from __future__ import annotations

import statecore.extras.pipeline

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.kernels.library import KernelLibrary
from statecore.kernels.records import field_indexes

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Batch(NamedTuple):
    """Header fields of a batch, written by `scan` and read by `decode`; positions count from the response's start."""

    base_offset: int = 0
    last_offset: int = 0
    records_start: int = 0
    records_end: int = 0
    attributes: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    records: int = 0
    crc: int = 0
    mode: int = 0


class Found(NamedTuple):
    """Results of the kernel `scan`; see `Scan`."""

    position: int = 0
    batches: int = 0
    aborted: int = 0
    control: int = 0
    consumed: int = 0


class Decoded(NamedTuple):
    """Results of the kernel `decode`; see `Columns`."""

    rows: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    aborted: int = 0
    newest: int = 0
    batch: int = 0
    offset: int = 0


BATCH, FOUND, DECODED = field_indexes(Batch), field_indexes(Found), field_indexes(Decoded)

MODE_DECODE = 0  # Records of the batch inside the range are delivered
MODE_SKIP = 1
"""Nothing of the batch is delivered: control batch, empty, outside the range, or wholly aborted (and counted)."""
MODE_COUNT = 2  # Aborted, and only partly inside the range: records inside are counted, not delivered

SMALLEST_RECORD = 7
"""Bytes of a record with null key, null value and no headers; bounds the rows that a number of bytes can hold."""


class Code(IntEnum):
    """Result of a kernel; callers turn everything but ``OK`` into an error that names the position."""

    OK = 0
    OLD_MAGIC = 1
    UNKNOWN_MAGIC = 2
    BATCH_LENGTH = 3
    BATCH_OFFSETS = 4
    BATCH_COUNT = 5
    CONTROL_RECORD = 6
    RECORD_LENGTH = 10
    RECORD_OFFSET = 11
    RECORD_FIELD = 12
    RECORD_HEADERS = 13
    TRAILING_BYTES = 14


MEANING = {
    Code.OLD_MAGIC: "is in message format 0 or 1",
    Code.UNKNOWN_MAGIC: "has an unknown magic byte",
    Code.BATCH_LENGTH: "announces an impossible length",
    Code.BATCH_OFFSETS: "has offsets that do not ascend",
    Code.BATCH_COUNT: "announces an impossible number of records",
    Code.CONTROL_RECORD: "has a malformed control record",
    Code.RECORD_LENGTH: "has a record with an impossible length",
    Code.RECORD_OFFSET: "has a record whose offset does not ascend or is outside the batch",
    Code.RECORD_FIELD: "has a record with a malformed timestamp, offset, key or value",
    Code.RECORD_HEADERS: "has a record with malformed headers",
    Code.TRAILING_BYTES: "has bytes left after its last record",
}
"""Text for each code, to follow "the record batch at ..."."""


@dataclass(frozen=True)
class Scan:
    """Result of one pass over the batch headers of a response."""

    code: Code  # OK, or why the scan stopped at the batch after the last row
    position: int  # the next offset to fetch, at most the range's end
    meta: Int64Array  # one row a batch, with the columns of Batch; a view that the next scan overwrites
    aborted: int  # records of aborted batches wholly inside the range
    control: int  # control records inside the range; a control batch has exactly one, so none spans an end
    consumed: int  # bytes of the whole batches


@dataclass(frozen=True)
class Columns:
    """Decoded records; the arrays are longer than their used part."""

    code: Code  # OK, or what is wrong with batch number batch
    rows: int
    # int32 Arrow offsets of the keys, rows + 1 used; likewise value_ends and header_ends
    key_ends: npt.NDArray[np.int32]
    key_data: Bytes  # bytes of the keys, key_bytes used; likewise the values and headers
    key_valid: Bytes  # Arrow validity bits of the keys; likewise value_valid
    key_bytes: int
    value_ends: npt.NDArray[np.int32]
    value_data: Bytes
    value_valid: Bytes
    value_bytes: int
    header_ends: npt.NDArray[np.int32] | None
    header_data: Bytes | None
    header_bytes: int
    offsets: Int64Array  # each record's offset
    timestamps: Int64Array  # each record's timestamp in ms (the batch's maximum under LogAppendTime)
    null_keys: int  # rows without a key
    null_values: int  # rows without a value
    aborted: int  # records inside the range of aborted batches that span an end of it
    newest: int  # greatest timestamp of the rows; meaningless without rows
    batch: int  # index of the batch that code is about
    offset: int  # the offset after the last good record of that batch


_KERNELS = KernelLibrary("statecore.changelog.batch_scan_source")

warm = _KERNELS.warm  # See KernelLibrary.warm


class Scanner:
    """Scans responses; reuses one batch table, allocated once."""

    def __init__(self) -> None:
        warm()
        self._meta: Int64Array = np.empty((0, len(BATCH)), np.int64)

    def scan(self, data: Bytes, *, position: int, end: int, committed: bool, aborted: Int64Array) -> Scan:
        """Read the headers of all whole batches in `data`."""
        most = len(data) // 61 + 1
        if len(self._meta) < most:
            self._meta = np.empty((most, len(BATCH)), np.int64)
        found = np.array(Found(), np.int64)
        code = _KERNELS.run(
            "scan",
            data=data,
            size=len(data),
            position=position,
            range_start=position,
            range_end=end,
            committed=committed,
            aborted=aborted,
            aborted_count=len(aborted),
            active=np.empty(len(aborted) + 1, np.int64),
            meta=self._meta,
            capacity=most,
            found=found,
        )
        result = Found(*found.tolist())
        meta = self._meta[: result.batches]
        return Scan(Code(code), result.position, meta, result.aborted, result.control, result.consumed)


def decode(
    meta: Int64Array, places: Int64Array, *, start: int, end: int, rows: int, size: int, headers: bool
) -> Columns:
    """Decode the records of some batches."""
    # Untouched memory is not backed by pages, so allocating the worst case costs nothing.
    bits = (rows + 7) // 8
    key_ends = np.empty(rows + 1, np.int32)
    value_ends = np.empty(rows + 1, np.int32)
    header_ends = np.empty(rows + 1, np.int32) if headers else None
    key_data = np.empty(size, np.uint8)
    value_data = np.empty(size, np.uint8)
    header_data = np.empty(size, np.uint8) if headers else None
    key_valid = np.zeros(bits, np.uint8)
    value_valid = np.zeros(bits, np.uint8)
    offsets = np.empty(rows, np.int64)
    timestamps = np.empty(rows, np.int64)
    decoded = np.array(Decoded(), np.int64)
    code = _KERNELS.run(
        "decode",
        meta=meta,
        batches=len(meta),
        places=places,
        range_start=start,
        range_end=end,
        want_headers=headers,
        key_ends=key_ends,
        key_data=key_data,
        key_valid=key_valid,
        value_ends=value_ends,
        value_data=value_data,
        value_valid=value_valid,
        header_ends=header_ends,
        header_data=header_data,
        offsets=offsets,
        timestamps=timestamps,
        decoded=decoded,
    )
    result = Decoded(*decoded.tolist())
    return Columns(
        Code(code),
        result.rows,
        key_ends,
        key_data,
        key_valid,
        result.key_bytes,
        value_ends,
        value_data,
        value_valid,
        result.value_bytes,
        header_ends,
        header_data,
        result.header_bytes,
        offsets,
        timestamps,
        result.null_keys,
        result.null_values,
        result.aborted,
        result.newest,
        result.batch,
        result.offset,
    )
