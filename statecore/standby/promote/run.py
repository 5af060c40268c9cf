"""Promotion: standby tasks replace the tasks of a stopped application on this machine.

A standby copy has its own state directory, because ``.lock`` covers the whole directory of an application. So it is put
in place like the images of a restore, and Kafka Streams restores only the newest tail. It is a directory change
(:mod:`statecore.jobs.directory_change`) under the locks of both directories: SST files of the copy are hard-linked, all
else is copied, and the copy itself is not changed.

A task is promoted if the standby copy is ahead of it in every store, or if there is no task that the application would
use. If the application's task is ahead in any store, it stays: it could be the only copy of the last writes. A copy
that its changelogs cannot continue is refused (:mod:`statecore.standby.promote.changelog_check`). Replaced tasks are
kept for a week (:mod:`statecore.statedir.task_copies`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import tree_bytes
from statecore.jobs.attempt import utc_now
from statecore.jobs.context import JobContext, ignore, spec_of
from statecore.jobs.directory_change import DirectoryChange, refuse_in_use
from statecore.jobs.failures import translated_errors
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.standby.promote.changelog_check import Ask, ask_brokers
from statecore.standby.promote.directory_check import (
    closed,
    copy_at,
    refuse_one_directory,
    refuse_swapped,
    state_dir_in_doubt,
)
from statecore.standby.promote.plan import CopiedStore, PromotionPlan
from statecore.standby.promote.planner import PromotionPlanner
from statecore.standby.promote.report import PROMOTE_SUFFIX, PromoteOutcome, PromoteReport, PromoteVerdict
from statecore.standby.promote.request import PromoteRequest
from statecore.statedir.database_state import create_database
from statecore.statedir.file_trees import copied_bytes, link_tree, remove_tree
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import PlacementPlan, plan_placement
from statecore.statedir.replaced_tasks import replaced_in
from statecore.statedir.state_directory import StateDirectory, free_space
from statecore.statedir.task_layout import databases_of
from statecore.statedir.work_directory import STAGING_PREFIX
from statecore.stores.rocksdb.manifest_guard import remove_guard_record


def run_promote(
    request: PromoteRequest,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = ignore,
    ask: Ask | None = None,
) -> PromoteReport:
    """Promote standby tasks, or plan it; those that are damaged, not closed or cannot be continued are refused."""
    with translated_errors(_activity(request)):
        return _Promotion(request, spec_of(request), progress, faults, say, ask).run()


class _Promotion(DirectoryChange[PromotionPlan, str, PromoteReport]):
    """One attempt of a promotion; a change is where the replaced tasks are kept."""

    report_suffix = PROMOTE_SUFFIX
    name = "promotion"

    def __init__(
        self,
        request: PromoteRequest,
        declared: ApplicationSpec,
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
        ask: Ask | None,
    ) -> None:
        directory = StateDirectory(Path(request.state_dir), declared.application_id, request.owner)
        context = JobContext.open(request, progress, faults=faults, say=say, spec=declared)
        super().__init__(context, directory, _activity(request))
        self.request, self.application = request, declared
        self.standby = copy_at(Path(request.standby_dir), declared.application_id)
        refuse_one_directory(self.standby, directory)
        refuse_swapped(self.standby, directory)
        if doubt := state_dir_in_doubt(directory):
            self.say(doubt)
        if ask is None and not request.offline:
            ask = ask_brokers(declared, request.timeout)
        self.planner = PromotionPlanner(declared, self.standby, directory, ask, self.progress)

    def command(self) -> tuple[str, ...]:
        return "promote", *self.request.to_words(without=("request_id",))

    def refuse_in_use(self) -> None:
        refuse_in_use(self.standby, "statecore standby closes it when it is stopped.")
        refuse_in_use(self.directory)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold both locks."""
        with closed(self.standby), super().locked():
            yield

    def inspect(self) -> PromotionPlan:
        """Compare both directories, and the copy with its topics."""
        return self.planner.run(self.request.tasks)

    def refuse(self, plan: PromotionPlan) -> None:
        """Refuse the placement before anything is copied."""
        self._placement(plan.stores, None)
        self.directory.ensure_free_space(self._needed(plan.stores))

    def change(self, plan: PromotionPlan) -> str:
        """Copy the standby's stores, and swap whole tasks in."""
        before = set(replaced_in(self.directory))
        with ExitStack() as stack:
            staging = self.directory.work_path / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
            stack.callback(remove_tree, staging)
            with self.phase("copy"):
                self._copy(plan.stores, staging)
            self.faults.reach("promote.after-copy")
            with self.phase("place"):
                placement = self._placement(plan.stores, staging)
                apply_placement(placement, self.faults, self.progress, staged=(staging,), keeps=True)
        self.faults.reach("promote.after-placement")
        return ", ".join(str(path) for path in replaced_in(self.directory) if path not in before)

    def _needed(self, stores: Mapping[str, Sequence[CopiedStore]]) -> int:
        """Bytes of files that have to be copied because they cannot be hard-linked."""
        where, _ = free_space(self.directory.path)
        paths = [one.place.path for some in stores.values() for one in some if one.place is not None]
        return sum(copied_bytes(path, where, self.directory.ownership) for path in paths)

    def _copy(self, stores: Mapping[str, Sequence[CopiedStore]], staging: Path) -> None:
        places = [one.place for some in stores.values() for one in some if one.place is not None]
        self.progress.phase("copy", sum(tree_bytes(place.path) for place in places), "bytes")
        for task, some in stores.items():
            for one in some:
                self._stage(one, one.staged(task, staging))
                self.faults.reach("promote.during-copy")
        self.progress.done()

    def _stage(self, one: CopiedStore, target: Path) -> None:
        """Stage a copy of a standby store, or an empty store."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if one.place is None:
            target = target / f"{one.spec.name}.0" if one.spec.kind.is_segmented else target
            create_database(target, one.spec.kind, {one.changelog: one.offset})
            return
        link_tree(one.place.path, target, self.directory.ownership, self.progress.advance)
        for database in databases_of(target):
            remove_guard_record(database)

    def _placement(self, stores: Mapping[str, Sequence[CopiedStore]], staging: Path | None) -> PlacementPlan:
        return plan_placement(
            self.directory,
            [one.image(task, staging) for task, some in stores.items() for one in some],
            siblings=self.planner.siblings(stores),
            guarantee=self.application.processing_guarantee,
            replace=True,
            request_id=self.request.request_id,
            resumes=False,
        )

    def report(self, plan: PromotionPlan, changed: str | None) -> PromoteReport:
        refused = any(one.verdict is PromoteVerdict.REFUSED for one in plan.tasks)
        unchanged = PromoteOutcome.UNCHANGED if self.request.apply else PromoteOutcome.PLANNED
        return PromoteReport(
            **asdict(self.attempt),
            finished=utc_now(),
            standby_dir=str(self.standby.state_dir),
            outcome=unchanged if changed is None else PromoteOutcome.DONE,
            tasks=plan.tasks,
            exit_code=Invalid.exit_code if refused else 0,
            kept=changed or "",
            seconds=self.phases.elapsed,
            phases=dict(self.phases.wall),
        )


def _activity(request: PromoteRequest) -> str:
    return f"standby tasks were promoted to {request.state_dir}"
