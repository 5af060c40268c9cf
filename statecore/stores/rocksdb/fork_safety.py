"""Guards against fork(2), which RocksDB does not survive: its threads are not in the child, which hangs at the first
flush.

Even a database that the child opens itself hangs, once the parent has opened any. And the child must not close what it
inherits: that would write into the parent's files. So in a forked child of a process that has opened a database

- opening one is refused instead of hanging;
- the inherited stores count as closed, and their native objects are never freed;
- RocksDB's exit handler is skipped: it waits for background threads that only the parent has, which ends in a crash or
  a hang.

Spawn processes (``multiprocessing.get_context("spawn")``, ``subprocess``), or fork before the first store is opened.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from statecore.errors import Invalid


class Inherited(Protocol):
    """A store in a child that was forked while it was open."""

    def disown(self) -> Iterable[Any]:
        """Count as closed from now on without touching the database; return the native objects that were held."""


class _State:
    used = False  # Whether this process has opened a database
    forked = False  # Whether this process was forked from one that had


_LIBC = ctypes.CDLL(None)
"""Loaded early: in a forked child the loader's lock may be held by a thread that does not exist."""

_open: weakref.WeakSet[Any] = weakref.WeakSet()


def register_store(path: Path, store: Inherited) -> None:
    """Register a store that is about to open its database."""
    if _State.forked:
        raise Invalid(
            f"The store at {path} cannot be opened here: this process was forked from one that had opened a database, "
            "and RocksDB would hang.",
            code="process-forked",
            action="Start processes with the spawn method, or fork before the first store is opened.",
            store_path=str(path),
        )
    mark_used()
    _open.add(store)


def mark_used() -> None:
    """Call it before this process opens any database."""
    _State.used = True


def _in_child() -> None:
    if not _State.used:
        return
    _State.forked = True
    _leave_out_exit_handlers()
    for store in list(_open):
        for native in store.disown():
            # An extra reference: no destructor runs in this process, not even at its end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


def _leave_out_exit_handlers() -> None:
    """Exit this process, once Python has ended, without the handlers registered before the fork."""
    if hasattr(_LIBC, "on_exit"):  # glibc; passes the exit status, which _exit takes
        _LIBC.on_exit(_LIBC._exit, None)
        _LIBC.on_exit(_LIBC.fcloseall, None)


os.register_at_fork(after_in_child=_in_child)
