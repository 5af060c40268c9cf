"""Migration: converts a state directory for another release of Kafka Streams, so that nothing has to be restored.

Phases, and why a kill at any point is harmless::

    look      plan the conversion of every task              nothing is changed; a plan ends here
    refuse    with all reasons at once                       nothing is changed
    copy      hard-link SST files, copy the rest             in the application's .statecore, which the next job cleans
              (statecore.statedir.task_swap)
    convert   change the copies, sync and verify them, task  the same
              by task, by the engine's workers
    swap      whole tasks, by the placement journal          each task is entirely old or new; the next job finishes it
    verify    plan the live tasks again: nothing remains     tasks of two releases only after a kill in the middle of a
              to be done                                     swap; running it again resolves that

The whole directory is migrated or none of it: no release opens a directory of two formats. A task that its own release
would delete is *left* as it is, and will be deleted as before; that is noted, and is no reason to refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from statecore.conversion import StoreConversion, TaskConversion, plan_conversion
from statecore.errors import Corrupted, Invalid, NotFound, Reason
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.formats.releases import CHECKPOINT_FILE, RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.directory_change import DirectoryChange, declared_in, directory_of
from statecore.jobs.engine import Engine, Question, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.job import nobody
from statecore.jobs.migrate.owner_check import of_another
from statecore.jobs.migrate.report import (
    MIGRATION_SUFFIX,
    MigratedStep,
    MigratedStore,
    MigratedTask,
    MigrateReport,
    Outcome,
)
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.tasks import ConvertTask, convert_tasks
from statecore.jobs.pipeline.stages import Watch, run_batches
from statecore.jobs.plan_id import plan_id_of, refuse_another_plan, refuse_in_use
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.restore.report import PROCESSES
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, undecided_note
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_replay import Outcome as Placed
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import guarantee_of, store_places
from statecore.statedir.task_swap import TaskSwap
from statecore.stores.legacy_offsets import read_offsets

_FEW_DATABASES, _SMALL_BYTES = 64, 64 << 20
"""Databases and bytes below which this process converts them itself."""

_PRELOADED = ("statecore.conversion.execute",)


def run_migrate(
    request: MigrateRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> MigrateReport:
    """Convert a state directory for another release; or plan it.

    Returns:
        The report.
    """
    try:
        spec = declared_in(request)
        try:
            directory = directory_of(request)
        except NotFound as error:
            if not request.if_there:
                raise
            say(error.what)
            return _no_directory_report(request)
        return _Migration(request, engine, directory, spec, progress, faults, say).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _activity(request)) from error


class _Migration(DirectoryChange):
    """One attempt of a migration."""

    report_suffix = MIGRATION_SUFFIX
    called = "migration"

    def __init__(
        self,
        request: MigrateRequest,
        engine: Engine,
        directory: StateDirectory,
        declared: ApplicationSpec | None,
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(request, directory, declared, progress, faults, say, _activity(request))
        self.request, self.engine = request, engine
        self.to = RELEASES[request.to]

    def words(self) -> tuple[str, ...]:
        """See :class:`DirectoryChange`."""
        return "migrate", *self.request.to_words(without=("approved", "request_id"))

    def run(self) -> MigrateReport:
        """Plan, or migrate under the lock."""
        if not self.request.apply:
            refuse_in_use(self.directory)
            with self.phase("look"):
                return self._report(Outcome.PLANNED, *self._plan())
        with self.locked():
            self.faults.reach("migrate.after-lock")
            with self.phase("look"):
                plans, plan_id = self._plan()
            self._refuse(plans, plan_id)
            todo = [plan for plan in plans if not plan.is_empty]
            if not todo:
                report = self._report(Outcome.UNCHANGED, plans, plan_id)
                if self.has_ended_others():  # this one has finished theirs
                    self.end(plan_id, report.to_json())
                return report
            self.faults.reach("migrate.after-plan")
            self.begin_changes()
            with ExitStack() as stack:
                workers = stack.enter_context(self._engine_for(todo).start("migrate", self.spec))
                with self.phase("check"):
                    self.ran_on = workers.check(Question(self.directory.work_path, (), ()))
                if self.ran_on.master != PROCESSES:
                    self.say(str(self.ran_on))
                exchange = stack.enter_context(
                    TaskSwap(self.directory, self.request.request_id, self.faults, self.progress, keeps=False)
                )
                with self.phase("copy"):
                    work = self._copy(exchange, todo)
                self.faults.reach("migrate.after-copy")
                with self.phase("convert"):
                    seconds = self._convert(workers, work)
                self.faults.reach("migrate.after-convert")
                with self.phase("place"):
                    outcomes = exchange.swap([plan.task for plan in todo])
                    kept = str(exchange.kept_path) if exchange.kept_path.is_dir() else ""
            self.faults.reach("migrate.after-placement")
            with self.phase("verify"):
                self._verify(outcomes)
            report = self._report(Outcome.MIGRATED, plans, plan_id, kept=kept, seconds=seconds)
            self.end(plan_id, report.to_json())
            return report

    def _plan(self) -> tuple[list[TaskConversion], str]:
        """The conversion plan of each task, and the plan id."""
        existing = self.directory.every_task()
        missing = [task for task in self.request.tasks if task not in existing]
        if missing or not (existing or self.request.if_there):
            raise NotFound(
                f"{self.directory.path} has no task{f' {missing[0]}' if missing else ''}; "
                f"it has: {', '.join(existing) or 'none'}.",
                code="task-not-found",
                action="Check state_dir, the application id and the names of the tasks.",
                state_dir=str(self.directory.state_dir),
                tasks=missing,
            )
        wanted = [task for task in existing if not self.request.tasks or task in self.request.tasks]
        self.progress.phase("look", len(wanted), "tasks")
        plans, seen = [], {}
        for task in wanted:
            seen[task] = fingerprint(self.directory.task_path(task))
            plan = plan_conversion(
                task,
                self.directory.task_path(task),
                self.to,
                application_id=self.request.application_id,
                spec=self.declared,
                exactly_once=self._exactly_once(),
                lose_headers=self.request.lose_headers,
            )
            foreign = () if plan.refused else self._foreign_offsets(plan)
            plans.append(TaskConversion(task, plan.seen, plan.release_to, (), refused=foreign) if foreign else plan)
            self.progress.advance()
        self.progress.done()
        changed = {plan.task: seen[plan.task] for plan in plans if not plan.is_empty}
        content = {
            "to": self.request.to,
            "tasks": [asdict(_migrated_task(plan)) for plan in plans],
            "fingerprints": changed,
        }
        return plans, plan_id_of(content)

    def _foreign_offsets(self, plan: TaskConversion) -> tuple[Reason, ...]:
        content = [*read_offsets(self.directory.task_path(plan.task) / CHECKPOINT_FILE)]
        for store in plan.stores:
            content.extend(store.offsets)
        names = {place.store for place in store_places(self.directory)}
        return of_another(self.request.application_id, names, content, self.declared)

    def _exactly_once(self) -> bool | None:
        guarantee = guarantee_of(self.declared, self.request.processing_guarantee)
        return None if guarantee is None else guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    def _refuse(self, plans: Sequence[TaskConversion], plan_id: str) -> None:
        refused = [(plan.task, why) for plan in plans for why in plan.refused]
        if refused:
            raise Invalid(
                f"{self.directory.path} cannot be migrated to {self.to.name}:\n"
                + "\n".join(f"  {task}: {why}" for task, why in refused),
                code="migration-refused",
                action="Solve the problem of each line, then run this again; nothing was changed.",
                state_dir=str(self.directory.state_dir),
                problems=[problem for plan in plans for problem in _problems(plan)],
            )
        if not all(plan.is_empty for plan in plans):
            refuse_another_plan(self.directory, self.request.approved, plan_id)

    def _copy(self, exchange: TaskSwap, todo: Sequence[TaskConversion]) -> list[ConvertTask]:
        self.directory.ensure_free_space(sum(plan.needed_bytes for plan in todo))
        self.progress.phase("copy", len(todo), "tasks")
        work = []
        for plan in todo:
            exchange.keep(plan.task, plan.moved)
            done = exchange.staging / f"{plan.task}.done"
            work.append(ConvertTask(plan, str(exchange.copy(plan.task)), str(done)))
            self.progress.advance()
        self.progress.done()
        return work

    def _engine_for(self, todo: Sequence[TaskConversion]) -> Engine:
        """The engine; this process alone for little work, because workers take longer to start."""
        if not isinstance(self.engine, ProcessEngine):
            return self.engine
        if (
            sum(plan.databases for plan in todo) < _FEW_DATABASES
            and sum(plan.needed_bytes for plan in todo) < _SMALL_BYTES
        ):
            return InProcessEngine(_PRELOADED)
        return replace(self.engine, preloaded=_PRELOADED)

    def _convert(self, workers: Workers, work: Sequence[ConvertTask]) -> dict[str, float]:
        """Convert every copy; returns seconds by task."""
        self.progress.phase("convert", len(work), "tasks")
        files = [Path(one.done) for one in work]
        with Watch(lambda: sum(file.exists() for file in files), self.progress) as watch:
            done = run_batches(workers, [[one] for one in work], convert_tasks, self.doing)
        self.progress.advance(len(done) - watch.seen)
        self.progress.done()
        if len(done) != len(work):
            raise AssertionError(f"{len(done)} of {len(work)} tasks were answered for")
        return {one.task: one.seconds for one in done}

    def _verify(self, outcomes: Mapping[str, Placed]) -> None:
        left = sorted(task for task, outcome in outcomes.items() if outcome is not Placed.PLACED)
        if not left:
            plans, _ = self._plan()
            left = [plan.task for plan in plans if plan.refused or not plan.is_empty]
        if left:
            raise Corrupted(
                f"{', '.join(left)} in {self.directory.path} are not what they were converted to.",
                code="migration-unverified",
                action="Check the disk, and what else writes there, then run this again to resume it.",
                tasks=left,
            )

    def _report(
        self,
        outcome: Outcome,
        plans: Sequence[TaskConversion],
        plan_id: str,
        *,
        kept: str = "",
        seconds: Mapping[str, float] | None = None,
    ) -> MigrateReport:
        tasks = tuple(replace(_migrated_task(plan), seconds=(seconds or {}).get(plan.task, 0.0)) for plan in plans)
        if outcome is Outcome.PLANNED and any(task.refused for task in tasks):
            outcome = Outcome.REFUSED
        elif outcome is Outcome.PLANNED and not any(task.is_changed for task in tasks):
            outcome = Outcome.UNCHANGED
        return MigrateReport(
            **asdict(self.attempt),
            finished=utc_now(),
            to=self.to.name,
            outcome=outcome,
            plan_id=plan_id,
            kept=kept,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            ran_on=self.ran_on,
            tasks=tasks,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        undecided = "" if self.declared is None else undecided_note(self.declared)
        if not undecided:
            return ()
        return (f"{undecided}. Their kinds are detected in the directory; declare them in the spec.",)


def _no_directory_report(request: MigrateRequest) -> MigrateReport:
    """Report on an application that has no state directory yet."""
    began = Attempt.begin(request.application_id, request.state_dir, request.request_id)
    return MigrateReport(
        **asdict(began),
        finished=utc_now(),
        to=RELEASES[request.to].name,
        outcome=Outcome.UNCHANGED,
        plan_id=plan_id_of({"to": request.to, "tasks": [], "fingerprints": {}}),
    )


def _migrated_task(plan: TaskConversion) -> MigratedTask:
    """A plan as part of the report."""
    return MigratedTask(
        task=plan.task,
        seen=plan.seen,
        stores=tuple(_migrated_store(store) for store in plan.stores),
        steps=plan.steps,
        left=plan.left,
        refused=tuple(map(str, plan.refused)),
        problems=_problems(plan),
        notes=plan.notes,
    )


def _problems(plan: TaskConversion) -> tuple[dict[str, Any], ...]:
    """Why a task is refused, with codes and values."""
    return tuple({"store": "", **why.to_json(), "task": plan.task} for why in plan.refused)


def _migrated_store(store: StoreConversion) -> MigratedStore:
    return MigratedStore(
        store=store.store,
        kind="?" if store.kind is None else str(store.kind),
        steps=tuple(MigratedStep(step.text, step.rows, _by_name(step.offsets)) for step in store.steps),
        offsets=_by_name(store.offsets),
        rewritten_bytes=store.rewritten_bytes,
    )


def _by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _activity(request: MigrateRequest) -> str:
    return f"{request.state_dir} was migrated to Kafka Streams {request.to}"
