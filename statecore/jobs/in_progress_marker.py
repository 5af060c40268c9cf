"""In-progress marker of a snapshot, read when deciding whether a checkpoint is due.

A long checkpoint (a changelog that is read whole) writes the marker into the repository, again and again as long as it
lives. A restore that publishes writes it at once: one of whole changelogs cannot be rebased on what a checkpoint
publishes meanwhile, and its result would be lost::

    apps/<application id>/jobs/checkpoint.in-progress   written FIRST seconds after the start, then every AGAIN seconds;
                                                        a resumed job deletes it even if it ended before writing it; a
                                                        killed job writes it no more

It is advisory: the schedule leaves an application with a recent marker alone
(:mod:`statecore.jobs.checkpoint.schedule`), because a second checkpoint would read the same. Its content is constant;
the time is that of the blob.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from statecore.errors import NotFound, StatecoreError
from statecore.jobs.engine.protocol import HandedOver
from statecore.repository.application_repository import ApplicationRepository

FIRST = 10.0
"""Seconds until a checkpoint writes the marker: most are done by then."""

AGAIN = 60.0
"""Seconds between two writes."""

LOST = 200.0
"""Age in seconds at which a marker is ignored: three writes are missing."""

_CONTENT = b"A snapshot is in progress.\n"


class InProgressMarker:
    """The marker, as far as one job is responsible for it."""

    def __init__(self) -> None:
        self._ends_with_us = threading.Event()

    @property
    def is_deleted_at_end(self) -> bool:
        """Whether it is deleted when this job ends."""
        return self._ends_with_us.is_set()

    def delete_at_end(self) -> None:
        """This job wrote it, or resumes the work of the process that did: delete it at the end."""
        self._ends_with_us.set()

    def leave(self) -> None:
        """Another process continues this job's work, and deletes the marker."""
        self._ends_with_us.clear()


@contextmanager
def marked_in_progress(
    repository: ApplicationRepository, *, at_once: bool = False, first: float = FIRST, again: float = AGAIN
) -> Iterator[InProgressMarker]:
    """Write the marker while a long job runs inside. A failed write is ignored.

    A job that hands over to another process (:class:`HandedOver`) leaves the marker, and that process deletes it at its
    end, however short it was (:meth:`InProgressMarker.delete_at_end`).
    """
    name = repository.names.in_progress_marker
    ended, marker = threading.Event(), InProgressMarker()

    def write() -> None:
        with suppress(StatecoreError):
            repository.blobs.replace(name, _CONTENT)
            marker.delete_at_end()

    def rewrite() -> None:
        pause = again if at_once else first
        while not ended.wait(pause):
            write()
            pause = again

    if at_once:
        write()
    writer = threading.Thread(target=rewrite, name="statecore-in-progress", daemon=True)
    writer.start()
    try:
        yield marker
    except HandedOver:
        ended.set()
        writer.join()
        write()
        marker.leave()
        raise
    finally:
        ended.set()
        writer.join()
        if marker.is_deleted_at_end:
            with suppress(StatecoreError):
                repository.blobs.delete(name)


def marker_age(repository: ApplicationRepository, now: float) -> float | None:
    """Age in seconds of an application's in-progress marker; ``None`` if there is none, or it is too old."""
    try:
        age_s = now - repository.blobs.head(repository.names.in_progress_marker).modified
    except NotFound:
        return None
    return max(age_s, 0.0) if abs(age_s) < LOST else None
