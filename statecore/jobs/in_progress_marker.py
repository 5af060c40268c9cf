"""The word that a snapshot is under way, for whoever decides whether a checkpoint is due.

A checkpoint that takes long (a changelog that is read whole) says so in the repository, again and again as long as it
lives. A restore that publishes says it at once, because it cannot be put upon what a checkpoint publishes meanwhile::

    apps/<application id>/jobs/checkpoint.under-way     put FIRST seconds after it began, and every AGAIN seconds;
                                                        deleted when it ends, also by a short one that goes on with
                                                        the work of another; who is killed says it no more

Nobody is kept from anything by it, and nothing that counts needs it: whoever decides by schedule leaves an application
alone of which that was said a short time ago (:mod:`statecore.jobs.checkpoint.schedule`), because a second checkpoint
would read the same. It is always the same bytes; when it was said is told by the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from statecore.errors import NotFound, StatecoreError
from statecore.jobs.engine import HandedOver
from statecore.repository.application_repository import ApplicationRepository

FIRST = 10.0
"""Seconds that a checkpoint may take before it says anything: most are done by then."""

AGAIN = 60.0
"""Seconds between two words."""

LOST = 200.0
"""Seconds after which nobody believes in the last one any more: three words were not said."""

_WORD = b"A snapshot is under way.\n"


class InProgressMarker:
    """The word, as far as one job has to do with it."""

    def __init__(self) -> None:
        self._ends_with_us = threading.Event()

    @property
    def ends_with_us(self) -> bool:
        """Whether it goes when this job ends."""
        return self._ends_with_us.is_set()

    def is_ours(self) -> None:
        """It was said, or left behind by another process with whose work this job goes on: it goes at the end."""
        self._ends_with_us.set()

    def leave(self) -> None:
        """Another process goes on with this job's work, and takes the word away."""
        self._ends_with_us.clear()


@contextmanager
def said_under_way(
    shelf: ApplicationRepository, *, at_once: bool = False, first: float = FIRST, again: float = AGAIN
) -> Iterator[InProgressMarker]:
    """Say of what is done inside that it is under way, where it takes long. A word that cannot be said is left out.

    Who hands the work over to another process (:class:`statecore.jobs.engine.HandedOver`) leaves the word behind, and
    that one takes it away at its end, however short it was (:meth:`Word.is_ours`).

    Args:
        shelf: what the repository has of the application.
        at_once: whether it is known to take long.
        first: seconds that it may take before it is said.
        again: seconds between two words.
    """
    name = shelf.names.under_way
    ended, word = threading.Event(), InProgressMarker()

    def say() -> None:
        with suppress(StatecoreError):
            shelf.blobs.replace(name, _WORD)
            word.is_ours()

    def go_on() -> None:
        pause = again if at_once else first
        while not ended.wait(pause):
            say()
            pause = again

    if at_once:
        say()
    saying = threading.Thread(target=go_on, name="statecore-under-way", daemon=True)
    saying.start()
    try:
        yield word
    except HandedOver:
        ended.set()
        saying.join()
        say()
        word.leave()
        raise
    finally:
        ended.set()
        saying.join()
        if word.ends_with_us:
            with suppress(StatecoreError):
                shelf.blobs.delete(name)


def heard_of(shelf: ApplicationRepository, now: float) -> float | None:
    """How many seconds ago somebody said that a checkpoint of an application is under way.

    Args:
        shelf: what the repository has of the application.
        now: seconds since the epoch.

    Returns:
        Seconds; ``None`` where nobody says so, or did too long ago.

    Raises:
        Invalid, Retryable: the repository cannot be asked.
    """
    try:
        ago = now - shelf.blobs.head(shelf.names.under_way).modified
    except NotFound:
        return None
    return max(ago, 0.0) if abs(ago) < LOST else None
