"""The two Numba kernels of the reader: scan of the batch headers, decoding of the records (magic 2 only).

This module imports Numba and is therefore imported only to compile (see `statecore.kernels.native`); the rest of the
package talks to `statecore.changelog.kernel`. Memory is addressed by plain integers: without arrays there is nothing of
Numba's runtime in the machine code. Byte layouts (Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``, KIP-98)::

    batch   0  i64 base offset          23  i32 last offset delta     57  i32 number of records
            8  i32 length after this    27  i64 base timestamp        61  records, compressed as a whole
           12  i32 leader epoch         35  i64 max timestamp
           16  i8  magic (2)            43  i64 producer id
           17  u32 CRC-32C from 21      51  i16 producer epoch
           21  i16 attributes           53  i32 base sequence
    record  varint length | i8 attributes | varlong timestamp delta | varint offset delta
            varint key length (-1: null) key | varint value length (-1: null) value | varint header count, headers

Every read is checked against the end of what encloses it before it happens, lengths as ``length > end - position`` so
that no sum can overflow. Writes are bounded by construction: each byte written was read from its own place in the
input, and the caller allocates outputs of the input's size and of as many rows as the headers announce.

A kernel gets the address of a block of ``int64``, filled by `kernel.Scanner.scan` and `kernel.decode`::

    scan     0 data        4 committed          8 table of batches   12 aborted records (result)
             1 its length  5 aborted, pairs     9 its rows           13 bytes consumed (result)
             2 start       6 how many           10 position (in and result)
             3 end         7 room for their ids 11 batches (result)
    decode   0 table of batches  7 key ends     12 value bits        17 rows (result)           22 null values (result)
             1 its rows          8 key bytes    13 header ends       18 key bytes (result)      23 aborted (result)
             2 places, pairs     9 key bits     14 header bytes      19 value bytes (result)    24 newest (result)
             3 start  4 end     10 value ends   15 offsets           20 header bytes (result)   25 batch (result)
             5 headers?         11 value bytes  16 timestamps        21 null keys (result)      26 offset (result)
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="no-untyped-def"

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np
from numba import njit

from statecore.changelog.kernel import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COLUMNS,
    COUNT,
    CRC,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    MODE,
    MODE_COUNT,
    MODE_DECODE,
    MODE_SKIP,
    RECORDS_END,
    RECORDS_START,
    Code,
)
from statecore.kernels.memory import copy, get, i16, i32, i64, or8, put, put32, u8, u32

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
_FURTHEST = 1 << 62  # beyond any offset; keeps offset + delta from overflowing


@njit(error_model="numpy")
def _varint(p, end):
    """Zigzag varint of up to ten bytes at `p`: the value and the address after it, which is 0 where it is malformed."""
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
    """Type in the key of the control record at `p` (0 abort, 1 commit), -1 where it is malformed."""
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
    """Whether the headers from `p` fill the record exactly up to `end`."""
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


def scan(args):  # noqa: C901
    """Read all batch headers of one response. One compiled loop, so one function."""
    data = get(args, 0)
    p = data
    end = data + get(args, 1)
    range_start = get(args, 2)
    range_end = get(args, 3)
    committed = get(args, 4)
    aborted_count = get(args, 6)
    aborted = get(args, 5)
    active = get(args, 7)
    capacity = get(args, 9)
    meta = get(args, 8)
    position = get(args, 10)
    rows = 0
    dropped = 0
    upcoming = 0
    actives = 0
    previous = -1
    code = OK
    # 17 bytes reach the magic byte, which must be looked at first: old formats have other lengths.
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
            break  # the response was cut here; the next fetch starts with this batch
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
        # As CompletedFetch does: transactions begin by offset, end at their producer's abort marker.
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
        elif is_aborted:
            if base >= range_start and last < range_end:
                mode = MODE_SKIP
                dropped += count
            else:
                mode = MODE_COUNT  # only its records inside the range are counted
        row = meta + rows * (8 * COLUMNS)
        put(row, BASE_OFFSET, base)
        put(row, LAST_OFFSET, last)
        put(row, RECORDS_START, p + _HEADER - data)
        put(row, RECORDS_END, stop - data)
        put(row, ATTRIBUTES, attributes)
        put(row, BASE_TIMESTAMP, i64(p + 27))
        put(row, MAX_TIMESTAMP, i64(p + 35))
        put(row, COUNT, count)
        put(row, CRC, u32(p + 17))
        put(row, MODE, mode)
        rows += 1
        previous = last
        if last >= position:
            position = last + 1
        p = stop
    put(args, 10, min(position, range_end))
    put(args, 11, rows)
    put(args, 12, dropped)
    put(args, 13, p - data)
    return code


def decode(args):  # noqa: C901
    """Decode the records of some batches into columns. One compiled loop, so one function."""
    batches = get(args, 1)
    meta = get(args, 0)
    places = get(args, 2)
    range_start = get(args, 3)
    range_end = get(args, 4)
    want_headers = get(args, 5)
    key_ends = get(args, 7)
    key_data = get(args, 8)
    key_valid = get(args, 9)
    value_ends = get(args, 10)
    value_data = get(args, 11)
    value_valid = get(args, 12)
    header_ends = get(args, 13)
    header_data = get(args, 14)
    offsets = get(args, 15)
    timestamps = get(args, 16)
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
        mode = get(meta + batch * (8 * COLUMNS), MODE)
        if mode == MODE_SKIP:
            batch += 1
            continue
        p = get(places, 2 * batch + 0)
        end = get(places, 2 * batch + 1)
        base = get(meta + batch * (8 * COLUMNS), BASE_OFFSET)
        last = get(meta + batch * (8 * COLUMNS), LAST_OFFSET)
        append_time = get(meta + batch * (8 * COLUMNS), ATTRIBUTES) & 8
        max_timestamp = get(meta + batch * (8 * COLUMNS), MAX_TIMESTAMP)
        base_timestamp = get(meta + batch * (8 * COLUMNS), BASE_TIMESTAMP)
        offset = base - 1
        for _ in range(get(meta + batch * (8 * COLUMNS), COUNT)):
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
    put(args, 17, row)
    put(args, 18, keys)
    put(args, 19, values)
    put(args, 20, headers)
    put(args, 21, null_keys)
    put(args, 22, null_values)
    put(args, 23, dropped)
    put(args, 24, newest)
    put(args, 25, batch)
    put(args, 26, offset + 1)
    return code
