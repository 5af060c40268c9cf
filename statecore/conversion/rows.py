"""Converts rows of kinds with headers to the kinds without, column by column (the reverse of KIP-1271)::

    kind with headers                  kind without              row value           becomes       family
    ---------------------------------  ------------------------  ------------------  ------------  ---------------------
    headers-key-value                  timestamped-key-value     hdr o ts8 o value   ts8 o value   keyValueWithTimestamp
    headers-window, of an aggregation  timestamped-window        hdr o ts8 o value   ts8 o value   keyValueWithTimestamp
    headers-window, of a join          join-window               hdr o ts8 o value   value         default
    headers-session                    session                   hdr o aggregate     aggregate     default
    headers-emit-final-window          emit-final-window         hdr o ts8 o value   ts8 o value   default      (1)
    headers-emit-final-sliding-window  emit-final-sliding-window hdr o ts8 o value   ts8 o value   default      (2)
    headers-emit-final-session         emit-final-session        aggregate           aggregate     default      (3)

    (1) has index rows (01 o key o start8 o seq4, no value), which the kind without does not have: they are dropped
    (2) index rows stay unchanged
    (3) keeps no headers, despite the name of its family; index rows stay unchanged

Keys do not change. Headers are lost, so rows that have some are only counted unless the loss is accepted.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.formats.columns import bool_array, cut
from statecore.formats.headers import without_headers
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import binary_parts
from statecore.formats.rows.values import TIMESTAMP_BYTES
from statecore.images.digest import Digest
from statecore.images.key_table import Chunk
from statecore.images.model import StoreDigest

COUNTERPARTS: Mapping[StoreKind, tuple[StoreKind, ...]] = MappingProxyType(
    {
        StoreKind.HEADERS_KEY_VALUE: (StoreKind.TIMESTAMPED_KEY_VALUE,),
        StoreKind.HEADERS_WINDOW: (StoreKind.TIMESTAMPED_WINDOW, StoreKind.JOIN_WINDOW),
        StoreKind.HEADERS_SESSION: (StoreKind.SESSION,),
        StoreKind.HEADERS_EMIT_FINAL_WINDOW: (StoreKind.EMIT_FINAL_WINDOW,),
        StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW: (StoreKind.EMIT_FINAL_SLIDING_WINDOW,),
        StoreKind.HEADERS_EMIT_FINAL_SESSION: (StoreKind.EMIT_FINAL_SESSION,),
    }
)
"""Kind with headers → kinds without."""

_WINDOWS_WITH_INDEX = (StoreKind.HEADERS_EMIT_FINAL_WINDOW, StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW)
_TIMESTAMPED = (StoreKind.HEADERS_KEY_VALUE, StoreKind.HEADERS_WINDOW, *_WINDOWS_WITH_INDEX)
_SEQUENCE_BYTES = 4
_INDEX_ROW = 1


class ConvertedRows(NamedTuple):
    """Converted rows.

    Attributes:
        keys: binary, in input order.
        values: large binary.
        headers: number of rows that had headers.
        misfits: number of rows that cannot be of the target kind, by the sequence numbers in their keys.
    """

    keys: pa.Array
    values: pa.Array
    headers: int
    misfits: int


class RowCounts(NamedTuple):
    """Counts and digest of converted rows.

    Attributes:
        headers: number of rows with headers.
        misfits: number of rows that cannot be of the target kind.
        content: digest of the converted rows.
    """

    rows: int
    headers: int
    misfits: int
    content: StoreDigest


def convert_rows(keys: pa.Array, values: pa.Array, source: StoreKind, target: StoreKind) -> ConvertedRows:
    """Convert rows of a kind with headers to its counterpart. Raises ``Corrupted`` if a row lacks headers."""
    if source is StoreKind.HEADERS_EMIT_FINAL_SESSION:
        return ConvertedRows(keys, values.cast(pa.large_binary()), 0, 0)
    index = _index_rows(keys, values) if source in _WINDOWS_WITH_INDEX else np.zeros(len(keys), bool)
    rest = TIMESTAMP_BYTES if source in _TIMESTAMPED else 0
    bare, having = without_headers(values, source, rest=rest, bare=index)
    if target is StoreKind.EMIT_FINAL_WINDOW and index.any():
        keys, bare = (column.filter(bool_array(~index)) for column in (keys, bare))
    if target is StoreKind.JOIN_WINDOW:
        bare = cut(bare, front=TIMESTAMP_BYTES)
    strange = 0
    if source is StoreKind.HEADERS_WINDOW:
        counted = _has_sequence(keys)
        strange = int(np.count_nonzero(~counted if target is StoreKind.JOIN_WINDOW else counted))
    return ConvertedRows(keys, bare, int(np.count_nonzero(having)), strange)


def counterpart_of_row(source: StoreKind, key: bytes) -> StoreKind | None:
    """The kind without headers of a store, by the key of one row; ``None`` if the kind has no headers."""
    targets = COUNTERPARTS.get(source, ())
    if len(targets) > 1:
        return targets[int(int.from_bytes(key[-_SEQUENCE_BYTES:]) > 0)]
    return targets[0] if targets else None


def count_converted_rows(
    chunks: Iterable[tuple[list[bytes], list[bytes]]], source: StoreKind, target: StoreKind
) -> RowCounts:
    """Count and digest converted rows without keeping them. Raises ``Corrupted``."""
    digest, rows, headers, strange = Digest(), 0, 0, 0
    for keys, values in chunks:
        made = convert_rows(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()), source, target)
        rows, headers, strange = rows + len(keys), headers + made.headers, strange + made.misfits
        if len(made.keys):
            digest.add(*_parts(made.keys), *_parts(made.values))
    return RowCounts(rows, headers, strange, digest.content)


def convert_chunks(
    chunks: Iterable[tuple[list[bytes], list[bytes]]], source: StoreKind, target: StoreKind
) -> Iterator[Chunk]:
    """Converted rows as chunks of a run. Raises ``Corrupted``."""
    for keys, values in chunks:
        made = convert_rows(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()), source, target)
        count = len(made.keys)
        if count:
            yield Chunk(*_parts(made.keys), *_parts(made.values), np.ones(count, np.uint8), np.zeros(count, np.int64))


def _parts(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets, data = binary_parts(column)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _index_rows(keys: pa.Array, values: pa.Array) -> npt.NDArray[np.bool_]:
    offsets, data = binary_parts(keys)
    without_value = np.diff(binary_parts(values)[0]) == 0
    index = np.take(data, offsets[:-1], mode="clip") == _INDEX_ROW
    return np.asarray(without_value & (np.diff(offsets) > 0) & index, np.bool_)


def _has_sequence(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Which window keys end in a sequence number other than 0."""
    offsets, data = binary_parts(keys)
    found = np.zeros(len(keys), bool)
    for back in range(1, _SEQUENCE_BYTES + 1):
        found |= np.take(data, offsets[1:] - back, mode="clip") > 0
    return found
