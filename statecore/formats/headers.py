"""Record headers in rows: the block before the value, and the values of every store that has one (KIP-1271).

A store with headers keeps those of each record before its value (``RecordConverters``, ``HeadersSerializer``)::

    kind                                   row value
    -------------------------------------  -----------------------------------------
    headers-key-value, headers-window,     headers o int64 timestamp in ms o value
    headers-emit-final-(sliding-)window
    headers-session                        headers o aggregate

    headers:  ┌──────────────────────┬────────────────┬───────────────────────────────────────────────────────────┐
              │ bytes that follow,   │ count, varint  │ per header: varint length, key, varint length (-1 for a   │
              │ varint; 0 for none   │                │ null), value                                              │
              └──────────────────────┴────────────────┴───────────────────────────────────────────────────────────┘

    hk1=abc, hk2=null   1c 04 06 686b31 06 616263 06 686b32 01        none   00

Varints are Kafka's (zig-zag). From the count on these are the bytes of a record batch (``DefaultRecord``), so a block
is the record's own bytes after their length; no headers at all are ``00`` in both. Duplicate keys and their order are
kept; keys are never null. Where Kafka Streams writes other bytes than the producer, its bytes are written: numbers that
took more bytes than needed, negative lengths of values other than -1 (they mean null), keys that are not UTF-8 (they
pass through a Java string).

With the consistency vector on (an internal setting), changelog records carry the headers ``v`` and ``c``. A restore by
Kafka Streams keeps them in the row, though the original row had none; they are kept here too.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statecore.formats.columns import (
    Mask,
    corrupted,
    cut,
    first_misfit,
    first_of,
    fixed,
    int64_array,
    int64_bytes,
    join,
    require,
    slices,
    varints,
    with_nulls,
)
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import (
    Bytes,
    Misfit,
    Numbers,
    Records,
    RowFormat,
    binary_parts,
    int64_at,
    int64_values,
    negative_timestamp,
    valid_mask,
)
from statecore.formats.rows.headers import parse_headers, replace_as_java, wire_headers
from statecore.formats.rows.values import TIMESTAMP_BYTES

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""Type of decoded headers: in the record's order, duplicates kept."""


class HeadersFormat(RowFormat):
    """Values with headers and without timestamp, of session stores."""

    needs_headers = True

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(super().check(records), misfit_of_headers(_headers_of(records)))

    def row_values(self, records: Records) -> pa.Array:
        return join_headers(records.values, _headers_of(records))

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        headers, rest = split_headers(values, self.kind, rest=0)
        return {"headers": headers, "value": rest}


class TimestampedHeadersFormat(RowFormat):
    """Values with headers and timestamp, of key-value and window stores."""

    needs_headers = True

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(
            super().check(records), negative_timestamp(records.timestamps), misfit_of_headers(_headers_of(records))
        )

    def row_values(self, records: Records) -> pa.Array:
        return join_headers(records.values, _headers_of(records), records.timestamps)

    def value_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        headers, rest = split_headers(values, self.kind, rest=TIMESTAMP_BYTES)
        timestamps = int64_array(int64_at(rest, 0), ~valid_mask(rest) if rest.null_count else None)
        return {"timestamp": timestamps, "headers": headers, "value": cut(rest, front=TIMESTAMP_BYTES)}


def misfit_of_headers(headers: pa.Array) -> Misfit | None:
    """First record with malformed headers, or ``None``. ``headers`` are raw wire headers, binary without nulls."""
    scan = _scan(headers)
    row = first_of(scan.broken)
    if row is None:
        return None
    return Misfit(row, f"has malformed headers: {_explained(headers[row].as_py())}")


def join_headers(values: pa.Array, headers: pa.Array, timestamps: pa.Array | None = None) -> pa.Array:
    """Prepend raw wire headers, and int64 ms where rows have one, to values, as large binary; nulls stay null."""
    stamps = int64_bytes(int64_values(timestamps)) if timestamps is not None else np.empty((len(values), 0), np.uint8)
    if _has_none(headers):
        front = np.zeros((len(values), 1 + stamps.shape[1]), np.uint8)
        front[:, 1:] = stamps
        return join(fixed(front), values)
    odd = np.flatnonzero(_scan(headers).odd)
    if len(odd):
        headers = _rewritten(headers, odd)
    columns = [_sizes(np.diff(binary_parts(headers)[0])), headers]
    return join(*columns, fixed(stamps), values) if timestamps is not None else join(*columns, values)


