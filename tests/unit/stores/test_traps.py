"""What RocksDB and rocksdict do unless a store prevents it: fork, sync, handles, single families."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings
from tests.harness.syncing import synced_paths

PLAIN = StoreKind.KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)

FORKING = """
import os, signal, sys
from pathlib import Path
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore

CHANGELOG = TopicPartition("app-store-changelog", 0)
signal.alarm(240)                     # a child that hangs is killed, and so is its parent
path = Path(sys.argv[1])
store = RocksDBStore(path, StoreKind.KEY_VALUE, create=True)
store.open()
store.put(b"a", b"parent")
store.commit({CHANGELOG: 1})
store.put(b"b", b"parent")
views = [store.query_view(), store.all(), store.scan_lists()]
other = path.with_name("other")
with RocksDBStore(other, StoreKind.KEY_VALUE, create=True) as writer:
    writer.put(b"c", b"d")
    writer.commit({CHANGELOG: 1})
reader = RocksDBStore(other, StoreKind.KEY_VALUE, read_only=True)
reader.open()
next(views[1])
child = os.fork()
if child == 0:
    signal.alarm(120)
    assert not store.is_open
    for refused in (lambda: store.put(b"a", b"child"), lambda: store.get(b"a"), lambda: store.commit({CHANGELOG: 9}),
                    views[0].all, lambda: views[0].position, store.query_view, store.open,
                    RocksDBStore(path.with_name("of-child"), StoreKind.KEY_VALUE, create=True).open):
        try:
            refused()
        except Invalid:
            pass
        else:
            os._exit(2)
    store.close()
    reader.close()
    del views, store, reader, refused
    sys.exit(0)                       # an ordinary end, with every destructor
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert not path.with_name("of-child").exists()
assert Path(reader._opened._shadow.name).is_dir()
assert reader.get(b"c") == b"d"
reader.close()
assert list(views[1]) == [(b"b", b"parent")]
store.commit({CHANGELOG: 2})
del views
store.close()
with RocksDBStore(path, StoreKind.KEY_VALUE, exactly_once=True) as store:
    assert dict(store.all()) == {b"a": b"parent", b"b": b"parent"}
    assert store.committed_offset(CHANGELOG) == 2
"""


def test_a_forked_child_neither_hangs_nor_harms_its_parent_s_store(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr


FORKED_WHILE_READ = """
import os, signal, sys, threading, time
from pathlib import Path
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.store import RocksDBStore

signal.alarm(240)
store = RocksDBStore(sys.argv[1], StoreKind.KEY_VALUE, create=True)
store.open()
keys = [b"%05d" % number for number in range(5000)]
store.put_all((key, b"v" * 100) for key in keys)
store.commit({TopicPartition("app-store-changelog", 0): 1})
store.flush()

def reading(read):
    while not ended.is_set():
        read()

ended = threading.Event()
reads = [lambda: list(store.query_view().all()), lambda: store.get_many(keys), lambda: list(store.scan_lists()),
         lambda: [store.query_view().get(key) for key in keys[:50]], store.flush]
threads = [threading.Thread(target=reading, args=(read,), daemon=True) for read in reads * 2]
for thread in threads:
    thread.start()
for turn in range(16):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        print("child", turn)          # in a buffer, until the end
        sys.exit(turn)                # an ordinary end
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == turn
ended.set()
for thread in threads:
    thread.join()
assert dict(store.all()) == dict.fromkeys(keys, b"v" * 100)
store.close()
"""


def test_a_child_forked_while_other_threads_read_ends_like_any_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED_WHILE_READ, str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"child {turn}" for turn in range(16)]


FORKED_AND_LEFT = """
import os, signal, sys, time
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore

