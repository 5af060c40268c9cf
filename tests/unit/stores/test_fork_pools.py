"""Pools of forked processes, and forks by threads, beside a store that is written to: none hangs or harms it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from statecore.stores.rocksdb.store import RocksDBStore
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN

FORKING = """
import gc, multiprocessing, os, sys, threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statecore.errors import Invalid
from statecore.stores.rocksdb.store import RocksDBStore
from tests.unit.stores.rocksdb.test_store import CHANGELOG, PLAIN

directory = Path(sys.argv[1])
store = RocksDBStore(directory / "db", PLAIN, create=True)
store.open()
store.put(b"a", b"1")
store.commit({CHANGELOG: 1})
view = store.query_view()

def refused(action):
    try:
        action()
    except Invalid:
        return 1
    return 0

def inherited(number):
    "What a child tries; how much of it was refused."
    made = RocksDBStore(directory / f"other-{number}", PLAIN, create=True)
    tried = [
        lambda: store.get(b"a"), lambda: store.put(b"x", b"y"), lambda: store.commit({CHANGELOG: 999}), store.flush,
        lambda: list(store.all()), store.open, made.open, lambda: view.get(b"a"), store.query_view,
    ]
    found = sum(map(refused, tried)) == len(tried)
    store.close()
    gc.collect()
    return found and not store.is_open

def write():
    number = 1
    while not over.is_set():
        number += 1
        store.put(b"k%d" % (number % 50), b"%d" % number)
        store.commit({CHANGELOG: number})
        if number % 20 == 0:
            store.flush()
    said.append(number)

def fork(how):
    child = os.fork()
    if child == 0:
        inherited(how)
        if how == 1:
            sys.exit(0)
        if how == 2 and (grandchild := os.fork()):
            os.waitpid(grandchild, 0)
        return  # the thread ends, and the child with it
    ended.append(os.waitpid(child, 0)[1])

over, said, ended = threading.Event(), [], []
writer = threading.Thread(target=write)
writer.start()
context = multiprocessing.get_context("fork")
with ProcessPoolExecutor(2, mp_context=context) as pool:
    assert all(pool.map(inherited, range(4)))
with context.Pool(2, maxtasksperchild=1) as pool:
    assert all(pool.map(inherited, range(4)))
threads = [threading.Thread(target=fork, args=(number % 3,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
over.set()
writer.join()
assert ended == [0] * 6, ended
assert store.committed_offset(CHANGELOG) == said[0]
store.close()
print(said[0])
"""


def test_pools_of_forked_processes_and_forking_threads_harm_no_store(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    with RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True) as store:
        assert store.committed_offset(CHANGELOG) == last
        assert store.get(b"k%d" % (last % 50)) == b"%d" % last
        assert len(list(store.all())) == min(last, 51)
    assert [file.name for file in tmp_path.iterdir()] == ["db"]
