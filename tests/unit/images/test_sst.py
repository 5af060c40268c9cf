import random
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Rdict

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.kernels import kernel
from statecore.images.model import BaseDatabases
from statecore.images.runs import RunBuilder
from statecore.images.sst import ColumnarSstWriter
from statecore.stores.rocksdb.options import data_options
from statecore.stores.rocksdb.store import RocksDBStore
from tests.golden import make_xxph3
from tests.harness.raising import raises
from tests.unit.images.changelog import Record, batches, expected_rows, stored_rows
from tests.unit.images.sst_files import columns
from tests.unit.stores.rocksdb.test_store import sst as write_by_rocksdb

KIND = StoreKind.KEY_VALUE
Rows = dict[bytes, bytes | None]

KEYS = st.one_of(
    st.binary(max_size=24),
    st.builds(lambda head, rest: b"common-prefix-" * head + rest, st.integers(0, 12), st.binary(max_size=6)),
    st.builds(
        lambda head, size, rest: bytes([head]) * size + rest,
        st.integers(0, 255),
        st.sampled_from([239, 240, 241, 255, 256, 300, 1023, 1024, 1025, 5000]),
        st.binary(max_size=3),
    ),
)
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.integers(1, 9000).map(lambda size: b"v" * size))


def write(path: Path, rows: Rows, at_once: int, **limits: int) -> str:
    keys = sorted(rows)
    with ColumnarSstWriter(path, **limits) as writer:
        for start in range(0, len(keys), at_once):
            part = keys[start : start + at_once]
            values = [rows[key] for key in part]
            valid = np.array([value is not None for value in values], np.uint8)
            mask = None if valid.all() else valid
            writer.add(*columns(part), *columns([value or b"" for value in values]), mask)
        return writer.finish()


def ingested(path: Path, files: list[Path], below: Rows) -> RocksDBStore:
    store = RocksDBStore(path, KIND, create=True)
    store.open()
    for key, value in below.items():
        store.put(key, value)
    store.commit({TopicPartition("t", 0): 1})
    store.ingest(files)
    return store


@settings(max_examples=50, deadline=None)
@given(rows=st.dictionaries(KEYS, VALUES, min_size=1, max_size=80), at_once=st.integers(1, 80))
def test_rocksdb_reads_what_it_would_read_from_its_own_writer(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, at_once: int
) -> None:
    path = tmp_path_factory.mktemp("sst")
    below: Rows = dict.fromkeys(list(rows)[::2], b"below") | {b"below-only": b"x"}
    found = []
    for name in ("ours", "theirs"):
        file = path / f"{name}.sst"
        if name == "ours":
            assert write(file, rows, at_once) == sha256(file.read_bytes()).hexdigest()
        else:
            write_by_rocksdb(file, rows)
        store = ingested(path / name, [file], below)
        with store:
            gets = [(key, store.get(key)) for key in rows]
            absent = [store.get(key + b"\0") for key in rows if key + b"\0" not in rows]
            from_each = [list(store.range(key, None)) for key in list(rows)[:5]]
            found.append((list(store.all()), gets, absent, from_each))
            store.compact()
            found.append((list(store.all()), gets, absent, from_each))
    expected = {**below, **rows}
    assert found[0][0] == sorted((key, value) for key, value in expected.items() if value is not None)
    assert all(each == found[0] for each in found[1:])


def key_hash(key: bytes) -> int:
    return kernel.run("key_hash", address=np.frombuffer(key + b"x", np.uint8), length=len(key), secret=kernel.SECRET)


def filter_bits(keys: Sequence[bytes], lines: int, probes: int) -> npt.NDArray[np.uint8]:
    bits = np.zeros(lines * 64, np.uint8)
    hashes = np.array([key_hash(key) for key in keys], np.int64)
    kernel.run("fill_filter", hashes=hashes, count=len(hashes), bits=bits, lines=lines, probes=probes)
    return bits


SOME_OF_ONE_LENGTH = [
    [random.Random(length).randbytes(length) for _ in range(150)]
    for length in [*range(36), 48, 64, 65, 96, 97, 128, 129, 144, 159, 160, 239, 240, 241, 256, 1023, 1024, 1025]
]
ONE_OF_EACH_LENGTH = [random.Random(1).randbytes(length) for length in range(2001)]
LONG = [random.Random(2).randbytes(length) for length in (4095, 4096, 5000, 65_536, 1_000_001, (1 << 20) - 1, 1 << 20)]


