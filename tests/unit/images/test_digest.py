import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.images.digest import EMPTY, Digest, digest_rows
from statecore.images.kernels import kernel
from tests.harness.reference_digest import digest_of, xxh64

ROWS = st.dictionaries(st.binary(max_size=40), st.binary(max_size=90), max_size=30)


@pytest.mark.parametrize(
    ("data", "published"), [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)]
)
def test_the_hash_is_xxh64(data: bytes, published: int) -> None:
    assert xxh64(data) == published


@settings(deadline=None)  # the first example loads the kernels
@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_the_kernel_hashes_as_the_reference_does(data: bytes, seed: int) -> None:
    buffer = np.frombuffer(data + b"tail", np.uint8)
    found = kernel.run("xxh64", address=buffer, length=len(data), seed=seed - (1 << 64) if seed >> 63 else seed)
    assert found % (1 << 64) == xxh64(data, seed)


@settings(deadline=None)  # the first example loads the kernels
@given(ROWS, st.randoms(use_true_random=False))
def test_the_digest_is_that_of_the_reference_in_any_order(rows: dict[bytes, bytes], shuffle: random.Random) -> None:
    items = list(rows.items())
    shuffle.shuffle(items)
    found = digest_rows([([key for key, _ in items], [value for _, value in items])])
    assert found.digest == digest_of(rows.items())
    assert found.rows == len(rows)
    assert found.bytes == sum(len(key) + len(value) for key, value in rows.items())


@settings(deadline=None)  # the first example loads the kernels
@given(ROWS, st.integers(0, 29))
def test_chunks_add_up(rows: dict[bytes, bytes], cut: int) -> None:
    keys, values = list(rows), list(rows.values())
    split = digest_rows([(keys[:cut], values[:cut]), (keys[cut:], values[cut:])])
    assert split == digest_rows([(keys, values)])


def test_no_rows_have_the_empty_digest() -> None:
    assert Digest().hexdigest() == EMPTY == digest_of([])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({b"ab": b"c"}, {b"a": b"bc"}),
        ({b"": b"a"}, {b"a": b""}),
        ({b"a": b"1", b"b": b"2"}, {b"a": b"2", b"b": b"1"}),
        ({b"a": b""}, {b"a": b"\0"}),
    ],
)
def test_bytes_do_not_move_between_key_and_value_or_rows(left: dict[bytes, bytes], right: dict[bytes, bytes]) -> None:
    assert digest_of(left.items()) != digest_of(right.items())


def test_deletes_are_counted_and_not_hashed() -> None:
    digest = Digest()
    digest.add(
        np.array([0, 1, 3, 4]),
        np.frombuffer(b"abbc", np.uint8),
        np.array([0, 2, 2, 2]),
        np.frombuffer(b"xy", np.uint8),
        np.array([1, 0, 1], np.uint8),
    )
    assert digest.hexdigest() == digest_of([(b"a", b"xy"), (b"c", b"")])
    assert (digest.rows, digest.deletes, digest.bytes) == (2, 1, 4)
