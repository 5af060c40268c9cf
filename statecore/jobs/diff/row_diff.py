"""Compares two sorted streams of rows: counts equal, missing, extra and different ones, with examples of each.

**Missing** rows are only in the reference, **extra** ones only in the compared store. Both streams are read once, in
key order and in chunks, so memory is bounded whatever the size of the stores. The content digest of each side is
computed along the way (:mod:`statecore.images.digest`).

RocksDB's iterator, which returns row by row, takes most of the time. Equal chunks are detected by comparing two lists;
otherwise Arrow matches the keys.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statecore.images.digest import combined, digest_rows
from statecore.jobs.diff.row_reader import Chunk, aligned_by_key

_SHOWN_BYTES = 32


class Difference(StrEnum):
    """How a row differs."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Example:
    """One row that differs.

    Attributes:
        segment: start of the segment in ms; ``None`` if the store has none.
        key: the key, hex.
        words: the decoded key by column: ``key``, ``window_start``; empty if it cannot be decoded.
        value_bytes: size of the value; ``None`` if there is no such row.
        value: first bytes of the value, hex.
    """

    difference: Difference
    segment: int | None
    key: str
    words: dict[str, str] = field(default_factory=dict)
    value_bytes: int | None = None
    value: str = ""
    reference_bytes: int | None = None
    reference: str = ""

    @staticmethod
    def of(
        difference: Difference, segment: int | None, key: bytes, value: bytes | None, reference: bytes | None
    ) -> Example:
        """The example of a row; a missing value is ``None``."""
        return Example(
            difference,
            segment,
            key.hex(),
            {},
            None if value is None else len(value),
            (value or b"")[:_SHOWN_BYTES].hex(),
            None if reference is None else len(reference),
            (reference or b"")[:_SHOWN_BYTES].hex(),
        )


@dataclass(frozen=True)
class RowCounts:
    """Numbers of equal and differing rows.

    Attributes:
        equal: rows with the same key and value on both sides.
        missing: rows that only the reference has.
        extra: rows that only the compared store has.
        different: keys on both sides with different values.
    """

    equal: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.equal + other.equal,
            self.missing + other.missing,
            self.extra + other.extra,
            self.different + other.different,
        )

    @property
    def are_equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


class RowDiff:
    """Collects the differences of a store's databases."""

    def __init__(self, examples: int, read: Callable[[int], None] = lambda _: None) -> None:
        self.counts = RowCounts()
        self.content = self.reference = combined()
        self.examples: list[Example] = []
        self._max_examples = examples
        self._read = read

    def compare(self, segment: int | None, store: Iterator[Chunk], reference: Iterator[Chunk]) -> RowCounts:
        """Compare a database with that of the reference; returns the counts of these two."""
        before, self.counts = self.counts, RowCounts()
        for mine, theirs in aligned_by_key(store, reference):
            self._compare(segment, mine, theirs)
        here, self.counts = self.counts, before + self.counts
        return here

    def _compare(self, segment: int | None, mine: Chunk, theirs: Chunk) -> None:
        is_equal = mine == theirs
        content = digest_rows([mine])
        reference = content if is_equal else digest_rows([theirs])
        self.content, self.reference = combined(self.content, content), combined(self.reference, reference)
        self._read(content.bytes + reference.bytes)
        if is_equal:
            self._count(equal=len(mine[0]))
            return
        only_mine, only_theirs, both = _matched(mine[0], theirs[0])
        self._count(extra=len(only_mine), missing=len(only_theirs))
        self._add_examples(Difference.EXTRA, segment, ((mine[0][at], mine[1][at], None) for at in only_mine))
        self._add_examples(Difference.MISSING, segment, ((theirs[0][at], None, theirs[1][at]) for at in only_theirs))
        unequal = _unequal_values(mine[1], theirs[1], both)
        self._count(equal=both.shape[1] - unequal.shape[1], different=unequal.shape[1])
        rows = ((mine[0][i], mine[1][i], theirs[1][j]) for i, j in unequal.T)
        self._add_examples(Difference.DIFFERENT, segment, rows)

    def _count(self, *, equal: int = 0, missing: int = 0, extra: int = 0, different: int = 0) -> None:
        self.counts += RowCounts(equal, missing, extra, different)

    def _add_examples(
        self, difference: Difference, segment: int | None, rows: Iterator[tuple[bytes, bytes | None, bytes | None]]
    ) -> None:
        room = self._max_examples - sum(one.difference is difference for one in self.examples)
        for _ in range(room):
            row = next(rows, None)
            if row is None:
                return
            self.examples.append(Example.of(difference, segment, *row))


def with_decoded_keys(examples: list[Example], words: Callable[[bytes], dict[str, str]]) -> tuple[Example, ...]:
    return tuple(replace(one, words=words(bytes.fromhex(one.key))) for one in examples)


_Places = npt.NDArray[np.int64]


def _matched(mine: list[bytes], theirs: list[bytes]) -> tuple[_Places, _Places, _Places]:
    """Indexes of the keys that only one side has, and in two rows those of the keys of both."""
    if not mine or not theirs:
        return np.arange(len(mine)), np.arange(len(theirs)), np.empty((2, 0), np.int64)
    found = pc.index_in(pa.array(mine, pa.large_binary()), value_set=pa.array(theirs, pa.large_binary()))
    at = np.frombuffer(found.fill_null(-1).buffers()[1], np.int32, len(mine)).astype(np.int64)
    here = np.flatnonzero(at >= 0)
    alone = np.ones(len(theirs), bool)
    alone[at[here]] = False
    return np.flatnonzero(at < 0), np.flatnonzero(alone), np.stack([here, at[here]])


def _unequal_values(mine: list[bytes], theirs: list[bytes], both: _Places) -> _Places:
    """Those of the common rows with different values."""
    if not both.shape[1]:
        return both
    one = pa.array(mine, pa.large_binary()).take(pa.array(both[0]))
    other = pa.array(theirs, pa.large_binary()).take(pa.array(both[1]))
    unequal = pc.not_equal(one, other).cast(pa.uint8())
    return both[:, np.flatnonzero(np.frombuffer(unequal.buffers()[1], np.uint8, len(unequal)))]
