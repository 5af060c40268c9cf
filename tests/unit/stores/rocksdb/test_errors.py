"""Damage is called damage, and nothing else is: who obeys the message wipes a store."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from statecore.error_codes import ERROR_CODES
from statecore.errors import (
    NOT_READABLE_HERE,
    Capacity,
    Corrupted,
    Fenced,
    Invalid,
    NotFound,
    Retryable,
    StatecoreError,
    is_not_readable_here,
)
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from tests.harness.raising import raises
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN, ROWS, TIMESTAMPED, fresh

SAID: list[tuple[str, type[StatecoreError]]] = [
    ("Corruption: block checksum mismatch: stored(context removed) = 1, computed = 2 in 000009.sst", Corrupted),
    ("Corruption: CURRENT file corrupted", Corrupted),
    ("Corruption: Corruption: IO error: No such file or directory: While open a file for random read: 000009.sst: No "
     "such file or directory  The file MANIFEST-000005 may be corrupted.", Corrupted),
    ("IO error: No such file or directory: While opening a file for sequentially reading: MANIFEST-000005: No such "
     "file or directory", Corrupted),
    ("Corruption: IO error: Too many open files: While open a file for random read: 000009.sst", Capacity),
    ("IO error: No space left on device: While appending to file: 000009.log", Capacity),
    ("IO error: While lock file: /db/LOCK: Resource temporarily unavailable", Fenced),
    ("IO error: lock hold by current process, acquire time 1 acquiring thread 2: /db/LOCK: No locks available", Fenced),
    ("IO error: Input/output error: While pread offset 0 len 4096: 000009.sst", Retryable),
    ("IO error: Stale file handle: While fstat: 000009.sst", Retryable),
    ("IO error: No such file or directory: While opening a file for sequentially reading: CURRENT", Retryable),
    ("IO error: something that nobody has seen before", Retryable),
    ("Result incomplete: Write stall", Retryable),
    ("Operation aborted: Column family dropped", Retryable),
    ("Shutdown in progress", Retryable),
    ("Operation timed out", Retryable),
    ("Resource busy: ", Retryable),
    ("", Retryable),
    ("called `Option::unwrap()` on a `None` value", Retryable),
    ("Invalid argument: rocksdict: does not match existing comparator leveldb.BytewiseComparator", Invalid),
    ("Invalid argument: Column family not found", Invalid),
    ("Not implemented: not supported operation in read only mode.", Invalid),
    ("IO error: File name too long: While mkdir", Invalid),
    ("IO error: Read-only file system: While mkdir", Invalid),
]  # fmt: skip


LACKING = [
    "Corruption: Corrupted compressed block contents: Zlib  The file MANIFEST-000022 may be corrupted.",
    "Corruption: Corrupted compressed block contents: Xpress",
    "Corruption: Unable to uncompress blob",
    "Not implemented: Unsupported compression method for this build: Zlib",
    "Corruption: Bad table magic number: expected 9863518390377041911, found 9386102602707473764 in 000010.sst",
    "Invalid argument: leveldb.BytewiseComparator: does not match existing comparator rocksdb.java.IntComparator",
    "Invalid argument: merge_operator is not properly initialized.",
    "Invalid argument: db has more levels than options.num_levels",
]


@pytest.mark.parametrize("said", ["IO error: While lock file: busy\n", "Corruption: bad block.\n"])
def test_a_message_that_ends_a_line_is_one_line(tmp_path: Path, said: str) -> None:
    error = translate(tmp_path, "Opening", Exception(said))
    assert error.what == f"Opening {tmp_path} failed: {said.strip().rstrip('.')}."


@pytest.mark.parametrize("said", LACKING)
def test_what_this_build_of_rocksdb_lacks_is_no_damage(tmp_path: Path, said: str) -> None:
    error = translate(tmp_path, "Opening", Exception(said))
    assert (type(error), error.code) == (Invalid, NOT_READABLE_HERE)
    assert is_not_readable_here(pickle.loads(pickle.dumps(error)))
    assert "may be corrupted" not in error.what


@pytest.mark.parametrize(
    "said",
    [
        "Corruption: block checksum mismatch: stored(context removed) = 1, computed = 2, type = 4  in 000010.sst",
        "Corruption: Corrupted compressed block contents: LZ4",
        "Corruption: Bad table magic number: expected 9863518390377041911, found 9863518390377041910 in 000010.sst",
    ],
)
def test_damage_of_what_it_has_is_damage(tmp_path: Path, said: str) -> None:
    error = translate(tmp_path, "Opening", Exception(said))
    assert (type(error), error.code) == (Corrupted, "database-damaged")
    assert not is_not_readable_here(error)


@pytest.mark.parametrize(("said", "kind"), SAID)
def test_only_what_is_understood_as_damage_is_corrupted(tmp_path: Path, said: str, kind: type[StatecoreError]) -> None:
    error = translate(tmp_path, "Opening", Exception(said))
    assert type(error) is kind
    assert ERROR_CODES[error.code][0] is kind
    assert str(tmp_path) in error.what
    assert said.partition("  The file")[0] in error.what
    assert error.action
    assert ("Rebuild" in error.action) == (kind is Corrupted)
    gone = translate(tmp_path / "gone", "Opening", Exception(said))
    assert (type(gone) is NotFound) == ("No such file" in said)


def test_only_a_damaged_manifest_is_named_as_such(tmp_path: Path) -> None:
    blamed = "  The file MANIFEST-000005 may be corrupted."
    cut = "Corruption: file is too short (5 bytes) to be an sstable: 000009.sst"
    manifest = "Corruption: no log_file_number entry in MANIFEST"
    assert "MANIFEST-000005" not in translate(tmp_path, "Opening", Exception(cut + blamed)).what
    assert "MANIFEST-000005" in translate(tmp_path, "Opening", Exception(manifest + blamed)).what


def test_a_file_found_at_the_second_check_is_not_missing(tmp_path: Path) -> None:
    said = "IO error: No such file or directory: While open a file for random read: /links/000009.sst: No such file"
    assert type(translate(tmp_path, "Opening", Exception(said))) is Corrupted
    (tmp_path / "000009.sst").touch()
    assert type(translate(tmp_path, "Opening", Exception(said))) is Retryable


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo])
def test_what_stands_in_the_place_of_a_file_is_no_such_file(tmp_path: Path, put: Callable[[Path], object]) -> None:
    put(tmp_path / "000009.sst")
    said = "IO error: No such file or directory: While open a file for random read: /links/000009.sst: No such file"
    assert type(translate(tmp_path, "Opening", Exception(said))) is Corrupted


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["MANIFEST-*", "*.sst"])
def test_a_file_that_the_database_cannot_do_without_is_damage(tmp_path: Path, name: str, read_only: bool) -> None:
    path = fresh(tmp_path / "db")
    for file in path.glob(name):
        file.unlink()
    before = {file.name for file in path.iterdir()}
    with raises(Corrupted, "database-damaged"):
        RocksDBStore(path, PLAIN, read_only=read_only).open()
    assert before - {"LOCK"} <= {file.name for file in path.iterdir()}


@pytest.mark.parametrize("way", ["create", "create_if_missing", "read_only", "open"])
@pytest.mark.parametrize("name", ["n" * 300, "/".join(["n" * 200] * 30)], ids=["name", "path"])
def test_a_name_that_is_too_long_is_invalid(tmp_path: Path, way: str, name: str) -> None:
    ways = {} if way == "open" else {way: True}
    with pytest.raises(Invalid, match="File name too long"):
        RocksDBStore(tmp_path / name, PLAIN, **ways).open()
    if way != "create":
        assert not list(tmp_path.iterdir())


def test_a_path_that_is_not_utf_8_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"db-\xff")
    path.mkdir()
    for ways in ({}, {"read_only": True}, {"create": True}):
        with pytest.raises(Invalid, match="UTF-8") as raised:
            RocksDBStore(path, PLAIN, **ways)
        assert str(raised.value).encode()
    assert not list(path.iterdir())


@pytest.mark.parametrize("made", [True, False])
def test_a_directory_that_was_deleted_below_an_open_store_is_not_found(tmp_path: Path, made: bool) -> None:
    path = tmp_path / "db"
    if not made:
        fresh(path)
    store = RocksDBStore(path, PLAIN, create_if_missing=True, settings=StoreSettings(Durability.PROCESS))
    store.open()
    store.put(b"a", b"b")
    store.commit({CHANGELOG: 8})
    shutil.rmtree(path)
    store.put(b"a", b"c")
    calls: list[Callable[[], object]] = [store.flush, store.close]
    for call in calls:
        with pytest.raises(NotFound, match="No such file"):
            call()
    assert not store.is_open
    assert not path.exists()
    with pytest.raises(NotFound):
        RocksDBStore(path, PLAIN).open()
    fresh(path)


def test_links_in_a_circle_are_invalid(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for ways in ({}, {"read_only": True}, {"create": True}, {"create_if_missing": True}):
        with pytest.raises((Invalid, NotFound)):
            RocksDBStore(tmp_path / "a", PLAIN, **ways).open()


def opened_to_be_read(path: Path) -> int:
    with RocksDBStore(path, TIMESTAMPED, read_only=True) as reader:
        count = int(reader.get(b"count") or 0)
        assert (reader.committed_offset(CHANGELOG) or 0) == count
        assert reader.verify() in (0, 101)
        return count


@pytest.mark.parametrize("least", [pytest.param(1, marks=pytest.mark.full), pytest.param(100, marks=pytest.mark.long)])
def test_a_store_is_read_beside_its_writer(tmp_path: Path, least: int) -> None:
    """Files come and go all the time: every commit is flushed, and the store close and reopen now and then."""
    path = tmp_path / "db"
    settings = StoreSettings(Durability.PROCESS)
    begun, end = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not end.is_set():
            with RocksDBStore(path, TIMESTAMPED, create_if_missing=True, settings=settings) as store:
                for _ in range(20):
                    number += 1
                    store.put_all((b"%03d" % key, b"%d" % number) for key in range(100))
                    store.put(b"count", b"%d" % number)
                    store.commit({CHANGELOG: number})
                    store.flush()
                    begun.set()
                    end.wait(0.005)  # what a disk takes: in memory a writer without a pause overtakes every reader
                store.compact()

    writer = threading.Thread(target=write)
    writer.start()
    counts = [0]
    try:
        assert begun.wait(300)
        for attempt in range(1000):
            if attempt >= least and len(counts) > 20 and len(set(counts)) > 10:
                break
            with suppress(Fenced):
                counts.append(opened_to_be_read(path))
    finally:
        end.set()
        writer.join()
    assert counts == sorted(counts)
    assert len(counts) > 20
    assert len(set(counts)) > 10


def test_what_was_opened_to_be_read_stays_readable_when_its_writer_removes_the_files(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db", {b"%05d" % number: b"v" * 100 for number in range(5000)})
    with RocksDBStore(path, PLAIN) as writer, RocksDBStore(path, PLAIN, read_only=True) as reader:
        writer.put_all((b"%05d" % number, b"w" * 100) for number in range(5000))
        writer.commit({CHANGELOG: 8})
        writer.flush()
        old = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
        writer.compact()
        assert not old.exists()
        assert {value[:1] for _, value in reader.all()} == {b"v"}
        assert reader.committed_offset(CHANGELOG) == 7
        assert len(reader.get_many([b"%05d" % number for number in range(5000)])) == 5000


def test_damage_beside_a_writer_is_the_writer_s_to_find(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN) as writer:
        (current,) = path.glob("CURRENT")
        whole = current.read_bytes()
        current.write_bytes(b"nonsense")
        with pytest.raises(Fenced, match="this process"):
            RocksDBStore(path, PLAIN, read_only=True).open()
        current.write_bytes(whole)
        writer.commit({CHANGELOG: 8})
    current.write_bytes(b"nonsense")
    with pytest.raises(Corrupted):
        RocksDBStore(path, PLAIN, read_only=True).open()


def test_a_temporary_directory_that_cannot_be_used_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fresh(tmp_path / "db")
    (tmp_path / "file").touch()
    (tmp_path / "fallback").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "fallback"))
    for cached in (str(tmp_path / "gone"), str(tmp_path / "file")):
        monkeypatch.setattr(tempfile, "tempdir", cached)
        with RocksDBStore(path, PLAIN, read_only=True) as store:
            assert dict(store.all()) == ROWS
            assert list((tmp_path / "fallback").iterdir())
        assert not list((tmp_path / "fallback").iterdir())


def test_a_missing_temporary_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh(tmp_path / "db")

    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with raises(Invalid, "temporary-directory-missing"):
        RocksDBStore(path, PLAIN, read_only=True).open()
