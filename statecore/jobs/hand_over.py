"""The hand-over: tasks of a warm copy take the place of what an application that is down has on this machine.

A warm copy lies in a state directory of its own, because ``.lock`` is one for the whole directory of an application. So
it is put in place by a placement, as a restore's images are, and Kafka Streams restores the newest tail only.

Order of things, and why a kill at any moment is harmless::

    look      both directories, under both locks             nothing is changed; a plan ends here
    copy      the warm copy's SST files get second names,    in the application's .statecore, which the next job sweeps
              all else is copied; the copy stays warm
    place     whole tasks, by the journal of placements      each task wholly old or wholly new; the next job settles it

A task is taken where the warm copy is further than what is there, store by store, or where nothing is there, or nothing
that the application would go by. Where what is there is further in any store, it stays: it could be the only copy of
what was written last. What is replaced is kept for a week (:mod:`statecore.placement.exchange`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.approval import refuse_in_use
from statecore.jobs.attempt import utc_now
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.hand_over_report import HAND_OVER_SUFFIX, HandedTask, HandOverReport, Outcome, Verdict
from statecore.jobs.hand_over_request import HandOverRequest
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.on_directory import OnDirectory
from statecore.jobs.placing import siblings_of
from statecore.maintenance.layout import StorePlace, application_directory, store_places
from statecore.maintenance.store_standing import standing_of
from statecore.placement.apply import PlacementPlan, StoreImage, apply_placement, plan_placement
from statecore.placement.contents import databases_of
from statecore.placement.database_state import read_database_state
from statecore.placement.exchange import replaced_in
from statecore.placement.state_directory import StateDirectory, partition_of
from statecore.placement.trees import link_in, link_tree, remove_tree
from statecore.placement.work_directory import STAGING_PREFIX
from statecore.progress import Progress
from statecore.spec.derived import task_of
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.stores.rocksdb_witness import forget_witness


def run_hand_over(
    request: HandOverRequest,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> HandOverReport:
    """Put the tasks of a warm copy in place; or say what that would do.

    Args:
        request: which copy, which directory, and whether to do it.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.

    Returns:
        What became of each task. One whose warm copy is damaged, or was not closed, is refused; the others are placed.

    Raises:
        NotFound: there is no warm copy, or it has no such task.
        Invalid: both directories are one, or something stands in the way of the placement; nothing was changed.
        Fenced: the application runs, or whoever keeps the copy warm does; nothing was changed.
        Capacity: no room; nothing was changed.
        StatecoreError: a defect of this program.
    """
    try:
        return _HandOver(request, spec_of(request), progress, faults, say).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, _doing(request)) from error


class _Named:
    """The request with the application that its spec names."""

    def __init__(self, application_id: str, request: HandOverRequest) -> None:
        self.application_id, self.state_dir, self.spec_path = application_id, request.state_dir, request.spec_path
        self.owner, self.request_id = request.owner, request.request_id


@dataclass(frozen=True)
class _WarmStore:
    """A store of a warm copy, closed."""

    spec: StoreSpec
    place: StorePlace
    changelog: TopicPartition
    offset: int


class _HandOver(OnDirectory):
    """One try of a hand-over."""

    report_suffix = HAND_OVER_SUFFIX
    called = "hand-over"

    def __init__(
        self,
        request: HandOverRequest,
        declared: ApplicationSpec,
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
    ) -> None:
        directory = StateDirectory(Path(request.state_dir), declared.application_id, request.owner)
        super().__init__(
            _Named(declared.application_id, request), directory, declared, progress, faults, say, _doing(request)
        )
        self.request = request
        self.application = declared
        self.warm = application_directory(Path(request.warm_dir), declared.application_id)
        if _same(self.warm.path, directory.path):
            raise Invalid(
                f"{self.warm.path} is the directory of the application itself, and no copy beside it.",
                action="Name the state directory of statecore standby with --from, and the application's with "
                "--state-dir.",
                state_dir=request.state_dir,
            )

    def words(self) -> tuple[str, ...]:
        """See :class:`OnDirectory`."""
        return "hand-over", *self.request.to_words(without=("request_id",))

    def run(self) -> HandOverReport:
        """Plan, or hand over under both locks."""
        if not self.request.apply:
            refuse_in_use(self.warm, "statecore standby closes it when it is stopped.")
            refuse_in_use(self.directory)
            with self.phase("look"):
                tasks, _ = self._looked()
            return self._report(Outcome.PLANNED, tasks)
        with self.warm.lock(), self.locked():
            self.faults.reach("hand-over.after-lock")
            with self.phase("look"):
                tasks, stores = self._looked()
            taken = [one.task for one in tasks if one.verdict is Verdict.TAKEN]
            if not taken:
                self.has_ended_others()
                return self._report(Outcome.UNCHANGED, tasks)
            wanted = {task: stores[task] for task in taken}
            self._placement(wanted, None)  # refused before anything is copied
            self.directory.ensure_room(sum(one.bytes for one in tasks if one.task in wanted))
            self.begin_changes()
            before = set(replaced_in(self.directory))
            with ExitStack() as stack:
                staging = self.directory.work_path / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
                stack.callback(remove_tree, staging)
                with self.phase("copy"):
                    self._copy(wanted, staging)
                self.faults.reach("hand-over.after-copy")
                with self.phase("place"):
                    plan = self._placement(wanted, staging)
                    apply_placement(plan, self.faults, self.progress, staged=(staging,), keeps=True)
            self.faults.reach("hand-over.after-placement")
            kept = ", ".join(str(path) for path in replaced_in(self.directory) if path not in before)
            report = self._report(Outcome.DONE, tasks, kept=kept)
            self.end(self.request.request_id, report.to_json())
            return report

    def _looked(self) -> tuple[list[HandedTask], dict[str, list[_WarmStore]]]:
        """What becomes of each task, and the stores of those that are sound."""
        there = self.warm.task_directories()
        missing = [task for task in self.request.tasks if task not in there]
        if missing or not there:
            raise NotFound(
                f"The warm copy {self.warm.path} has no task{f' {missing[0]}' if missing else ''}; "
                f"there are: {', '.join(there) or 'none'}.",
                action="Check --from, and the names of the tasks. Global stores are not kept warm: Kafka Streams reads "
                "them from their topics.",
                state_dir=self.request.warm_dir,
            )
        wanted = [task for task in there if not self.request.tasks or task in self.request.tasks]
        warm_places, live_places = _by_task(self.warm), _by_task(self.directory)
        self.progress.phase("look", len(wanted), "tasks")
        tasks: list[HandedTask] = []
        stores: dict[str, list[_WarmStore]] = {}
        for task in wanted:
            try:
                found = self._warm_stores(task, warm_places.get(task, {}))
                stores[task] = found
                tasks.append(self._verdict(task, found, live_places.get(task, {})))
            except StatecoreError as error:
                tasks.append(HandedTask(task, Verdict.REFUSED, f"{error.what} {error.action}".strip()))
            self.progress.advance()
        self.progress.done()
        return tasks, stores

    def _warm_stores(self, task: str, places: Mapping[str, StorePlace]) -> list[_WarmStore]:
        """The stores of a task of the warm copy that have an offset; the others Kafka Streams restores itself."""
        declared = {store.name: store for store in self.application.stores if _is_of(store, task) and store.is_logged}
        if not declared:
            raise Invalid(
                f"{self.application.source} declares no logged store of the task {task}.",
                action="Give the spec that the warm copy was made with.",
                task=task,
            )
        partition = partition_of(task)
        assert partition is not None
        found: list[_WarmStore] = []
        for name, store in declared.items():
            place = places.get(name)
            if place is None or store.kind is StoreKind.IN_MEMORY or place.segmented is not store.kind.is_segmented:
                continue
            changelog = TopicPartition(store.changelog, partition)
            offset = _closed_at(task, place, changelog)
            if offset != OFFSET_UNKNOWN:
                found.append(_WarmStore(store, place, changelog, offset))
        if not found:
            raise Invalid(f"No store of {task} has an offset.", action="Let statecore standby follow it.", task=task)
        return found

    def _verdict(self, task: str, warm: Sequence[_WarmStore], places: Mapping[str, StorePlace]) -> HandedTask:
        size = sum(tree_bytes(one.place.path) for one in warm)
        names = tuple(one.spec.name for one in warm)
        if not self.directory.task_path(task).is_dir() or not places:
            return HandedTask(task, Verdict.TAKEN, "nothing is there", sum(one.offset + 1 for one in warm), names, size)
        exactly_once = self.application.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        if exactly_once and (why := _would_be_wiped(places)):
            return HandedTask(task, Verdict.TAKEN, why, sum(one.offset + 1 for one in warm), names, size)
        ahead = 0
        for one in warm:
            place = places.get(one.spec.name)
            live = OFFSET_UNKNOWN if place is None else _live_offset(place, one.changelog)
            if live > one.offset:
                why = f"{one.spec.name} is at offset {live} there, and the warm copy at {one.offset}"
                return HandedTask(task, Verdict.LEFT, why)
            ahead += one.offset - max(live, -1)
        if not ahead:
            return HandedTask(task, Verdict.LEFT, "it is as far as the warm copy")
        return HandedTask(task, Verdict.TAKEN, "the warm copy is further", ahead, names, size)

    def _copy(self, wanted: Mapping[str, Sequence[_WarmStore]], staging: Path) -> None:
        self.progress.phase("copy", sum(len(stores) for stores in wanted.values()), "stores")
        for task, stores in wanted.items():
            for one in stores:
                target = _staged(staging, task, one)
                target.parent.mkdir(parents=True, exist_ok=True)
                link_tree(one.place.path, target, self.directory.ownership)
                for database in databases_of(target):
                    forget_witness(database)
                self.faults.reach("hand-over.during-copy")
                self.progress.advance()
        self.progress.done()

    def _placement(self, wanted: Mapping[str, Sequence[_WarmStore]], staging: Path | None) -> PlacementPlan:
        images = [
            StoreImage(
                task,
                one.spec.name,
                one.spec.kind,
                one.changelog,
                None if staging is None else _staged(staging, task, one),
                None if staging is None else {one.changelog: one.offset},
            )
            for task, stores in wanted.items()
            for one in stores
        ]
        return plan_placement(
            self.directory,
            images,
            siblings=siblings_of(
                self.application,
                {task: partition_of(task) or 0 for task in wanted},
                {(image.task, image.store) for image in images},
            ),
            guarantee=self.application.processing_guarantee,
            replace=True,
            request_id=self.request.request_id,
            resumes=False,
        )

    def _report(self, outcome: Outcome, tasks: Sequence[HandedTask], *, kept: str = "") -> HandOverReport:
        refused = any(one.verdict is Verdict.REFUSED for one in tasks)
        return HandOverReport(
            **asdict(self.attempt),
            finished=utc_now(),
            warm_dir=str(self.warm.state_dir),
            outcome=outcome,
            tasks=tuple(tasks),
            exit_code=Invalid.exit_code if refused else 0,
            kept=kept,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
        )


def _closed_at(task: str, place: StorePlace, changelog: TopicPartition) -> int:
    """The offset at which a store of a warm copy was closed; -4 where it has none.

    Raises:
        Invalid: it was not closed, or is a link.
        Corrupted: it cannot be read, or its segments do not agree.
    """
    if (link := link_in(place.path)) is not None:
        raise Invalid(
            f"{link} in the warm copy of {task} is a link: both applications would work in one database.",
            action="Replace the link by the directory, or mount the place there.",
            task=task,
            store=place.store,
        )
    offsets: set[int] = set()
    for database in place.databases:
        state = read_database_state(database)
        if not state.closed_cleanly:
            raise Invalid(
                f"The warm copy of {place.store} in {task} was not closed: statecore standby was killed there.",
                action="Let statecore standby --once follow it and close it, then run this again.",
                task=task,
                store=place.store,
            )
        offsets.add(state.offsets.get(changelog, OFFSET_UNKNOWN))
    if len(offsets) > 1:
        raise Corrupted(
            f"The segments of the warm copy of {place.store} in {task} say different offsets of {changelog}: "
            f"{', '.join(map(str, sorted(offsets)))}.",
            action="Let statecore standby --once follow it and close it, then run this again.",
            task=task,
            store=place.store,
        )
    return next(iter(offsets), OFFSET_UNKNOWN)


def _live_offset(place: StorePlace, changelog: TopicPartition) -> int:
    """What the application would go by; -4 where it knows of none, or the store cannot be read."""
    try:
        return standing_of(place, (changelog.topic,)).offsets.get(changelog, OFFSET_UNKNOWN)
    except Corrupted:
        return OFFSET_UNKNOWN


def _would_be_wiped(places: Mapping[str, StorePlace]) -> str:
    """Why Kafka Streams would wipe the task under exactly-once; empty where nothing says so."""
    for place in places.values():
        for database in place.databases:
            try:
                state = read_database_state(database)
            except Corrupted:
                return f"{place.store} there cannot be read"
            if not state.closed_cleanly:
                return f"{place.store} there was not closed, and Kafka Streams would wipe the task"
    return ""


def _by_task(directory: StateDirectory) -> dict[str, dict[str, StorePlace]]:
    found: dict[str, dict[str, StorePlace]] = {}
    for place in store_places(directory):
        found.setdefault(place.task, {})[place.store] = place
    return found


def _is_of(store: StoreSpec, task: str) -> bool:
    return task != GLOBAL and task_of(store, partition_of(task) or 0) == task


def _staged(staging: Path, task: str, one: _WarmStore) -> Path:
    return staging / "warm" / task / one.place.name


def _same(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and first.samefile(second)


def _doing(request: HandOverRequest) -> str:
    return f"tasks were handed over to {request.state_dir}"
