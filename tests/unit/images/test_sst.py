import random
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import SstFileWriter

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images import kernel
from statecore.images.image import build_image
from statecore.images.model import Below
from statecore.images.runs import RunBuilder
from statecore.images.sst import ColumnarSstWriter
from statecore.images.sst_writer import RowSstWriter
from statecore.stores.options import data_options
from statecore.stores.rocksdb import RocksDBStore
from tests.unit.images.changelog import Record, batches, expected_rows, stored_rows

KIND = StoreKind.KEY_VALUE
Rows = dict[bytes, bytes | None]
Writer = type[ColumnarSstWriter] | type[RowSstWriter]

KEYS = st.one_of(
    st.binary(max_size=24),
    st.builds(lambda head, rest: b"common-prefix-" * head + rest, st.integers(0, 12), st.binary(max_size=6)),
)
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.integers(1, 9000).map(lambda size: b"v" * size))


def columns(items: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(items), np.uint8)


def write(writer: ColumnarSstWriter | RowSstWriter, rows: Rows, at_once: int) -> str:
    keys = sorted(rows)
    with writer:
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
    for writer in (ColumnarSstWriter, RowSstWriter):
        file = path / f"{writer.__name__}.sst"
        digest = write(writer(file), rows, at_once)
        assert digest == sha256(file.read_bytes()).hexdigest()
        store = ingested(path / writer.__name__, [file], below)
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


@pytest.mark.parametrize("length", [*range(36), 48, 64, 65, 96, 97, 128, 129, 144, 159, 160, 239, 240])
def test_every_key_is_in_the_filter_as_rocksdb_hashes_it(tmp_path: Path, length: int) -> None:
    """The filter RocksDB wrote for the same keys must come out bit by bit, for every branch of the hash."""
    source = random.Random(length)
    keys = sorted({source.randbytes(length) for _ in range(150)})
    writer = SstFileWriter(data_options())
    writer.open(str(tmp_path / "theirs.sst"))
    for key in keys:
        writer[key] = b""
    writer.finish()
    hashes = []
    for key in keys:
        buffer = np.frombuffer(key + b"x", np.uint8)
        hashes.append(kernel.run("key_hash", address=buffer, length=length, secret=kernel.SECRET))
    data = (tmp_path / "theirs.sst").read_bytes()
    # A filter ends with ff 00, the number of probes, 00 00, and lies behind the data blocks in whole 64-byte lines.
    end = next(re.finditer(rb"\xff\x00[\x01-\x18]\x00\x00", data)).start()
    for lines in range(1, 8):
        bits = np.zeros(lines * 64, np.uint8)
        kernel.run(
            "fill_filter",
            hashes=np.array(hashes, np.int64),
            count=len(hashes),
            bits=bits,
            lines=lines,
            probes=data[end + 2],
        )
        if data[end - len(bits) : end] == bits.tobytes():
            return
    pytest.fail("no number of lines gives RocksDB's filter")


def test_the_same_rows_give_the_same_file_and_a_delete_another(tmp_path: Path) -> None:
    rows: Rows = {b"a": b"1", b"b": b"2"}
    first = write(ColumnarSstWriter(tmp_path / "1.sst"), rows, 10)
    assert write(ColumnarSstWriter(tmp_path / "2.sst"), rows, 10) == first
    assert write(ColumnarSstWriter(tmp_path / "3.sst"), {**rows, b"c": None}, 10) != first


def test_files_with_the_same_names_of_blocks_do_not_answer_for_each_other(tmp_path: Path) -> None:
    """Cached blocks are named after the file's identity; two files of the same shape must not share one."""
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.sst")
        rows: Rows = {b"%d-%04d" % (number, n): b"%04d" % (number * n) for n in range(3000)}
        write(ColumnarSstWriter(files[-1]), rows, 3000)
    with ingested(tmp_path / "db", files, {}) as store:
        for n in range(0, 3000, 7):
            assert [store.get(b"%d-%04d" % (number, n)) for number in range(3)] == [
                b"%04d" % (number * n) for number in range(3)
            ]


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.93])
def test_rocksdb_finds_a_flipped_bit_by_our_checksums(tmp_path: Path, share: float) -> None:
    file = tmp_path / "1.sst"
    write(ColumnarSstWriter(file), {b"%06d" % n: b"v" * 50 for n in range(5000)}, 5000)
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 4
    file.write_bytes(data)
    with pytest.raises(Corrupted):
        with ingested(tmp_path / "db", [file], {}) as store:
            list(store.all())


@pytest.mark.parametrize("length", [ColumnarSstWriter.LONGEST_KEY, ColumnarSstWriter.LONGEST_KEY + 1])
def test_keys_on_both_sides_of_the_limit_are_stored(tmp_path: Path, length: int) -> None:
    records: list[Record] = [(bytes([n % 251]) * length, b"%d" % n) for n in range(1000)]
    builder = RunBuilder(KIND, tmp_path, below=Below.NOTHING)
    for part in batches(records, 100):
        builder.add(part)
    build_image(tmp_path / "image", KIND, builder.finish(), {TopicPartition("t", 0): 999})
    expected = expected_rows(KIND, records)
    assert stored_rows(tmp_path / "image", KIND) == sorted(expected.items())
    with RocksDBStore(tmp_path / "image", KIND, read_only=True) as store:
        assert all(store.get(key) == value for key, value in expected.items())


def test_a_key_that_the_filter_cannot_hash_is_refused_rather_than_lost(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="241 bytes"):
        write(ColumnarSstWriter(tmp_path / "1.sst"), {b"k" * 241: b"v"}, 1)


@pytest.mark.parametrize("writer", [ColumnarSstWriter, RowSstWriter])
def test_a_directory_that_is_not_there_is_refused(tmp_path: Path, writer: Writer) -> None:
    with pytest.raises(Invalid, match="cannot be written"):
        write(writer(tmp_path / "absent" / "1.sst"), {b"a": b"b"}, 1)
