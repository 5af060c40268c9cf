"""Files of a database: they are merged as they come, and a process may open few of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb import file_limits
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability, StoreSettings
from tests.unit.stores.rocksdb.test_store import sst

PLAIN = StoreKind.KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
PREAMBLE = """
import os, resource, signal, sys, time
from dataclasses import replace
from pathlib import Path
from statecore.errors import Capacity
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability, StoreSettings

PLAIN, CHANGELOG = StoreKind.KEY_VALUE, TopicPartition("app-store-changelog", 0)
QUICK = StoreSettings(Durability.PROCESS)
path = Path(sys.argv[1])

def limit(what, soft):
    resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))

def flushes(store, numbers):
    for number in numbers:
        store.put(b"key-%03d" % (number % 50), b"%d" % number)
        store.put(b"once-%05d" % number, os.urandom(20))
        store.commit({CHANGELOG: number})
        store.flush()

def check(store, count):
    assert store.committed_offset(CHANGELOG) == count - 1
    expected = {b"key-%03d" % (number % 50): b"%d" % number for number in range(count)}
    rows = dict(store.all())
    assert len(rows) == count + len(expected)
    assert {key: rows[key] for key in expected} == expected
"""


def _run(script: str, *arguments: str | Path, timeout: float = 300) -> str:
    command = [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _files(path: Path) -> dict[str, tuple[int, int]]:
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in path.glob("*.sst")}


LONG_LIVED = """
limit(resource.RLIMIT_NOFILE, 1024)
with RocksDBStore(path, PLAIN, create=True, settings=QUICK) as store:
    flushes(store, range(1300))
    check(store, 1300)
with RocksDBStore(path, PLAIN, settings=QUICK) as store:
    check(store, 1300)
    flushes(store, range(1300, 1310))
    check(store, 1310)
print(len(list(path.glob("*.sst"))))
"""


@pytest.mark.full
def test_a_store_with_default_settings_is_flushed_more_often_than_files_may_be_open(tmp_path: Path) -> None:
    assert int(_run(LONG_LIVED, tmp_path / "db")) < 40


MANY_FILES = """
settings = replace(KEEP_FILES, durability=Durability.PROCESS)
with RocksDBStore(path, PLAIN, create=True, settings=settings) as store:
    flushes(store, range(1500))
assert len(list(path.glob("*.sst"))) > 1500
limit(resource.RLIMIT_NOFILE, 1024)
with RocksDBStore(path, PLAIN, settings=settings) as store:   # whoever must keep the files can look up and commit
    assert store.get(b"key-007") == b"1457"
    flushes(store, [1500])
assert len(list(path.glob("*.sst"))) > 1500
with RocksDBStore(path, PLAIN, settings=QUICK) as store:
    check(store, 1501)
    flushes(store, range(1501, 1510))
    check(store, 1510)
with RocksDBStore(path, PLAIN, read_only=True) as store:
    check(store, 1510)
print(len(list(path.glob("*.sst"))))
"""


@pytest.mark.full
def test_a_store_with_more_files_than_may_be_open_is_opened_and_merged(tmp_path: Path) -> None:
    assert int(_run(MANY_FILES, tmp_path / "db")) < 40


TOO_MANY_STORES = """
limit(resource.RLIMIT_NOFILE, 256)
stores = []
try:
    for number in range(100):
        store = RocksDBStore(path / str(number), PLAIN, create=True, settings=QUICK)
        store.open()
        stores.append(store)
except Capacity as error:
    refused, text = store, str(error)
assert 20 <= len(stores) < 40, len(stores)
assert "ulimit -n; it is 256" in text and "a store takes up to 9 descriptors" in text, text
for number, store in enumerate(stores):                          # the others are none the worse
    store.put(b"a", b"%d" % number)
    store.commit({CHANGELOG: number})
for store in stores[:4]:
    try:
        store.close()
    except Capacity:                                             # no descriptor for a file: its rows are in the log
        assert not store.is_open
refused = RocksDBStore(refused._path, PLAIN, create_if_missing=True)  # what it had begun to make is finished
with refused:
    refused.put(b"a", b"b")
    refused.commit({CHANGELOG: 1})
with RocksDBStore(path / "0", PLAIN, settings=QUICK) as first:
    assert (first.get(b"a"), first.committed_offset(CHANGELOG)) == (b"0", 0)
for number, store in enumerate(stores[4:], 4):
    assert (store.get(b"a"), store.committed_offset(CHANGELOG)) == (b"%d" % number, number)
    store.close()
"""


def test_a_store_too_many_for_the_limit_of_files_is_refused_and_harms_no_other(tmp_path: Path) -> None:
    _run(TOO_MANY_STORES, tmp_path)


DESCRIPTORS = """
before = len(os.listdir("/proc/self/fd"))
stores = [RocksDBStore(path / str(number), StoreKind(sys.argv[2]), create=True, settings=QUICK) for number in range(10)]
for store in stores:
    store.open()
