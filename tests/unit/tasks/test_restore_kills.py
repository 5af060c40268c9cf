"""SIGKILL in the middle of a restore: rows and offset agree, and the next restore ends with the same store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.restoration import restore as restoring
from statecore.tasks.restoration.restore import OnStale
from tests.unit.tasks.restore_kills import CHANGELOG, END, KIND, SCRIPT, restored, rows_at

OLD_ROWS = {b"old-%04d" % number: b"%d" % number * 30 for number in range(400)}
OLD_OFFSET = END + 5
"""Past the log's end: the topic was created again, and the store is wiped before it is restored."""


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, scripted in SCRIPT.items():
        monkeypatch.setattr(restoring, name, scripted)


@contextmanager
def restorers(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.unit.tasks.restore_kills", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process


def killed(process: subprocess.Popen[bytes], on_stale: OnStale, commits: int, delay: float) -> bool:
    """Restore, killed a moment after so many commits were begun; False when the restore was over before."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{on_stale}\n".encode())
    process.stdin.flush()
    word, pid = process.stdout.readline().split()
    assert word == b"pid"
    said = b""
    while commits and (said := process.stdout.readline()) == b"commit\n":
        commits -= 1
    time.sleep(delay)
    with suppress(ProcessLookupError):  # it was done
        os.kill(int(pid), signal.SIGKILL)
    while said != b"end\n" and (line := process.stdout.readline()) != b"end\n":
        assert line, "the server of restores died"
        said = line
    return said != b"done\n"


def check(path: Path, old: dict[bytes, bytes], *, read_only: bool) -> int | None:
    """The store opens, and is what it says it is; its offset."""
    if not (path / "CURRENT").exists():
        return None
    with RocksDBStore(path, KIND, read_only=read_only, exactly_once=not read_only) as store:
        offset, rows = store.committed_offset(CHANGELOG), dict(store.all())
        assert store.verify() == len(rows)
    if offset is None:
        assert rows.items() <= old.items(), "a part of what is being wiped"
    elif offset == OLD_OFFSET:
        assert rows == old
    else:
        assert rows == rows_at(offset)
    return offset


def check_kills(directory: Path, kills: int, seed: int) -> None:
    """Kill restores of one store after the other, each again and again until it is restored."""
    moments, done = random.Random(seed), 0
    restored(directory / "undisturbed", OnStale.REFUSE)
    with RocksDBStore(directory / "undisturbed", KIND) as store:
        undisturbed, end = dict(store.all()), store.committed_offset(CHANGELOG)
    assert (undisturbed, end) == (rows_at(END - 1), END - 1)
    for number in range(kills):
        path, old = directory / f"{number}", OLD_ROWS if number % 2 else {}
        on_stale = OnStale.WIPE if old else OnStale.REFUSE
        if old:
            with RocksDBStore(path, KIND, create=True) as store:
                store.put_all(list(old.items()))
                store.commit({CHANGELOG: OLD_OFFSET})
        with restorers(path) as process:
            offset = None
            for _ in range(10):
                if done >= kills or not killed(process, on_stale, moments.randrange(12), moments.uniform(0, 0.01)):
                    break
                done += 1
                before, offset = offset, check(path, old, read_only=moments.random() < 0.5)
                assert old or (offset or -1) >= (before or -1), "it goes on where it was"
        restored(path, on_stale)
        assert check(path, {}, read_only=False) == END - 1
        with RocksDBStore(path, KIND) as store:
            assert dict(store.all()) == undisturbed
        if done >= kills:
            return
    raise AssertionError("too few were killed")


def test_a_restore_that_is_killed_again_and_again_ends_with_the_same_store(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=30, seed=1)


@pytest.mark.long
def test_a_campaign_of_kills_in_restores_ends_with_the_same_stores(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=300, seed=2)
