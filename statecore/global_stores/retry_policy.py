"""What an error of a round means: to try again after a pause, to build the store anew, or to give it up.

Patience has bounds. Brokers are asked for ever; a topic may be absent for a while; and what only a rebuild or another
look mends (a log that is truncated while it is read, a store that does not verify) may go wrong a number of times in
a row, because on a disk that fails it would for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.global_stores.settings import GlobalSettings

_DOUBLINGS = 30


class UnusableRecord(Invalid):
    """A record that the store's kind cannot have."""


class Doing(Enum):
    """What a round was doing when it failed."""

    ASKING = auto()
    READING = auto()
    STORING = auto()


class Verdict(Enum):
    """What becomes of the store."""

    AGAIN = auto()
    """The next round does the same, after the pause."""

    REBUILD = auto()
    """The next round builds it anew, after the pause."""

    GIVE_UP = auto()
    """A person has to look at it."""


class RetryPolicy:
    """How often what went wrong, and when the next round may be.

    Args:
        settings: pauses and bounds.
        clock: seconds that never go back.
    """

    def __init__(self, settings: GlobalSettings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._failures = self._setbacks = self._unusable = 0
        self._not_before = 0.0
        self._gone_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the pause is over."""
        return self._clock() >= self._not_before

    def succeeded(self, *, running: bool) -> None:
        """A round went well.

        Args:
            running: whether the store is whole: then earlier setbacks are mended.
        """
        self._failures = self._unusable = 0
        self._gone_since = None
        if running:
            self._setbacks = 0

    def was_there(self) -> None:
        """The topic answered."""
        self._gone_since = None

    def begins_anew(self) -> None:
        """The store is read from the start: a record that was unusable may be another one now."""
        self._unusable = 0

    def judge(self, error: StatecoreError, doing: Doing) -> Verdict:
        """What an error of a round means; the pause begins.

        Args:
            error: the error.
            doing: what the round was doing.
        """
        if isinstance(error, Retryable):
            return self._again()
        if doing is Doing.STORING and isinstance(error, Corrupted | NotFound):
            return self._set_back(Verdict.REBUILD)
        if isinstance(error, NotFound):
            self._gone_since = self._clock() if self._gone_since is None else self._gone_since
            return self._again() if self._gone_for() < self._settings.topic_gone_timeout else Verdict.GIVE_UP
        if isinstance(error, Corrupted):
            return self._again()  # the broker's log, which another replica may have whole
        if isinstance(error, UnusableRecord):
            self._unusable += 1  # of a topic that was created again, perhaps: the next look tells
            return Verdict.AGAIN if self._unusable == 1 else Verdict.GIVE_UP
        if isinstance(error, Invalid) and doing is Doing.READING:
            return self._set_back(Verdict.AGAIN)  # truncated, or created again: the next look tells
        return Verdict.GIVE_UP

    def lost_records(self) -> Verdict:
        """The log's start has moved into what was being read: the store is built anew, after growing pauses."""
        return self._set_back(Verdict.REBUILD)

    def exhausted(self, error: StatecoreError, doing: Doing, store: str) -> StatecoreError:
        """The error with which the store is given up: it says for how long, or how often, it was tried.

        Args:
            error: the last one, which was judged.
            doing: what the round was doing.
            store: the store.
        """
        if isinstance(error, UnusableRecord):
            return error.restated(error.what, store=store)
        if isinstance(error, NotFound) and doing is not Doing.STORING:
            return error.restated(
                f"{error.what} It has been so for {self._gone_for():.0f} s, and the global store {store} has nothing "
                "to follow.",
                action="Create the topic and start again; the store is built anew then.",
                store=store,
            )
        if self._setbacks >= self._settings.recovery_attempts:
            tried = f"The global store {store} was tried {self._setbacks} times in a row."
            return error.restated(f"{error.what} {tried}", store=store)
        return error

    def _gone_for(self) -> float:
        return 0.0 if self._gone_since is None else self._clock() - self._gone_since

    def _again(self) -> Verdict:
        self._pause(self._failures)
        self._failures += 1
        return Verdict.AGAIN

    def _set_back(self, verdict: Verdict) -> Verdict:
        """Another look at once; where that did not help, after pauses; and not for ever."""
        self._setbacks += 1
        if self._setbacks >= self._settings.recovery_attempts:
            return Verdict.GIVE_UP
        if verdict is Verdict.REBUILD or self._setbacks > 1:
            self._pause(max(0, self._setbacks - 2) if verdict is Verdict.AGAIN else self._setbacks - 1)
        return verdict

    def _pause(self, doublings: int) -> None:
        settings = self._settings
        pause = min(settings.retry_backoff_max, settings.retry_backoff * 2 ** min(doublings, _DOUBLINGS))
        self._not_before = self._clock() + pause
