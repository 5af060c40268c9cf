"""Which databases were never created to the end, which only have no row, and by what each is known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import Corrupted, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import create_database, read_database_state
from statecore.stores.rocksdb.directory import families_of, identities_of, identity_of, is_unfinished_creation
from statecore.stores.rocksdb.files import manifest_of as read_manifest_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rocksdb.writes import ChangedDatabase
from tests.harness.creation import interrupt_creation
from tests.harness.damage_functions import cut, manifest_of
from tests.harness.raising import raises
from tests.unit.doctor.stored import write_database

STAMPED = "keyValueWithTimestamp"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A database of 4.3 beside."""
    create_database(tmp_path / "newer", StoreKind.KEY_VALUE, {TopicPartition("a", 0): 1})
    return tmp_path / "newer"


@pytest.mark.parametrize(("families", "alone"), [((), False), ((STAMPED,), True)])
def test_a_killed_creation_is_detected_by_its_files(
    tmp_path: Path, newer: Path, families: tuple[str, ...], alone: bool
) -> None:
    path = interrupt_creation(tmp_path / "killed", *families)
    assert families_of(path) == {"default", *families}
    assert is_unfinished_creation(path) is alone  # one with ``default`` may be a store of plain rows of 4.2
    assert is_unfinished_creation(path, [path, newer])


@pytest.mark.parametrize("families", [("offsets",), (STAMPED, "offsets"), ("of-another-tool",)])
def test_one_that_has_offsets_or_is_not_of_kafka_streams_is_there(
    tmp_path: Path, newer: Path, families: tuple[str, ...]
) -> None:
    assert not is_unfinished_creation(interrupt_creation(tmp_path / "whole", *families), [newer])


@pytest.mark.parametrize("families", [{"default": []}, {STAMPED: []}])
def test_an_empty_database_of_an_older_release_is_finished_among_its_like(
    tmp_path: Path, newer: Path, families: dict[str, list[tuple[bytes, bytes]]]
) -> None:
    write_database(tmp_path / "older", families)
    shutil.copytree(tmp_path / "older", tmp_path / "like")
    assert not is_unfinished_creation(tmp_path / "older", [tmp_path / "like"])
    assert is_unfinished_creation(tmp_path / "older", [tmp_path / "like", newer])


@pytest.mark.parametrize("flushed", [True, False])
def test_one_with_rows_is_never_unfinished(tmp_path: Path, newer: Path, flushed: bool) -> None:
    path = tmp_path / "rows"
    write_database(path, {STAMPED: [(b"k", b"v")]})
    if not flushed:
        for file in path.glob("*.sst"):
            file.unlink()
        next(path.glob("*.log")).write_bytes(b"rows")
    for options in path.glob("OPTIONS-*"):
        options.unlink()
    assert not is_unfinished_creation(path, [newer])


@pytest.mark.parametrize("options", [True, False])
def test_one_whose_files_are_elsewhere_or_lost_is_never_unfinished(tmp_path: Path, newer: Path, options: bool) -> None:
    path = tmp_path / "rows"
    write_database(path, {STAMPED: [(b"k", b"v")]})
    for file in (*path.glob("*.sst"), *([] if options else path.glob("OPTIONS-*"))):
        file.unlink()
    assert not is_unfinished_creation(path, [newer])


def test_one_whose_manifest_has_lost_its_end_is_damaged(tmp_path: Path, newer: Path) -> None:
    path = tmp_path / "cut"
    create_database(path, StoreKind.TIMESTAMPED_KEY_VALUE, {TopicPartition("a", 0): 1})
    for file in path.glob("*.sst"):
        file.unlink()
    for file in path.glob("*.log"):
        file.write_bytes(b"")
    manifest = manifest_of(path)
    while "offsets" in families_of(path):
        cut(manifest, -1)
    assert not is_unfinished_creation(path, [newer])


def test_one_that_a_process_creates_now_is_there(tmp_path: Path, newer: Path) -> None:
    path = interrupt_creation(tmp_path / "now", STAMPED)
    with RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, create_if_missing=True):
        options = max(path.glob("OPTIONS-*"), key=lambda file: file.name)
        options.unlink()
        assert not is_unfinished_creation(path, [newer])


def test_a_creation_of_kafka_streams_is_finished_where_one_of_ours_would_be(tmp_path: Path) -> None:
    path = interrupt_creation(tmp_path / "killed", STAMPED)
    for read_only in (True, False):
        with pytest.raises(NotFound):
            RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, read_only=read_only).open()
    with RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, create_if_missing=True) as store:
        store.commit({TopicPartition("a", 0): 7})
    assert families_of(path) == {"default", STAMPED, "offsets"}


@pytest.mark.parametrize(("said", "identity"), [(b"d1f0-77\n", "d1f0-77"), (b"\xff\xfe", "\ufffd\ufffd"), (None, "")])
def test_a_database_is_known_by_its_identity_also_by_one_that_is_no_text(
    tmp_path: Path, said: bytes | None, identity: str
) -> None:
    if said is not None:
        (tmp_path / "IDENTITY").write_bytes(said)
    assert identity_of(tmp_path) == identity


def test_an_identity_that_cannot_be_read_is_an_error_unless_it_is_only_compared(tmp_path: Path) -> None:
    (tmp_path / "IDENTITY").mkdir()
    with pytest.raises(IsADirectoryError):
        identity_of(tmp_path)
    assert identities_of([tmp_path]) == frozenset()


def second_record(file: Path) -> int:
    """Where the second record of a MANIFEST or a log begins."""
    return 7 + int.from_bytes(file.read_bytes()[4:6], "little")


def change(file: Path, at: int, value: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] = value
    file.write_bytes(data)


@pytest.fixture
def with_log(tmp_path: Path) -> Path:
    """A copy of a store that a process has open, with two commits in the log."""
    with RocksDBStore(tmp_path / "open", StoreKind.KEY_VALUE, create=True) as store:
        for offset in range(2):
            store.put(b"k", b"v%d" % offset)
            store.commit({TopicPartition("a", 0): offset})
        shutil.copytree(tmp_path / "open", tmp_path / "s")
    (tmp_path / "s/LOCK").unlink()
    return tmp_path / "s"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", [manifest_of, lambda path: next(path.glob("*.log"))], ids=["manifest", "log"])
def test_what_rocksdb_reads_for_ever_is_refused_by_all_that_open_it(
    with_log: Path, which: Callable[[Path], Path]
) -> None:
    assert read_database_state(with_log).offsets == {TopicPartition("a", 0): 1}
    file = which(with_log)
    change(file, second_record(file) + 6, 5)
    with raises(Corrupted, "database-damaged"):
        read_database_state(with_log)
    for read_only in (True, False):
        with raises(Corrupted, "database-damaged"):
            RocksDBStore(with_log, StoreKind.KEY_VALUE, read_only=read_only).open()
    with raises(Corrupted, "database-damaged"), ChangedDatabase(with_log, 5):
        pass


def test_a_damaged_record_of_a_manifest_is_damage_whatever_it_seems_to_say(with_log: Path) -> None:
    manifest = manifest_of(with_log)
    change(manifest, second_record(manifest) + 7, 0x7F)
    with raises(Corrupted, "database-damaged"):
        read_manifest_of(with_log)
