"""A database at one moment: rows and offset agree whatever a writer does meanwhile, and nothing of it changes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from statecore.errors import Fenced, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.checkpoint import named_files, take_checkpoint
from statecore.stores.rocksdb.files import parse_manifest
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises

CHANGELOG = TopicPartition("t", 0)
KIND = StoreKind.KEY_VALUE
FAMILIES = ("default", "offsets")

KEYS = 2_000
WRITER = """
import sys, time
from rocksdict import Options, Rdict, WriteBatch, WriteOptions
options = Options(raw_mode=True)
options.create_if_missing(True)
options.create_missing_column_families(True)
options.set_atomic_flush(True)
options.set_write_buffer_size(64 << 10)
families = {name: options for name in ("default", "offsets")}
database = Rdict(sys.argv[1], options, column_families=families)
handles = [database.get_column_family_handle(name) for name in families]
without_log = WriteOptions()
without_log.disable_wal = True
number = 0
while True:
    if number == 2000:  # some have been flushed
        print("open", flush=True)
    batch = WriteBatch(raw_mode=True)
    batch.put(b"key-%08d" % (number % int(sys.argv[2])), number.to_bytes(8) + bytes(192), handles[0])
    batch.put(b"t-0", number.to_bytes(8), handles[1])
    batch.put(b"status", (1).to_bytes(8), handles[1])
    database.write(batch, without_log)
    number += 1
    if number % 20 == 0:
        time.sleep(0.005)
"""
"""Writes as Kafka Streams does: without a log, all families flushed at once; with small memtables, ten times a second.

