"""Columns for tests of row formats: both widths of binary, and slices of larger arrays, as batches come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from statecore.formats.row_format import Records
from statecore.formats.window import FARTHEST_AHEAD_MS

TYPES = st.sampled_from([pa.binary(), pa.large_binary()])
SHAPES = st.tuples(TYPES, st.integers(0, 9), st.integers(0, 9))
"""Type of a column, and how many elements lie in front of and behind the slice that is looked at."""

KEYS = st.binary(max_size=12)
VALUES = st.one_of(st.none(), st.binary(max_size=20))
TIMES = st.one_of(st.integers(0, 200), st.integers(0, 2**63 - 1))
KEY_TIMES = st.one_of(st.integers(0, 200), st.integers(0, FARTHEST_AHEAD_MS))
"""Times of windows and sessions that no record's timestamp makes absurd."""

Shape = tuple[pa.DataType, int, int]

PLAIN: Shape = (pa.binary(), 0, 0)


def column(values: Sequence[bytes | None], shape: Shape = PLAIN, padding: bytes = b"pad") -> pa.Array:
    """A binary column of some shape; the slice stands in for a batch that was cut out of a larger one."""
    kind, head, tail = shape
    whole = [padding] * head + list(values) + [padding] * tail
    return pa.array(whole, kind).slice(head, len(values))


def times(values: Sequence[int], shape: Shape = PLAIN) -> pa.Array:
    _, head, tail = shape
    return pa.array([0] * head + list(values) + [0] * tail, pa.int64()).slice(head, len(values))


def records(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[bytes] | None = None,
    shape: Shape = PLAIN,
) -> Records:
    count = len(keys)
    return Records(
        column(keys, shape),
        column([b"value"] * count if values is None else values, shape),
        times([1] * count if timestamps is None else timestamps, shape),
        column([b"\0"] * count if headers is None else headers, shape),
    )


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch, as tuples."""
    batch.validate(full=True)
    return list(zip(*(batch.column(name).to_pylist() for name in batch.schema.names), strict=True))


def int64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)
