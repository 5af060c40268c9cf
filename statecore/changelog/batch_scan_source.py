"""The two Numba kernels of the reader: scan of the batch headers, decoding of the records (magic 2 only).

Imports Numba, so it is imported only to compile (`statecore.kernels.native`); other modules use
`statecore.changelog.batch_scan`. Memory is addressed by plain integers: without arrays the machine code contains
nothing of Numba's runtime. Byte layouts (Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``, KIP-98)::

    batch   0  i64 base offset          23  i32 last offset delta     57  i32 number of records
            8  i32 length after this    27  i64 base timestamp        61  records, compressed as a whole
           12  i32 leader epoch         35  i64 max timestamp
           16  i8  magic (2)            43  i64 producer id
           17  u32 CRC-32C from 21      51  i16 producer epoch
           21  i16 attributes           53  i32 base sequence
    record  varint length | i8 attributes | varlong timestamp delta | varint offset delta
            varint key length (-1: null) key | varint value length (-1: null) value | varint header count, headers

Every read is first checked against the end of its container, as ``length > end - position`` so that no sum can
overflow. Writes are bounded by construction: each written byte was read from its own position in the input, and the
caller allocates outputs of the input's size and of as many rows as the headers announce.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.changelog.batch_scan import BATCH, DECODED, FOUND, MODE_COUNT, MODE_DECODE, MODE_SKIP, Code
from statecore.kernels.memory import copy, get, i16, i32, i64, or8, put, put32, u8, u32

__all__ = ["decode", "scan"]

# Numba freezes globals into the machine code; enumeration members become plain integers.
OK = int(Code.OK)
OLD_MAGIC = int(Code.OLD_MAGIC)
UNKNOWN_MAGIC = int(Code.UNKNOWN_MAGIC)
BATCH_LENGTH = int(Code.BATCH_LENGTH)
BATCH_OFFSETS = int(Code.BATCH_OFFSETS)
BATCH_COUNT = int(Code.BATCH_COUNT)
CONTROL_RECORD = int(Code.CONTROL_RECORD)
RECORD_LENGTH = int(Code.RECORD_LENGTH)
RECORD_OFFSET = int(Code.RECORD_OFFSET)
RECORD_FIELD = int(Code.RECORD_FIELD)
RECORD_HEADERS = int(Code.RECORD_HEADERS)
TRAILING_BYTES = int(Code.TRAILING_BYTES)

_HEADER = 61
_BATCH = 8 * len(BATCH)
_FURTHEST = 1 << 62  # larger than any offset; offset + delta cannot overflow


@njit(error_model="numpy")
def _varint(p, end):
    """Decode a zigzag varint of up to ten bytes at `p`: value and next address, which is 0 if malformed."""
    if p >= end:
        return 0, 0
    byte = u8(p)
    p += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), p
    bits = byte & 127
    shift = 7
    while shift < 64:
        if p >= end:
            return 0, 0
        byte = u8(p)
        p += 1
        bits |= (byte & 127) << shift
        if byte < 128:
            return np.int64(np.uint64(bits) >> np.uint64(1)) ^ -(bits & 1), p
        shift += 7
    return 0, 0


@njit(error_model="numpy")
def _control_type(p, end):
    """Type in the key of the control record at `p` (0 abort, 1 commit), -1 if malformed."""
    length, p = _varint(p, end)
    if p == 0 or length < 0 or length > end - p or length < 1:
        return -1
    end = p + length
    p += 1
    _, p = _varint(p, end)
    if p == 0:
        return -1
    _, p = _varint(p, end)
    if p == 0:
        return -1
    key, p = _varint(p, end)
    if p == 0 or key < 4 or key > end - p:
        return -1
    return i16(p + 2)


@njit(error_model="numpy")
def _headers_ok(p, end):
    """Whether the headers from `p` end exactly at `end`."""
    count, p = _varint(p, end)
    if p == 0 or count < 0:
        return False
    for _ in range(count):
        length, p = _varint(p, end)
        if p == 0 or length < 0 or length > end - p:
            return False
        p += length
        length, p = _varint(p, end)
        if p == 0 or length > end - p:
            return False
        if length > 0:
            p += length
    return p == end


def scan(  # noqa: C901
    data, size, position, range_start, range_end, committed, aborted, aborted_count, active, meta, capacity, found
):
    """Read all batch headers of one response, in one compiled loop.

    ``aborted`` holds pairs of producer id and first offset; ``active`` has room for that many ids and one more;
    ``meta`` receives at most ``capacity`` ``Batch`` rows; ``found`` is a ``Found``.
    """
    p = data
    end = data + size
    rows = 0
    dropped = 0
    controls = 0
    upcoming = 0
    actives = 0
    previous = -1
    code = OK
    # 17 bytes reach the magic byte, which is checked first: old formats have other lengths.
    while end - p >= 17 and rows < capacity:
        base = i64(p)
        length = i32(p + 8)
        magic = u8(p + 16)
        if magic != 2:
            code = OLD_MAGIC if magic < 2 else UNKNOWN_MAGIC
            break
        if length < _HEADER - 12:
            code = BATCH_LENGTH
            break
        if length > end - p - 12:
            break  # the response was truncated here; the next fetch starts with this batch
        delta = i32(p + 23)
        count = i32(p + 57)
        if base < 0 or base > _FURTHEST or delta < 0 or base <= previous:
            code = BATCH_OFFSETS
            break
        if count < 0 or count > delta + 1:
            code = BATCH_COUNT
            break
        last = base + delta
        if base >= range_end:
            position = range_end
            break
        attributes = i16(p + 21)
        producer = i64(p + 43)
        control = attributes & 32
        stop = p + 12 + length
        is_aborted = False
        # As in CompletedFetch: transactions begin by offset and end at their producer's abort marker.
        if committed and producer >= 0:
            while upcoming < aborted_count and get(aborted, 2 * upcoming + 1) <= last:
                known = False
                for i in range(actives):
                    if get(active, i) == get(aborted, 2 * upcoming):
                        known = True
                if not known:
                    put(active, actives, get(aborted, 2 * upcoming))
                    actives += 1
                upcoming += 1
            place = -1
            for i in range(actives):
                if get(active, i) == producer:
                    place = i
            if control and count > 0:
                kind = _control_type(p + _HEADER, stop)
                if kind < 0:
                    code = CONTROL_RECORD
                    break
                if kind == 0 and place >= 0:
                    actives -= 1
                    put(active, place, get(active, actives))
            elif attributes & 16 and place >= 0:
                is_aborted = True
        mode = MODE_DECODE
        if control or count == 0 or last < range_start:
            mode = MODE_SKIP
            if control and base >= range_start and last < range_end:
                controls += count
        elif is_aborted:
            if base >= range_start and last < range_end:
                mode = MODE_SKIP
                dropped += count
            else:
                mode = MODE_COUNT  # only its records inside the range are counted
        row = meta + rows * _BATCH
        put(row, BATCH.base_offset, base)
        put(row, BATCH.last_offset, last)
        put(row, BATCH.records_start, p + _HEADER - data)
        put(row, BATCH.records_end, stop - data)
        put(row, BATCH.attributes, attributes)
        put(row, BATCH.base_timestamp, i64(p + 27))
        put(row, BATCH.max_timestamp, i64(p + 35))
        put(row, BATCH.records, count)
        put(row, BATCH.crc, u32(p + 17))
        put(row, BATCH.mode, mode)
        rows += 1
        previous = last
        if last >= position:
            position = last + 1
        p = stop
    put(found, FOUND.position, min(position, range_end))
    put(found, FOUND.batches, rows)
    put(found, FOUND.aborted, dropped)
    put(found, FOUND.control, controls)
    put(found, FOUND.consumed, p - data)
    return code


def decode(  # noqa: C901
    meta,
    batches,
    places,
    range_start,
    range_end,
    want_headers,
    key_ends,
    key_data,
    key_valid,
    value_ends,
    value_data,
    value_valid,
    header_ends,
    header_data,
    offsets,
    timestamps,
    decoded,
):
    """Decode the records of some batches into columns, in one compiled loop.

    ``meta`` holds a ``Batch`` each, ``places`` the start of its first and the end of its last record; ``decoded`` is a
    ``Decoded``.
    """
    row = 0
    keys = 0
    values = 0
    headers = 0
    null_keys = 0
    null_values = 0
    dropped = 0
    newest = np.int64(-(1 << 63))
    code = OK
    batch = 0
    offset = 0
    put32(key_ends, 0, 0)
    put32(value_ends, 0, 0)
    if want_headers:
        put32(header_ends, 0, 0)
    while batch < batches and code == OK:
        mode = get(meta + batch * _BATCH, BATCH.mode)
        if mode == MODE_SKIP:
            batch += 1
            continue
        p = get(places, 2 * batch + 0)
        end = get(places, 2 * batch + 1)
        base = get(meta + batch * _BATCH, BATCH.base_offset)
        last = get(meta + batch * _BATCH, BATCH.last_offset)
        append_time = get(meta + batch * _BATCH, BATCH.attributes) & 8
        max_timestamp = get(meta + batch * _BATCH, BATCH.max_timestamp)
        base_timestamp = get(meta + batch * _BATCH, BATCH.base_timestamp)
        offset = base - 1
        for _ in range(get(meta + batch * _BATCH, BATCH.records)):
            length, p = _varint(p, end)
            if p == 0 or length < 1 or length > end - p:
                code = RECORD_LENGTH
                break
            stop = p + length
            p += 1
            timestamp, p = _varint(p, stop)
            if p == 0:
                code = RECORD_FIELD
                break
            delta, p = _varint(p, stop)
            if p == 0:
                code = RECORD_FIELD
                break
            if delta < 0 or delta > last - base or base + delta <= offset:
                code = RECORD_OFFSET
                break
            offset = base + delta
            if offset < range_start or offset >= range_end:
                p = stop
                continue
            if mode == MODE_COUNT:
                dropped += 1
                p = stop
                continue
            length, p = _varint(p, stop)
            if p == 0 or length > stop - p:
                code = RECORD_FIELD
                break
            if length >= 0:
                copy(key_data + keys, p, length)
                or8(key_valid, row >> 3, 1 << (row & 7))
                keys += length
                p += length
            else:
                null_keys += 1
            length, p = _varint(p, stop)
            if p == 0 or length > stop - p:
                code = RECORD_FIELD
                break
            if length >= 0:
                copy(value_data + values, p, length)
                or8(value_valid, row >> 3, 1 << (row & 7))
                values += length
                p += length
            else:
                null_values += 1
            if want_headers:
                if not _headers_ok(p, stop):
                    code = RECORD_HEADERS
                    break
                copy(header_data + headers, p, stop - p)
                headers += stop - p
                put32(header_ends, row + 1, headers)
            elif p >= stop:
                code = RECORD_HEADERS
                break
            timestamp = max_timestamp if append_time else base_timestamp + timestamp
            newest = max(newest, timestamp)
            put(offsets, row, offset)
            put(timestamps, row, timestamp)
            row += 1
            put32(key_ends, row, keys)
            put32(value_ends, row, values)
            p = stop
        if code == OK and p != end:
            code = TRAILING_BYTES
        if code == OK:
            batch += 1
    put(decoded, DECODED.rows, row)
    put(decoded, DECODED.key_bytes, keys)
    put(decoded, DECODED.value_bytes, values)
    put(decoded, DECODED.header_bytes, headers)
    put(decoded, DECODED.null_keys, null_keys)
    put(decoded, DECODED.null_values, null_values)
    put(decoded, DECODED.aborted, dropped)
    put(decoded, DECODED.newest, newest)
    put(decoded, DECODED.batch, batch)
    put(decoded, DECODED.offset, offset + 1)
    return code
