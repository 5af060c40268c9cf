"""A database that its application has open: what is read, and what happens when files go meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import rocksdict

from statecore.doctor.diagnosis import inspect
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.statedir.readonly_database import Database
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import open_through_links
from tests.harness.raising import raises
from tests.unit.doctor.stored import offsets, write_database

ROWS = [(b"%04d" % i, b"v" * i) for i in range(100)]


@pytest.fixture
def path(tmp_path):
    write_database(tmp_path / "db", {"default": ROWS, "offsets": offsets("t", 3, 9)})
    return tmp_path / "db"


def test_rows_chunks_counts_and_offsets_of_every_family(path):
    with Database(path) as database:
        assert database.families == {"default", "offsets"}
        assert list(database.rows("default")) == ROWS
        assert list(database.rows("default", b"0098")) == ROWS[98:]
        assert [key for keys, _ in database.chunks("default", b"0050") for key in keys] == [key for key, _ in ROWS[50:]]
        assert (database.count("default"), database.count("offsets"), database.count("absent")) == (100, 2, 0)
        assert list(database.rows("absent")) == list(database.chunks("absent")) == []
        assert {str(part): offset for part, offset in database.state.offsets.items()} == {"t-3": 9}
        assert database.state.status == 0


def test_what_was_flushed_is_read_while_a_writer_has_it_open(path):
    writer = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True), access_type=rocksdict.AccessType.read_write())
    try:
        writer[b"new"] = b"flushed"
        writer.flush()
        with Database(path) as database:
            assert database.count("default") == 101
            writer.compact_range(None, None)  # replaces the files below the open database
            assert database.count("default") == 101
    finally:
        writer.close()


def test_files_that_go_while_it_is_opened_are_tried_again(path):
    opened = []

    def open_there(where):
        opened.append(where)
        if len(opened) < 3:  # as when a compaction ends between listing and opening
            (where / "CURRENT").unlink()
            (path / f"{len(opened):06}.sst").touch()
        return OpenedFamilies(path, where)

    shadow, families = open_through_links(path, open_there)
    assert list(families.rows("default")) == ROWS
    families.close()
    shadow.cleanup()
    assert len(opened) == 3
    assert not any(where.exists() for where in opened)


def test_a_database_that_is_broken_and_quiet_is_not_tried_again(path):
    (path / "CURRENT").write_text("nothing\n")
    opened = []

    def open_there(where):
        opened.append(where)
        return OpenedFamilies(path, where)

    with raises(Corrupted, "database-damaged"):
        open_through_links(path, open_there)
    assert len(opened) == 1


def test_a_broken_block_is_an_error_and_not_the_end_of_the_rows(path):
    file = max(path.glob("*.sst"), key=_size)
    data = bytearray(file.read_bytes())
    data[10] ^= 0xFF
    file.write_bytes(data)
    with Database(path) as database, pytest.raises(Corrupted, match=r"Reading .*/db failed"):
        database.count("default")


def _size(file):
    return file.stat().st_size


def test_a_segment_that_expires_during_the_inspection_is_skipped(tmp_path, monkeypatch):
    for start in (600_000, 900_000):
        rows = [(b"k" + (start + 1).to_bytes(8) + bytes(4), bytes(8) + b"v")]
        families = {"default": [], "keyValueWithTimestamp": rows, "offsets": offsets("app-s-changelog", 0, 1)}
        write_database(tmp_path / f"app/0_0/s/s.{start}", families)
    symlink = os.symlink

    def expired_first(file, link, *options):
        if Path(file).parent.name == "s.600000":
            shutil.rmtree(Path(file).parent, ignore_errors=True)
        symlink(file, link, *options)

    monkeypatch.setattr(os, "symlink", expired_first)
    with raises(NotFound, "database-not-found"), Database(tmp_path / "app/0_0/s/s.600000"):
        pass
    write_database(tmp_path / "app/0_0/s/s.600000", {"default": [], "keyValueWithTimestamp": [], "offsets": []})
    (store,) = inspect(StateDirectory(tmp_path, "app")).stores
    assert (str(store.kind), [one.name for one in store.databases]) == ("timestamped-window", ["s.900000"])
    assert store.problems == ()


def test_a_column_family_that_is_made_while_it_is_opened_is_tried_again(path):
    tries = []

    def open_there(where):
        tries.append(where)
        if len(tries) == 1:  # the MANIFEST grows; no file comes or goes
            with next(path.glob("MANIFEST*")).open("ab") as manifest:
                manifest.write(b"x")
            raise Invalid("Column families not opened: offsets", code="test-error", action="Look again.")
        return "opened"

    shadow, opened = open_through_links(path, open_there)
    shadow.cleanup()
    assert (opened, len(tries)) == ("opened", 2)
