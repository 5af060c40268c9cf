"""The states of a global store, and of all global stores of a process (KIP-406), with their transitions.

::

                  open                    all that the topic held at first is applied
    CREATED ───────────────▶ RESTORING ─────────────────────────────────────────────▶ RUNNING
                              ▲   │  ▲                                                   │
                              └───┘  └───────────────────────────────────────────────────┘
                     invalid again     invalid offset: truncated, beyond the end, topic recreated, log diverged;
                                       store damaged. The store is set aside and rebuilt from the earliest offset

    CREATED, RESTORING, RUNNING ──▶ ERROR      it cannot recover: the topic is absent for longer than the
                                               setting, the disk is full, no rights, records of another kind
    every state ──▶ CLOSED                     closed, and for good

Brokers that do not answer change no state: they are asked again. A process is ``RESTORING`` when one of its stores is,
as in KIP-406 and KIP-728, and ``ERROR`` when one of them is; the others follow their topics and serve meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from statecore.faults import FaultInjected


class GlobalState(StrEnum):
    """State of a global store."""

    CREATED = "CREATED"  # Nothing was opened yet
    RESTORING = "RESTORING"
    """It is catching up to where its topic ended when this began; older rows serve stale queries."""

    RUNNING = "RUNNING"  # It follows its topic and serves queries
    ERROR = "ERROR"  # It cannot be followed, for a reason that an operator has to remove
    CLOSED = "CLOSED"  # It was closed

    @property
    def number(self) -> int:
        """Index of the state, for metrics."""
        return list(GlobalState).index(self)


class RecoveryReason(StrEnum):
    """Why a store is rebuilt."""

    BELOW_LOG_START = "below-log-start"
    """Records between its offset and the log's start were deleted: retention, DeleteRecords."""

    BEYOND_LOG_END = "beyond-log-end"  # Its offset is beyond the log's end: the log was truncated, or is another one
    TOPIC_RECREATED = "topic-recreated"  # The topic has another id than the one it was built from
    LOG_DIVERGED = "log-diverged"  # A new leader has other records before its offset (an unclean leader election)
    PARTITION_GONE = "partition-gone"  # It has an offset of a partition that the topic does not have
    OFFSET_UNKNOWN = "offset-unknown"  # It has no offset, or -4, with which Kafka Streams' own start always fails
    STORE_UNUSABLE = "store-unusable"  # It is damaged, or was not closed under exactly-once (KAFKA-21034)
    TOPIC_UNKNOWN = "topic-unknown"  # The saved topic ids cannot be read


TRANSITIONS: Mapping[GlobalState, frozenset[GlobalState]] = MappingProxyType(
    {
        GlobalState.CREATED: frozenset({GlobalState.RESTORING, GlobalState.ERROR, GlobalState.CLOSED}),
        GlobalState.RESTORING: frozenset({GlobalState.RUNNING, GlobalState.ERROR, GlobalState.CLOSED}),
        GlobalState.RUNNING: frozenset({GlobalState.RESTORING, GlobalState.ERROR, GlobalState.CLOSED}),
        GlobalState.ERROR: frozenset({GlobalState.CLOSED}),
        GlobalState.CLOSED: frozenset(),
    }
)
"""The allowed transitions."""

StateListener = Callable[[str, GlobalState, GlobalState], None]
"""Called with the store, its new state and the previous one, by the thread that changes it (``StateListener``)."""


class StateMachine:
    """The state of one store, which any thread may read; calls the listener for every change."""

    def __init__(self, store: str, listener: StateListener | None = None) -> None:
        self._store, self._listener = store, listener
        self._state = GlobalState.CREATED
        self._lock = threading.Lock()

    @property
    def state(self) -> GlobalState:
        """The present state."""
        return self._state

    def change_to(self, state: GlobalState) -> bool:
        """Change the state; return whether it is another than before."""
        with self._lock:
            before = self._state
            if state is before:
                return False
            if state not in TRANSITIONS[before]:
                raise ValueError(f"{self._store}: {state} does not follow {before}")
            self._state = state
        if self._listener is not None:
            self._listener(self._store, state, before)
        return True


_WORST_FIRST = (GlobalState.ERROR, GlobalState.RESTORING, GlobalState.CREATED, GlobalState.RUNNING, GlobalState.CLOSED)


def state_of_all(states: Iterable[GlobalState]) -> GlobalState:
    """The state of a process by those of its stores; one without stores is ``RUNNING``."""
    found = set(states)
    return next((state for state in _WORST_FIRST if state in found), GlobalState.RUNNING)


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
