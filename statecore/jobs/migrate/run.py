"""Migration: converts a state directory for another release of Kafka Streams, so that nothing has to be restored.

It is a directory change (:mod:`statecore.jobs.directory_change`): copies are converted task by task by the engine's
workers, synced and verified there. Tasks of two releases exist only after a kill in the middle of a swap; running it
again resolves that.

The whole directory is migrated or none of it: no release opens a directory of two formats. A task that its own release
would delete is *left* as it is, and will be deleted as before; that is noted, and is no reason to refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from statecore.conversion import StoreConversion, TaskConversion, plan_conversion
from statecore.errors import Corrupted, Invalid, NotFound, Reason
from statecore.faults import NO_FAULTS, FaultPoints, fault_points_from_environment
from statecore.formats.releases import CHECKPOINT_FILE, RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.context import JobContext, ignore
from statecore.jobs.directory_change import DirectoryChange, plan_id_of
from statecore.jobs.engine import PROCESSES, Engine, Failure, Question, Workers
from statecore.jobs.failures import as_statecore_error, translated_errors
from statecore.jobs.in_process_engine import InProcessEngine
from statecore.jobs.migrate.report import (
    MIGRATION_SUFFIX,
    MigratedStep,
    MigratedStore,
    MigratedTask,
    MigrateReport,
    Outcome,
)
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.pipeline.batches import Watch, run_batches
from statecore.jobs.process_engine import ProcessEngine
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, undecided_note
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal_replay import PlacementOutcome
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import changelog_owner, guarantee_of, store_places
from statecore.statedir.task_copies import TaskCopies
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
    say: Callable[[str], None] = ignore,
) -> MigrateReport:
    """Convert a state directory for another release; or plan it.

    Returns:
        The report.
    """
    with translated_errors(_activity(request)):
        context = JobContext.open(request, progress, faults=faults, say=say)
        try:
            directory = context.existing_directory()
        except NotFound as error:
            if not request.if_there:
                raise
            say(error.what)
            return _no_directory_report(request)
        return _Migration(context, engine, directory).run()


@dataclass(frozen=True)
class MigrationPlan:
    """The conversion of every task."""

    tasks: Sequence[TaskConversion]
    plan_id: str

    @property
    def to_convert(self) -> list[TaskConversion]:
        """Conversions that change something."""
        return [task for task in self.tasks if not task.is_empty]

    @property
    def is_empty(self) -> bool:
        return not self.to_convert and not any(task.refused for task in self.tasks)


@dataclass(frozen=True)
class _Converted:
    """Converted tasks: what became of each, where files are kept that were moved away, and seconds of each."""

    outcomes: Mapping[str, PlacementOutcome]
    kept: str
    seconds: Mapping[str, float]


class _Migration(DirectoryChange[MigrationPlan, _Converted, MigrateReport]):
    """One attempt of a migration."""

    report_suffix = MIGRATION_SUFFIX
    name = "migration"

    def __init__(
        self,
        context: JobContext[MigrateRequest],
        engine: Engine,
        directory: StateDirectory,
    ) -> None:
        request = context.request
        super().__init__(context, directory, _activity(request))
        self.request, self.engine, self.approved = request, engine, request.approved
        self.to = RELEASES[request.to]

    def command(self) -> tuple[str, ...]:
        return "migrate", *self.request.to_words(without=("approved", "request_id"))

    def inspect(self) -> MigrationPlan:
        tasks = self._selected_tasks()
        self.progress.phase("look", len(tasks), "tasks")
        plans, fingerprints = [], {}
        for task in tasks:
            before = fingerprint(self.directory.task_path(task))
            plans.append(plan := self._plan(task))
            if not plan.is_empty:
                fingerprints[task] = before
            self.progress.advance()
        self.progress.done()
        content = {
            "to": self.request.to,
            "tasks": [asdict(_migrated_task(plan)) for plan in plans],
            "fingerprints": fingerprints,
        }
        return MigrationPlan(plans, plan_id_of(content))

    def _selected_tasks(self) -> list[str]:
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
        return [task for task in existing if not self.request.tasks or task in self.request.tasks]

    def _plan(self, task: str) -> TaskConversion:
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
        return TaskConversion(task, plan.seen, plan.release_to, (), refused=foreign) if foreign else plan

    def _foreign_offsets(self, plan: TaskConversion) -> tuple[Reason, ...]:
        content = [*read_offsets(self.directory.task_path(plan.task) / CHECKPOINT_FILE)]
        for store in plan.stores:
            content.extend(store.offsets)
        names = {place.store for place in store_places(self.directory)}
        return foreign_offsets(self.request.application_id, names, content, self.declared)

    def _exactly_once(self) -> bool | None:
        guarantee = guarantee_of(self.declared, self.request.processing_guarantee)
        return None if guarantee is None else guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    def refuse(self, plan: MigrationPlan) -> None:
        """Refuse the directory with the reasons of all tasks."""
        refused = [(task.task, why) for task in plan.tasks for why in task.refused]
        if refused:
            raise Invalid(
                f"{self.directory.path} cannot be migrated to {self.to.name}:\n"
                + "\n".join(f"  {task}: {why}" for task, why in refused),
                code="migration-refused",
                action="Solve the problem of each line, then run this again; nothing was changed.",
                state_dir=str(self.directory.state_dir),
                problems=[problem for task in plan.tasks for problem in _problems(task)],
            )

    def change(self, plan: MigrationPlan) -> _Converted:
        """Convert copies on the engine's workers, and swap them in."""
        tasks = plan.to_convert
        with ExitStack() as stack:
            workers = stack.enter_context(self._engine_for(tasks).start("migrate", self.spec))
            with self.phase("check"):
                self.ran_on = workers.check(Question(self.directory.work_path, (), ()))
            if self.ran_on.master != PROCESSES:
                self.say(str(self.ran_on))
            swap = stack.enter_context(
                TaskCopies(self.directory, self.request.request_id, self.faults, self.progress, keeps=False)
            )
            with self.phase("copy"):
                copies = self._copy(swap, tasks)
            self.faults.reach("migrate.after-copy")
            with self.phase("convert"):
                seconds = self._convert(workers, copies)
            self.faults.reach("migrate.after-convert")
            with self.phase("place"):
                outcomes = swap.swap([task.task for task in tasks])
                kept = str(swap.kept_path) if swap.kept_path.is_dir() else ""
        self.faults.reach("migrate.after-placement")
        return _Converted(outcomes, kept, seconds)

    def verify(self, plan: MigrationPlan, changed: _Converted) -> _Converted:  # noqa: ARG002
        """Plan the live tasks again: nothing remains to be done."""
        with self.phase("verify"):
            wrong = sorted(task for task, outcome in changed.outcomes.items() if outcome is not PlacementOutcome.PLACED)
            if not wrong:
                wrong = [task.task for task in self.inspect().tasks if task.refused or not task.is_empty]
            if wrong:
                raise Corrupted(
                    f"{', '.join(wrong)} in {self.directory.path} are not what they were converted to.",
                    code="migration-unverified",
                    action="Check the disk, and what else writes there, then run this again to resume it.",
                    tasks=wrong,
                )
        return changed

    def _copy(self, swap: TaskCopies, tasks: Sequence[TaskConversion]) -> list[ConvertTask]:
        self.directory.ensure_free_space(sum(task.needed_bytes for task in tasks))
        self.progress.phase("copy", len(tasks), "tasks")
        copies = []
        for task in tasks:
            swap.keep(task.task, task.moved)
            done = swap.staging / f"{task.task.replace('/', '+')}.done"
            copies.append(ConvertTask(task, str(swap.copy(task.task)), str(done)))
            self.progress.advance()
        self.progress.done()
        return copies

    def _engine_for(self, tasks: Sequence[TaskConversion]) -> Engine:
        """The engine; this process alone for little work, because workers take longer to start."""
        if not isinstance(self.engine, ProcessEngine):
            return self.engine
        databases, size = sum(task.databases for task in tasks), sum(task.needed_bytes for task in tasks)
        if databases < _FEW_DATABASES and size < _SMALL_BYTES:
            return InProcessEngine(_PRELOADED)
        return replace(self.engine, preloaded=_PRELOADED)

    def _convert(self, workers: Workers, copies: Sequence[ConvertTask]) -> dict[str, float]:
        """Convert every copy; returns seconds by task."""
        self.progress.phase("convert", len(copies), "tasks")
        files = [Path(one.done) for one in copies]
        with Watch(lambda: sum(file.exists() for file in files), self.progress) as watch:
            done = run_batches(workers, [[one] for one in copies], convert_tasks, self.doing)
        self.progress.advance(len(done) - watch.seen)
        self.progress.done()
        if len(done) != len(copies):
            raise AssertionError(f"{len(done)} of {len(copies)} tasks were answered for")
        return {one.task: one.seconds for one in done}

    def report(self, plan: MigrationPlan, changed: _Converted | None) -> MigrateReport:
        outcome = Outcome.MIGRATED
        if changed is None:
            outcome = Outcome.UNCHANGED if plan.is_empty else Outcome.PLANNED
            outcome = Outcome.REFUSED if any(task.refused for task in plan.tasks) else outcome
        seconds: Mapping[str, float] = {} if changed is None else changed.seconds
        return MigrateReport(
            **asdict(self.attempt),
            finished=utc_now(),
            to=self.to.name,
            outcome=outcome,
            plan_id=plan.plan_id,
            kept="" if changed is None else changed.kept,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            ran_on=self.ran_on,
            tasks=tuple(replace(_migrated_task(task), seconds=seconds.get(task.task, 0.0)) for task in plan.tasks),
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


def foreign_offsets(
    application_id: str,
    stores: Iterable[str],
    offsets: Iterable[TopicPartition],
    spec: ApplicationSpec | None,
) -> tuple[Reason, ...]:
    """Reasons why a task's directory belongs to another application: its offsets are of that one's changelogs.

    Under the wrong name those offsets would not be found: Kafka Streams drops them, and restores its own changelogs
    over the rows of the other application.
    """
    known = (*spec.stores, *spec.global_stores) if spec is not None else ()
    declared = {store.changelog for store in known}
    names = {*stores, *(store.name for store in known)}
    found: dict[str, str] = {}
    for topic in sorted({partition.topic for partition in offsets} - declared):
        if other := changelog_owner(topic, application_id, names):
            found.setdefault(other[0], topic)
    return tuple(
        Reason(
            f"it has offsets of {topic}: this is the state of {owner}, not of {application_id}. Give the id of the "
            "owning application; or declare the stores in a spec, if that is their changelog.",
            "task-directory-foreign",
            topic=topic,
            application_id=owner,
        )
        for owner, topic in sorted(found.items())
    )


@dataclass(frozen=True)
class ConvertTask:
    """Conversion of the copy of one task directory.

    Attributes:
        plan: the conversion plan.
        copy: the copy, below the application's directory.
        done: a file that is created at the end, for the progress.
    """

    plan: TaskConversion
    copy: str
    done: str


@dataclass(frozen=True)
class ConvertedTask:
    """A converted, synced and verified copy.

    Attributes:
        task: the task.
        seconds: wall time.
    """

    task: str
    seconds: float


def convert_tasks(tasks: Sequence[ConvertTask]) -> list[ConvertedTask | Failure]:
    """Convert copies, up to the first failure; then none is put in place."""
    done: list[ConvertedTask | Failure] = []
    for one in tasks:
        try:
            done.append(_convert(one))
        except Exception as error:
            doing = f"task {one.plan.task} was converted for Kafka Streams {one.plan.to.name} in {one.copy}"
            done.append(Failure(as_statecore_error(error, doing, task=one.plan.task).to_json()))
            break
    return done


def _convert(one: ConvertTask) -> ConvertedTask:
    from statecore.conversion.execute import convert, verify_conversion

    began = time.monotonic()
    copy = Path(one.copy)
    convert(one.plan, copy, fault_points_from_environment())
    verify_conversion(one.plan, copy)
    Path(one.done).touch()
    return ConvertedTask(one.plan.task, time.monotonic() - began)
