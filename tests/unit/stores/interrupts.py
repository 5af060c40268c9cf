"""Exceptions of signal handlers at every moment at which one may run while a lock is asked for, taken or given back."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

from statecore.stores import fd_paths, lock_holder
from statecore.stores.lock_holder import guard
from statecore.stores.rocksdb import directory_lock

FILES = frozenset(module.__file__ for module in (directory_lock, fd_paths, lock_holder))
HANDLERS_RUN_AFTER = {dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")}
"""Instructions after which CPython 3.11 runs signal handlers: before the result of a call is stored anywhere."""


class Interrupt(Exception):
    """What a handler raises."""


@contextmanager
def interrupted_at(number: int) -> Iterator[list[int]]:
    """Raise at the n-th moment at which a handler may run in these modules; how many there were is in the list."""
    seen = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in FILES:
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


def another_thread_may_ask() -> bool:
    """Whether nothing stays held after a request for a lock."""
    with ThreadPoolExecutor(1) as threads:
        free = threads.submit(guard().acquire, blocking=False).result()
        if free:
            threads.submit(guard().release).result()
    return free