def split_headers(rows: pa.Array, kind: StoreKind, *, rest: int) -> tuple[pa.Array, pa.Array]:
    """Split row values into headers (:data:`HEADERS_TYPE`) and at least ``rest`` bytes, both null with the row."""
    offsets, data = binary_parts(rows)
    missing = ~valid_mask(rows)
    places, ends = offsets[:-1], offsets[1:]
    size = varints(data, places, ends)
    blocks = size.places + np.where(missing, 0, size.values)
    require(kind, ~missing & (~size.whole | (size.values < 0)), "has a value that does not begin with headers")
    require(kind, ~missing & (ends - blocks < rest), f"has a value with less than {rest} bytes after its headers")
    having = np.flatnonzero(~missing & (size.values > 0))
    headers = _decoded(data, size.places[having], blocks[having], having, missing, kind)
    behind = slices(data, np.where(missing, places, blocks), np.where(missing, places, ends))
    return headers, with_nulls(behind, missing)


def without_headers(rows: pa.Array, kind: StoreKind, *, rest: int, bare: Mask | None = None) -> tuple[pa.Array, Mask]:
    """The rest of each row and which had headers, of which only the length is read; ``bare`` rows have none."""
    if not len(rows):
        return slices(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)), np.zeros(0, bool)
    offsets, data = binary_parts(rows)
    bare = np.zeros(len(rows), bool) if bare is None else bare
    places, ends = offsets[:-1], offsets[1:]
    size = varints(data, places, ends)
    blocks = size.places + size.values
    require(kind, ~bare & (~size.whole | (size.values < 0)), "has a value that does not begin with headers")
    require(kind, ~bare & (ends - blocks < rest), f"has a value with less than {rest} bytes after its headers")
    return slices(data, np.where(bare, places, blocks), ends), ~bare & (size.values > 0)


class _Scan(NamedTuple):
    """Rows with malformed headers, and rows whose headers Kafka Streams would write differently."""

    broken: Mask
    odd: Mask


class HeaderRound(NamedTuple):
    """One header of each row: positions of key and value; a value length below 0 is a null."""

    rows: Numbers
    keys: Numbers
    key_ends: Numbers
    values: Numbers
    value_lengths: Numbers


def _headers_of(records: Records) -> pa.Array:
    if records.headers is None:
        raise ValueError("records without a column of headers")
    return records.headers


def _has_none(headers: pa.Array) -> bool:
    """Whether no record of the batch has headers."""
    offsets, data = binary_parts(headers)
    lengths = np.diff(offsets)
    return not len(lengths) or bool((lengths == 1).all() and not data[offsets[0] : offsets[-1]].any())


def _scan(headers: pa.Array) -> _Scan:
    count = len(headers)
    scan = _Scan(np.zeros(count, bool), np.zeros(count, bool))
    if _has_none(headers):
        return scan
    offsets, data = binary_parts(headers)
    any_high = bool((data[offsets[0] : offsets[-1]] > 0x7F).any())
    for part in _rounds(data, offsets[:-1], offsets[1:], scan):
        scan.odd[part.rows] |= part.value_lengths < -1
        if any_high:
            scan.odd[part.rows] |= _not_utf8(slices(data, part.keys, part.key_ends))
    return scan


