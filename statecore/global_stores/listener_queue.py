"""Queues changes of state for the listener, which may call everything on the stores, close them too.

A change is queued while locks are held, and delivered when none is. Exceptions of a listener are logged; they do not
stop the stores.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from statecore.faults import FaultInjected
from statecore.global_stores.state import GlobalState, StateListener

_LOG = logging.getLogger(__name__)


class ListenerQueue:
    """Undelivered changes for a listener, in order; ``None`` for no listener."""

    def __init__(self, listener: StateListener | None) -> None:
        self._listener = listener
        self._waiting: deque[tuple[str, GlobalState, GlobalState]] = deque()
        self._lock = threading.Lock()
        self._is_delivering = False

    def enqueue(self, store: str, state: GlobalState, before: GlobalState) -> None:
        """Queue a change of a store's state; from any thread, with any lock held."""
        if self._listener is not None:
            with self._lock:
                self._waiting.append((store, state, before))

    def deliver(self) -> None:
        """Deliver queued changes, without any lock held; left to another thread that is delivering already."""
        with self._lock:
            if self._is_delivering or self._listener is None:
                return
            self._is_delivering = True
        try:
            while (change := self._next()) is not None:
                try:
                    self._listener(*change)
                except FaultInjected:
                    raise
                except Exception:
                    _LOG.exception("The listener of global store %s failed at %s.", change[0], change[1])
        finally:
            self._is_delivering = False

    def _next(self) -> tuple[str, GlobalState, GlobalState] | None:
        with self._lock:
            if not self._waiting:
                self._is_delivering = False  # under the lock: the next enqueue() is delivered by its own caller
                return None
            return self._waiting.popleft()
