"""Where the stores of a restore go: a sink each for the state directory and for the repository."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Workers
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.planned_restore import PlannedRestore
from statecore.jobs.restore.request import RestoreRequest

Images = Mapping[Key, ImageResult]


class Sink(ABC):
    """What receives the stores of a restore, which has one sink or both.

    =================  =============================================================
    method             called
    =================  =============================================================
    ``preview``        for a plan only, and then no other method
    ``earlier``        first, and again after ``recover``
    ``recover``        unless the report of an earlier attempt was the answer
    ``check``          for each plan, also a resumed one; a new one is frozen later
    ``begin``          for each plan that is going to be read
    ``shared_path``    once, with the first plan
    ``build``          for each plan that was read
    ``deliver``        once
    ``report_fields``  with ``notes``, for each report: before a placement, at the end
    =================  =============================================================

    A plan is made again if a base turns out not to be sound. ``earlier`` is called twice, because a restore that has
    succeeded is answered without a recovery, while the stores of one that was killed during its placement are in place
    only after the recovery has completed it.
    """

    already_done: ClassVar[str]
    """What is shown if an earlier attempt of the request has done the work."""

    publishes: ClassVar[bool] = False
    """Whether it publishes a snapshot."""

    def preview(self, planned: PlannedRestore) -> Iterator[str]:  # noqa: ARG002
        """Notes on a plan that is only shown. Raises what the restore would be refused with."""
        return iter(())

    def recover(self) -> None:  # noqa: B027
        """Finish or roll back what a killed job left."""

    @abstractmethod
    def earlier(self, report: ReadReport, frozen: FrozenPlan) -> ReadReport | None:
        """The report of an earlier attempt of the request, if it delivered the stores and they are still there."""

    def check(self, planned: PlannedRestore) -> list[str]:  # noqa: ARG002
        """Refuse a plan; returns notes."""
        return []

    def begin(self, planned: PlannedRestore) -> bool:  # noqa: ARG002
        """Begin, before anything of the plan is read; returns whether the runs go into the repository."""
        return False

    def shared_path(self, plan_id: str) -> Path | None:  # noqa: ARG002
        """The directory that all workers have to share with this process, if any."""
        return None

    def build(self, workers: Workers, planned: PlannedRestore, read: ReadResult) -> Images:  # noqa: ARG002
        """Build the images that are to be delivered."""
        return {}

    @abstractmethod
    def deliver(
        self, planned: PlannedRestore, read: ReadResult, images: Images, report: Callable[[], ReadReport]
    ) -> None:
        """Deliver the stores. ``report`` is of the restore so far."""

    @abstractmethod
    def report_fields(self) -> Mapping[str, Any]:
        """Fields of the report that say where the stores are."""

    def notes(self) -> tuple[str, ...]:
        """Notes on the delivery, for the report."""
        return ()


def are_apart(context: JobContext[RestoreRequest], workers: Workers) -> bool:
    """Whether workers share only the repository with this machine: a cluster without a shared staging directory."""
    return context.has_repository and not context.request.staging_dir and not workers.are_local()
