"""The sink of a restore that publishes a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from statecore.errors import Fenced, Invalid
from statecore.jobs.job import Job
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.task_manifests import task_manifests, tasks_to_publish
from statecore.jobs.planning.frozen_plan import FrozenPlan, request_name
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.planned_restore import PlannedRestore, RefusedPlan
from statecore.jobs.restore.request import NOTHING
from statecore.jobs.restore.resume import NOT_PUBLISHED, is_not_published, is_published
from statecore.jobs.restore.sinks import Images, Sink
from statecore.repository.head import Origin
from statecore.repository.publish.publication import Publication, Published
from statecore.spec.writer import spec_hash
from statecore.words import WARNING


class PublishSink(Sink):
    """Publishes the stores as a snapshot. Unless it ``is_only``, a conflicting publication is only reported.

    Where a checkpoint has published meanwhile, each store is that of the snapshot or of this restore, whichever has
    read more of its changelog (:func:`statecore.repository.publish.rebase.rebase_advance`).
    """

    already_done = "already published"
    publishes = True

    def __init__(self, job: Job, *, is_only: bool) -> None:
        self._job, self._is_only = job, is_only
        self._repository = job.context.repository
        self._publication: Publication | None = None
        self._published: Published | None = None
        self._not_published = ""

    def earlier(self, report: ReadReport, frozen: FrozenPlan) -> ReadReport | None:
        if not self._is_only or is_not_published(report):
            return report if is_published(report, frozen.plan) else None
        found = self._publication_of(frozen.plan.plan_id).earlier()
        return None if found is None else replace(report, published=found)

    def preview(self, planned: PlannedRestore) -> Iterator[str]:
        try:
            self.check(planned)
        except Invalid as error:
            raise RefusedPlan.of(planned.plan, error) from error
        return iter(())

    def check(self, planned: PlannedRestore) -> list[str]:
        """Conflicts, and a repository of another cluster, are noticed here: before the plan is saved."""
        self._publication = None
        if planned.published.partitions:
            found = self._publication_of(planned.plan.plan_id)
            accepted = self._job.context.request.accept_cluster
            found.check_cluster(planned.cluster_id, accepted, is_whole=self._is_whole(planned))
            self._publication = found
        return []

    def begin(self, planned: PlannedRestore) -> bool:  # noqa: ARG002
        if self._publication is not None:
            self._repository.check_writable()
        return self._publication is not None

    def _is_whole(self, planned: PlannedRestore) -> bool:
        """Whether every task of the application is published."""
        request, frozen = self._job.context.request, planned.frozen
        is_partial = bool(request.stores or request.partitions or frozen.is_partial)
        return not is_partial and planned.published == frozen.plan

    def _publication_of(self, plan_id: str) -> Publication:
        # Includes the request, because another request with the same plan has read the ends at another time.
        name = f"{request_name(self._job.context.request.request_id)}-{plan_id}"
        return Publication(
            self._repository,
            self._job.spec,
            request=name,
            origin=Origin.RESTORE,
            clock=time.time,
            faults=self._job.faults,
        )

    def deliver(
        self,
        planned: PlannedRestore,
        read: ReadResult,
        images: Images,
        report: Callable[[], ReadReport],  # noqa: ARG002
    ) -> None:
        if self._publication is not None:
            with self._job.phase("publish"):
                self._publish(self._publication, planned, read, images)
        self._job.faults.reach("restore.after-publication")

    def _publish(self, publication: Publication, planned: PlannedRestore, read: ReadResult, images: Images) -> None:
        job, application_id = self._job, self._job.context.application_id
        job.progress.phase("publish")
        try:
            found = self._snapshot(publication, planned, read, images)
        except Fenced as error:
            if self._is_only:
                raise
            # A checkpoint published first; the stores that were built are still good.
            self._leave(error.what)
            return
        if found is None:
            self._leave(f"The newest snapshot of {application_id} has as much of its changelogs.")
            return
        job.progress.done(found.snapshot)
        job.say(f"Published snapshot {found.snapshot} of {application_id} in {self._repository.url}.")
        for warning in found.warnings:
            job.say(WARNING + warning)
        self._published = found

    def _leave(self, why: str) -> None:
        self._job.progress.done("nothing")
        self._not_published = f"{NOT_PUBLISHED}: {why}"
        self._job.say(self._not_published)

    def _snapshot(
        self, publication: Publication, planned: PlannedRestore, read: ReadResult, images: Images
    ) -> Published | None:
        """The published snapshot; ``None`` if others have published as much, unless whole changelogs were wanted."""
        frozen, plan, request, spec = planned.frozen, planned.published, self._job.context.request, self._job.spec
        manifests = task_manifests(
            plan,
            read,
            {key: built.image for key, built in images.items()},
            bases=planned.bases,
            read_at_ms=frozen.read_at_ms,
            spec_digest=spec_hash(spec),
        )
        # What others published meanwhile may have a base that this restore was asked not to use, or refused.
        may_inherit = request.start_from != NOTHING and not planned.not_newest

        published = publication.publish(
            manifests,
            drops_other_tasks=False,
            tasks=tasks_to_publish(spec, plan.tasks, publication.task_manifests()) if self._is_whole(planned) else None,
            rebase=planned.rebase if planned.bases or may_inherit else planned.rebuild(publication.task_manifests),
            refused=planned.not_newest,
        )
        if published is None and not may_inherit:  # other jobs have published the same, or more
            raise Fenced(
                f"Nothing was published for {spec.application_id}: another job has published as much.",
                code="publication-conflict",
                action="Start a new restore (under a new request id); it starts from the newest snapshot. To publish "
                "one that reads everything (--from none), pause checkpoints that ignore its in-progress marker.",
                application_id=spec.application_id,
            )
        return published

    def report_fields(self) -> Mapping[str, Any]:
        return {"repository": self._repository.url, "published": self._published}

    def notes(self) -> tuple[str, ...]:
        if self._published is not None:
            return tuple(WARNING + warning for warning in self._published.warnings)
        return (self._not_published,) if self._not_published else ()