store = RocksDBStore(sys.argv[1], StoreKind.KEY_VALUE, create=True)
store.open()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
    os._exit(0)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_outlives_a_killed_parent_does_not_keep_its_store(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED_AND_LEFT, str(tmp_path / "db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.stdin.close()
        try:
            assert parent.wait(300) == -signal.SIGKILL
            with RocksDBStore(tmp_path / "db", PLAIN) as store:
                assert list(store.all()) == []
        finally:
            os.kill(child, signal.SIGKILL)


FORKED_BEFORE = """
import os, signal, sys
from pathlib import Path
from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore

signal.alarm(240)
child = os.fork()
with RocksDBStore(Path(sys.argv[1]) / str(child == 0), StoreKind.KEY_VALUE, create=True) as store:
    store.put(b"a", b"b")
    store.flush()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_forked_before_any_store_was_opened_may_open_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED_BEFORE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("True", "False"):
        with RocksDBStore(tmp_path / name, PLAIN, read_only=True) as store:
            assert list(store.all()) == []  # not committed


class Spy:
    """A database that notes how it is written to."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.synced: list[bool] = []

    def write(self, batch: Any, options: Any) -> None:
        self.synced.append(options.sync)
        self.database.write(batch, options)

    def close(self) -> None:
        self.database.close()


@pytest.mark.parametrize("durability", Durability)
def test_every_write_is_forced_to_the_disk_unless_the_process_s_death_is_all_it_must_survive(
    tmp_path: Path, durability: Durability
) -> None:
    with RocksDBStore(tmp_path / "db", PLAIN, create=True, settings=StoreSettings(durability)) as store:
        spy = store._opened.database = Spy(store._db)
        for number in range(3):
            store.put(b"a", b"b")
            store.commit({CHANGELOG: number})
    assert spy.synced == [durability is Durability.SYNC] * 4  # the last is the status of the clean close


def test_a_fresh_directory_is_in_its_parent_s_entries_before_anything_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    store = RocksDBStore(tmp_path / "0_0" / "rocksdb" / "counts", PLAIN, create=True)
    store.open()
    assert {tmp_path / "0_0" / "rocksdb", tmp_path / "0_0", tmp_path} <= set(synced)
    store.close()


def test_what_is_committed_needs_no_flush_of_any_family(tmp_path: Path) -> None:
    """The files of a store that was never flushed, as a killed process leaves them."""
    path = tmp_path / "db"
    with RocksDBStore(path, PLAIN, create=True, settings=StoreSettings(Durability.PROCESS)) as store:
        store.put(b"a", b"b")
        store.commit({CHANGELOG: 7})
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in path.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        store._families["offsets"].flush()  # the trap: one family in a file, the other in the log
        half = tmp_path / "half"
        half.mkdir()
        for file in path.iterdir():
            (half / file.name).write_bytes(file.read_bytes())
    assert not list(copy.glob("*.sst"))
    for left in (copy, half):
        with RocksDBStore(left, PLAIN) as store:
            assert (store.get(b"a"), store.committed_offset(CHANGELOG)) == (b"b", 7)


def test_close_leaves_nothing_in_the_log_of_any_family(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with RocksDBStore(path, PLAIN, create=True) as store:
        store.put(b"a", b"b")
        store.commit({CHANGELOG: 7})
    assert all(log.stat().st_size == 0 for log in path.glob("*.log"))
    for log in path.glob("*.log"):
        log.unlink()
    with RocksDBStore(path, PLAIN, read_only=True) as store:
        assert (store.get(b"a"), store.committed_offset(CHANGELOG), store.status) == (b"b", 7, 0)


def test_unclosed_views_iterators_and_scans_do_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = RocksDBStore(path, PLAIN, create=True)
    store.open()
    store.put_all((b"%04d" % number, b"") for number in range(3000))
    store.commit({CHANGELOG: 1})
    store.put(b"staged", b"")
    kept = [store.query_view(), store.query_view(IsolationLevel.READ_UNCOMMITTED), store.all(), store.scan_lists()]
    kept += [kept[0].all(), kept[1].reverse_all()]
    for rows in kept[2:]:
        next(rows)
    store.close()
    with RocksDBStore(path, PLAIN) as again:
        assert len(list(again.all())) == 3000


def test_iterators_that_ran_out_or_were_dropped_hold_nothing(tmp_path: Path) -> None:
    """Else compaction could not remove the files they read."""
    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        store.put_all((b"%04d" % number, b"") for number in range(3000))
        store.commit({CHANGELOG: 1})
        store.flush()
        assert len(list(store.all())) == 3000
        started = store.reverse_all()
        next(started)
        del started
        (data,) = (file for file in tmp_path.glob("db/*.sst") if file.stat().st_size > 10_000)
        store.compact()
        assert not data.exists()


def test_a_store_may_be_dropped_without_being_closed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = RocksDBStore(path, PLAIN, create=True)
    store.open()
    store.put(b"a", b"b")
    store.commit({CHANGELOG: 7})
    store.put(b"a", b"lost")
    del store
    with RocksDBStore(path, PLAIN) as again:
        assert (again.get(b"a"), again.committed_offset(CHANGELOG)) == (b"b", 7)
