"""Exceptions of signal handlers while a directory is claimed, looked at and given back: nothing stays held."""

from __future__ import annotations

import dis
import fcntl
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from statecore.stores import rocksdb_ownership
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb_ownership import Claim, writer_of
from tests.unit.stores.test_rocksdb import fresh

MODULES = ("rocksdb_ownership.py", "lock_holder.py", "descriptors.py")
HANDLERS_RUN_AFTER = {dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")}
"""Instructions after which CPython 3.11 runs signal handlers: before the result of a call is stored anywhere."""


class Interrupt(Exception):
    """What a handler raises."""


@contextmanager
def interrupted_at(number: int) -> Iterator[list[int]]:
    """Raise at the n-th moment at which a handler may run in these modules; how many there were is in the list."""
    seen = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if Path(frame.f_code.co_filename).name not in MODULES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = frame.f_lasti - 2
            while before > 0 and frame.f_code.co_code[before] == dis.opmap["CACHE"]:
                before -= 2
            if before >= 0 and frame.f_code.co_code[before] in HANDLERS_RUN_AFTER:
                seen[0] += 1
                if seen[0] == number:
                    raise Interrupt
        return trace

    outside = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(outside)


def descriptors() -> set[str]:
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{file.name} {file.readlink()}")
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


@pytest.mark.parametrize("action", [claimed_and_released, claimed_and_dropped, looked_at])
def test_a_signal_at_any_moment_leaves_no_directory_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps what finalisers raise, and its frames
    path = fresh(tmp_path / "db")
    at, raised = 0, 0
    gc.collect()
    before = descriptors()
    while True:
        at += 1
        with interrupted_at(at) as seen:
            try:
                action(path)
            except Interrupt:
                raised += 1
        writer_of(path)  # what could not be given back then is given back now
        assert not rocksdb_ownership._claimed, at
        assert descriptors() == before, at
        other = os.open(path, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        if seen[0] < at:
            break
    assert raised > 10
    claimed_and_released(path)
