"""Streams of rows that are compared with each other: counts, digests and examples, for any rows in any pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.jobs.diff.row_diff import Difference, RowCounts, RowDiff
from statecore.jobs.diff.row_reader import Chunk
from tests.harness.reference_digest import digest_of

keys = st.binary(max_size=3)
rows = st.dictionaries(keys, st.binary(max_size=2), max_size=40)
sizes = st.integers(1, 7)


def pieces(of: Mapping[bytes, bytes], size: int) -> Iterator[Chunk]:
    ordered = sorted(of)
    for at in range(0, len(ordered), size):
        yield ordered[at : at + size], [of[key] for key in ordered[at : at + size]]


def oracle(mine: Mapping[bytes, bytes], theirs: Mapping[bytes, bytes]) -> dict[Difference, set[bytes]]:
    return {
        Difference.MISSING: theirs.keys() - mine.keys(),
        Difference.EXTRA: mine.keys() - theirs.keys(),
        Difference.DIFFERENT: {key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key]},
    }


@settings(deadline=None)
@given(mine=rows, theirs=rows, size=sizes, other=sizes, most=st.integers(0, 5))
def test_counts_digests_and_examples_are_those_of_the_rows_however_they_come(
    mine: dict[bytes, bytes], theirs: dict[bytes, bytes], size: int, other: int, most: int
) -> None:
    theirs = {**theirs, **{key: mine[key] for key in sorted(mine)[::2]}}  # many are equal
    found = RowDiff(most)
    counts = found.compare(7, pieces(mine, size), pieces(theirs, other))
    expected = oracle(mine, theirs)
    changed = {one: len(keys) for one, keys in expected.items()}
    equal = len(mine.keys() & theirs.keys()) - changed[Difference.DIFFERENT]
    assert counts == found.counts
    assert counts == RowCounts(equal, **{str(one): count for one, count in changed.items()})
    assert counts.are_equal == (mine == theirs)
    assert (found.content.rows, found.content.digest) == (len(mine), digest_of(mine.items()))
    assert (found.reference.rows, found.reference.digest) == (len(theirs), digest_of(theirs.items()))
    for one, its in expected.items():
        shown = [bytes.fromhex(example.key) for example in found.examples if example.difference is one]
        assert shown == sorted(its)[:most]
    for example in found.examples:
        key = bytes.fromhex(example.key)
        assert example.segment == 7
        for known, length, value in (
            (mine, example.value_bytes, example.value),
            (theirs, example.reference_bytes, example.reference),
        ):
            assert length == (len(known[key]) if key in known else None)
            assert value == known.get(key, b"").hex()


def test_several_databases_add_up_and_examples_are_of_the_whole_store() -> None:
    found = RowDiff(3)
    first = found.compare(1, pieces({b"a": b"1", b"b": b"2"}, 2), pieces({}, 1))
    second = found.compare(2, pieces({b"c": b"3", b"d": b"4"}, 2), pieces({b"d": b"4"}, 1))
    assert (first, second) == (RowCounts(extra=2), RowCounts(equal=1, extra=1))
    assert found.counts == RowCounts(equal=1, extra=3)
    assert [(one.segment, one.key) for one in found.examples] == [(1, "61"), (1, "62"), (2, "63")]
    assert found.content.digest == digest_of([(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")])


def test_progress_counts_the_bytes_of_both_sides() -> None:
    told: list[int] = []
    found = RowDiff(1, told.append)
    found.compare(None, pieces({b"a": b"12", b"b": b""}, 1), pieces({b"a": b"12"}, 1))
    assert sum(told) == 3 + 3 + 1


def test_of_a_long_value_its_length_and_its_first_bytes_are_kept() -> None:
    found = RowDiff(1)
    found.compare(None, pieces({b"k": b"x" * 1000}, 1), pieces({}, 1))
    (example,) = found.examples
    assert (example.value_bytes, example.value) == (1000, "78" * 32)
