"""Checkpoint: advance the newest snapshot of an application by the tails of its changelogs.

The phases, and why a kill at any time is harmless::

    inspect   head, manifest and task manifests of the newest snapshot   nothing is changed
    plan      a base for each store, then freeze the offsets             nothing was published before this line
    read      [base end, end) of each changelog → runs, uploaded into the repository under their hashes
    validate  is each tail complete, or read in time?                    else the next base and a new plan; or the
                                                                         whole log is compared with the base
    publish   task manifests of changed tasks, manifest, head            one swap; unchanged tasks are inherited
    compact   if there are many runs (statecore.jobs.compact.run)        a publication of its own

Older runs and the files below them are neither read nor moved. If nothing is new, only the time up to which the
snapshot is known to be complete is published now and then: its age decides whether deletes may be missing.

A small tail is read by this process itself, which is faster than starting an engine; the runs are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Reason
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.bases.base import DAMAGED, Key, grouped
from statecore.jobs.checkpoint.plan import CheckpointPlan, plan_checkpoint
from statecore.jobs.checkpoint.publish import publication_of, publish_tails
from statecore.jobs.checkpoint.reconcile import Reconciled
from statecore.jobs.checkpoint.request import CheckpointRequest, WhenRefused
from statecore.jobs.checkpoint.schedule import made_since
from statecore.jobs.checkpoint.tails import SMALL_TAIL, TailReader, validate_tails
from statecore.jobs.compact.run import CompactedAfter, compact_after
from statecore.jobs.context import JobContext, ignore
from statecore.jobs.engine import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.in_progress_marker import InProgressMarker, marked_in_progress
from statecore.jobs.job import Job
from statecore.jobs.job_files import home_of
from statecore.jobs.pipeline.read_stage import NOTHING_READ, ReadResult
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.request_files import PLAN_SUFFIX
from statecore.jobs.process_engine import local_engine
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.report_stores import job_report
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import TaskManifest
from statecore.repository.publication import Publication, Published


@dataclass(frozen=True)
class OpenConnections:
    """Connections that a service reuses for every checkpoint.

    Attributes:
        repository: the opened application repository.
        cluster: the connected brokers.
    """

    repository: ApplicationRepository
    cluster: Cluster


def run_checkpoint(
    request: CheckpointRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = ignore,
    warm: OpenConnections | None = None,
    small_tail: int = SMALL_TAIL,
    go_on: bool = False,
) -> RestoreReport | RestorePlan:
    """Advance the newest snapshot of an application.

    Args:
        go_on: whether this attempt resumes the plan of its own first process, and has no note about that.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.
    """
    with translated_errors(_doing(request)):
        context = JobContext.open(
            request,
            progress,
            faults=faults,
            say=say,
            shared_repository=None if warm is None else warm.repository,
            shared_cluster=None if warm is None else warm.cluster,
        )
        return _Checkpoint(context, engine, small_tail, go_on=go_on).run()


def _day(made: str) -> str:
    return made[: len("2026-11-23")]


def _doing(request: CheckpointRequest) -> str:
    return f"a checkpoint was made in {request.repository}"


class _Checkpoint(Job):
    """One attempt of a checkpoint."""

    def __init__(self, context: JobContext[CheckpointRequest], engine: Engine, small_tail: int, *, go_on: bool) -> None:
        request, self.repository = context.request, context.repository
        super().__init__(context, home_of(context), _doing(request))
        self.request, self.engine, self.small_tail, self.go_on = request, engine, small_tail, go_on
        self.reader = TailReader(self, engine, small_tail)
        self.refused: dict[tuple[Key, str], Reason] = {}
        self.made: Sequence[TaskManifest] = ()
        self.reconciled: Mapping[Key, Reconciled] = {}
        self.rebuilds_damaged = False
        self._said: set[str] = set()

    def run(self) -> RestoreReport | RestorePlan:
        """Make the checkpoint, or its plan."""
        if self.request.plan_only:
            planned = self._plan(publication_of(self))
            for note in planned.notes:
                if note not in self._said:
                    self.say(f"note: {note}")
            return planned.plan
        with self.attempted(), marked_in_progress(self.repository) as marker:
            return self._run(marker)

    def _run(self, marker: InProgressMarker) -> RestoreReport:
        with self.phase("plan"):
            self.progress.phase("plan")
            publication = publication_of(self)
            if (earlier := publication.earlier()) is not None:
                marker.delete_at_end()  # left by the killed attempt
                self.home.forget(PLAN_SUFFIX)  # the killed attempt did not get there
                self.progress.done("already published")
                return self._report(None, NOTHING_READ, (), earlier)
            if (faster := made_since(publication.entries, self.request.decided_upon)) is not None:
                if self.home.read(PLAN_SUFFIX) is not None:
                    marker.delete_at_end()
                    self.home.forget(PLAN_SUFFIX)
                self.progress.done("made by another job")
                return self._report(None, NOTHING_READ, (faster,), None)
            planned = self._plan(publication)
            if planned.is_resumed:
                marker.delete_at_end()
            self.progress.done()
        self.faults.reach("checkpoint.after-plan")
        while True:  # each round refuses at least one more base; without a base the whole changelog is read
            read = self.reader.read(planned)
            self.faults.reach("checkpoint.after-runs")
            if (made := self._validated(planned, read)) is not None:
                break
            self.home.forget(PLAN_SUFFIX)  # else it would be resumed
            with self.phase("plan again"):
                planned = self._plan(publication)
        self.made, published = publish_tails(self, publication, planned, made, self.reconciled)
        self.home.forget(PLAN_SUFFIX)
        self.faults.reach("checkpoint.after-publication")
        compacted = CompactedAfter() if published is None else self._compact(publication)
        if (
            published is not None
            and publication.newest is not None
            and _day(published.created_at) != _day(publication.newest.created_at)
        ):
            self.home.sweep()  # once a day, because listing costs as much as writing
        notes = (*planned.notes, *map(str, self.reconciled.values()), *compacted.notes)
        report = self._report(planned, made, notes, published)
        return self._rebuild_damaged(report, compacted.damaged) if compacted.damaged else report

    def _validated(self, planned: CheckpointPlan, read: ReadResult) -> ReadResult | None:
        """Validate the tails; ``None`` if some of their bases turned out unsound."""
        validation = validate_tails(self, planned, read, self.reader.local_engine)
        self.reconciled = validation.reconciled
        self._say(grouped(validation.unsound.refused))
        self.refused |= validation.unsound.permanent
        return None if validation.unsound.refused else validation.read

    def _say(self, lines: Iterable[str]) -> None:
        """Tell the operator lines, each once."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self.say(line)

    def _plan(self, publication: Publication) -> CheckpointPlan:
        with self.context.cluster() as cluster:
            planned = plan_checkpoint(cluster, self.context, publication, self.home, self.refused, self._expected)
            self.is_resumed = planned.is_resumed
            if self.go_on:
                planned = planned.without_resumed_note()
            if planned.plan.offsets >= self.small_tail:
                self.brokers = cluster.brokers()
        self._refuse_what_must_not_be_rebuilt(planned)
        self._say(planned.urgent_notes)
        return planned

    def _refuse_what_must_not_be_rebuilt(self, planned: CheckpointPlan) -> None:
        if self.request.when_refused != WhenRefused.REFUSE or not planned.not_advanced:
            return
        if not self.request.plan_only:
            self.home.forget(PLAN_SUFFIX)  # a retry would resume it
        lines = [f"  {line}" for line in planned.lacking]
        raise Invalid(
            "Stores cannot be advanced, and rebuilding them was not allowed:\n" + "\n".join(lines) + "\n",
            code="advance-refused",
            action="Rebuild them (--when-refused rebuild), or restore them (statecore restore --repository).",
            problems=[one.to_json() for one in planned.refused_without_base],
        )

    def _expected(self) -> int:
        return self.engine.expected(self.spec)

    def _compact(self, publication: Publication) -> CompactedAfter:
        """Compact databases that have many runs."""
        if not self.request.compact or self.rebuilds_damaged:
            return CompactedAfter()
        parts = {**publication.task_manifests(), **{part.task: part for part in self.made}}
        with self.phase("compact"):
            return compact_after(self.context, parts.values())

    def _rebuild_damaged(self, report: RestoreReport, damaged: Collection[Key]) -> RestoreReport:
        """A second checkpoint that refuses all snapshots as bases of damaged stores.

        The policy for refused bases applies. It runs on this machine, because a submitted engine serves one request.
        """
        request = replace(self.request, request_id=f"{self.request.request_id}-healed", decided_upon=None)
        job = _Checkpoint(self.context.with_request(request), local_engine(self.engine), self.small_tail, go_on=False)
        job.rebuilds_damaged = True
        snapshots = [entry.snapshot for entry in self.repository.head().snapshots]
        why = Reason(f"{DAMAGED}, found by a compaction", "base-damaged")
        job.refused = {(key, snapshot): why for key in damaged for snapshot in snapshots}
        rebuilt = job.run()
        assert isinstance(rebuilt, RestoreReport)
        return replace(rebuilt, notes=(*report.notes, *rebuilt.notes))

    def _report(
        self,
        planned: CheckpointPlan | None,
        made: ReadResult,
        notes: tuple[str, ...],
        published: Published | None,
    ) -> RestoreReport:
        plan = None if planned is None else planned.plan
        warnings = () if published is None else published.warnings
        for warning in warnings:
            self.say(f"warning: {warning}")
        return job_report(
            self,
            plan,
            made,
            parts={key: one.parts for key, one in self.reconciled.items()},
            notes=(*notes, *warnings),
            placed=False,
            finished=utc_now(),
            repository=self.repository.url,
            published=published,
        )
