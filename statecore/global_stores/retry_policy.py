"""Decides what an error of a round means: retry after a pause, rebuild the store, or give up.

Brokers are asked without limit; a topic may be absent for a while; and failures that another read or a rebuild may
repair (a log that is truncated while it is read, a store that does not verify) may happen a number of times in a row,
because on a failing disk they would never end.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.global_stores.settings import GlobalSettings

_DOUBLINGS = 30


class UnusableRecord(Invalid):
    """A record that does not fit the store's kind."""


class Phase(Enum):
    """What a round was doing when it failed."""

    QUERYING = auto()
    READING = auto()
    STORING = auto()


class Decision(Enum):
    """What to do with the store."""

    RETRY = auto()  # The next round does the same, after the pause
    REBUILD = auto()  # The next round rebuilds it, after the pause
    GIVE_UP = auto()  # An operator has to decide


class RetryPolicy:
    """Counts failures, and tells when the next round may be."""

    def __init__(self, settings: GlobalSettings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._failures = self._setbacks = self._unusable = 0
        self._not_before = 0.0
        self._absent_since: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the pause is over."""
        return self._clock() >= self._not_before

    def succeeded(self, *, running: bool) -> None:
        """Reset failures after a round, and earlier setbacks too where the store is complete (``running``)."""
        self._failures = self._unusable = 0
        self._absent_since = None
        if running:
            self._setbacks = 0

    def topic_answered(self) -> None:
        """Note that the topic answered."""
        self._absent_since = None

    def restart(self) -> None:
        """Forget unusable records, because the store is read from the start."""
        self._unusable = 0

    def classify(self, error: StatecoreError, phase: Phase) -> Decision:
        """Classify an error of a round; the pause begins."""
        if isinstance(error, Retryable):
            return self._retry()
        if phase is Phase.STORING and isinstance(error, Corrupted | NotFound):
            return self._set_back(Decision.REBUILD)
        if isinstance(error, NotFound):
            self._absent_since = self._clock() if self._absent_since is None else self._absent_since
            return self._retry() if self._absent_for() < self._settings.topic_gone_timeout else Decision.GIVE_UP
        if isinstance(error, Corrupted):
            return self._retry()  # the broker's log is damaged; another replica may be intact
        if isinstance(error, UnusableRecord):
            self._unusable += 1  # perhaps of a recreated topic, which the next round detects
            return Decision.RETRY if self._unusable == 1 else Decision.GIVE_UP
        if isinstance(error, Invalid) and phase is Phase.READING:
            return self._set_back(Decision.RETRY)  # truncated or recreated, which the next round detects
        return Decision.GIVE_UP

    def lost_records(self) -> Decision:
        """Handle a log start that moved into the range being read: rebuild, after growing pauses."""
        return self._set_back(Decision.REBUILD)

    def give_up_error(self, error: StatecoreError, phase: Phase, store: str) -> StatecoreError:
        """The error with which the store is given up, with the time or number of attempts."""
        if isinstance(error, UnusableRecord):
            return error.restated(error.what, store=store)
        if isinstance(error, NotFound) and phase is not Phase.STORING:
            return error.restated(
                f"{error.what} The topic has been absent for {self._absent_for():.0f} s, and the global store {store} "
                "needs it.",
                action="Create the topic and start again; the store is then rebuilt.",
                store=store,
            )
        if self._setbacks >= self._settings.recovery_attempts:
            tried = f"The global store {store} was tried {self._setbacks} times in a row."
            return error.restated(f"{error.what} {tried}", store=store)
        return error

    def _absent_for(self) -> float:
        return 0.0 if self._absent_since is None else self._clock() - self._absent_since

    def _retry(self) -> Decision:
        self._pause(self._failures)
        self._failures += 1
        return Decision.RETRY

    def _set_back(self, decision: Decision) -> Decision:
        """Retry at once; then after pauses; and give up after a number of setbacks."""
        self._setbacks += 1
        if self._setbacks >= self._settings.recovery_attempts:
            return Decision.GIVE_UP
        if decision is Decision.REBUILD or self._setbacks > 1:
            self._pause(max(0, self._setbacks - 2) if decision is Decision.RETRY else self._setbacks - 1)
        return decision

    def _pause(self, doublings: int) -> None:
        settings = self._settings
        pause = min(settings.retry_backoff_max, settings.retry_backoff * 2 ** min(doublings, _DOUBLINGS))
        self._not_before = self._clock() + pause
