import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from tests.unit.formats.arrays import KEY_TIMES, KEYS, SHAPES, VALUES, Shape, column, int64, records, rows_of

SESSIONS = st.lists(st.tuples(KEYS, st.tuples(KEY_TIMES, KEY_TIMES).map(sorted), VALUES), max_size=20)
KINDS = [StoreKind.SESSION, StoreKind.HEADERS_SESSION]

Session = tuple[bytes, tuple[int, int], bytes | None]


def session_key(key: bytes, start: int, end: int) -> bytes:
    return key + int64(end) + int64(start)


@settings(deadline=None)
@given(SESSIONS, SHAPES, st.sampled_from(KINDS))
def test_rows_of_sessions_go_back_to_their_parts(rows: list[Session], shape: Shape, kind: StoreKind) -> None:
    form = row_format(kind)
    keys = [session_key(key, *times) for key, times, _ in rows]
    batch = records(keys, [value for _, _, value in rows], shape=shape)
    assert form.check(batch) is None
    assert form.times(batch.keys).tolist() == [end for _, (_, end), _ in rows]
    assert form.row_keys(batch.keys).to_pylist() == keys
    assert not form.stamped
    read = form.decode(batch.keys, form.row_values(batch))
    headers = kind is StoreKind.HEADERS_SESSION
    assert read.schema.names == ["key", "session_start", "session_end", *(["headers"] if headers else []), "value"]
    assert rows_of(read) == [
        (key, start, end, *([None if value is None else []] if headers else []), value)
        for key, (start, end), value in rows
    ]


@pytest.mark.parametrize("kind", [*KINDS, StoreKind.EMIT_FINAL_SESSION])
@pytest.mark.parametrize(
    ("key", "why"),
    [
        (bytes(15), "has a key of 15 bytes; session keys have at least 16"),
        (session_key(b"k", 0, -1), "has a key with the negative session time -1"),
        (session_key(b"k", 6, 5), "has a key whose session starts at 6, ends at 5"),
        (session_key(b"k", -1, 5), "has a key whose session starts at -1, ends at 5"),
        (session_key(b"k", -2, 5), "has a key whose session starts at -2, ends at 5"),
    ],
)
@pytest.mark.parametrize("front", [[], [bytes(16)], [None]])
def test_a_key_that_is_no_sessions_is_a_misfit(
    kind: StoreKind, key: bytes, why: str, front: list[bytes | None]
) -> None:
    assert row_format(kind).check(records([*front, key, key])) == (len(front), why)


def test_sessions_ignore_the_timestamp_of_the_record() -> None:
    batch = records([bytes(16)], timestamps=[-1])
    assert [row_format(kind).check(batch) for kind in KINDS] == [None, None]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (bytes(15), "Row 1 has a key of 15 bytes; session rows have at least 16"),
        (session_key(b"", 6, 5), "Row 1 has a key whose session ends before it starts"),
        (session_key(b"", -1, 5), "or starts before 0"),
    ],
)
def test_a_row_that_is_no_sessions_is_corrupt(key: bytes, why: str) -> None:
    with pytest.raises(Corrupted, match=why):
        row_format(StoreKind.SESSION).decode(column([bytes(16), key]), column([b"", b""]))
