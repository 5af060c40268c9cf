"""The sink of a restore that places stores into a state directory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from statecore.jobs.engine.protocol import Workers
from statecore.jobs.job import Job
from statecore.jobs.pipeline.build_stage import build_images, stores_to_build
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.staging import staged_names
from statecore.jobs.pipeline.task_manifests import task_manifests
from statecore.jobs.planning.estimate import disk_warnings, ensured_room
from statecore.jobs.planning.frozen_plan import REPORT_SUFFIX, FrozenPlan, staging_base
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.local_build import build_locally, staged_runs
from statecore.jobs.restore.planned_placement import check_kinds, placement_notes_of, placement_of, renumbered_notes
from statecore.jobs.restore.planned_restore import PlannedRestore, refuse_preview
from statecore.jobs.restore.resume import placed_report, report_of
from statecore.jobs.restore.sinks import Images, Sink, are_apart
from statecore.statedir.placement import apply_placement, recover


class PlaceSink(Sink):
    """Places the stores into the application's directory; ``keep_replaced`` keeps what it replaces, on purpose."""

    already_done = "already in place"

    def __init__(self, job: Job, *, keep_replaced: bool) -> None:
        self._job, self._keep_replaced = job, keep_replaced
        self._directory = job.context.directory
        self._id = uuid.uuid4().hex
        self._resumes = False

    def preview(self, planned: PlannedRestore) -> Iterator[str]:
        request = self._job.context.request
        yield from placement_notes_of(planned, self._job.spec, self._directory)
        yield from renumbered_notes(planned, self._job.spec, self._directory)
        if planned.disk is not None:
            yield from disk_warnings(self._directory, request.staging_dir, planned.disk)
        yield self._directory.owner_note()
        yield from refuse_preview(planned, request, self._directory, self._job.spec)

    def recover(self) -> None:
        recover(self._directory, self._job.faults, self._job.say)

    def earlier(self, report: ReadReport, frozen: FrozenPlan) -> ReadReport | None:  # noqa: ARG002
        found = placed_report(self._job.home, self._directory, frozen, self._job.attempt)
        if found is None:
            return None
        placed, corrected = found
        if corrected is not None:
            self._job.save(REPORT_SUFFIX, corrected)
        self._directory.apply_ownership()  # the killed attempt may not have got there
        return placed

    def check(self, planned: PlannedRestore) -> list[str]:
        self._resumes |= planned.is_resumed and report_of(self._job.home, planned.plan) is not None
        check_kinds(self._directory, self._job.spec, planned.plan, repairs=self._keep_replaced)
        notes = placement_of(planned, self._job.context, resumes=self._resumes).notes
        notes += renumbered_notes(planned, self._job.spec, self._directory)
        if planned.disk is not None:
            notes += ensured_room(self._directory, self._job.context.request.staging_dir, planned.disk)
        return notes

    def shared_path(self, plan_id: str) -> Path:
        return staging_base(self._job.context.request.staging_dir, self._directory) / plan_id

    def build(self, workers: Workers, planned: PlannedRestore, read: ReadResult) -> Images:
        job, plan, context = self._job, planned.plan, self._job.context
        staging = self.shared_path(plan.plan_id)
        is_apart = are_apart(context, workers)
        downloaded = set(plan.stores) if is_apart else planned.bases.keys() - planned.based_on_directory
        images: dict[tuple[str, str], Any] = {}
        with job.phase("build"):
            if downloaded:
                runs, at_hand = (read, {}) if is_apart else staged_runs(read, staging)
                manifests = task_manifests(plan.of(downloaded), runs, {}, bases=planned.bases)
                directories = {key: planned.bases[key].bases for key in planned.based_on_directory & downloaded}
                images |= build_locally(context, manifests, staging, directories, at_hand)
            stores = stores_to_build(plan.of(plan.stores.keys() - downloaded), read.runs, planned.bases)
            if stores:
                place, budget = job.home.staging_place(plan.plan_id), context.request.memory_budget
                images |= build_images(workers, context.application_id, stores, place, staging, budget, job.progress)
        return images

    def deliver(
        self,
        planned: PlannedRestore,
        read: ReadResult,  # noqa: ARG002
        images: Images,  # noqa: ARG002
        report: Callable[[], ReadReport],
    ) -> None:
        job = self._job
        with job.phase("place"):
            # Saved before the placement: a retry after a kill finds the stores in place and needs their report.
            job.save(REPORT_SUFFIX, report().to_json())
            staging = self.shared_path(planned.plan.plan_id)
            # Planned again, because the live directory may have changed while the images were built.
            placement = placement_of(planned, job.context, staging, resumes=self._resumes)
            for line in placement.lines:
                job.say(line)
            apply_placement(
                placement,
                job.faults,
                job.progress,
                staged=staged_names(staging),
                keeps=self._keep_replaced,
                placement_id=self._id,
            )
        job.faults.reach("restore.after-placement")

    def report_fields(self) -> Mapping[str, Any]:
        return {"placement": self._id}
