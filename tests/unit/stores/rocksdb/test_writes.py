"""Column families of a closed database are added, dropped, filled and written anew, in a copy of links."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import rocksdict

from statecore.errors import Corrupted, Fenced, NotFound
from statecore.formats.kinds import StoreKind
from statecore.statedir.file_trees import link_tree
from statecore.stores.rocksdb.files import live_files, sst_formats
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rocksdb.writes import ChangedDatabase
from tests.harness.directory import read_database

GOLDEN = Path(__file__).parents[3] / "golden"
ROWS = 9


@pytest.fixture
def live(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "kafka-streams-4.2.0-task.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "0_1" / "rocksdb" / "stamped"


@pytest.fixture
def copy(live: Path, tmp_path: Path) -> Path:
    link_tree(live, tmp_path / "copy")
    return tmp_path / "copy"


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}


def test_a_family_is_added_with_rows_and_the_live_database_stays_as_it_is(live: Path, copy: Path) -> None:
    before, rows = contents(live), read_database(live)
    with ChangedDatabase(copy, 6) as opened:
        opened.put("offsets", {b"status": bytes(8)})
        assert "offsets" in opened.families
    assert contents(live) == before
    assert read_database(copy) == {**rows, "offsets": [(b"status", bytes(8))]}


def test_what_is_left_is_tidy_and_has_no_log_content(copy: Path) -> None:
    with ChangedDatabase(copy, 6) as opened:
        opened.put("offsets", {b"status": bytes(8)})
    names = {file.name for file in copy.iterdir()}
    assert not names & {"LOG", "rocksdict-config.json", "statecore-witness", "lost"}
    assert [file.stat().st_size for file in copy.glob("*.log")] == [0]
    assert {oct(file.stat().st_mode & 0o777) for file in copy.iterdir() if file.stat().st_nlink == 1} == {"0o640"}


def test_a_dropped_family_takes_its_files_with_it_and_the_others_keep_theirs(copy: Path) -> None:
    kept = live_files(copy)
    with ChangedDatabase(copy, 6) as opened:
        opened.put("offsets", {b"status": bytes(8)})
    assert live_files(copy).keys() == {*kept, "offsets"}
    with ChangedDatabase(copy, 6) as opened:
        opened.drop("offsets")
        opened.drop("offsets")
        assert "offsets" not in opened.families
    assert live_files(copy) == kept
    assert {file.name for file in copy.glob("*.sst")} == {name for files in kept.values() for name in files}
    assert set(rocksdict.Rdict.list_cf(str(copy))) == {"default", "keyValueWithTimestamp"}


def test_files_are_rewritten_in_an_older_format_with_the_same_rows(live: Path, copy: Path) -> None:
    before, rows = contents(live), read_database(live)
    assert sst_formats(copy) == {"keyValueWithTimestamp": {6}}
    with ChangedDatabase(copy, 5) as opened:
        opened.rewrite("keyValueWithTimestamp")
    assert sst_formats(copy) == {"keyValueWithTimestamp": {5}}
    assert len(list(copy.glob("*.sst"))) == 1
    assert read_database(copy) == rows
    assert contents(live) == before


def test_a_file_of_a_live_database_is_unlinked_and_not_written_to(live: Path, copy: Path) -> None:
    (linked,) = live.glob("*.sst")
    assert linked.stat().st_nlink == 2
    with ChangedDatabase(copy, 5) as opened:
        opened.rewrite("keyValueWithTimestamp")
    assert linked.stat().st_nlink == 1
    assert len(dict(read_database(live)["keyValueWithTimestamp"])) == ROWS


def test_rows_in_the_log_come_into_files_of_the_wanted_format(tmp_path: Path) -> None:
    path = tmp_path / "died"
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    database[b"key"] = b"value"
    database.flush_wal(True)
    link_tree(path, tmp_path / "copy")
    database.close()
    assert any(file.stat().st_size for file in (tmp_path / "copy").glob("*.log"))
    with ChangedDatabase(tmp_path / "copy", 5):
        pass
    assert sst_formats(tmp_path / "copy") == {"default": {5}}
    assert read_database(tmp_path / "copy") == {"default": [(b"key", b"value")]}


def test_after_an_error_it_is_let_go_of_and_can_be_opened_again(copy: Path) -> None:
    with pytest.raises(KeyError), ChangedDatabase(copy, 6) as opened:
        raise KeyError(opened.path)
    with ChangedDatabase(copy, 6):
        pass


def test_an_open_database_cannot_be_changed(copy: Path) -> None:
    with RocksDBStore(copy, StoreKind.TIMESTAMPED_KEY_VALUE, upgrade=True), pytest.raises(Fenced):
        ChangedDatabase(copy, 6).__enter__()


def test_there_has_to_be_a_database(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound):
        ChangedDatabase(tmp_path / "empty", 6).__enter__()
    assert not list((tmp_path / "empty").iterdir())


def test_a_file_that_is_missing_or_none_is_damage(copy: Path) -> None:
    (file,) = copy.glob("*.sst")
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(Corrupted, match=file.name):
        sst_formats(copy)
    file.write_bytes(data[:-8] + bytes(8))
    with pytest.raises(Corrupted, match="footer"):
        sst_formats(copy)


def test_a_database_that_could_not_be_opened_is_not_locked(copy: Path) -> None:
    current = (copy / "CURRENT").read_bytes()
    (copy / "CURRENT").unlink()
    (copy / "CURRENT").write_bytes(b"MANIFEST-000999\n")
    refused = ChangedDatabase(copy, 6)
    with pytest.raises(Corrupted), refused:
        pass
    (copy / "CURRENT").write_bytes(current)
    with ChangedDatabase(copy, 6) as opened:
        assert opened is not refused
