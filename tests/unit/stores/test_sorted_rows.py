"""Rows in memory against a model: a dict, and copies of it where there are snapshots."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.stores.sorted_rows import ROW_OVERHEAD_BYTES, RowsSnapshot, SortedRows

KEYS = st.binary(max_size=2)
VALUES = st.one_of(st.none(), st.binary(max_size=2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(KEYS, VALUES), max_size=30)),
        st.tuples(st.just("read"), st.tuples(st.one_of(st.none(), KEYS), st.one_of(st.none(), KEYS), st.booleans())),
        st.tuples(st.just("snapshot"), st.none()),
        st.tuples(st.just("purge"), st.none()),
    ),
    max_size=20,
)


def rows_of(
    snapshot: RowsSnapshot, lower: bytes | None = None, upper: bytes | None = None, reverse: bool = False
) -> list[tuple[bytes, bytes | None]]:
    cursor = snapshot.cursor(lower, upper, reverse=reverse)
    found = []
    while chunk := cursor.chunk():
        found += chunk
    return found


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_rows_and_their_snapshots_are_those_of_dicts(steps: list[tuple[str, object]]) -> None:
    rows, model = SortedRows(), dict[bytes, bytes | None]()
    snapshots: list[tuple[RowsSnapshot, dict[bytes, bytes | None]]] = []
    for step, argument in steps:
        if step == "put":
            for key, value in argument:  # type: ignore[attr-defined]
                rows.put(key, value)
                model[key] = value
        elif step == "snapshot":
            snapshots.append((rows.snapshot(), dict(model)))
        elif step == "purge":
            dead = [key for key, value in model.items() if value is None]
            assert rows.purge(dead) == (not snapshots)
            if not snapshots:
                model = {key: value for key, value in model.items() if value is not None}
        else:
            lower, upper, reverse = argument  # type: ignore[misc]
            for snapshot, at_its_time in [*snapshots, (rows.snapshot(), model)]:
                wanted = [
                    (key, at_its_time[key])
                    for key in sorted(at_its_time, reverse=reverse)
                    if (lower is None or key >= lower) and (upper is None or key < upper)
                ]
                assert rows_of(snapshot, lower, upper, reverse) == wanted
                assert all(snapshot.get(key) == value for key, value in at_its_time.items())
            del snapshot
    assert len(rows) == len(model)
    assert dict(rows.items()) == model


def test_thousands_of_keys_stay_in_order_however_they_come() -> None:
    rows = SortedRows()
    keys = [b"%06d" % (number * 7919 % 20_000) for number in range(20_000)]
    for at in range(0, len(keys), 500):
        for key in keys[at : at + 500]:
            rows.put(key, key)
        assert [key for key, _ in rows_of(rows.snapshot())] == sorted(keys[: at + 500])
    assert [key for key, _ in rows_of(rows.snapshot(), reverse=True)] == sorted(keys, reverse=True)
    rows.purge(keys[::2])
    assert [key for key, _ in rows_of(rows.snapshot())] == sorted(keys[1::2])


def test_its_memory_is_about_what_it_says() -> None:
    tracemalloc.start()
    rows = SortedRows()
    for number in range(20_000):
        rows.put(b"key-%06d" % number, bytes(50))
    rows_of(rows.snapshot())
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.6 < rows.memory_bytes / taken < 1.4
    for number in range(20_000):
        rows.put(b"key-%06d" % number, None)
    assert rows.memory_bytes == 20_000 * (10 + ROW_OVERHEAD_BYTES)
    rows.purge([b"key-%06d" % number for number in range(20_000)])
    assert rows.memory_bytes == 0


def test_released_snapshots_take_no_memory() -> None:
    """Rows that are queried for hours and never written to; those who still read keep what they read."""
    rows = SortedRows()
    rows.put(b"a", b"1")
    kept = [rows.snapshot() for _ in range(100)]
    tracemalloc.start()
    for _ in range(20_000):
        rows.snapshot()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 100_000
    rows.put(b"a", b"2")
    assert [snapshot.get(b"a") for snapshot in kept] == [b"1"] * 100