print((len(os.listdir("/proc/self/fd")) - before) / len(stores))
"""


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
def test_an_open_store_takes_as_many_descriptors_as_the_message_says(tmp_path: Path, kind: StoreKind) -> None:
    assert (
        file_limits.FIXED_DESCRIPTORS - 1
        <= float(_run(DESCRIPTORS, tmp_path, kind.value))
        <= file_limits.FIXED_DESCRIPTORS
    )


@pytest.mark.parametrize(("limit", "files"), [(256, 20), (1024, 64), (20_000, 1250), (1 << 20, -1), (-1, -1)])
def test_files_that_a_store_keeps_open_are_a_share_of_what_the_process_may_open(
    monkeypatch: pytest.MonkeyPatch, limit: int, files: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (limit, limit))
    assert file_limits.max_open_files() == files


def test_overlapping_runs_are_merged_in_the_order_in_which_they_were_ingested(tmp_path: Path) -> None:
    expected: dict[bytes, bytes | None] = {}
    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        for number in range(60):
            rows: dict[bytes, bytes | None] = {
                b"k%03d" % key: b"%d" % number for key in range(number % 7, 100, 1 + number % 5)
            }
            names = store.ingest([sst(tmp_path / f"{number}.sst", rows)])
            assert len(names) <= 1
            expected |= rows
            late = b"k%03d" % (number % 100)
            store.put(late, b"put-%d" % number)
            store.delete(b"k%03d" % (99 - number))
            expected[late] = b"put-%d" % number
            expected.pop(b"k%03d" % (99 - number), None)
            store.commit({CHANGELOG: number})
        assert dict(store.all()) == expected
    with RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True) as store:
        assert dict(store.all()) == expected
    assert len(list((tmp_path / "db").glob("*.sst"))) < 40


NO_ROOM_TO_MERGE = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with RocksDBStore(path, PLAIN, create=True, settings=replace(KEEP_FILES, durability=Durability.PROCESS)) as store:
    for number in range(30):
        store.put_all((b"%02d-%03d" % (number, key), os.urandom(1000)) for key in range(100))
        store.commit({CHANGELOG: number})
        store.flush()
limit(resource.RLIMIT_FSIZE, 500_000)     # each file was smaller, what is merged of them is not
store = RocksDBStore(path, PLAIN, settings=QUICK)
failed = None
try:
    store.open()
    for number in range(30, 300):
        store.put(b"more", b"%d" % number)
        store.commit({CHANGELOG: number})
        time.sleep(0.01)
except Capacity as error:
    failed = error
assert failed is not None and "close and reopen" in str(failed), failed
if store.is_open:
    done = store.committed_offset(CHANGELOG)
    try:
        store.close()
    except Capacity:
        pass
else:
    done = 29
limit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
with RocksDBStore(path, PLAIN, settings=QUICK) as store:
    assert store.committed_offset(CHANGELOG) == done
    assert store.get(b"more") == (b"%d" % done if done > 29 else None)
    assert sum(1 for _ in store.all()) == 3000 + (done > 29)
"""


def test_a_commit_reports_a_lack_of_space_for_merges_and_loses_nothing(tmp_path: Path) -> None:
    _run(NO_ROOM_TO_MERGE, tmp_path / "db")


KILLED = """
with RocksDBStore(path, PLAIN, create_if_missing=True, settings=QUICK) as store:
    done = store.committed_offset(CHANGELOG)
    number = 0 if done is None else done + 1
    check(store, number) if number else None
    print(number, flush=True)
    flushes(store, [number])
    print("committed", flush=True)
    while True:
        number += 1
        flushes(store, [number])
"""


def test_a_store_killed_while_files_are_merged_stands_at_its_last_commit(tmp_path: Path) -> None:
    reached = []
    for turn in range(4):
        command = [sys.executable, "-c", PREAMBLE + KILLED, str(tmp_path / "db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert process.stdout.readline() == "committed\n", process.stderr.read()
            try:
                process.wait(0.3 + 0.17 * turn)
            except subprocess.TimeoutExpired:
                process.kill()
            reached.append(int(line))
    assert reached == sorted(set(reached))
    with RocksDBStore(tmp_path / "db", PLAIN, exactly_once=False) as store:
        count = (store.committed_offset(CHANGELOG) or 0) + 1
        assert count > reached[-1]
        assert sum(1 for _ in store.all()) == count + min(count, 50)


@pytest.mark.parametrize("settings", [StoreSettings(Durability.PROCESS), KEEP_FILES])
def test_files_are_merged_unless_they_are_to_be_kept(tmp_path: Path, settings: StoreSettings) -> None:
    with RocksDBStore(tmp_path / "db", PLAIN, create=True, settings=KEEP_FILES) as store:
        for number in range(50):
            store.put(b"%d" % number, b"a")
            store.commit({CHANGELOG: number})
            store.flush()
    data = {name for name, _ in sorted(_files(tmp_path / "db").items())}
    with RocksDBStore(tmp_path / "db", PLAIN, settings=settings) as store:
        store.commit({CHANGELOG: 50})
        assert sum(1 for _ in store.all()) == 50
    kept = len(data & _files(tmp_path / "db").keys())
    assert kept >= 50 if settings is KEEP_FILES else kept < 40


@pytest.mark.parametrize(("files", "threads"), [(0, 1), (3, 1), (8, 2), (1000, 16)])
def test_a_database_is_opened_by_as_many_threads_as_its_files_are_worth(
    tmp_path: Path, files: int, threads: int
) -> None:
    for number in range(files):
        (tmp_path / f"{number:06d}.sst").touch()
    (tmp_path / "CURRENT").touch()
    assert file_limits.opening_threads(tmp_path) == threads
