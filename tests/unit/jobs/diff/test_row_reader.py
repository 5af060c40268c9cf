"""Rows as the application would read them: the newer family wins, and older rows are converted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.jobs.diff.row_reader import aligned_by_key, check_families, current_rows, layers
from statecore.statedir.readonly_database import Database
from tests.harness.raising import raises
from tests.unit.doctor.stored import Rows, offsets, write_database

NO_TIME = b"\xff" * 8
TIMESTAMPED = "keyValueWithTimestamp"
HEADERS = "keyValueWithTimestampAndHeaders"


def read(path: Path, kind: StoreKind, layer: str | None = None) -> Rows:
    with Database(path) as database:
        check_families(database, kind)
        chunks = current_rows(database, kind, layer or layers(kind, database.families)[0])
        return [row for keys, values in chunks for row in zip(keys, values, strict=True)]


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW])
def test_rows_that_were_written_without_a_timestamp_have_none(tmp_path: Path, kind: StoreKind) -> None:
    families = {
        "default": [(b"a", b"old"), (b"b", b"hidden"), (b"d", b"")],
        TIMESTAMPED: [(b"b", bytes(8) + b"new"), (b"c", bytes(8))],
        "offsets": offsets("t", 0, 3),
    }
    write_database(tmp_path / "db", families)
    assert read(tmp_path / "db", kind) == [
        (b"a", NO_TIME + b"old"),
        (b"b", bytes(8) + b"new"),
        (b"c", bytes(8)),
        (b"d", NO_TIME),
    ]


def test_below_rows_with_headers_lie_those_with_timestamps_and_below_these_plain_ones(tmp_path: Path) -> None:
    families = {
        "default": [(b"a", b"plain"), (b"b", b"hidden"), (b"c", b"hidden")],
        TIMESTAMPED: [(b"b", bytes(8) + b"stamped"), (b"c", b"hidden!!")],
        HEADERS: [(b"c", b"\0" + bytes(8) + b"newest")],
    }
    write_database(tmp_path / "db", families)
    assert read(tmp_path / "db", StoreKind.HEADERS_KEY_VALUE) == [
        (b"a", b"\0" + NO_TIME + b"plain"),
        (b"b", b"\0" + bytes(8) + b"stamped"),
        (b"c", b"\0" + bytes(8) + b"newest"),
    ]


def test_sessions_without_headers_have_none(tmp_path: Path) -> None:
    write_database(tmp_path / "db", {"default": [(b"k", b"v")], "sessionKeyValueWithHeaders": []})
    assert read(tmp_path / "db", StoreKind.HEADERS_SESSION) == [(b"k", b"\0v")]


def test_older_rows_of_an_unknown_format_are_refused(tmp_path: Path) -> None:
    write_database(tmp_path / "db", {"default": [(b"k", b"v")], "windowKeyValueWithHeaders": []})
    with raises(Invalid, "older-rows-unsupported", kind="headers-emit-final-window"):
        read(tmp_path / "db", StoreKind.HEADERS_EMIT_FINAL_WINDOW)


def test_a_family_that_the_kind_does_not_have_is_refused(tmp_path: Path) -> None:
    write_database(tmp_path / "db", {TIMESTAMPED: [(b"k", b"v")]})
    with raises(Invalid, "kind-mismatch", kind="key-value", families=[TIMESTAMPED]):
        read(tmp_path / "db", StoreKind.KEY_VALUE)


def test_families_of_an_unknown_kind_are_read_unchanged(tmp_path: Path) -> None:
    families = {"default": [(b"a", b"1")], TIMESTAMPED: [(b"a", b"2")], "offsets": offsets("t", 0, 3)}
    write_database(tmp_path / "db", families)
    with Database(tmp_path / "db") as database:
        assert layers(StoreKind.UNKNOWN, database.families) == ("default", TIMESTAMPED)
    assert read(tmp_path / "db", StoreKind.UNKNOWN, TIMESTAMPED) == [(b"a", b"2")]


@settings(deadline=None)
@given(st.sets(st.binary(max_size=2)), st.sets(st.binary(max_size=2)), st.integers(1, 5), st.integers(1, 5))
def test_pieces_side_by_side_have_all_rows_once_and_the_same_keys_together(
    left: set[bytes], right: set[bytes], size: int, other: int
) -> None:
    def pieces(keys: list[bytes], at_once: int) -> list[tuple[list[bytes], list[bytes]]]:
        return [(keys[at : at + at_once], keys[at : at + at_once]) for at in range(0, len(keys), at_once)]

    mine, theirs, seen = [], [], b""
    for (keys, _), (others, _) in aligned_by_key(iter(pieces(sorted(left), size)), iter(pieces(sorted(right), other))):
        together = [*keys, *others]
        assert min(together) >= seen
        seen = max(together)
        mine += keys
        theirs += others
        assert not set(mine) & right - set(theirs)
        assert not set(theirs) & left - set(mine)
    assert (mine, theirs) == (sorted(left), sorted(right))
