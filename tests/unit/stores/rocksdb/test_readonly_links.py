"""Directories of links by which databases are read, and what becomes of them where a process is killed."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.statedir.readonly_database import Database
from statecore.stores.rocksdb.store import RocksDBStore

READ = """
import sys, time
from pathlib import Path
from statecore.statedir.readonly_database import Database
with Database(Path(sys.argv[1])):
    print("open", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database, and a place of its own for temporary directories."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    path = tmp_path / "database"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"k", b"v")
        store.commit({})
    return path


def left(database: Path) -> list[Path]:
    return sorted((database.parent / "tmp").iterdir())


def killed_reader(database: Path) -> Path:
    """What a process leaves that was killed while it read."""
    before = set(left(database))
    with subprocess.Popen([sys.executable, "-c", READ, str(database)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(signal.SIGKILL)
    (made,) = set(left(database)) - before
    return made


def read(database: Path) -> None:
    """Read it as for the first time: this process cleans up once in a place, so that gets another name."""
    alias = database.with_name(f"tmp-{next(_aliases)}")
    alias.symlink_to("tmp")
    tempfile.tempdir = str(alias)
    with Database(database) as opened:
        assert dict(opened.rows("default")) == {b"k": b"v"}


_aliases = itertools.count()


def make_old(path: Path) -> None:
    hours_ago = time.time() - 2 * 3600
    os.utime(path, (hours_ago, hours_ago))


def test_what_a_killed_process_left_is_removed_when_it_is_old(database: Path) -> None:
    made = killed_reader(database)
    read(database)
    assert left(database) == [made], "its process may be one of another container"
    make_old(made)
    read(database)
    assert left(database) == []
    assert (database / "CURRENT").exists()


def test_what_a_process_has_that_lives_is_left_alone(database: Path) -> None:
    with Database(database):
        (made,) = left(database)
        make_old(made)
        read(database)
        assert left(database) == [made]
    assert left(database) == []


def test_only_directories_of_this_user_and_of_that_name_are_removed(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = killed_reader(database)
    other = made.with_name(re.sub(r"-\d+-", "-of-somebody-", made.name))
    other.mkdir()
    for path in (made, other):
        make_old(path)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    read(database)
    assert left(database) == sorted([made, other])
    monkeypatch.setattr(os, "geteuid", lambda: user)
    read(database)
    assert left(database) == [other]