At full speed it flushes faster than a busy machine takes a checkpoint.
"""


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """A database that another process writes to all the time."""
    path = tmp_path / "db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(KEYS)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        yield path
        writer.kill()


def closed(path: Path, rows: int = 20) -> Path:
    with RocksDBStore(path, KIND, create_if_missing=True) as store:
        for number in range(rows):
            store.put(b"key-%d" % number, b"value")
        store.commit({CHANGELOG: rows})
    return path


def test_rows_and_offset_are_consistent_during_writes(written: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    deadline = time.monotonic() + 600
    for number in itertools.count():
        if number >= 25 and (len(set(seen)) > 5 or time.monotonic() > deadline):
            break
        moment = take_checkpoint(written, tmp_path / f"copy-{number}")
        if moment.is_empty:
            continue
        with RocksDBStore(moment.path, KIND, read_only=True) as store:
            numbers = sorted(int.from_bytes(value[:8]) for _, value in store.all())
            offset = store.committed_offset(CHANGELOG)
        assert offset is not None
        assert numbers == list(range(max(0, offset + 1 - KEYS), offset + 1))
        seen.append(offset)
        shutil.rmtree(moment.path)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5, "the writer had flushed meanwhile"


def test_files_have_second_names_and_the_database_stays_as_it_was(tmp_path: Path) -> None:
    path = closed(tmp_path / "db")
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()}
    moment = take_checkpoint(path, tmp_path / "copy")
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()} == before
    assert moment.data_files
    for file in moment.data_files:
        assert file.samefile(path / file.name)
    assert (moment.is_empty, moment.logs) == (False, False)
    assert moment.created_at is not None
    assert moment.flushed_at is not None
    assert moment.created_at <= moment.flushed_at
    names = {file.name for file in named_files(moment.path)}
    assert names == {file.name for file in moment.path.iterdir()}
    assert not names & {"LOCK", "LOG", "statecore-witness", "rocksdict-config.json"}
    assert sum(name.startswith("OPTIONS") for name in names) == 1


def test_rows_in_a_log_are_taken_along(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with RocksDBStore(path, KIND, create=True) as store:
        store.put(b"k", b"v")
        store.commit({CHANGELOG: 3})
        moment = take_checkpoint(path, tmp_path / "copy")
    assert moment.logs
    assert not moment.is_empty
    with RocksDBStore(tmp_path / "copy", KIND, read_only=True) as copy:
        assert (dict(copy.all()), copy.committed_offset(CHANGELOG)) == ({b"k": b"v"}, 3)
    assert any(file.suffix == ".log" for file in named_files(moment.path))


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with raises(NotFound, "database-not-found"):
        take_checkpoint(tmp_path / "db", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_file_that_stays_away_is_no_moment(tmp_path: Path) -> None:
    path, pauses = closed(tmp_path / "db"), list[float]()
    next(path.glob("*.sst")).unlink()
    with raises(Fenced, "store-open"):
        take_checkpoint(path, tmp_path / "copy", sleep=pauses.append)
    assert pauses == sorted(pauses)
    assert max(pauses) == 0.5
    assert sum(pauses) > 15, "who writes for some seconds is waited for"
    assert not (tmp_path / "copy").exists()


def test_an_unknown_manifest_is_refused(tmp_path: Path) -> None:
    path = closed(tmp_path / "db")
    manifest = path / (path / "CURRENT").read_text().strip()
    content = bytearray(manifest.read_bytes())
    content[6] = 99  # the type of the first fragment
    manifest.write_bytes(content)
    with raises(Invalid, "manifest-unsupported"):
        take_checkpoint(path, tmp_path / "copy")


def test_half_a_group_of_edits_is_no_moment(tmp_path: Path) -> None:
    """The families of a database are flushed by a group; its files are there before its last edit is."""
    path, options, without_log = tmp_path / "db", Options(raw_mode=True), WriteOptions()
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_write_buffer_size(64 << 10)
    without_log.disable_wal = True
    database = Rdict(str(path), options, column_families=dict.fromkeys(FAMILIES, options))
    for number in range(2000):  # several memtables
        batch = WriteBatch(raw_mode=True)
        for name in FAMILIES:
            batch.put(b"%04d" % number, bytes(500), database.get_column_family_handle(name))
        database.write(batch, without_log)
    database.close()
    manifest = path / (path / "CURRENT").read_text().strip()
    whole = manifest.read_bytes()
    half = next(end for end in range(len(whole)) if parse_manifest(path, whole[:end]).missing_edits)
    manifest.write_bytes(whole[:half])
    sizes = iter((half, len(whole)))

    def meanwhile(_: float) -> None:
        manifest.write_bytes(whole[: next(sizes)])

    moment = take_checkpoint(path, tmp_path / "copy", sleep=meanwhile)
    assert next(sizes, None) is None
    assert moment.manifest == parse_manifest(path, whole)


def test_a_file_that_may_not_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = closed(tmp_path / "db")

    def refuse(*_: object) -> None:
        raise OSError(1, os.strerror(1))

    monkeypatch.setattr(os, "link", refuse)
    moment = take_checkpoint(path, tmp_path / "copy")
    for file in moment.data_files:
        assert not file.samefile(path / file.name)
        assert file.read_bytes() == (path / file.name).read_bytes()


def test_a_manifest_says_how_much_of_a_group_is_to_come(written: Path, tmp_path: Path) -> None:
    moment = take_checkpoint(written, tmp_path / "first")
    for number in range(500):
        if len(moment.manifest.files) > 3:
            break
        moment = take_checkpoint(written, tmp_path / f"copy-{number}")
    content = next(moment.path.glob("MANIFEST-*")).read_bytes()
    ends = {parse_manifest(written, content[:size]).valid_bytes for size in range(len(content) + 1)} - {0}
    left = [parse_manifest(written, content[:end]).missing_edits for end in sorted(ends)]
    assert 1 in left, "two families are flushed by a group of two"
    assert left[-1] == 0


def test_another_database_in_its_place_is_not_mixed_with_what_was_named_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = closed(tmp_path / "db", 20), os.link

    def replaced_first(source: str, target: Path) -> None:
        link(source, target)
        monkeypatch.undo()
        shutil.rmtree(path)
        closed(path, 7)

    monkeypatch.setattr(os, "link", replaced_first)
    moment = take_checkpoint(path, tmp_path / "copy")
    with RocksDBStore(moment.path, KIND, read_only=True) as store:
        assert (sum(1 for _ in store.all()), store.committed_offset(CHANGELOG)) == (7, 7)


def test_a_log_of_an_earlier_attempt_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = closed(tmp_path / "db")
    log = path / "000999.log"
    log.write_bytes(b"rows that are in a file by now")
    copied = shutil.copyfile

    def copy(source: Path, target: Path) -> Any:
        found = copied(source, target)
        if Path(source) == log and log.exists():
            log.write_bytes(b"")  # flushed meanwhile: the attempt is given up
        return found

    monkeypatch.setattr(shutil, "copyfile", copy)
    moment = take_checkpoint(path, tmp_path / "copy")
    assert not moment.logs
    assert not list(moment.path.glob("*.log"))
