"""Directories that cannot be opened or read: one error of the right kind, nothing changed, other stores usable."""

from __future__ import annotations

import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest
from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict, SstFileWriter

from statecore.errors import Corrupted, Fenced, Invalid, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN, ROWS, fresh, raw

BUILDABLE = [kind for kind in StoreKind if kind.can_be_built]


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def refused(
    path: Path, error: type[StatecoreError], match: str, kind: StoreKind = PLAIN, *, looked_into: bool = False
) -> None:
    """Opening says so, reading and writing, changes nothing, and another store opens as ever.

    Where RocksDB itself can open the database it begins another log and manifest; rows and offsets stay as they are.
    """
    for read_only in (True, False):
        before = contents(path)
        store = RocksDBStore(path, kind, read_only=read_only)
        with pytest.raises(error, match=match) as raised:
            store.open()
        assert str(path) in str(raised.value)
        assert raised.value.action
        assert not store.is_open
        if read_only or not looked_into:
            assert contents(path) == before
        else:
            tables = {name: data for name, data in before.items() if name.endswith(".sst")}
            assert tables.items() <= contents(path).items()
            assert not {name for name in contents(path) if name.startswith("LOG") or "rocksdict" in name}
    with RocksDBStore(fresh(path.parent / "another"), PLAIN) as another:
        assert dict(another.all()) == ROWS


@pytest.mark.parametrize("kind", BUILDABLE)
def test_every_kind_opens_commits_and_reads_back(tmp_path: Path, kind: StoreKind) -> None:
    with RocksDBStore(tmp_path / "db", kind, create=True) as store:
        store.put_all(ROWS.items())
        store.commit({CHANGELOG: 7})
        assert store.manages_offsets == (kind is not StoreKind.GRACE_BUFFER)
    with RocksDBStore(tmp_path / "db", kind, exactly_once=True) as store:
        assert dict(store.all()) == ROWS
        assert store.committed_offset(CHANGELOG) == 7


def test_another_comparator_is_refused(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=False))
    database["key"] = "value"
    database.close()
    refused(tmp_path / "db", Invalid, "comparator")


def test_unknown_column_families_are_refused(tmp_path: Path) -> None:
    raw(tmp_path / "db", {"foo": {b"a": b"1"}, "offsets": {}})
    refused(tmp_path / "db", Invalid, "foo")


def test_drained_families_of_an_older_format_are_no_hindrance_and_full_ones_are(tmp_path: Path) -> None:
    older, newer = "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"
    raw(tmp_path / "drained", {older: {}, newer: {b"a": b"1"}, "offsets": {}})
    for read_only in (True, False):
        with RocksDBStore(tmp_path / "drained", StoreKind.HEADERS_KEY_VALUE, read_only=read_only) as store:
            assert list(store.all()) == [(b"a", b"1")]
    raw(tmp_path / "full", {older: {b"b": b"2"}, newer: {b"a": b"1"}, "offsets": {}})
    with raises(Invalid, "older-row-format", column_family=older):
        RocksDBStore(tmp_path / "full", StoreKind.HEADERS_KEY_VALUE).open()


HOLD = """
import sys
from rocksdict import Rdict
from statecore.stores.rocksdb.options import data_options
database = Rdict(sys.argv[1], data_options(), column_families={n: data_options() for n in ("default", "offsets")})
print("open", flush=True)
sys.stdin.read()
"""


