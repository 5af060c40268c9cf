"""Migration: converts a state directory for another release of Kafka Streams, so that nothing has to be restored.

It is a directory change (:mod:`statecore.jobs.directory_change`)::

    inspect   plan the conversion of every task                    planner.py
    approve   refuse the directory if one task is refused
    change    copy the tasks, convert the copies on the workers,   convert.py
              which sync and verify them, then swap them in
    verify    plan again: nothing remains to be done

Tasks of two releases exist only after a kill in the middle of a swap; running it again resolves that.

The whole directory is migrated or none of it: no release opens a directory of two formats. A task that its own release
would delete is *left* as it is, and will be deleted as before; that is noted, and is no reason to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.releases import RELEASES
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.context import JobContext
from statecore.jobs.directory_change import DirectoryChange
from statecore.jobs.engine.protocol import PROCESSES, Engine, WorkerRequirements
from statecore.jobs.failures import translated_errors
from statecore.jobs.migrate.convert import convert_copies, copy_tasks, engine_for
from statecore.jobs.migrate.plan import MigrationPlan
from statecore.jobs.migrate.planner import empty_plan, migrated_task, plan_migration, problems
from statecore.jobs.migrate.report import MIGRATION_SUFFIX, MigrateReport, MigrationOutcome
from statecore.jobs.migrate.request import MigrateRequest
from statecore.progress import Progress
from statecore.statedir.journal_replay import PlacementOutcome
from statecore.statedir.task_copies import TaskCopies


def run_migrate(
    request: MigrateRequest, engine: Engine, progress: Progress | None = None, **opened: Any
) -> MigrateReport:
    """Convert a state directory for another release; or plan it."""
    activity = f"{request.state_dir} was migrated to Kafka Streams {request.to}"
    with translated_errors(activity):
        context = JobContext.open(request, progress, **opened)
        try:
            migration = _Migration(context, engine, activity)
        except NotFound as error:
            if not request.if_there:
                raise
            context.say(error.what)
            return _no_directory_report(request)
        return migration.run()


def _no_directory_report(request: MigrateRequest) -> MigrateReport:
    """Report on an application that has no state directory yet."""
    return MigrateReport(
        **asdict(Attempt.begin(request.application_id, request.state_dir, request.request_id)),
        finished=utc_now(),
        to=RELEASES[request.to].name,
        outcome=MigrationOutcome.UNCHANGED,
        plan_id=empty_plan(request).plan_id,
    )


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

    def __init__(self, context: JobContext[MigrateRequest], engine: Engine, doing: str) -> None:
        super().__init__(context, context.existing_directory(), doing)
        self.request, self.engine, self.approved = context.request, engine, context.request.approved

    def command(self) -> tuple[str, ...]:
        return "migrate", *self.request.to_words(without=("approved", "request_id")), *self.engine.options

    def inspect(self) -> MigrationPlan:
        return plan_migration(self.context, self.directory)

    def refuse(self, plan: MigrationPlan) -> None:
        """Refuse the directory with the reasons of all tasks."""
        refused = [(task.task, why) for task in plan.tasks for why in task.refused]
        if refused:
            raise Invalid(
                f"{self.directory.path} cannot be migrated to {RELEASES[self.request.to].name}:\n"
                + "\n".join(f"  {task}: {why}" for task, why in refused),
                code="migration-refused",
                action="Solve the problem of each line, then run this again; nothing was changed.",
                state_dir=str(self.directory.state_dir),
                problems=[problem for task in plan.tasks for problem in problems(task)],
            )

    def change(self, plan: MigrationPlan) -> _Converted:
        """Convert copies on the engine's workers, and swap them in."""
        tasks = plan.to_convert
        with ExitStack() as stack:
            workers = stack.enter_context(engine_for(self.engine, tasks).start("migrate", self.spec))
            with self.phase("check"):
                self.ran_on = workers.check(WorkerRequirements(self.directory.work_path, (), ()))
            if self.ran_on.master != PROCESSES:
                self.say(str(self.ran_on))
            swap = stack.enter_context(
                TaskCopies(self.directory, self.request.request_id, self.faults, self.progress, keeps=False)
            )
            with self.phase("copy"):
                copies = copy_tasks(swap, tasks, self.progress)
            self.faults.reach("migrate.after-copy")
            with self.phase("convert"):
                seconds = convert_copies(workers, copies, self.progress, self.doing)
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

    def report(self, plan: MigrationPlan, changed: _Converted | None) -> MigrateReport:
        outcome = MigrationOutcome.MIGRATED
        if changed is None:
            outcome = MigrationOutcome.UNCHANGED if plan.is_empty else MigrationOutcome.PLANNED
            outcome = MigrationOutcome.REFUSED if any(task.refused for task in plan.tasks) else outcome
        seconds: Mapping[str, float] = {} if changed is None else changed.seconds
        return MigrateReport(
            **asdict(self.attempt),
            finished=utc_now(),
            to=RELEASES[self.request.to].name,
            outcome=outcome,
            plan_id=plan.plan_id,
            kept="" if changed is None else changed.kept,
            seconds=self.phases.elapsed,
            phases=dict(self.phases.wall),
            ran_on=self.ran_on,
            tasks=tuple(replace(migrated_task(task), seconds=seconds.get(task.task, 0.0)) for task in plan.tasks),
            notes=plan.notes,
        )
