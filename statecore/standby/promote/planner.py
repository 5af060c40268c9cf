"""Plans a promotion task by task, without changing anything; a task that cannot be promoted is refused alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Invalid, NotFound, Reason, StatecoreError
from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.failures import as_statecore_error
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.standby.promote.changelog_check import Ask, ChangelogCheck, StandbyCopy, check_changelogs
from statecore.standby.promote.directory_check import refuse_shared
from statecore.standby.promote.plan import CopiedStore, PromotionPlan
from statecore.standby.promote.release_check import WrittenBy
from statecore.standby.promote.report import PromotedTask, PromoteVerdict
from statecore.standby.promote.store_check import closed_at, damage, live_offset, why_wiped_there
from statecore.statedir.custom_stores import CustomStores
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.placement_plan import placement_notes, refusals
from statecore.statedir.placement_stores import SiblingStore, siblings_of
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import StorePlace, split_ignored, store_places
from statecore.statedir.work_directory import STANDBY, STANDBY_LOGS
from statecore.stores.rocksdb.directory import identities_of
from statecore.tasks.task_stores import standby_stores

if TYPE_CHECKING:
    from statecore.tasks.changelog_ends import ChangelogEnd


class PromotionPlanner:
    """Compares both directories with each other and with the topics."""

    def __init__(
        self,
        application: ApplicationSpec,
        standby: StateDirectory,
        directory: StateDirectory,
        ask: Ask | None,
        progress: Progress,
    ) -> None:
        self.application, self.standby, self.directory = application, standby, directory
        self.ask, self.progress = ask, progress
        self.exactly_once = application.processing_guarantee.is_exactly_once
        self._written = WrittenBy(application, {})

    def run(self, only: Sequence[str]) -> PromotionPlan:
        """Plan all tasks of the standby copy, or some."""
        selected = self._selected_tasks(only)
        standby_places, live_places = (
            _by_task(directory, self.application) for directory in (self.standby, self.directory)
        )
        self._written = WrittenBy(self.application, live_places)
        self.progress.phase("inspect", len(selected), "tasks")
        tasks: dict[str, PromotedTask] = {}
        stores: dict[str, Sequence[CopiedStore]] = {}
        copies: dict[str, tuple[Path, list[StandbyCopy]]] = {}
        ahead_tasks: dict[str, tuple[list[CopiedStore], Mapping[str, int]]] = {}
        for task in selected:
            live = live_places.get(task, {})
            try:
                refuse_shared(task, self.standby, self.directory, standby_places.get(task, {}).values(), live.values())
                found = self._standby_stores(task, standby_places.get(task, {}))
                tasks[task], ahead = self._verdict(task, found, live)
                if tasks[task].verdict is PromoteVerdict.PROMOTED:
                    stores[task], tasks[task] = self._promote(tasks[task], found, live)
                    copies[task] = self._copies(task, found)
                elif ahead:
                    ahead_tasks[task] = found, ahead
                    copies[task] = self._copies(task, found)
            except (StatecoreError, OSError) as error:
                stores.pop(task, None)
                tasks[task] = self._refused(task, error, live)
            self.progress.advance()
        checked = check_changelogs(copies, self.ask) if self.ask is not None and copies else ChangelogCheck({}, {})
        for task, (found, there) in ahead_tasks.items():
            if why := _beyond(found, there, checked.ends.get(task, {})):
                try:
                    has = sum(one.offset + 1 for one in found)
                    given = PromotedTask(task, PromoteVerdict.PROMOTED, why, has, _names(found), _bytes(found))
                    stores[task], tasks[task] = self._promote(_because(given, why), found, live_places[task])
                except (StatecoreError, OSError) as error:
                    tasks[task] = self._refused(task, error, live_places[task])
        for task in list(stores):
            if task in checked.refused:
                del stores[task]
                tasks[task] = self._refused(task, checked.refused[task], live_places.get(task, {}))
            elif task in checked.ends:
                behind = sum(_behind(copy, checked.ends[task]) for copy in copies[task][1])
                tasks[task] = replace(tasks[task], behind=behind)
        self.progress.done()
        return PromotionPlan(tuple(tasks.values()), stores)

    def siblings(self, stores: Mapping[str, Sequence[CopiedStore]]) -> list[SiblingStore]:
        """Declared stores of the tasks that are not put in place."""
        names = {(task, one.spec.name) for task, some in stores.items() for one in some}
        return siblings_of(self.application, stores, names)

    def _selected_tasks(self, only: Sequence[str]) -> list[str]:
        there = self.standby.task_directories()
        missing = [task for task in only if task not in there]
        if missing or not there:
            raise NotFound(
                f"The standby copy {self.standby.path} has no task{f' {missing[0]}' if missing else ''}; "
                f"it has: {', '.join(there) or 'none'}.",
                code="task-not-found",
                action="Check --standby-dir, and the names of the tasks. Global stores have no standbys: Kafka Streams "
                "reads them from their topics.",
                state_dir=str(self.standby.state_dir),
                tasks=missing,
            )
        return [task for task in there if not only or task in only]

    def _logged(self, task: str) -> dict[str, StoreSpec]:
        """Restorable stores of a task: logged, on disk, in a known format."""
        return {
            store.name: store for store in self.application.stores_of(task) if task != GLOBAL and store.is_restorable
        }

    def _standby_stores(self, task: str, places: Mapping[str, StorePlace]) -> list[CopiedStore]:
        """Stores of a task in the standby copy that have an offset; Kafka Streams restores the others."""
        declared = self._logged(task)
        if not declared:
            raise Invalid(
                f"{self.application.source} declares no logged store of the task {task}.",
                code="task-not-declared",
                action="Use the spec that the standby copy was made with.",
                task=task,
            )
        found: list[CopiedStore] = []
        for name, store in declared.items():
            place = places.get(name)
            if place is None or place.segmented is not store.kind.is_segmented or store.kind.is_versioned:
                continue  # a versioned store is not followed, so its changelog is unknown
            changelog = TaskId.parse(task).partition_of(store.changelog)
            offset = closed_at(task, place, store, changelog)
            if offset != OFFSET_UNKNOWN:
                found.append(CopiedStore(store, changelog, offset, place))
        if not found:
            raise Invalid(
                f"No store of {task} has an offset.",
                code="standby-offset-missing",
                action="Run statecore standby to follow it.",
                task=task,
            )
        return found

    def _promote(
        self, task: PromotedTask, copied: Sequence[CopiedStore], places: Mapping[str, StorePlace]
    ) -> tuple[Sequence[CopiedStore], PromotedTask]:
        """Stores to put in place of a task. Raises if the placement, or Kafka Streams, would refuse them."""
        self._written.refuse_older(task.task)
        made, notes = self._created_empty(task.task, copied, places)
        stores = [*copied, *made]
        self._refuse_placement(task.task, stores)
        left = placement_notes(
            self.directory,
            [one.image(task.task, None) for one in stores],
            siblings=self.siblings({task.task: stores}),
            guarantee=self.application.processing_guarantee,
        )
        return stores, replace(task, notes=(*notes, *left))

    def _refused(self, task: str, error: Exception, places: Mapping[str, StorePlace]) -> PromotedTask:
        """A refused task, with a note on what Kafka Streams would do to the application's own."""
        reason = as_statecore_error(error, f"the task {task} was inspected", task=task)
        notes: tuple[str, ...] = ()
        with suppress(StatecoreError, OSError):
            if self.exactly_once and places and (why := self._would_be_wiped(task, places)):
                notes = (f"{why}: {self._consequence(why)}",)
        why = Reason(f"{reason.what} {reason.action}".strip(), reason.code, **reason.context)
        return _because(PromotedTask(task, PromoteVerdict.REFUSED, why, notes=notes), why)

    def _verdict(
        self, task: str, copied: Sequence[CopiedStore], places: Mapping[str, StorePlace]
    ) -> tuple[PromotedTask, Mapping[str, int]]:
        """The verdict on a task, and the offsets of the application's stores that are ahead of the standby copy."""
        size, names = _bytes(copied), _names(copied)
        has = sum(one.offset + 1 for one in copied)
        if not self.directory.task_path(task).is_dir() or not places:
            why_none = "there is no task yet"
            return PromotedTask(task, PromoteVerdict.PROMOTED, why_none, has, names, size, code="nothing-there"), {}
        if self.exactly_once and (why := self._would_be_wiped(task, places)):
            reason = f"{why}, and {self._consequence(why)}"
            return _because(PromotedTask(task, PromoteVerdict.PROMOTED, reason, has, names, size), why), {}
        damaged = [
            why for one in copied if one.spec.name in places and (why := damage(places[one.spec.name], one.spec))
        ]
        notes = tuple(f"{why}, and Kafka Streams would not notice it: see statecore doctor" for why in damaged)
        live = {
            one.spec.name: live_offset(places[one.spec.name], one.spec, one.changelog)
            for one in copied
            if one.spec.name in places
        }
        if ahead := [one for one in copied if live.get(one.spec.name, OFFSET_UNKNOWN) > one.offset]:
            first, there = ahead[0], live[ahead[0].spec.name]
            is_ahead = Reason(
                f"{first.spec.name} is at offset {there} there, and the standby copy at {first.offset}",
                "application-ahead",
                store=first.spec.name,
                **_partition(first.changelog),
                offset=there,
                standby_offset=first.offset,
            )
            kept = _because(PromotedTask(task, PromoteVerdict.KEPT, is_ahead, notes=notes), is_ahead)
            return kept, {one.spec.name: live[one.spec.name] for one in ahead}
        gained = sum(one.offset - max(live.get(one.spec.name, -1), -1) for one in copied)
        if not gained:
            return PromotedTask(task, PromoteVerdict.KEPT, "it is as far as the standby copy", code="same-offsets"), {}
        best = damaged[0] if damaged else Reason("the standby copy is ahead", "standby-ahead")
        return _because(PromotedTask(task, PromoteVerdict.PROMOTED, best, gained, names, size), best), {}

    def _consequence(self, why: Reason) -> str:
        if why.code == "store-damaged":
            return "Kafka Streams would not start"
        if why.code == "database-missing":
            return "Kafka Streams would wipe the task, or answer without its rows"
        if self.application.transactional_state_stores:
            return "Kafka Streams would wipe the task, or restore the store over its rows"
        return "Kafka Streams would wipe the task"

    def _would_be_wiped(self, task: str, places: Mapping[str, StorePlace]) -> Reason | None:
        """Why Kafka Streams would wipe the task, or not answer with its rows, under exactly-once; else ``None``.

        Transactional stores (KIP-892) are not wiped for a missing offset, but restored from the start over their rows:
        deleted keys reappear, and every row of a grace buffer gets a wrong key. So the standby copy is better there
        too.
        """
        logged = self._logged(task)
        custom = CustomStores(self.directory.task_path(task), self.siblings({task: ()}), (), exactly_once=True)
        if names := custom.without_offset:
            return Reason(f"{names[0]} there has no offset", "offset-missing", store=names[0])
        for place in places.values():
            if custom.has(place.name):
                continue
            store = logged.get(place.store)
            if store is None:
                why = why_wiped_there(place, StoreKind.UNKNOWN, None)
            elif place.segmented is store.kind.is_segmented:
                why = why_wiped_there(place, store.kind, TaskId.parse(task).partition_of(store.changelog))
            else:
                continue  # a leftover of another kind, which is never opened
            if why is not None:
                return why
        return None

    def _created_empty(
        self, task: str, copied: Sequence[CopiedStore], places: Mapping[str, StorePlace]
    ) -> tuple[list[CopiedStore], tuple[str, ...]]:
        """Stores that the copy lacks and that cannot be kept, and notes on them for the operator.

        Keeping a store for which Kafka Streams wipes the task would lose the promoted copy. Created empty at -4, only
        that store is restored.
        """
        taken = {one.spec.name for one in copied}
        made: list[CopiedStore] = []
        notes: list[str] = []
        missing: list[str] = []
        for name, store in self._logged(task).items():
            if name in taken:
                continue
            place = places.get(name)
            if place is None or place.segmented is not store.kind.is_segmented:
                missing.append(name)
                continue
            changelog = TaskId.parse(task).partition_of(store.changelog)
            why = damage(place, store)
            if why is None and _has_no_segment(place):
                missing.append(name)
                continue
            if why is None and self.exactly_once:
                why = why_wiped_there(place, store.kind, changelog)
            if why is not None:
                made.append(CopiedStore(store, changelog, OFFSET_UNKNOWN, None))
                notes.append(f"{why}: it is created empty, and Kafka Streams restores it from the whole changelog")
        if missing:
            what = "its changelog" if len(missing) == 1 else "their changelogs"
            notes.append(f"Kafka Streams restores {', '.join(missing)} from the start of {what}")
        if self.ask is None:
            notes += [
                f"without the brokers it is unknown whether {one.spec.name} has a tail: Kafka Streams would restore it "
                "under wrong keys (grace-buffer-miskeyed)"
                for one in copied
                if one.spec.kind is StoreKind.GRACE_BUFFER
            ]
        return made, tuple(notes)

    def _refuse_placement(self, task: str, stores: Sequence[CopiedStore]) -> None:
        """Raises ``Invalid`` or ``Fenced`` if the placement would refuse this task."""
        refuse_open_stores(self.directory.task_path(task))
        if (refusal := contradiction_error(self.directory, self.application, [task], by_rows=False)) is not None:
            raise refusal
        problems = refusals(
            self.directory,
            [one.image(task, None) for one in stores],
            siblings=self.siblings({task: stores}),
            guarantee=self.application.processing_guarantee,
        )
        if problems:
            raise Invalid(
                f"{'. '.join(problems)}.",
                code="placement-refused",
                action="The other tasks are not affected.",
                task=task,
                problems=problems,
            )

    def _copies(self, task: str, stores: Sequence[CopiedStore]) -> tuple[Path, list[StandbyCopy]]:
        """The standby's record of a task's changelogs, and the stores to validate against the brokers."""
        positions = {one.spec.name: one.offset + 1 for one in stores if one.place is not None}
        databases = {one.spec.name: one.place.databases for one in stores if one.place is not None}
        copies = [
            StandbyCopy(one, positions.get(one.name, 0), identities_of(databases.get(one.name, ())))
            for one in standby_stores(self.application, task)
            if one.name in positions or one.kind is StoreKind.GRACE_BUFFER
        ]
        return self.standby.work_path / STANDBY / task / STANDBY_LOGS, copies