@pytest.mark.parametrize(
    "keys", [*SOME_OF_ONE_LENGTH, ONE_OF_EACH_LENGTH, LONG], ids=lambda keys: f"{len(keys[0])}-{len(keys[-1])}"
)
def test_every_key_is_in_the_filter_as_rocksdb_hashes_it(tmp_path: Path, keys: Sequence[bytes]) -> None:
    """The filter RocksDB wrote for the same keys must come out bit by bit, for every branch of the hash."""
    keys = sorted(set(keys))
    write_by_rocksdb(tmp_path / "theirs.sst", dict.fromkeys(keys, b""))
    data = (tmp_path / "theirs.sst").read_bytes()
    # A filter ends with ff 00, the number of probes, 00 00, and lies behind the data blocks in whole 64-byte lines.
    for found in re.finditer(rb"\xff\x00[\x01-\x18]\x00\x00", data):
        for lines in {len(keys) * 10 // 512 + more for more in range(-1, 3)}:
            theirs = np.frombuffer(data, np.uint8)[: found.start()][-64 * max(lines, 1) :]
            ours = filter_bits(keys, max(lines, 1), data[found.start() + 2])
            if ours.tobytes() == theirs.tobytes():
                return
    pytest.fail("no number of lines gives RocksDB's filter")


def test_keys_are_hashed_as_the_header_of_rocksdb_hashes_them() -> None:
    expected = [line.split() for line in make_xxph3.HASHES.read_text().splitlines()]
    assert [int(length) for length, _ in expected] == list(make_xxph3.LENGTHS)
    for length, hashed in expected:
        assert f"{key_hash(make_xxph3.key(int(length))) & 0xFFFFFFFFFFFFFFFF:016x}" == hashed, length


def test_the_same_rows_give_the_same_file_and_a_delete_another(tmp_path: Path) -> None:
    rows: Rows = {b"a": b"1", b"b": b"2"}
    first = write(tmp_path / "1.sst", rows, 10)
    assert write(tmp_path / "2.sst", rows, 10) == first
    assert write(tmp_path / "3.sst", {**rows, b"c": None}, 10) != first


def test_files_with_the_same_names_of_blocks_do_not_answer_for_each_other(tmp_path: Path) -> None:
    """Cached blocks are named after the file's identity; two files of the same shape must not share one."""
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.sst")
        rows: Rows = {b"%d-%04d" % (number, n): b"%04d" % (number * n) for n in range(3000)}
        write(files[-1], rows, 3000)
    with ingested(tmp_path / "db", files, {}) as store:
        for n in range(0, 3000, 7):
            assert [store.get(b"%d-%04d" % (number, n)) for number in range(3)] == [
                b"%04d" % (number * n) for number in range(3)
            ]


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.93])
def test_rocksdb_finds_a_flipped_bit_by_our_checksums(tmp_path: Path, share: float) -> None:
    file = tmp_path / "1.sst"
    # Rows of its own: RocksDB's cache has blocks of every file that was made of the same rows.
    write(file, {b"%06d" % n: (b"%.2f" % share).ljust(50, b"v") for n in range(5000)}, 5000)
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 4
    file.write_bytes(data)
    with pytest.raises(Corrupted):
        with ingested(tmp_path / "db", [file], {}) as store:
            list(store.all())


def test_a_get_finds_every_key_of_any_length_through_the_filter_and_no_other(tmp_path: Path) -> None:
    """Below lies another file with the same keys, because RocksDB asks no filter of the lowest level."""
    keys = sorted({*ONE_OF_EACH_LENGTH, *LONG, random.Random(3).randbytes(20 << 20)})
    write(tmp_path / "below.sst", dict.fromkeys(keys, b"below"), 100)
    write(tmp_path / "above.sst", {key: b"%d" % len(key) for key in keys}, 100)
    statistics = data_options()
    statistics.enable_statistics()
    database = Rdict(str(tmp_path / "database"), statistics)
    try:
        for name in ("below", "above"):
            database.ingest_external_file([str(tmp_path / f"{name}.sst")])
        assert [database.get(key) for key in keys] == [b"%d" % len(key) for key in keys]
        passed = ticker(statistics, "rocksdb.bloom.filter.full.true.positive")
        assert passed == len(keys)
        absent = [key[:-1] + bytes([key[-1] ^ 1]) for key in keys if len(key) > 2]
        assert [database.get(key) for key in absent] == [None] * len(absent)
        kept_away = ticker(statistics, "rocksdb.bloom.filter.useful")
        assert kept_away > len(absent) * 0.95
    finally:
        database.close()


def ticker(options: Any, name: str) -> int:
    found = re.search(rf"^{name} COUNT : (\d+)", options.get_statistics(), re.M)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("length", [240, 241, 300, 5000])
def test_a_store_of_long_keys_is_built_and_answers(tmp_path: Path, length: int) -> None:
    records: list[Record] = [(bytes([n % 251]) * length, b"%d" % n) for n in range(1000)]
    builder = RunBuilder(KIND, tmp_path, base=BaseDatabases.NONE)
    for part in batches(records, 100):
        builder.add(part)
    build_image(tmp_path / "image", KIND, builder.finish(), {TopicPartition("t", 0): 999})
    expected = expected_rows(KIND, records)
    assert stored_rows(tmp_path / "image", KIND) == sorted(expected.items())
    with RocksDBStore(tmp_path / "image", KIND, read_only=True) as store:
        assert all(store.get(key) == value for key, value in expected.items())


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_index_has_the_shortest_separators_of_blocks(tmp_path: Path, at_once: int) -> None:
    rows: Rows = {b"%03d" % n + random.Random(n).randbytes(9000): b"v" for n in range(300)}
    write(tmp_path / "1.sst", rows, at_once)
    assert (tmp_path / "1.sst").stat().st_size < 300 * (9000 + 120) + 9000 + 2000


def test_keys_that_no_index_can_hold_are_refused(tmp_path: Path) -> None:
    rows: Rows = {b"k" * 5000 + b"%02d" % n: b"v" for n in range(4)}
    with raises(Invalid, "sst-index-too-large") as raised:
        write(tmp_path / "1.sst", rows, 2, most_index_bytes=20_000)
    assert "ranges of offsets" in raised.value.action
    write(tmp_path / "2.sst", dict(list(rows.items())[:3]), 2, most_index_bytes=20_000)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be written"):
        write(tmp_path / "absent" / "1.sst", {b"a": b"b"}, 1)
