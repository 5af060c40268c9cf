"""Rows with headers as rows without: of every kind that real applications left, and of hypothesis."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.conversion.rows import (
    COUNTERPARTS,
    convert_chunks,
    convert_rows,
    count_converted_rows,
    counterpart_of_row,
)
from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.images.digest import digest_rows
from tests.unit.doctor.stored import golden
from tests.unit.formats.test_headers import HEADERS, Headers, block

CASES = [
    ("headers-key-value", StoreKind.TIMESTAMPED_KEY_VALUE),
    ("headers-window", StoreKind.TIMESTAMPED_WINDOW),
    ("headers-window-of-join", StoreKind.JOIN_WINDOW),
    ("headers-session", StoreKind.SESSION),
    ("headers-emit-final-window", StoreKind.EMIT_FINAL_WINDOW),
    ("headers-emit-final-sliding-window", StoreKind.EMIT_FINAL_SLIDING_WINDOW),
    ("headers-emit-final-session", StoreKind.EMIT_FINAL_SESSION),
]

Row = tuple[bytes, bytes]


def rows_of(case: str) -> list[Row]:
    """The rows of a golden file, of all segments."""
    made = golden(case)
    family = StoreKind(made["kind"]).data_column_family
    databases = made.get("segments", {"": made.get("families")}).values()
    return [(bytes.fromhex(key), bytes.fromhex(value)) for one in databases for key, value in one[family]]


def columns(rows: list[Row]) -> tuple[pa.Array, pa.Array]:
    return pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())


def test_every_kind_with_headers_has_a_counterpart_without() -> None:
    assert set(COUNTERPARTS) == {kind for kind in StoreKind if kind.value.startswith("headers-")}
    assert {target for _, target in CASES} == {target for targets in COUNTERPARTS.values() for target in targets}


@pytest.mark.parametrize(("case", "target"), CASES)
def test_rows_are_equal_except_their_headers(case: str, target: StoreKind) -> None:
    source, rows = StoreKind(golden(case)["kind"]), rows_of(case)
    made = convert_rows(*columns(rows), source, target)
    before = row_format(source).decode(*columns(rows)).to_pylist()
    after = row_format(target).decode(made.keys, made.values).to_pylist()
    assert len(after) == len(before) > 3
    for new, old in zip(after, before, strict=True):
        assert {name: value for name, value in new.items() if name in old} == {
            name: value for name, value in old.items() if name in new
        }
        assert new.keys() >= {"key", "value"}
    index = sum(key[:1] == b"\x01" and not value for key, value in rows)
    dropped = index if target is StoreKind.EMIT_FINAL_WINDOW else 0  # of no use to a store that has none
    assert len(made.keys) == len(rows) - dropped
    assert (index > 0) == ("emit-final" in case)
    having = [value for _, value in rows if value and value[0]] if target is not StoreKind.EMIT_FINAL_SESSION else []
    assert (made.headers, made.misfits) == (len(having), 0)


@pytest.mark.parametrize(("case", "target"), CASES)
def test_the_row_format_is_decided_by_the_first_row(case: str, target: StoreKind) -> None:
    source = StoreKind(golden(case)["kind"])
    assert counterpart_of_row(source, rows_of(case)[0][0]) is target


def test_a_store_without_headers_has_none_to_lose() -> None:
    assert counterpart_of_row(StoreKind.WINDOW, b"key") is None


@pytest.mark.parametrize(
    ("case", "wrong"),
    [("headers-window", StoreKind.JOIN_WINDOW), ("headers-window-of-join", StoreKind.TIMESTAMPED_WINDOW)],
)
def test_windows_of_the_other_sort_are_counted_as_strange(case: str, wrong: StoreKind) -> None:
    rows = rows_of(case)
    assert convert_rows(*columns(rows), StoreKind.HEADERS_WINDOW, wrong).misfits == len(rows)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=6), HEADERS, st.binary(max_size=9)),
        max_size=12,
        unique_by=lambda row: row[0],
    )
)
def test_counting_and_moving_come_to_the_same_rows(given_rows: list[tuple[bytes, Headers, bytes]]) -> None:
    given_rows = sorted(given_rows, key=lambda row: row[0])
    wanted = [(key, bytes(8) + value) for key, _, value in given_rows]
    rows = [(key, block(headers) + bytes(8) + value) for key, headers, value in given_rows]
    chunks = [([key], [value]) for key, value in rows]
    of = StoreKind.HEADERS_KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE
    counted = count_converted_rows(chunks, *of)
    assert counted.rows == len(rows)
    assert counted.headers == sum(bool(headers) for _, headers, _ in given_rows)
    assert counted.content == digest_rows([([key], [value]) for key, value in wanted])
    made = [
        (chunk.keys.tobytes(), chunk.values.tobytes(), chunk.valid.tolist()) for chunk in convert_chunks(chunks, *of)
    ]
    assert made == [(key, value, [1]) for key, value in wanted]


def test_a_row_that_is_none_of_its_kind_is_damage() -> None:
    with pytest.raises(Corrupted, match="headers"):
        convert_rows(*columns([(b"key", b"\x7f")]), StoreKind.HEADERS_SESSION, StoreKind.SESSION)
