import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.key_table import KeyTable

PREFIXES = st.sampled_from([b"", b"\0", b"\0" * 9, b"user-", b"a-prefix-that-is-longer-than-a-word", b"\xff" * 16])
KEYS = st.builds(lambda prefix, rest: prefix + rest, PREFIXES, st.binary(max_size=20))
ZEROS = st.builds(lambda count, rest: b"\0" * count + rest, st.integers(0, 40), st.sampled_from([b"", b"\1", b"x"]))


def in_order(keys: list[bytes]) -> list[bytes]:
    table = KeyTable(timestamps=False)
    array = pa.array(keys, pa.binary())
    table.add(array, array, pa.array([0] * len(keys)))
    ids = table.in_key_order(table.survivors(tombstones=True))
    found: list[bytes] = []
    for chunk in table.gather(ids, rows_at_once=7, bytes_at_once=64):
        offsets = chunk.key_offsets.tolist()
        data = chunk.keys.tobytes()
        found += [data[a:b] for a, b in pairwise(offsets)]
        assert chunk.values.tobytes() == data  # the values are the keys, so each came with its own
    return found


@settings(deadline=None)  # the first example loads the kernels
@given(st.lists(st.one_of(KEYS, ZEROS), max_size=300))
def test_keys_come_in_bytewise_order_each_once(keys: list[bytes]) -> None:
    assert in_order(keys) == sorted(set(keys))


@pytest.mark.parametrize("prefix", [0, 1, 7, 8, 15, 16, 17, 40, 1000])
@pytest.mark.parametrize("suffix", [0, 3, 8, 12])
def test_large_groups_of_ties_go_deeper(prefix: int, suffix: int) -> None:
    random_ = random.Random(prefix * 100 + suffix)
    head = random_.randbytes(prefix)
    # Two letters after the prefix, then a long stretch that only a few groups share: rounds within rounds.
    keys = [
        head + random_.choice([b"aa", b"ab"]) + b"same" * 5 + random_.randbytes(4) + b"z" * suffix for _ in range(700)
    ]
    keys += [head, head + b"aa", head + b"aa" + b"same" * 5, head + b"ab" + b"same"]
    random_.shuffle(keys)
    assert in_order(keys) == sorted(set(keys))


def test_keys_of_zeros_are_ordered_by_length() -> None:
    keys = [bytes(count) for count in range(200)]
    random.Random(1).shuffle(keys)
    assert in_order(keys) == sorted(keys)


def test_long_keys_with_a_long_common_prefix_do_not_take_a_round_per_word() -> None:
    head = b"p" * 200_000
    keys = [head + number.to_bytes(2, "big") for number in range(120)]
    random.Random(2).shuffle(keys)
    assert in_order(keys) == sorted(keys)
