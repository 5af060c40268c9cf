"""Stores that are compared with each other, of every kind: by segment, without a look at shared files, and expiry."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.jobs.diff.row_diff import Difference, RowCounts
from statecore.jobs.diff.store_diff import compare_stores, decoded_key, have_same_files
from statecore.statedir.task_layout import segment_start
from tests.harness.reference_digest import digest_of
from tests.unit.doctor.stored import CASES, golden, offsets, write_database

Rows = dict[int | None, dict[bytes, bytes]]
"""By segment: rows of the kind's own family."""

MINUTE = 60_000


def rows_of(case: str) -> tuple[StoreKind, Rows]:
    """The rows of a golden file."""
    made = golden(case)
    kind = StoreKind(made["kind"])
    databases = {segment_start(name, made["store"]): of for name, of in made.get("segments", {}).items()}
    if not databases:
        databases = {None: made["families"]}
    return kind, {
        segment: {bytes.fromhex(key): bytes.fromhex(value) for key, value in families[kind.data_column_family]}
        for segment, families in databases.items()
    }


def write(path: Path, kind: StoreKind, rows: Rows) -> dict[int | None, Path]:
    for segment, of in rows.items():
        write_database(
            path / str(segment), {"default": [], kind.data_column_family: [*of.items()], "offsets": offsets("t", 0, 1)}
        )
    return {segment: path / str(segment) for segment in rows}


def some(rows: Rows, chance: random.Random) -> Rows:
    """The rows, some of which are gone or others; perhaps a whole segment is gone."""
    found: Rows = {}
    for segment, of in rows.items():
        if segment is not None and chance.random() < 0.2:
            continue
        found[segment] = {
            key: value + b"!" if chance.random() < 0.2 else value for key, value in of.items() if chance.random() < 0.7
        }
    return found


@pytest.mark.parametrize("case", CASES)
def test_rows_of_every_kind_compare_as_two_dicts_do(tmp_path: Path, case: str) -> None:
    kind, rows = rows_of(case)
    chance, where = random.Random(case), tmp_path
    mine, theirs = some(rows, chance), some(rows, chance)
    found = compare_stores(kind, write(where / "a", kind, mine), write(where / "b", kind, theirs), examples=100)

    flat = [
        {(segment, key): value for segment, of in side.items() for key, value in of.items()} for side in (mine, theirs)
    ]
    both = flat[0].keys() & flat[1].keys()
    different = {at for at in both if flat[0][at] != flat[1][at]}
    assert found.counts == RowCounts(
        equal=len(both) - len(different),
        missing=len(flat[1].keys() - both),
        extra=len(flat[0].keys() - both),
        different=len(different),
    )
    assert (found.rows, found.reference_rows) == (len(flat[0]), len(flat[1]))
    assert found.digest == digest_of((key, value) for (_, key), value in flat[0].items())
    assert found.reference_digest == digest_of((key, value) for (_, key), value in flat[1].items())
    shown = {
        one: {(row.segment, bytes.fromhex(row.key)) for row in found.examples if row.difference is one}
        for one in Difference
    }
    assert shown == {
        Difference.DIFFERENT: different,
        Difference.MISSING: flat[1].keys() - both,
        Difference.EXTRA: flat[0].keys() - both,
    }
    assert all(row.words for row in found.examples)
    unlike = {segment for at in shown.values() for segment, _ in at if segment is not None}
    assert [one.segment for one in found.segments] == sorted(unlike, reverse=True)
    assert (found.shared, found.expired, found.databases) == (0, 0, len({*mine, *theirs}))


@pytest.fixture
def linked(tmp_path: Path) -> Callable[[Path], Path]:
    def link(database: Path) -> Path:
        made = tmp_path / "linked"
        made.mkdir()
        for file in database.iterdir():
            if file.suffix == ".sst":
                os.link(file, made / file.name)
            else:
                (made / file.name).write_bytes(file.read_bytes())
        return made

    return link


def test_of_files_that_both_sides_share_no_row_is_read(tmp_path: Path, linked: Callable[[Path], Path]) -> None:
    write_database(tmp_path / "db", {"default": [(b"a", b"1")], "offsets": offsets("t", 0, 1)})
    other = linked(tmp_path / "db")
    assert have_same_files(tmp_path / "db", other)
    told: list[int] = []
    found = compare_stores(StoreKind.KEY_VALUE, {None: tmp_path / "db"}, {None: other}, examples=1, read=told.append)
    assert (found.shared, found.rows, found.counts, told) == (1, 0, RowCounts(), [])


def test_rows_in_a_log_and_other_files_are_read(tmp_path: Path, linked: Callable[[Path], Path]) -> None:
    write_database(tmp_path / "db", {"default": [(b"a", b"1")]})
    write_database(tmp_path / "same rows", {"default": [(b"a", b"1")]})
    assert not have_same_files(tmp_path / "db", tmp_path / "same rows")
    assert not have_same_files(tmp_path / "db", tmp_path / "none")
    other = linked(tmp_path / "db")
    (log,) = other.glob("*.log")
    log.write_bytes(b"a row")
    assert not have_same_files(tmp_path / "db", other)


def window(key: bytes, start: int) -> bytes:
    return key + start.to_bytes(8) + bytes(4)


def test_segments_that_have_expired_by_the_newest_row_of_either_side_are_left_out(tmp_path: Path) -> None:
    def store(name: str, starts: list[int]) -> Mapping[int | None, Path]:
        rows: Rows = {}
        for start in starts:
            rows.setdefault(start // MINUTE * MINUTE, {})[window(b"k", start)] = b"v"
        return write(tmp_path / name, StoreKind.WINDOW, rows)

    old = store("old", [0, 1 * MINUTE, 2 * MINUTE])
    new = store("new", [2 * MINUTE, 4 * MINUTE + 59_999])
    kept = Segmentation(3 * MINUTE, MINUTE)
    found = compare_stores(StoreKind.WINDOW, old, new, examples=5, segmentation=kept)
    # At 4:59.999 what began before 1:59.999 has expired, and with it the segments 0; 1 minute is live still.
    assert (found.expired, found.databases) == (1, 4)
    assert found.counts == RowCounts(equal=1, missing=1, extra=1)
    assert compare_stores(StoreKind.WINDOW, old, new, examples=5).counts == RowCounts(equal=1, missing=1, extra=2)


@pytest.mark.parametrize(
    ("kind", "key", "words"),
    [
        (StoreKind.KEY_VALUE, b"word", {"key": "word"}),
        (StoreKind.KEY_VALUE, b"\x00\xff", {"key": "00ff"}),
        (StoreKind.WINDOW, window(b"k", 7), {"key": "k", "window_start": "7", "sequence": "0"}),
        (StoreKind.SESSION, b"k" + bytes(7) + b"\x09" + bytes(7) + b"\x07",
         {"key": "k", "session_start": "7", "session_end": "9"}),
        (StoreKind.EMIT_FINAL_SLIDING_WINDOW, b"\x01" + window(b"k", 7),
         {"row": "index", "key": "k", "window_start": "7", "sequence": "0"}),
        (StoreKind.WINDOW, b"short", {}),
        (StoreKind.UNKNOWN, b"word", {}),
    ],
)  # fmt: skip
def test_keys_of_the_kind_are_decoded(kind: StoreKind, key: bytes, words: dict[str, str]) -> None:
    assert decoded_key(kind, key) == words
