"""Rows of real stores are whole and in their segment; shortened ones, and those of another segment, are not."""

from __future__ import annotations

import pytest

from statecore.doctor.row_check import RowCheck
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.rows.keys import INDEX_PREFIX
from tests.unit.doctor.stored import CASES, golden

Rows = list[tuple[bytes, bytes]]


def databases(case: str) -> list[tuple[int | None, Rows]]:
    """Start of each segment, or ``None``, and its rows."""
    made = golden(case)
    families = {None: made["families"]} if "families" in made else made["segments"]
    found = []
    for name, of in families.items():
        start = None if name is None else int(name.rpartition(".")[2])
        kind = StoreKind(made["kind"])
        found.append(
            (start, [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in of[kind.data_column_family]])
        )
    return found


def checked(case: str, rows: Rows, start: int | None = None, end: int | None = None) -> RowCheck:
    check = RowCheck(StoreKind(golden(case)["kind"]), start, end)
    check.take([key for key, _ in rows], [value for _, value in rows])
    return check


@pytest.mark.parametrize("case", CASES)
def test_rows_of_kafka_streams_are_whole_and_in_their_segment(case: str) -> None:
    windowed = StoreKind(golden(case)["kind"]) in WINDOWED_KINDS
    for start, rows in databases(case):
        check = checked(case, rows, start if windowed else None)
        assert (check.short, check.outside, check.seen) == (0, 0, len(rows))
        if windowed and rows and start:
            assert checked(case, rows, start + 10 * 365 * 86_400_000).outside == len(rows)
            assert checked(case, rows, 0, start).outside == len(rows)


@pytest.mark.parametrize("case", [case for case in CASES if StoreKind(golden(case)["kind"]) in WINDOWED_KINDS])
def test_a_key_without_its_time_is_too_short(case: str) -> None:
    rows = [(key[-4:], value) for _, of in databases(case) for key, value in of]
    check = checked(case, rows, 0)
    assert check.short == len(rows)
    assert check.example == rows[0][0]


@pytest.mark.parametrize("case", [case for case in CASES if "timestamped" in case or "headers" in case])
def test_a_value_without_what_comes_before_the_applications_is_too_short(case: str) -> None:
    if StoreKind(golden(case)["kind"]) is StoreKind.HEADERS_EMIT_FINAL_SESSION:
        return  # its values have no headers
    rows = [(key, b"") for _, of in databases(case) for key, _ in of]
    emit_final = "emit-final" in case
    indexes = sum(emit_final and key[0] == INDEX_PREFIX for key, _ in rows)
    assert checked(case, rows).short == len(rows) - indexes > 0
