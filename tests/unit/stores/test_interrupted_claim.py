"""Exceptions of signal handlers while a directory is claimed, looked at and given back: nothing stays held."""

from __future__ import annotations

import fcntl
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb import directory_lock as rocksdb_ownership
from statecore.stores.rocksdb.directory_lock import Claim, writer_of
from tests.harness.case_selection import one_of
from tests.unit.stores.interrupts import Interrupt, another_thread_may_ask, interrupted_at
from tests.unit.stores.rocksdb.test_store import fresh


def descriptors(path: Path) -> set[str]:
    """Descriptors of a directory, of what is in it, and of the kernel's lists; those of other threads come and go."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            if (target := str(file.readlink())).startswith((str(path), "/proc/")):
                found.add(f"{file.name} {target}")
        except FileNotFoundError:  # that of the listing
            continue
    return found


def claimed_and_released(path: Path) -> None:
    claim = Claim(path)
    claim.check()
    claim.release()


def claimed_and_dropped(path: Path) -> None:
    Claim(path)


def looked_at(path: Path) -> None:
    lock_holder(path / "LOCK")
    writer_of(path)


@pytest.mark.parametrize("action", one_of([claimed_and_dropped, claimed_and_released, looked_at]))
def test_a_signal_at_any_moment_leaves_no_directory_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps what finalisers raise, and its frames
    path = fresh(tmp_path / "db")
    at, raised = 0, 0
    gc.collect()
    before = descriptors(path)
    while True:
        at += 1
        with interrupted_at(at) as seen:
            try:
                action(path)
            except Interrupt:
                raised += 1
        writer_of(path)  # what could not be given back then is given back now
        assert not rocksdb_ownership._claimed, at
        assert another_thread_may_ask(), at
        assert descriptors(path) <= before, at  # what an earlier test has left may be closed meanwhile
        other = os.open(path, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        if seen[0] < at:
            break
    assert raised > 10
    claimed_and_released(path)
