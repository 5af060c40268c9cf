"""Changes of state on their way to the listener, which may do what it likes with the stores, close them too.

A change is noted while locks are held, and told when none is. What a listener raises is logged: it is no reason to stop
following topics.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from statecore.faults import FaultInjected
from statecore.global_stores.state import GlobalState, StateListener

_LOG = logging.getLogger(__name__)


class ListenerQueue:
    """Changes that the listener has not been told yet, in their order.

    Args:
        listener: who is told; ``None`` for nobody.
    """

    def __init__(self, listener: StateListener | None) -> None:
        self._listener = listener
        self._waiting: deque[tuple[str, GlobalState, GlobalState]] = deque()
        self._lock = threading.Lock()
        self._is_telling = False

    def note(self, store: str, state: GlobalState, before: GlobalState) -> None:
        """A store has changed its state; any thread may say so, with any lock held."""
        if self._listener is not None:
            with self._lock:
                self._waiting.append((store, state, before))

    def tell(self) -> None:
        """Tell what is noted. No lock may be held. Where it is being told already, who does that goes on with it."""
        with self._lock:
            if self._is_telling or self._listener is None:
                return
            self._is_telling = True
        try:
            while (change := self._next()) is not None:
                try:
                    self._listener(*change)
                except FaultInjected:
                    raise
                except Exception:
                    _LOG.exception("The listener of global store %s failed at %s.", change[0], change[1])
        finally:
            self._is_telling = False

    def _next(self) -> tuple[str, GlobalState, GlobalState] | None:
        with self._lock:
            if not self._waiting:
                self._is_telling = False  # under the lock: who notes now tells it
                return None
            return self._waiting.popleft()