def _has_no_segment(place: StorePlace) -> bool:
    """Whether a segmented store has no segment; a placement creates one."""
    return place.segmented and not place.databases


def _because(task: PromotedTask, why: Reason) -> PromotedTask:
    """A task with the code and the context of a reason."""
    return replace(task, code=why.code, context=why.context)


def _partition(partition: TopicPartition) -> dict[str, Any]:
    """A partition as context of a reason."""
    return {"topic": partition.topic, "partition": partition.partition}


def _bytes(copied: Sequence[CopiedStore]) -> int:
    return sum(tree_bytes(one.place.path) for one in copied if one.place is not None)


def _names(copied: Sequence[CopiedStore]) -> tuple[str, ...]:
    return tuple(one.spec.name for one in copied)


def _beyond(
    copied: Sequence[CopiedStore], ahead: Mapping[str, int], ends: Mapping[TopicPartition, ChangelogEnd]
) -> Reason | None:
    """Reason if the application's store is beyond the end of its changelog; ``None`` otherwise."""
    for one in copied:
        end = ends.get(one.changelog)
        if one.spec.name in ahead and end is not None and ahead[one.spec.name] >= end.log.log_end:
            return Reason(
                f"{one.spec.name} is at offset {ahead[one.spec.name]} there, and {one.changelog} ends before "
                f"{end.log.log_end}: the topic was recreated, or has lost records",
                "application-beyond-changelog",
                store=one.spec.name,
                **_partition(one.changelog),
                offset=ahead[one.spec.name],
                end=end.log.log_end,
            )
    return None


def _behind(copy: StandbyCopy, ends: Mapping[TopicPartition, ChangelogEnd]) -> int:
    """Number of offsets after a copy."""
    end = ends[copy.store.changelog]
    return max(end.end - max(copy.position, end.log.log_start), 0)


def _by_task(directory: StateDirectory, spec: ApplicationSpec) -> dict[str, dict[str, StorePlace]]:
    found: dict[str, dict[str, StorePlace]] = {}
    for place in split_ignored(store_places(directory), spec)[0]:
        found.setdefault(place.task, {})[place.store] = place
    return found