def test_a_directory_that_another_process_has_open_is_left_as_it_is(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        (path / "rocksdict-config.json").unlink()  # as if the other were Kafka Streams
        before = contents(path)
        with raises(Fenced, "store-open"):
            RocksDBStore(path, PLAIN).open()
        assert contents(path) == before
        holder.communicate()


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="statecore-rights-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _as_nobody(path: str, create: bool) -> tuple[str, str]:
    import rocksdict  # noqa: F401 - while this user may still read everything

    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    try:
        with RocksDBStore(Path(path), PLAIN, create=create) as store:
            store.commit({CHANGELOG: 8})
    except StatecoreError as error:
        return type(error).__name__, str(error)
    return "opened", ""


@pytest.mark.parametrize(("mode", "create"), [(0o500, False), (0o000, False), (0o555, False), (0o555, True)])
def test_a_directory_without_rights_is_refused(public_directory: Path, mode: int, create: bool) -> None:
    """Root may do anything, so it is another user, in a process of its own, who tries."""
    path = fresh(public_directory / "db")
    path.chmod(0o755)
    for file in path.iterdir():
        file.chmod(0o444)
    before = contents(path)
    path.chmod(mode)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        kind, text = pool.apply(_as_nobody, (str(path / "below" if create else path), create))
    path.chmod(0o755)
    assert kind == "Invalid", text
    assert "Permission denied" in text
    assert "read and write access" in text
    assert contents(path) == before


READS: dict[str, Callable[[RocksDBStore], object]] = {
    "all": lambda store: list(store.all()),
    "reverse": lambda store: list(store.reverse_all()),
    "range": lambda store: list(store.range(b"k", b"l")),
    "prefix": lambda store: list(store.prefix_scan(b"k")),
    "points": lambda store: [store.get(b"k%06d" % number) for number in range(20_000)],
    "batch": lambda store: store.get_many([b"k%06d" % number for number in range(20_000)]),
    "lists": lambda store: list(store.scan_lists()),
    "view": lambda store: list(store.query_view().all()),
    "view-points": lambda store: store.query_view().get_many([b"k%06d" % number for number in range(20_000)]),
    "verify": lambda store: store.verify(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_flipped_bit_is_found_by_every_way_of_reading(tmp_path: Path, read: str, share: float) -> None:
    path = fresh(tmp_path / "db", {b"k%06d" % number: b"v" * 100 for number in range(20_000)})
    file = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 0x10
    file.write_bytes(data)
    before = contents(path)
    with RocksDBStore(path, PLAIN, read_only=True) as store:
        with raises(Corrupted, "database-damaged"):
            READS[read](store)
    assert contents(path) == before


def test_verify_counts_rows_and_checks_the_offsets(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN) as store:
        assert store.verify() == len(ROWS)
    for number, offsets in enumerate([{b"topic-0": b"1234567"}, {b"topic": bytes(8)}, {b"position": b"\x09"}]):
        raw(tmp_path / f"{number}", {"offsets": offsets})
        with pytest.raises(Corrupted):  # a position is read when the store is opened
            with RocksDBStore(tmp_path / f"{number}", PLAIN, read_only=True) as store:
                store.verify()


def test_an_offset_that_is_none_is_corrupt(tmp_path: Path) -> None:
    raw(tmp_path / "db", {"default": {}, "offsets": {str(CHANGELOG).encode(): b"1234567"}})
    with RocksDBStore(tmp_path / "db", PLAIN, read_only=True) as store:
        with pytest.raises(Corrupted, match="7 bytes"):
            store.committed_offset(CHANGELOG)
        with pytest.raises(Corrupted, match="7 bytes"):
            store.query_view().committed_offset(CHANGELOG)


def test_merge_operands_are_refused(tmp_path: Path) -> None:
    """Iterating over them without their operator takes RocksDB, and the process with it, down."""
    path = tmp_path / "db"
    with RocksDBStore(path, PLAIN, create=True) as store:
        store.ingest([merge_operand(tmp_path / "merge.sst", b"counter", b"+1")])
        store.commit({CHANGELOG: 1})
    refused(path, Invalid, "merge operator", looked_into=True)


def merge_operand(path: Path, key: bytes, operand: bytes) -> Path:
    """An SST file with one row: a put turned into a merge, in the row and in the file's properties."""
    table = BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.crc32c())
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    writer = SstFileWriter(options)
    writer.open(str(path))
    writer[key] = operand
    writer.finish()
    data = bytearray(path.read_bytes())
    blocks = list(sealed_blocks(bytes(data)))
    put = data.index(key) + len(key)  # the row's type is the low byte of the 8 that follow its key
    count = data.index(b"merge.operands") + len(b"merge.operands")  # "rocksdb." is shared with the name before
    assert (data[put], data[count]) == (1, 0)
    data[put], data[count] = 2, 1
    for start, end in blocks:
        data[end : end + 4] = masked_crc(bytes(data[start:end]))
    path.write_bytes(data)
    return path


def sealed_blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """The blocks of a small SST file, one after the other: wherever a checksum fits what is before it."""
    start = 0
    while start < len(data):
        ends = (end for end in range(start + 1, len(data) - 4) if data[end : end + 4] == masked_crc(data[start:end]))
        end = next(ends, None)
        if end is None:
            return
        yield start, end
        start = end + 4


def masked_crc(data: bytes) -> bytes:
    crc = crc32c.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("kind", ["key-value", "KEY_VALUE", None])
def test_what_is_no_kind_of_a_store_is_refused(tmp_path: Path, kind: Any) -> None:
    with raises(Invalid, "kind-invalid"):
        RocksDBStore(tmp_path / "db", kind, create=True)
