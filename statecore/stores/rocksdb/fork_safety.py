"""RocksDB does not survive fork(2): its threads are not in the child, and the child hangs at the first flush.

Even a database that the child opens for itself hangs, once the parent has opened any. And what the child inherits it
must not close: that would write into the parent's files. So in a forked child of a process that has opened a database

- opening one is refused, with advice, instead of hanging;
- the inherited stores are closed as far as the child can tell, and their native objects are never let go of;
- the child's end leaves out RocksDB's: its exit handler waits for background threads that only the parent has, which
  ends in a crash or a hang, depending on where the stacks of the parent's threads lay.

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
    """A store as seen by a child that was forked while it was open."""

    def disown(self) -> Iterable[Any]:
        """Be closed from now on without touching the database; the native objects that were held."""


class _State:
    used = False
    """Whether this process has opened a database."""

    forked = False
    """Whether this process was forked from one that had."""


_LIBC = ctypes.CDLL(None)
"""Loaded here: in a forked child the loader's own lock may be a thread's that is not there."""

_open: weakref.WeakSet[Any] = weakref.WeakSet()


def opening(path: Path, store: Inherited) -> None:
    """To be called before a store opens its database.

    Raises:
        Invalid: this process was forked from one that had opened a database.
    """
    if _State.forked:
        raise Invalid(
            f"The store at {path} cannot be opened here: this process was forked from one that had opened a database, "
            "and RocksDB would hang.",
            code="process-forked",
            action="Start processes with the spawn method, or fork before the first store is opened.",
            store_path=str(path),
        )
    used()
    _open.add(store)


def used() -> None:
    """To be called before this process opens any database."""
    _State.used = True


def _in_child() -> None:
    if not _State.used:
        return
    _State.forked = True
    _leave_out_exit_handlers()
    for store in list(_open):
        for native in store.disown():
            # One reference more than anybody drops: no destructor runs in this process, not even at its end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


def _leave_out_exit_handlers() -> None:
    """End this process, once Python has ended, without the handlers that were registered before it was forked.

    Handlers run in reverse order: those of this process, then C's buffers are written, then it is over.
    """
    if hasattr(_LIBC, "on_exit"):  # glibc; a handler is given the status, which is what _exit takes
        _LIBC.on_exit(_LIBC._exit, None)
        _LIBC.on_exit(_LIBC.fcloseall, None)


os.register_at_fork(after_in_child=_in_child)
