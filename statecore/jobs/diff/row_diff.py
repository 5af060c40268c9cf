"""Two streams of rows held against each other: how many are equal, missing, extra and different, with some of each.

**Missing** is a row that only the reference has, **extra** one that only the store has that is looked at. Both streams
are in key order and are read once, a piece of each at a time, so memory is bounded however large the stores are. What
the rows of each side add up to is counted on the way (:mod:`statecore.images.digest`).

What costs time is RocksDB's iterator, which hands over row by row. Pieces that are equal are found so by comparing two
lists; in others Arrow looks for the keys.
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

from statecore.doctor.row_reader import Chunk, side_by_side
from statecore.images.digest import EMPTY, combined, digest_rows
from statecore.images.model import StoreDigest

NO_ROWS = StoreDigest(0, 0, EMPTY)
"""What no rows add up to."""

_SHOWN_BYTES = 32


class Difference(StrEnum):
    """How a row of one side is not as the other side has it."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Example:
    """One row that is not the same on both sides.

    Attributes:
        difference: how.
        segment: the segment's start in ms; ``None`` where the store has none.
        key: the row's key, hex.
        words: the key as a person reads it, by column: ``key``, ``window_start``; empty where it cannot be read.
        value_bytes: bytes of the value; ``None`` where there is no such row.
        value: the first bytes of the value, hex.
        reference_bytes: likewise, of the reference.
        reference: the first bytes of its value, hex.
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
        """The example of a row; a value that is not there is ``None``."""
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
    """How rows of two sides compare.

    Attributes:
        equal: rows that both have, with the same value.
        missing: rows that only the reference has.
        extra: rows that only the store has that is looked at.
        different: keys that both have, with different values.
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
        """Whether no row differs."""
        return not (self.missing or self.extra or self.different)


class RowDiff:
    """Collects how the databases of a store compare.

    Args:
        examples: how many rows of each difference are kept, of the whole store.
        read: told the bytes of keys and values that were read, of both sides.
    """

    def __init__(self, examples: int, read: Callable[[int], None] = lambda _: None) -> None:
        self.counts = RowCounts()
        self.content = NO_ROWS
        self.reference = NO_ROWS
        self.examples: list[Example] = []
        self._most = examples
        self._read = read

    def compare(self, segment: int | None, store: Iterator[Chunk], reference: Iterator[Chunk]) -> RowCounts:
        """Hold a database against that of the reference.

        Args:
            segment: the start of its segment, for the examples.
            store: its rows, in key order.
            reference: those of the reference, likewise.

        Returns:
            How the rows of these two compare.

        Raises:
            Corrupted: a block of either cannot be read.
        """
        before, self.counts = self.counts, RowCounts()
        for mine, theirs in side_by_side(store, reference):
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
        self._keep(Difference.EXTRA, segment, ((mine[0][at], mine[1][at], None) for at in only_mine))
        self._keep(Difference.MISSING, segment, ((theirs[0][at], None, theirs[1][at]) for at in only_theirs))
        unlike = _unlike(mine[1], theirs[1], both)
        self._count(equal=both.shape[1] - unlike.shape[1], different=unlike.shape[1])
        rows = ((mine[0][i], mine[1][i], theirs[1][j]) for i, j in unlike.T)
        self._keep(Difference.DIFFERENT, segment, rows)

    def _count(self, *, equal: int = 0, missing: int = 0, extra: int = 0, different: int = 0) -> None:
        self.counts += RowCounts(equal, missing, extra, different)

    def _keep(
        self,
        difference: Difference,
        segment: int | None,
        rows: Iterator[tuple[bytes, bytes | None, bytes | None]],
    ) -> None:
        room = self._most - sum(one.difference is difference for one in self.examples)
        for _ in range(room):
            row = next(rows, None)
            if row is None:
                return
            self.examples.append(Example.of(difference, segment, *row))


def in_words(examples: list[Example], words: Callable[[bytes], dict[str, str]]) -> tuple[Example, ...]:
    """The examples with their keys in words."""
    return tuple(replace(one, words=words(bytes.fromhex(one.key))) for one in examples)


_Places = npt.NDArray[np.int64]


def _matched(mine: list[bytes], theirs: list[bytes]) -> tuple[_Places, _Places, _Places]:
    """Places of the keys that only one side has, and in two rows those of the keys that both have."""
    if not mine or not theirs:
        return np.arange(len(mine)), np.arange(len(theirs)), np.empty((2, 0), np.int64)
    found = pc.index_in(pa.array(mine, pa.large_binary()), value_set=pa.array(theirs, pa.large_binary()))
    at = np.frombuffer(found.fill_null(-1).buffers()[1], np.int32, len(mine)).astype(np.int64)
    here = np.flatnonzero(at >= 0)
    alone = np.ones(len(theirs), bool)
    alone[at[here]] = False
    return np.flatnonzero(at < 0), np.flatnonzero(alone), np.stack([here, at[here]])


def _unlike(mine: list[bytes], theirs: list[bytes], both: _Places) -> _Places:
    """Of the rows that both sides have those with different values."""
    if not both.shape[1]:
        return both
    one = pa.array(mine, pa.large_binary()).take(pa.array(both[0]))
    other = pa.array(theirs, pa.large_binary()).take(pa.array(both[1]))
    unlike = pc.not_equal(one, other).cast(pa.uint8())
    return both[:, np.flatnonzero(np.frombuffer(unlike.buffers()[1], np.uint8, len(unlike)))]
