"""A MANIFEST that has lost its end is refused; a store that was only killed always opens."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from statecore.errors import Capacity, Corrupted, Invalid, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.manifest_guard import LOST_DIRECTORY, RECORD_FILE
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings
from tests.harness.case_selection import one_of
from tests.harness.directory import copy_of_open
from tests.harness.raising import raises
from tests.harness.syncing import synced_paths
from tests.unit.stores.rocksdb.test_store import sst

KIND = StoreKind.KEY_VALUE
CHANGELOG = TopicPartition("app-s-changelog", 0)


def lived(
    path: Path, *, create: bool = True, commits: int = 6, close: bool = True, merges: bool = True
) -> RocksDBStore:
    """A store after some commits, each followed by a flush; every commit sets all rows to its offset.

    A compaction that ends after the last flush lengthens the MANIFEST beyond what the record says.
    """
    store = RocksDBStore(path, KIND, create=create, settings=StoreSettings(automatic_compaction=merges))
    store.open()
    first = (store.committed_offset(CHANGELOG) or 0) + 1
    for number in range(first, first + commits):
        store.put_all((b"k%d" % key, b"%d" % number) for key in range(5))
        store.commit({CHANGELOG: number})
        store.flush()
    if close:
        store.close()
    return store


def manifest(path: Path) -> Path:
    return path / (path / "CURRENT").read_text().strip()


def contents(path: Path, *, read_only: bool = False) -> tuple[set[bytes | None], int | None]:
    with RocksDBStore(path, KIND, read_only=read_only) as store:
        return {value for _, value in store.all()}, store.committed_offset(CHANGELOG)


def copied(path: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return copy_of_open(path, to)


def check_lengths(whole: Path, tmp_path: Path, offset: int, lengths: range) -> int:
    refused = 0
    for length in lengths:
        path = copied(whole, tmp_path / "cut")
        os.truncate(manifest(path), length)
        for read_only in (True, False):
            try:
                found = contents(path, read_only=read_only)
            except Corrupted:
                refused += 1
            else:
                assert found == ({b"%d" % offset}, offset), length
    return refused


@pytest.mark.parametrize("closed", one_of([True, False]))
def test_a_truncated_manifest_is_refused(tmp_path: Path, closed: bool) -> None:
    store = lived(tmp_path / "db", close=closed)
    whole = copied(tmp_path / "db", tmp_path / "whole")
    store.close()
    size = manifest(whole).stat().st_size
    assert contents(copied(whole, tmp_path / "same")) == ({b"6"}, 6)
    assert check_lengths(whole, tmp_path, 6, range(0, size, 29)) >= 2 * (size // 29)


@pytest.mark.long
@pytest.mark.parametrize("closed", [True, False])
def test_a_manifest_truncated_anywhere_is_refused(tmp_path: Path, closed: bool) -> None:
    store = lived(tmp_path / "db", close=closed)
    whole = copied(tmp_path / "db", tmp_path / "whole")
    store.close()
    size = manifest(whole).stat().st_size
    assert check_lengths(whole, tmp_path, 6, range(size)) == 2 * size


def test_a_manifest_whose_end_was_emptied_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    lived(tmp_path / "db", merges=False)
    file = manifest(tmp_path / "db")
    size = file.stat().st_size
    os.truncate(file, read_manifest(file.read_bytes()[: size - 150]).valid_bytes)
    os.truncate(file, size)
    before = {found.name: found.read_bytes() for found in (tmp_path / "db").iterdir()}
    with raises(Corrupted, "database-damaged", store_path=str(tmp_path / "db")) as caught:
        RocksDBStore(tmp_path / "db", KIND).open()
    assert file.name in caught.value.what
    assert {found.name: found.read_bytes() for found in (tmp_path / "db").iterdir()} == before


def test_a_truncated_manifest_is_refused_without_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(tmp_path / "db")
    file = manifest(tmp_path / "db")
    os.truncate(file, file.stat().st_size - 150)

    def refused(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with raises(Corrupted, "database-damaged"):
        RocksDBStore(tmp_path / "db", KIND).open()


def test_without_a_record_the_log_decides(tmp_path: Path) -> None:
    store = lived(tmp_path / "db", close=False, merges=False)
    store.put(b"k0", b"7")
    store.commit({CHANGELOG: 7})
    path = copied(tmp_path / "db", tmp_path / "cut")
    store.close()
    (path / RECORD_FILE).unlink()
    os.truncate(manifest(path), manifest(path).stat().st_size - 150)
    with raises(Corrupted, "database-damaged"):
        RocksDBStore(path, KIND).open()


def test_a_record_of_an_earlier_manifest_refuses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lived(path)
    old = (path / RECORD_FILE).read_bytes()
    lived(path, create=False, commits=1)
    (path / RECORD_FILE).write_bytes(old.replace(b'"bytes": ', b'"bytes": 99'))  # as if others had written since
    assert contents(path) == ({b"7"}, 7)
    for said in (b"", b"{}", b"\0\0\0", b"[1]\n"):
        (path / RECORD_FILE).write_bytes(said)
        assert contents(path) == ({b"7"}, 7)


def test_no_bit_of_the_record_refuses_a_store_that_is_whole(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    lived(whole)
    record = (whole / RECORD_FILE).read_bytes()
    expected = contents(copied(whole, tmp_path / "copy"))
    for bit in range(record.index(b"bytes") * 8, record.index(b"rows_ahead") * 8):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        (whole / RECORD_FILE).write_bytes(flipped)
        assert contents(whole, read_only=True) == expected


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"manifest": "x", "bytes": 1e999, "rows_ahead": false}', b"\xff\n\n"]
)
def test_a_record_that_is_not_understood_refuses_nothing(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "db"
    lived(path)
    (path / RECORD_FILE).write_bytes(text)
    assert contents(path) == ({b"6"}, 6)


def test_a_record_of_another_database_refuses_nothing(tmp_path: Path) -> None:
    path, other = tmp_path / "db", tmp_path / "other"
    lived(path, commits=2)
    lived(other, commits=12)
    assert manifest(path).name == manifest(other).name
    shutil.copy(other / RECORD_FILE, path / RECORD_FILE)
    assert contents(path) == ({b"2"}, 2)


def test_the_record_of_an_opening_is_on_the_disk_before_a_commit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    lived(path)
    synced = synced_paths(monkeypatch)
    with RocksDBStore(path, KIND) as store:
        assert synced == [path / f"{RECORD_FILE}.tmp", path]
        store.flush()
        assert len(synced) == 2


def test_a_file_of_unknown_origin_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "db"
    lived(path)
    (path / "999998.sst").write_bytes(b"left by a kill in a flush")
    assert contents(path) == ({b"6"}, 6)
    assert not (path / LOST_DIRECTORY).exists(), "the record says that it is not missed"
    (path / RECORD_FILE).unlink()
    (path / "999999.sst").write_bytes(b"or a part of the store")
    with caplog.at_level(logging.WARNING), RocksDBStore(path, KIND) as store:
        assert not (path / "999999.sst").exists()
        assert (path / LOST_DIRECTORY / "999999.sst").read_bytes() == b"or a part of the store"
        assert store.committed_offset(CHANGELOG) == 6
    assert "999999.sst" in caplog.text
    assert not (path / LOST_DIRECTORY).exists(), "closed as Kafka Streams expects it"


@pytest.mark.parametrize(
    ("errno_", "kind"), [(errno.ENOSPC, Capacity), (errno.EACCES, Invalid), (errno.EIO, Retryable)]
)
def test_a_store_whose_files_cannot_be_kept_is_not_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno_: int, kind: type[StatecoreError]
) -> None:
    """Neither linked nor copied, as on a full file system without hard links; what was begun of a copy goes."""
    path = tmp_path / "db"
    lived(path)
    (path / RECORD_FILE).unlink()
    (path / "999999.sst").write_bytes(b"or a part of the store")
    before = {file.name for file in path.iterdir()}

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def fail(_: Path, target: Path) -> None:
        target.write_bytes(b"or a pa")
        raise OSError(errno_, os.strerror(errno_))

    with monkeypatch.context() as full:
        full.setattr(os, "link", no_link)
        full.setattr(shutil, "copyfile", fail)
        with pytest.raises(kind, match=f"entry in lost/ of {path} failed"):
            RocksDBStore(path, KIND).open()
        assert contents(path, read_only=True) == ({b"6"}, 6), "who reads deletes nothing"
    assert {file.name for file in path.iterdir()} == before | {LOST_DIRECTORY}
    with RocksDBStore(path, KIND):
        assert [file.read_bytes() for file in (path / LOST_DIRECTORY).iterdir()] == [b"or a part of the store"]


def test_a_kept_file_does_not_lose_its_place_to_another_of_its_number(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lived(path)
    (path / LOST_DIRECTORY).mkdir()
    for name in ("999997.sst", "999998.sst"):
        (path / LOST_DIRECTORY / name).write_bytes(b"kept before")
    (path / RECORD_FILE).unlink()
    (path / "999997.sst").write_bytes(b"kept before")
    (path / "999998.sst").write_bytes(b"another")
    with RocksDBStore(path, KIND):
        kept = {file.name: file.read_bytes() for file in (path / LOST_DIRECTORY).iterdir()}
    assert kept == {"999997.sst": b"kept before", "999998.sst": b"kept before", "999998-2.sst": b"another"}


def test_rows_without_status_and_offset_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "db"
    lived(path)
    (path / RECORD_FILE).unlink()
    cut = path
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    raw = Rdict(str(cut), options, column_families={"default": options, "offsets": options})
    raw.drop_column_family("offsets")
    raw.close()
    with caplog.at_level(logging.INFO), RocksDBStore(cut, KIND, upgrade=True):
        assert ("no status" in caplog.text, "no offset" in caplog.text) == (True, True)


def test_a_damaged_log_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = lived(tmp_path / "db", commits=1, close=False)
    for number in range(2, 12):
        store.put_all((b"k%d" % key, b"%d" % number) for key in range(5))
        store.commit({CHANGELOG: number})
    path = copied(tmp_path / "db", tmp_path / "damaged")
    store.close()
    (log,) = (file for file in path.glob("*.log") if file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        rows, offset = contents(path)
    assert rows == {b"%d" % (offset or 0)}
    assert 1 <= (offset or 0) < 11
    assert "is damaged" in caplog.text
    assert f"'{CHANGELOG}': {offset}" in caplog.text


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.stores.rocksdb.test_manifest_guard import CHANGELOG, lived
store = lived(Path(sys.argv[1]), create=sys.argv[2] == "create", close=False)
store.put(b"k0", b"more")
store.commit({CHANGELOG: 99})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_under_exactly_once_a_store_that_this_library_committed_to_last_is_whole_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "db"
    run = subprocess.run([sys.executable, "-c", KILLED, str(path), "create"], timeout=300, check=False)
    assert run.returncode == -signal.SIGKILL
    with RocksDBStore(path, KIND, exactly_once=True) as store:
        assert (store.get(b"k0"), store.committed_offset(CHANGELOG)) == (b"more", 99)


@pytest.mark.parametrize("damaged", [False, True])
def test_files_that_were_kept_stay_where_the_log_was_damaged_too(tmp_path: Path, damaged: bool) -> None:
    """They may have the rows that the log has lost: a kill in a flush leaves such a file."""
    store = lived(tmp_path / "db", close=False, merges=False)
    for number in range(7, 11):
        store.put_all((b"k%d" % key, b"%d" % number) for key in range(5))
        store.commit({CHANGELOG: number})
    killed = copied(tmp_path / "db", tmp_path / "killed")
    store.close()
    (killed / RECORD_FILE).unlink()
    sst(killed / "000099.sst", {b"k0": b"10"})
    (log,) = (file for file in killed.glob("*.log") if file.stat().st_size)
    if damaged:
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
    for _ in range(2):
        found, offset = contents(killed)
        assert found == {b"%d" % (offset or 0)}
        assert ((offset or 0) < 10) == damaged
        assert (killed / LOST_DIRECTORY / "000099.sst").exists() == damaged


@pytest.mark.parametrize("why", ["no record", "damaged record", "another's record", "others wrote", "ingested"])
def test_under_exactly_once_a_store_whose_rows_may_be_ahead_is_refused_with_the_reason(
    tmp_path: Path, why: str
) -> None:
    path = tmp_path / "db"
    store = lived(path, close=False, merges=False)
    if why == "ingested":
        store.ingest([sst(tmp_path / "run.sst", {b"k0": b"ahead"})])
    killed = copied(path, tmp_path / "killed")
    store.close()
    record = killed / RECORD_FILE
    if why == "no record":
        record.unlink()
    elif why == "damaged record":
        record.write_bytes(b"?" + record.read_bytes()[1:])
    elif why == "another's record":
        lived(tmp_path / "another")
        record.write_bytes((tmp_path / "another" / RECORD_FILE).read_bytes())
    elif why == "others wrote":
        names = Rdict.list_cf(str(killed), Options(raw_mode=True))
        database = Rdict(
            str(killed), Options(raw_mode=True), column_families={n: Options(raw_mode=True) for n in names}
        )
        database[b"others"] = b"1"
        database.close()
    with raises(Corrupted, "not-closed-cleanly") as raised:
        RocksDBStore(killed, KIND, exactly_once=True).open()
    assert (RECORD_FILE in raised.value.what) == (why not in ("others wrote", "ingested"))
    assert ("ingested" in raised.value.what) == (why == "ingested")
    with RocksDBStore(killed, KIND) as opened:
        assert opened.committed_offset(CHANGELOG) is not None, "at-least-once takes it"


def test_what_at_least_once_opens_stays_refused_under_exactly_once_until_it_is_closed(tmp_path: Path) -> None:
    """Its rows may be ahead of its offset, also after further commits."""
    store = lived(tmp_path / "db", close=False, merges=False)
    killed = copied(tmp_path / "db", tmp_path / "killed")
    store.close()
    (killed / RECORD_FILE).unlink()
    with RocksDBStore(killed, KIND) as opened:
        opened.put(b"k0", b"more")
        opened.commit({CHANGELOG: 100})
        opened.flush()
        again = copied(killed, tmp_path / "again")
    with raises(Corrupted, "not-closed-cleanly"):
        RocksDBStore(again, KIND, exactly_once=True).open()
    with RocksDBStore(killed, KIND, exactly_once=True) as closed:
        assert closed.committed_offset(CHANGELOG) == 100
