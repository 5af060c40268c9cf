"""Where the stores of a restore go: a sink each for the state directory and for the repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.engine import Workers
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.planning.request_files import FrozenPlan
from statecore.jobs.restore.planned_restore import PlannedRestore
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import RestoreRequest

Images = Mapping[Key, ImageResult]


class Sink(Protocol):
    """What receives the stores of a restore, which has one sink or both. The methods are called in this order."""

    @property
    def already_done(self) -> str:
        """What is shown if an earlier attempt of the request has done the work."""

    def preview(self, planned: PlannedRestore) -> Iterator[str]:
        """Notes on a plan that is only shown. Raises what the restore would be refused with."""

    def recover(self) -> None:
        """Finish or roll back what a killed job left."""

    def earlier(self, report: RestoreReport, frozen: FrozenPlan) -> RestoreReport | None:
        """The report of an earlier attempt of the request, if it delivered the stores and they are still there."""

    def check(self, planned: PlannedRestore) -> list[str]:
        """Refuse a plan before it is frozen; returns notes."""

    def begin(self, planned: PlannedRestore) -> bool:
        """Begin, before anything is read; returns whether the runs go into the repository."""

    def shared_path(self, plan_id: str) -> Path | None:
        """The directory that all workers have to share with this process, if any."""

    def build(self, workers: Workers, planned: PlannedRestore, read: ReadResult) -> Images:
        """Build the images that are to be delivered."""

    def deliver(
        self, planned: PlannedRestore, read: ReadResult, images: Images, report: Callable[[], RestoreReport]
    ) -> None:
        """Deliver the stores. ``report`` is of the restore so far."""

    def report_fields(self) -> Mapping[str, Any]:
        """Fields of the report that say where the stores are."""

    def notes(self) -> tuple[str, ...]:
        """Notes on the delivery, for the report."""


def are_apart(context: JobContext[RestoreRequest], workers: Workers) -> bool:
    """Whether workers share only the repository with this machine: a cluster without a shared staging directory."""
    return context.has_repository and not context.request.staging_dir and not workers.are_here()
