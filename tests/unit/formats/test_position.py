import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.formats.position import decode_position, encode_position

GOLDEN = bytes.fromhex("00 00000001 00000002") + b"in" + bytes.fromhex("00000001 00000000 0000000000000063")
BAD = [b"\x01" + GOLDEN[1:], GOLDEN + b"\0\0\1", b"\0\xff\xff\xff\xff", GOLDEN[:5] + b"\xff" * 20]


def test_the_bytes_are_those_kafka_streams_wrote() -> None:
    assert encode_position({"in": {0: 99}}) == GOLDEN


def test_padding_of_zeros_is_tolerated() -> None:
    padded = GOLDEN + bytes(202 - len(GOLDEN))
    assert decode_position(padded) == {"in": {0: 99}}
    assert decode_position(bytes(40)) == {}


PARTITIONS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=5)


@given(
    st.dictionaries(st.text(max_size=20), PARTITIONS, max_size=4),
    st.integers(0, 50),
)
def test_positions_round_trip(position: dict[str, dict[int, int]], padding: int) -> None:
    assert decode_position(encode_position(position) + bytes(padding)) == position


@pytest.mark.parametrize("cut", range(len(GOLDEN)))
def test_a_cut_position_is_corrupt(cut: int) -> None:
    with pytest.raises(Corrupted):
        decode_position(GOLDEN[:cut])


@pytest.mark.parametrize(
    "bad", [b"\x01" + GOLDEN[1:], GOLDEN + b"\0\0\1", b"\0\xff\xff\xff\xff", GOLDEN[:5] + b"\xff" * 20]
)
def test_a_damaged_position_is_corrupt(bad: bytes) -> None:
    with pytest.raises(Corrupted):
        decode_position(bad)
