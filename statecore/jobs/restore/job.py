"""One attempt of a restore: its phases, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from statecore.errors import Corrupted, Fenced, Retryable
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.in_progress_marker import marked_in_progress
from statecore.jobs.job import Job
from statecore.jobs.job_home import RepositoryHome, home_of
from statecore.jobs.pipeline.read_stage import ReadResult, read_changelogs
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX
from statecore.jobs.read_report import ReadReport
from statecore.jobs.read_report_stores import job_report
from statecore.jobs.restore.planned_restore import PlanLimit, PlannedRestore
from statecore.jobs.restore.planner import RestorePlanner
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.resume import answered_plan, report_of
from statecore.jobs.restore.sinks import Images, Sink, are_apart


class RestoreJob(Job):
    """One attempt of a restore, with the sinks of its stores."""

    def __init__(self, context: JobContext[RestoreRequest], engine: Engine, limit: PlanLimit | None) -> None:
        request = context.request
        super().__init__(
            context, home_of(context), f"stores were restored in {context.state_dir or request.repository}"
        )
        self.request = request
        self.engine = engine
        self.planner = RestorePlanner(context, engine.options, limit)
        self.sinks: list[Sink] = []

    def run(self) -> ReadReport:
        """Restore, while the in-progress marker makes scheduled checkpoints wait.

        A restore of whole changelogs cannot be rebased on what they publish; it would have to read them again.
        """
        context = self.context
        publishes = any(sink.publishes for sink in self.sinks)
        if publishes:
            context.repository.repository.check_primary()
            head = context.repository.read_head()
            context.repository.check_needs(None if head is None else head.head)
        request_id = self.request.request_id
        marked = marked_in_progress(context.repository, request_id, at_once=True) if publishes else nullcontext()
        with self.engine.start("restore", self.spec) as workers, self.attempted(), marked:
            return self._earlier() or self._run(workers)

    def _earlier(self) -> ReadReport | None:
        """Report of an earlier attempt of this request, if everything it delivered is still there.

        Raises:
            Invalid, NotFound: a changelog was recreated or deleted since.
        """
        frozen = answered_plan(self.home, self.spec, self.request)
        if frozen is None:
            return None
        found = report_of(self.home, frozen.plan)
        report = None if found is None else found.value
        for sink in self.sinks:
            report = None if report is None else sink.earlier(report, frozen)
        if report is not None:
            with suppress(Retryable), self.context.cluster() as cluster:  # without an answer they count as unchanged
                self.planner.check_topics(cluster, frozen)
            self.home.discard(frozen.plan.plan_id)  # staged by the killed attempt
            self.progress.done(self.sinks[-1].already_done)
        return report

    def _run(self, workers: Workers) -> ReadReport:
        with self.phase("plan"):
            self.progress.phase("plan")
            for sink in self.sinks:
                sink.recover()
            if (earlier := self._earlier()) is not None:
                return earlier
            planned = self._plan(workers)
            uploads = [sink.begin(planned) for sink in self.sinks]
            self.save(ATTEMPT_SUFFIX, self.attempt.begun())
            self.progress.done()
        self.faults.reach("restore.after-plan")
        self.wait_for(
            workers,
            planned.plan.plan_id,
            lambda: self._shared_path(workers, planned),
            self.spec.kafka,
            has_work=bool(planned.plan.partitions),
        )
        try:
            planned, last = self._delivered(workers, planned, uploads)
        except Fenced as error:
            if not self.plans_again(error):
                raise
            planned, last = self._delivered(workers, *self._planned_again(workers, planned))
        if are_apart(self.context, workers):
            runs = RepositoryHome(self.context.repository, self.request.request_id)
            runs.discard(planned.plan.plan_id)
            runs.sweep()
        self.finish(planned.plan.plan_id, last.to_json())  # differs from the one saved before only in its times
        return last

    def _delivered(
        self, workers: Workers, planned: PlannedRestore, uploads: Sequence[bool]
    ) -> tuple[PlannedRestore, ReadReport]:
        """Read, build, and deliver to the sinks; the plan that was carried out in the end, and the report."""
        while True:  # each round refuses at least one more base; without a base the whole changelog is read
            read = self._read(workers, planned, uploads=any(uploads))
            if not self.planner.refuses(planned, read.runs):
                self.faults.reach("restore.after-runs")
                images = self._build(workers, planned, read)
                if images is not None:
                    break
            planned, uploads = self._planned_again(workers, planned)
        self.faults.reach("restore.after-images")
        done, made = planned, images
        for sink in self.sinks:
            sink.deliver(done, read, made, lambda: self._report(done, read, made))
        return done, self._report(done, read, made).finish()

    def _planned_again(self, workers: Workers, planned: PlannedRestore) -> tuple[PlannedRestore, list[bool]]:
        """A new plan in place of one that cannot be carried out; and what each sink says to it at the beginning."""
        with self.phase("plan again"):
            self.home.discard(planned.plan.plan_id)
            again = self._new_plan(workers)
            return again, [sink.begin(again) for sink in self.sinks]

    def _plan(self, workers: Workers) -> PlannedRestore:
        """The frozen plan of this request, or a new one. All refusals happen here."""
        with self.context.cluster() as cluster:
            found = self.planner.resumed(cluster, self.home)
            if isinstance(found, PlannedRestore):
                self.is_resumed = True
                self.brokers = cluster.brokers()
                return self._checked(found)
        why = () if found is None else (f"The plan of an earlier attempt of this request was recreated: {found}",)
        return self._new_plan(workers, why)

    def _new_plan(self, workers: Workers, why: tuple[str, ...] = ()) -> PlannedRestore:
        with self.context.cluster() as cluster:
            planned = self._checked(self.planner.new(cluster, workers.parallelism, self.home.local_staging))
            self.brokers = cluster.brokers()
        self.home.save_plan(planned.frozen)
        return replace(planned, notes=(*why, *planned.notes))

    def _checked(self, planned: PlannedRestore) -> PlannedRestore:
        """A plan that no sink refuses, with their notes."""
        return replace(planned, notes=(*planned.notes, *(note for sink in self.sinks for note in sink.check(planned))))

    def _shared_path(self, workers: Workers, planned: PlannedRestore) -> Path | None:
        """The directory that workers have to share with this process."""
        if are_apart(self.context, workers):
            return None
        paths = (sink.shared_path(planned.plan.plan_id) for sink in self.sinks)
        return next((path for path in paths if path is not None), None)

    def _read(self, workers: Workers, planned: PlannedRestore, *, uploads: bool) -> ReadResult:
        plan, home, is_apart = planned.plan, self.home, are_apart(self.context, workers)
        if is_apart:  # runs are in the repository only, else with the images that are built of them
            home = RepositoryHome(self.context.repository, self.request.request_id)
        with self.phase("read"), self.discarding_invalid(plan.plan_id):
            place, uploads = home.staging_place(plan.plan_id), uploads or is_apart
            return read_changelogs(self.context, workers, plan, planned.bases, place, uploads=uploads)

    def _build(self, workers: Workers, planned: PlannedRestore, read: ReadResult) -> Images | None:
        """Build all images; ``None`` if files of base snapshots are damaged, after refusing these bases."""
        images: Images = {}
        try:
            for sink in self.sinks:
                images = {**images, **sink.build(workers, planned, read)}
        except Corrupted as error:
            if not self.planner.refuse_snapshots(planned, error):
                raise
            return None
        return images

    def _report(self, planned: PlannedRestore, read: ReadResult, images: Images) -> ReadReport:
        fields = {name: value for sink in self.sinks for name, value in sink.report_fields().items()}
        notes = (*planned.notes, *(note for sink in self.sinks for note in sink.notes()))
        return job_report(self, planned.plan, read, images, notes=notes, **fields)
