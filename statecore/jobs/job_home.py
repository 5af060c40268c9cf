"""Where a job keeps the files of its request, which a retry needs, and the staging of its attempts: its home.

With a state directory they are in the application's directory, under its lock. Without one they are pointers in the
repository, and the job has no lock: two attempts of one request do the same, and of two jobs one publishes the head.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.errors import NotFound, Retryable, StatecoreError
from statecore.filesystem import discard_tree, make_directories, write_durably
from statecore.jobs.context import JobContext
from statecore.jobs.pipeline.staging_place import DirectoryPlace, StagingPlace
from statecore.jobs.planning.frozen_plan import (
    FROZEN_PLAN,
    PLAN_SUFFIX,
    FrozenPlan,
    plan_path,
    request_name,
    staging_base,
    sweep_plans,
)
from statecore.objectstore.pointers import SWAP_TRIES
from statecore.repository.application_repository import ApplicationRepository

_KEPT_SECONDS = 86_400.0
_KEPT_REQUESTS_SECONDS = 7 * 86_400.0


class JobHome(ABC):
    """The files of one request, by suffix (:mod:`statecore.jobs.planning.frozen_plan`), and the staging of plans."""

    @property
    @abstractmethod
    def local_staging(self) -> str:
        """Directory of this machine with the staging of plans; empty if it is elsewhere."""

    @abstractmethod
    def read(self, suffix: str) -> bytes | None:
        """A file of the request; ``None`` if it does not exist."""

    @abstractmethod
    def save(self, suffix: str, content: bytes) -> None:
        """Write a file of the request durably and atomically."""

    @abstractmethod
    def forget(self, suffix: str) -> None:
        """Delete a file of the request, if it exists."""

    def read_plan(self) -> FrozenPlan | None:
        """The frozen plan of the request, if any. Raises ``Invalid`` if it is damaged or of another release."""
        content = self.read(PLAN_SUFFIX)
        return None if content is None else FROZEN_PLAN.decode(content)

    def save_plan(self, plan: FrozenPlan) -> None:
        self.save(PLAN_SUFFIX, FROZEN_PLAN.encode(plan))

    @abstractmethod
    def staging_place(self, plan_id: str) -> StagingPlace:
        """Staging of a plan's tasks."""

    @abstractmethod
    def discard(self, plan_id: str) -> None:
        """Delete the staging of a plan, as far as possible."""

    @abstractmethod
    def sweep(self) -> None:
        """Delete old files that will not be used by a retry any more, as far as possible."""


class DirectoryHome(JobHome):
    """Job files in an application's directory."""

    def __init__(self, work_path: Path, staging: Path, request_id: str) -> None:
        self._work, self._plan = work_path, plan_path(work_path, request_id)
        self.staging = staging

    @property
    def local_staging(self) -> str:
        return str(self.staging.absolute())

    def _file(self, suffix: str) -> Path:
        return self._plan.with_suffix(suffix)

    def read(self, suffix: str) -> bytes | None:
        try:
            return self._file(suffix).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, suffix: str, content: bytes) -> None:
        make_directories(self._plan.parent)
        write_durably(self._file(suffix), content)

    def forget(self, suffix: str) -> None:
        self._file(suffix).unlink(missing_ok=True)

    def staging_place(self, plan_id: str) -> StagingPlace:
        return DirectoryPlace(str((self.staging / plan_id).absolute()))

    def discard(self, plan_id: str) -> None:
        discard_tree(self.staging / plan_id)

    def sweep(self) -> None:
        sweep_plans(self._work, time.time())


class RepositoryHome(JobHome):
    """Job files in a repository, for a job without a state directory."""

    def __init__(self, repository: ApplicationRepository, request_id: str) -> None:
        self._repository, self._request = repository, request_name(request_id)

    @property
    def local_staging(self) -> str:
        return ""

    def _staging(self, plan_id: str) -> str:
        """Includes the request: two requests may have the same plan, and the first to end deletes its staging."""
        return f"{plan_id}-{self._request}"

    def _pointer(self, suffix: str) -> str:
        return self._repository.names.job(self._request, suffix.lstrip(".") if suffix != PLAN_SUFFIX else "plan")

    def read(self, suffix: str) -> bytes | None:
        found = self._repository.pointers.read(self._pointer(suffix))
        return None if found is None else found.content

    def save(self, suffix: str, content: bytes) -> None:
        """See :class:`JobHome`. Concurrent attempts of one request may both write; either content is valid."""
        name = self._pointer(suffix)
        for _ in range(SWAP_TRIES):
            found = self._repository.pointers.read(name)
            if found is not None and found.content == content:
                return
            if self._repository.pointers.swap(name, content, None if found is None else found.version) is not None:
                return
        raise Retryable(
            f"{name} in {self._repository.url} is being overwritten by other jobs.",
            code="write-conflict",
            action="Find the jobs with the same request id, then try again.",
            repository=self._repository.url,
        )

    def forget(self, suffix: str) -> None:
        self._repository.blobs.delete(self._pointer(suffix))

    def staging_place(self, plan_id: str) -> StagingPlace:
        from statecore.jobs.pipeline.repository_place import RepositoryPlace

        return RepositoryPlace(self._repository.url, self._repository.application_id, self._staging(plan_id))

    def discard(self, plan_id: str) -> None:
        discard_staging(self._repository, self._staging(plan_id))

    def sweep(self) -> None:
        sweep_stagings(self._repository, time.time())
        sweep_requests(self._repository, time.time())


def home_of(context: JobContext[Any]) -> JobHome:
    """The files of a request: in the application's directory if it names one, else in the repository."""
    request = context.request
    if not context.state_dir:
        return RepositoryHome(context.repository, request.request_id)
    directory = context.directory
    staging = staging_base(getattr(request, "staging_dir", None), directory)
    return DirectoryHome(directory.work_path, staging, request.request_id)


def discard_staging(repository: ApplicationRepository, plan_id: str) -> None:
    """Delete the staging of a plan in a repository, as far as possible."""
    with suppress(StatecoreError):
        for blob in list(repository.blobs.list(f"{repository.names.staging(plan_id)}/")):
            repository.blobs.delete(blob.name)


def sweep_stagings(repository: ApplicationRepository, now: float) -> None:
    """Delete stagings without activity for a day, as far as possible; plans in progress report every few seconds."""
    newest: dict[str, float] = {}
    names: dict[str, list[str]] = {}
    with suppress(StatecoreError):
        for blob in repository.names.listed(repository.blobs, "staging"):
            plan = blob.name.removeprefix(repository.names.stagings).split("/")[0]
            newest[plan] = max(newest.get(plan, 0.0), blob.modified)
            names.setdefault(plan, []).append(blob.name)
        for plan, modified in newest.items():
            for name in names[plan] if now - modified > _KEPT_SECONDS else ():
                with suppress(NotFound):
                    repository.blobs.delete(name)


def sweep_requests(repository: ApplicationRepository, now: float) -> None:
    """Delete files of requests that were not retried for a week, as far as possible."""
    with suppress(StatecoreError):
        for blob in list(repository.names.listed(repository.blobs, "jobs")):
            if now - blob.modified > _KEPT_REQUESTS_SECONDS:
                with suppress(NotFound):
                    repository.blobs.delete(blob.name)
