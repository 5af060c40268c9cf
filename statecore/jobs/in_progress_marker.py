"""In-progress marker of an application: a job that will publish a snapshot is running.

The marker is a blob of constant content in the application repository; its age is that of the blob::

    apps/<application id>/jobs/in-progress/<request>

Each request has its own, so that a job which ends first takes no word from another. A checkpoint writes it after FIRST
seconds, so only if it reads much, and a restore that publishes at its start. Both write it again every AGAIN seconds
and delete it at their end. A killed job leaves it; after LOST seconds it is ignored, and the job that resumes the work
deletes it. What no job resumes is swept like other files of requests.

The schedule (:mod:`statecore.jobs.checkpoint.schedule`) starts no checkpoint while a marker is recent: it would read
the same records. A restore of whole changelogs (``--from none``) needs this more: a checkpoint that publishes first
makes its result useless. The marker is advisory. The publication is safe without it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from statecore.errors import StatecoreError
from statecore.jobs.engine.protocol import HandedOver
from statecore.jobs.planning.frozen_plan import request_name
from statecore.repository.application_repository import ApplicationRepository

FIRST = 10.0
"""Seconds until a checkpoint writes the marker; most checkpoints are shorter."""

AGAIN = 60.0
"""Seconds between two writes."""

LOST = 200.0
"""Age in seconds from which a marker is ignored: three writes are missing."""

_CONTENT = b"A snapshot is in progress.\n"


class InProgressMarker:
    """Whether a job deletes the marker at its end."""

    def __init__(self) -> None:
        self._ends_with_us = threading.Event()

    @property
    def is_deleted_at_end(self) -> bool:
        """Whether this job deletes it at its end."""
        return self._ends_with_us.is_set()

    def delete_at_end(self) -> None:
        """Delete it at the end: this job wrote it, or resumes the job that wrote it."""
        self._ends_with_us.set()

    def leave(self) -> None:
        """Do not delete it: another process continues this job and will."""
        self._ends_with_us.clear()


@contextmanager
def marked_in_progress(
    repository: ApplicationRepository,
    request_id: str,
    *,
    at_once: bool = False,
    first: float = FIRST,
    again: float = AGAIN,
) -> Iterator[InProgressMarker]:
    """Write the marker of a request while its job runs inside. A failed write is ignored.

    A job that another process continues (:class:`HandedOver`) writes the marker and leaves it. That process calls
    :meth:`InProgressMarker.delete_at_end`, and so deletes it even if it ends within ``first`` seconds.
    """
    name = repository.names.in_progress_marker(request_name(request_id))
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
    """Age in seconds of the newest in-progress marker of an application; ``None`` if all are too old."""
    ages_s = (now - blob.modified for blob in repository.blobs.list(repository.names.in_progress_markers))
    return min((max(age_s, 0.0) for age_s in ages_s if abs(age_s) < LOST), default=None)