def _rounds(data: Bytes, places: Numbers, ends: Numbers, scan: _Scan) -> Iterator[HeaderRound]:
    """Yield every row's first header, then every row's second, and so on; malformed rows are marked in ``scan``."""
    count = varints(data, places, ends)
    scan.odd[:] |= count.odd
    scan.broken[:] |= ~count.whole | (count.values < 0) | (count.values == 0) & (count.places != ends)
    rows = np.flatnonzero(~scan.broken & (count.values > 0))
    left, places, ends = count.values[rows], count.places[rows], ends[rows]
    while len(rows):
        key = varints(data, places, ends)
        key_ends = key.places + key.values
        fits = key.whole & (key.values >= 0) & (key_ends <= ends)
        value = varints(data, np.where(fits, key_ends, ends), ends)
        places = value.places + np.maximum(value.values, 0)
        left -= 1
        fits &= value.whole & (places <= ends) & ((left > 0) | (places == ends))
        scan.odd[rows] |= key.odd | value.odd
        scan.broken[rows] = ~fits
        if fits.all():
            yield HeaderRound(rows, key.places, key_ends, value.places, value.values)
        else:
            yield HeaderRound(rows[fits], key.places[fits], key_ends[fits], value.places[fits], value.values[fits])
        more = fits & (left > 0)
        if not more.all():
            rows, left, places, ends = rows[more], left[more], places[more], ends[more]


def _not_utf8(texts: pa.Array) -> Mask:
    """Elements of a column that are not UTF-8."""
    try:
        texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.fromiter((replace_as_java(text.as_py()) != text.as_py() for text in texts), bool, len(texts))
    return np.zeros(len(texts), bool)


def _sizes(lengths: Numbers) -> pa.Array:
    """Varint of the size of headers; empty for ``00``, which is its own size."""
    raw = lengths << 1
    used = (lengths > 1).astype(np.int64)
    width = 1
    while (raw >> 7 * width).any():
        used += raw >> 7 * width > 0
        width += 1
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(used, out=offsets[1:])
    digits = np.empty(offsets[-1], np.uint8)
    for place in range(width):
        rows = np.flatnonzero(used > place)
        more = (used[rows] > place + 1).astype(np.int64) << 7
        digits[offsets[rows] + place] = raw[rows] >> 7 * place & 0x7F | more
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def _rewritten(headers: pa.Array, odd: Numbers) -> pa.Array:
    """The column with the headers of ``odd`` rows in the bytes that Kafka Streams writes."""
    # Only hand-written clients make such headers, so these few may be Python objects.
    rows = headers.to_pylist()
    for row in odd.tolist():
        rows[row] = wire_headers(parse_headers(rows[row]))
    return pa.array(rows, pa.large_binary())


def _explained(wire: bytes) -> str:
    try:
        parse_headers(wire)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"columnar and plain reading of headers disagree on {wire.hex()}")


def _decoded(data: Bytes, places: Numbers, ends: Numbers, having: Numbers, missing: Mask, kind: StoreKind) -> pa.Array:
    """Headers of the rows ``having``, whose bytes start at ``places``; other rows have none, or null if missing."""
    scan = _Scan(np.zeros(len(places), bool), np.zeros(len(places), bool))
    rounds = list(_rounds(data, places, ends, scan))
    row = first_of(scan.broken)
    if row is not None:
        why = _explained(data[places[row] : ends[row]].tobytes())
        raise corrupted(kind, int(having[row]), f"has malformed headers: {why}")
    return headers_column(data, [part._replace(rows=having[part.rows]) for part in rounds], missing, kind)


def headers_column(data: Bytes, rounds: list[HeaderRound], missing: Mask, kind: StoreKind) -> pa.Array:
    """Column of decoded headers, from ``rounds`` of each row's first, second, …; ``missing`` rows are null."""
    parts = [np.concatenate(columns) for columns in zip(*rounds, strict=True)] or [np.empty(0, np.int64)] * 5
    order = np.argsort(parts[0], kind="stable")
    rows, starts, ends, places, lengths = (column[order] for column in parts)
    keys = slices(data, starts, ends)
    bad = first_of(_not_utf8(keys))
    if bad is not None:
        raise corrupted(kind, int(rows[bad]), "has a header whose key is not UTF-8")
    values = with_nulls(slices(data, places, places + np.maximum(lengths, 0)), lengths < 0).cast(pa.binary())
    fields = list(HEADERS_TYPE.value_type)
    found = pa.StructArray.from_arrays([keys.cast(pa.string()), values], fields=fields)
    counts = np.bincount(rows, minlength=len(missing))
    borders = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(HEADERS_TYPE, len(missing), [validity, pa.py_buffer(borders)], children=[found])


FORMATS: dict[StoreKind, type[RowFormat]] = {StoreKind.HEADERS_KEY_VALUE: TimestampedHeadersFormat}
