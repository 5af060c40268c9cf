"""Staging in a repository, for workers that share only the object store.

Runs go directly to the repository's files and packs, under their hashes (:mod:`.run_publisher`); this place has only
the results, markers and progress of one plan, and records of versioned stores, which are no rows yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.objectstore.base import Blob, Blobs, checked_name
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import Content
from statecore.repository.layout import Layout
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import opened_blobs


@dataclass(frozen=True)
class RepositoryPlace(StagingPlace):
    """The staging of a plan in a repository.

    Attributes:
        url: the repository; credentials are found on each machine.
    """

    keeps_runs: ClassVar[bool] = False
    remedy: ClassVar[str] = (
        "Make sure that every executor reaches the same repository as the driver under this URL, with credentials that "
        "may read and write there."
    )

    url: str
    application_id: str
    plan_id: str

    def __str__(self) -> str:
        return f"{self.url} (staging of plan {self.plan_id})"

    def check_seen(self) -> None:
        """Cached for the process, because each check is a request."""
        if self not in _seen:
            super().check_seen()
            _seen.add(self)

    def check_failure(self) -> None:
        """At most once an interval, also for small tasks."""
        now = time.monotonic()
        if now >= _next_check.get(self, 0.0):
            super().check_failure()
            _next_check[self] = now + self.interval

    def blobs(self) -> Blobs:
        return BlobsBelow(blobs_at(self.url), Layout(self.application_id).staging(self.plan_id))


_seen: set[RepositoryPlace] = set()
_next_check: dict[RepositoryPlace, float] = {}


class BlobsBelow(Blobs):
    """The blobs below a prefix, named without it."""

    def __init__(self, blobs: Blobs, prefix: str) -> None:
        self._blobs, self._prefix, self.is_local = blobs, f"{prefix}/", blobs.is_local

    def _name(self, name: str) -> str:
        return self._prefix + checked_name(name)

    def put_if_absent(self, name: str, content: Content) -> bool:
        return self._blobs.put_if_absent(self._name(name), content)

    def replace(self, name: str, content: Content) -> None:
        self._blobs.replace(self._name(name), content)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        return self._blobs.get(self._name(name), start, end)

    def head(self, name: str) -> Blob:
        return self._blobs.head(self._name(name))._replace(name=name)

    def list(self, prefix: str = "") -> Iterator[Blob]:
        for blob in self._blobs.list(self._prefix + prefix):
            yield blob._replace(name=blob.name.removeprefix(self._prefix))

    def directories(self, above: str) -> Iterator[str]:
        return self._blobs.directories(self._name(above))

    def delete(self, name: str) -> None:
        self._blobs.delete(self._name(name))

    def local_path(self, name: str) -> Path | None:
        return self._blobs.local_path(self._name(name))

    def checksum_of(self, name: str, content: Content, part: int) -> Checksum:
        return self._blobs.checksum_of(self._name(name), content, part)

    def hash_in_name(self, sha256: str) -> str:
        return self._blobs.hash_in_name(sha256)


def blobs_at(url: str) -> Blobs:
    """The blobs at a URL, with one client per process: that of the job, if its tasks run in the same process."""
    opened = opened_blobs(url)
    return _blobs_at(url) if opened is None else opened


@lru_cache(maxsize=4)
def _blobs_at(url: str) -> Blobs:
    return object_store_of(url).blobs
