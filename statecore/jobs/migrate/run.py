"""The migration: a state directory is made what another release of Kafka Streams opens, with nothing to restore.

Order of things, and why a kill at any moment is harmless::

    look      every task is read; what would be done to it   nothing is changed; a plan ends here
    refuse    all reasons are said at once                   nothing is changed
    copy      SST files get second names, all else is        in the application's .statecore, which the next job sweeps
              copied (statecore.statedir.task_swap)
    convert   the copies are changed, made durable, and      the same
              looked at, task by task, by the engine's workers
    swap      whole tasks, by the journal of placements      each task wholly old or wholly new; the next job settles it
    verify    the live tasks are read again: nothing is      tasks of two releases only where the job was killed in the
              left to be done                                middle of a swap; running it again ends that

The whole directory is migrated or nothing of it: no release opens one that is half of another. A task that its own
release would throw away is *left* as it is, and so would be thrown away as before; that is said, and is no refusal.
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
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.directory_change import OnDirectory, declared_in, directory_of
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
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, undecided_in_words
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_recovery import Outcome as Placed
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import guarantee_of, store_places
from statecore.statedir.task_swap import TaskSwap
from statecore.stores.legacy_offsets import read_offsets

_FEW, _LITTLE = 64, 64 << 20
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
    """Make a state directory what another release opens; or say what that would take.

    Args:
        request: which directory, which release, and whether to do it.
        engine: who converts the tasks; its workers see the directory.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.

    Returns:
        What was done, or would be.

    Raises:
        NotFound: there is no such application or task, and the request does not say that this may be.
        Invalid: something cannot be migrated, of which all is named; or the plan is not the one that was approved;
            nothing was changed.
        Fenced: the application runs, or another job does; nothing was changed.
        Capacity: no room; nothing was changed.
        Corrupted: a database is damaged, or a copy is not what it must be; nothing was changed.
        StatecoreError: a defect of this program.
    """
    try:
        spec = declared_in(request)
        try:
            directory = directory_of(request)
        except NotFound as error:
            if not request.if_there:
                raise
            say(error.what)
            return _nothing_there(request)
        return _Migration(request, engine, directory, spec, progress, faults, say).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


class _Migration(OnDirectory):
    """One try of a migration."""

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
        super().__init__(request, directory, declared, progress, faults, say, _doing(request))
        self.request, self.engine = request, engine
        self.to = RELEASES[request.to]

    def words(self) -> tuple[str, ...]:
        """See :class:`OnDirectory`."""
        return "migrate", *self.request.to_words(without=("approved", "request_id"))

    def run(self) -> MigrateReport:
        """Plan, or migrate under the lock."""
        if not self.request.apply:
            refuse_in_use(self.directory)
            with self.phase("look"):
                return self._report(Outcome.PLANNED, *self._looked())
        with self.locked():
            self.faults.reach("migrate.after-lock")
            with self.phase("look"):
                plans, plan_id = self._looked()
            self._refuse(plans, plan_id)
            todo = [plan for plan in plans if not plan.is_nothing_to_do]
            if not todo:
                report = self._report(Outcome.UNCHANGED, plans, plan_id)
                if self.has_ended_others():  # this one has brought theirs to its end
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
                    work = self._copied(exchange, todo)
                self.faults.reach("migrate.after-copy")
                with self.phase("convert"):
                    seconds = self._converted(workers, work)
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

    def _looked(self) -> tuple[list[TaskConversion], str]:
        """What would be done to each task, and the id of that plan."""
        there = self.directory.every_task()
        missing = [task for task in self.request.tasks if task not in there]
        if missing or not (there or self.request.if_there):
            raise NotFound(
                f"{self.directory.path} has no task{f' {missing[0]}' if missing else ''}; "
                f"there are: {', '.join(there) or 'none'}.",
                code="task-not-found",
                action="Check state_dir, the application id and the names of the tasks.",
                state_dir=str(self.directory.state_dir),
                tasks=missing,
            )
        wanted = [task for task in there if not self.request.tasks or task in self.request.tasks]
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
            foreign = () if plan.refused else self._of_another(plan)
            plans.append(TaskConversion(task, plan.seen, plan.release_to, (), refused=foreign) if foreign else plan)
            self.progress.advance()
        self.progress.done()
        changed = {plan.task: seen[plan.task] for plan in plans if not plan.is_nothing_to_do}
        said = {"to": self.request.to, "tasks": [asdict(_said(plan)) for plan in plans], "fingerprints": changed}
        return plans, plan_id_of(said)

    def _of_another(self, plan: TaskConversion) -> tuple[Reason, ...]:
        said = [*read_offsets(self.directory.task_path(plan.task) / CHECKPOINT_FILE)]
        for store in plan.stores:
            said.extend(store.offsets)
        names = {place.store for place in store_places(self.directory)}
        return of_another(self.request.application_id, names, said, self.declared, TaskId.parse(plan.task).topology)

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
                action="Do what each line says, then run this again; nothing was changed.",
                state_dir=str(self.directory.state_dir),
                problems=[problem for plan in plans for problem in _problems(plan)],
            )
        if not all(plan.is_nothing_to_do for plan in plans):
            refuse_another_plan(self.directory, self.request.approved, plan_id)

    def _copied(self, exchange: TaskSwap, todo: Sequence[TaskConversion]) -> list[ConvertTask]:
        self.directory.ensure_room(sum(plan.needed_bytes for plan in todo))
        self.progress.phase("copy", len(todo), "tasks")
        work = []
        for plan in todo:
            exchange.keep(plan.task, plan.moved)
            done = exchange.staging / f"{plan.task.replace('/', '+')}.done"
            work.append(ConvertTask(plan, str(exchange.copy(plan.task)), str(done)))
            self.progress.advance()
        self.progress.done()
        return work

    def _engine_for(self, todo: Sequence[TaskConversion]) -> Engine:
        """Who does it: this process where others would take longer to start."""
        if not isinstance(self.engine, ProcessEngine):
            return self.engine
        if sum(plan.databases for plan in todo) < _FEW and sum(plan.needed_bytes for plan in todo) < _LITTLE:
            return InProcessEngine(_PRELOADED)
        return replace(self.engine, preloaded=_PRELOADED)

    def _converted(self, workers: Workers, work: Sequence[ConvertTask]) -> dict[str, float]:
        """Have every copy converted; task → seconds."""
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
            plans, _ = self._looked()
            left = [plan.task for plan in plans if plan.refused or not plan.is_nothing_to_do]
        if left:
            raise Corrupted(
                f"{', '.join(left)} in {self.directory.path} are not what they were converted to.",
                code="migration-unverified",
                action="Check the disk and who writes there, then run this again: it goes on where it stands.",
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
        tasks = tuple(replace(_said(plan), seconds=(seconds or {}).get(plan.task, 0.0)) for plan in plans)
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
        undecided = "" if self.declared is None else undecided_in_words(self.declared)
        if not undecided:
            return ()
        return (f"{undecided}. They are taken for what the directory shows; say there what the application declares.",)


def _nothing_there(request: MigrateRequest) -> MigrateReport:
    """The report on an application that has no state here yet."""
    began = Attempt.begin(request.application_id, request.state_dir, request.request_id)
    return MigrateReport(
        **asdict(began),
        finished=utc_now(),
        to=RELEASES[request.to].name,
        outcome=Outcome.UNCHANGED,
        plan_id=plan_id_of({"to": request.to, "tasks": [], "fingerprints": {}}),
    )


def _said(plan: TaskConversion) -> MigratedTask:
    """A plan as a report has it."""
    return MigratedTask(
        task=plan.task,
        seen=plan.seen,
        stores=tuple(_store_said(store) for store in plan.stores),
        steps=plan.steps,
        left=plan.left,
        refused=tuple(map(str, plan.refused)),
        problems=_problems(plan),
        notes=plan.notes,
    )


def _problems(plan: TaskConversion) -> tuple[dict[str, Any], ...]:
    """Why a task is refused, with codes and values."""
    return tuple({"store": "", **why.to_json(), "task": plan.task} for why in plan.refused)


def _store_said(store: StoreConversion) -> MigratedStore:
    return MigratedStore(
        store=store.store,
        kind="?" if store.kind is None else str(store.kind),
        steps=tuple(MigratedStep(step.text, step.rows, _by_name(step.offsets)) for step in store.steps),
        offsets=_by_name(store.offsets),
        rewritten_bytes=store.rewritten_bytes,
    )


def _by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _doing(request: MigrateRequest) -> str:
    return f"{request.state_dir} was migrated to Kafka Streams {request.to}"
