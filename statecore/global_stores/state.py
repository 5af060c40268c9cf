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

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType


class GlobalState(StrEnum):
    """State of a global store."""

    CREATED = "CREATED"
    """Nothing was opened yet."""

    RESTORING = "RESTORING"
    """It is catching up to where its topic ended when this began; older rows serve stale queries."""

    RUNNING = "RUNNING"
    """It follows its topic and serves queries."""

    ERROR = "ERROR"
    """It cannot be followed, for a reason that an operator has to remove."""

    CLOSED = "CLOSED"
    """It was closed."""

    @property
    def number(self) -> int:
        """Index of the state, for metrics."""
        return list(GlobalState).index(self)


class RecoveryReason(StrEnum):
    """Why a store is rebuilt."""

    BELOW_LOG_START = "below-log-start"
    """Records between its offset and the log's start were deleted: retention, DeleteRecords."""

    BEYOND_LOG_END = "beyond-log-end"
    """Its offset is beyond the log's end: the log was truncated, or is another one."""

    TOPIC_RECREATED = "topic-recreated"
    """The topic has another id than the one it was built from."""

    LOG_DIVERGED = "log-diverged"
    """A new leader has other records before its offset (an unclean leader election)."""

    PARTITION_GONE = "partition-gone"
    """It has an offset of a partition that the topic does not have."""

    OFFSET_UNKNOWN = "offset-unknown"
    """It has no offset, or -4, with which Kafka Streams' own start always fails."""

    STORE_UNUSABLE = "store-unusable"
    """It is damaged, or was not closed under exactly-once (KAFKA-21034)."""

    TOPIC_UNKNOWN = "topic-unknown"
    """The saved topic ids cannot be read."""


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
        """Change the state.

        Returns:
            Whether it is another than before.
        """
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
