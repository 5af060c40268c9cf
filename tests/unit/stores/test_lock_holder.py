"""Who holds a lock is asked of the kernel, and a lock of this process outlives the question."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.statedir.state_directory import StateDirectory
from statecore.stores import lock_holder
from statecore.stores.lock_holder import Holder, is_held_by_this_process
from statecore.stores.lock_holder import lock_holder as ask
from tests.harness.open_files import open_files as open_below
from tests.unit.stores.interrupts import Interrupt, another_thread_may_ask, interrupted_at

THIS = Holder(os.getpid(), "this process")
TAKE = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "LOCK"
    path.touch()
    return path


@pytest.fixture
def held(file: Path) -> Iterator[int]:
    """A descriptor through which this process holds the lock."""
    descriptor = os.open(file, os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def open_files(file: Path) -> int:
    """How often this process has the lock's file open; what other threads open is elsewhere."""
    gc.collect()
    return open_below(file.parent).count(str(file))


def test_a_lock_of_this_process_outlives_every_question(file: Path, held: int, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(file)
    for path in (file, tmp_path / "other", file):
        assert ask(path) == THIS
        gc.collect()
        assert is_held_by_this_process(held)


def test_questions_about_a_lock_of_this_process_take_one_descriptor(file: Path, held: int) -> None:
    assert ask(file) == THIS
    before = open_files(file)
    for _ in range(20):
        assert ask(file) == THIS
    assert open_files(file) == before
    fcntl.lockf(held, fcntl.LOCK_UN)
    assert ask(file) is None
    assert open_files(file) == before - 1


def test_an_open_file_without_a_lock_has_no_holder(file: Path) -> None:
    with file.open("r+"):
        before = open_files(file)
        assert ask(file) is None
        assert open_files(file) == before


def test_another_process_is_named_and_nothing_stays_open(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKE, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        before = open_files(file)
        found = ask(file)
        assert found is not None
        assert found.process == other.pid
        assert open_files(file) == before
        other.stdin.close()
    assert ask(file) is None


def test_a_signal_at_any_moment_lets_go_of_no_lock(file: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps what finalisers raise, and its frames
    at, raised = 0, 0
    gc.collect()
    gc.freeze()  # what is there already would be looked through at every collection
    while True:
        at += 1
        with interrupted_at(at) as seen:
            try:
                ask(file)
            except Interrupt:
                raised += 1
        gc.collect()
        assert is_held_by_this_process(held), at
        assert another_thread_may_ask(), at
        if seen[0] < at:
            break
        lock_holder._inspected.clear()  # as it was before the first question; closing it lets go of the lock
        fcntl.lockf(held, fcntl.LOCK_EX)
    assert raised > 10
    assert ask(file) == THIS


def test_where_the_kernel_does_not_answer_a_file_that_is_open_here_is_held_here(
    file: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, command: int, argument: bytes) -> bytes:
        if command == fcntl.F_OFD_GETLK:
            raise OSError(22, "Invalid argument")
        return really(descriptor, command, argument)

    really = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", refused)
    assert ask(file) == THIS
    monkeypatch.undo()
    assert is_held_by_this_process(held)
    monkeypatch.setattr(fcntl, "fcntl", refused)
    other = file.with_name("other")
    other.touch()
    assert ask(other) is None


def test_a_file_that_takes_the_place_of_a_locked_one_is_another(file: Path, held: int) -> None:
    assert ask(file) == THIS
    new = file.with_name("new")
    new.touch()
    new.replace(file)
    assert ask(file) is None
    assert is_held_by_this_process(held)


def test_an_application_lock_that_is_taken_while_others_ask_is_kept(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "shop")
    with directory.lock():
        pass
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            ask(directory.path / ".lock")

    asking = [threading.Thread(target=look) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(40):
            with directory.lock():
                assert ask(directory.path / ".lock") == THIS
    finally:
        done.set()
        for thread in asking:
            thread.join()


def test_a_question_costs_the_same_however_many_files_this_process_has_open(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(path: str) -> None:
        raise AssertionError(f"{path} was listed.")

    monkeypatch.setattr(os, "scandir", listed)
    assert ask(file) is None
