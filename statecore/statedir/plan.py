"""What a placement would do, decided before anything is built or changed, and every reason not to do it.

A task directory is replaced as a whole, so every store in it has to be accounted for: restored, kept or dropped. Under
exactly-once Kafka Streams deletes the whole task when one persistent store in it has no offset, or was not closed
cleanly; a restore of some stores therefore has to leave every other store with a valid offset, and a store that is not
there yet gets an empty database with offset -4 ("unknown": restored from the start, nothing wiped).

============================  ==================================  =============================================
in the live task              at-least-once                       exactly-once
============================  ==================================  =============================================
a store to be restored        refused without ``replace``         the same
another store                 kept                                kept; refused without an offset or when open
declared, not there           left to the application             created with offset -4
declared, no segment yet      kept                                one segment created with offset -4
not logged                    kept; left to the application       the same; refused when open
``.checkpoint``               dropped when it says nothing about  the same
                              kept stores, else refused
``.checkpoint_<store>``,      kept with their store; of a         the same
``<store>.position``          restored grace buffer written anew
============================  ==================================  =============================================

A store that the application does not log (``changelog: none``) needs no offset: Kafka Streams asks none of it, restores
nothing into it and makes an empty one where there is none. What it holds is nowhere else, so it is kept as it is.

Global stores have no gaps: Kafka Streams reads one without an offset from the start of its topic, and fails at one with
-4, so nothing is created in ``global/``; see :mod:`statecore.statedir.carried_stores` for what is not kept there.

A grace buffer's offset counts only in ``.checkpoint_<store>`` (``LegacyCheckpointingStateStore``), where -4 means the
same as in a database. Its database has to be closed cleanly all the same: the wrapped store opens as any other does.

The stores of the application's own classes (kind ``custom``) are neither read nor built: see
:mod:`statecore.statedir.custom_stores`.

A ``.checkpoint`` always wins over the offsets inside the stores (``migrateLegacyOffsets``), so a restored store must
never stand beside one that names its changelog; and it is the only place where stores of older versions keep theirs, so
it must not be dropped while such a store is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import Invalid, Reason, StatecoreError
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, PLAIN_PARENT
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.carried_stores import CarriedStores
from statecore.statedir.custom_stores import CustomStore, CustomStores, restored_by_kafka_streams
from statecore.statedir.file_ownership import unwritable
from statecore.statedir.journal import PlacedStore, read_record
from statecore.statedir.mounts import mount_in
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.siblings import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.task_layout import names_in, store_of, stores_in
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.db_paths import files_elsewhere
from statecore.stores.rocksdb.options_file import unopenable_there


@dataclass(frozen=True)
class TaskPlan:
    """What happens to one task directory.

    Attributes:
        task: the task.
        live: whether it has a directory now.
        restored: the stores that are put in.
        kept: what is carried over from the live directory, by name within it (``rocksdb/profile``, ``clicks``).
        created: stores that get an empty database with offset -4.
        dropped: names within the live directory that are left behind.
        custom: the declared stores of the application's own classes, and what becomes of each.
        already_placed: what an earlier attempt of the same request put there, if it finished; then nothing is done.
    """

    task: str
    live: bool
    restored: tuple[StoreImage, ...]
    kept: tuple[str, ...] = ()
    created: tuple[SiblingStore, ...] = ()
    dropped: tuple[str, ...] = ()
    custom: tuple[CustomStore, ...] = ()
    already_placed: tuple[PlacedStore, ...] = ()

    @property
    def left_behind(self) -> tuple[str, ...]:
        """What is dropped and does not come again: the files of a store that is advanced are linked."""
        advanced = [image for image in self.restored if image.advances]
        linked = {store_directory(image.store, image.kind) for image in advanced}
        linked |= {store_checkpoint_file(image.store) for image in advanced}
        linked |= {one.file for one in self.custom if one.offsets is not None}  # written anew
        return tuple(name for name in self.dropped if name not in linked)


@dataclass(frozen=True)
class PlacementPlan:
    """A placement that nothing speaks against.

    Attributes:
        directory: where.
        tasks: what happens to each task.
        request_id: the request it belongs to, for recognising a retry.
    """

    directory: StateDirectory
    tasks: tuple[TaskPlan, ...]
    request_id: str

    @property
    def lines(self) -> list[str]:
        """The plan for a person, one line a task."""
        return [_line(task) for task in self.tasks]

    @property
    def notes(self) -> list[str]:
        """What an operator should know of it, though nothing speaks against it."""
        return restored_by_kafka_streams([(task.task, one) for task in self.tasks for one in task.custom])

    def to_json(self) -> list[dict[str, Any]]:
        """The plan for a program, one object a task."""
        return [
            {
                "task": task.task,
                "live": task.live,
                "restored": [image.store for image in task.restored],
                "kept": list(task.kept),
                "created": [sibling.store for sibling in task.created],
                "dropped": list(task.left_behind),
                "left_to_restore": [one.store for one in task.custom if one.left],
                "already_placed": bool(task.already_placed),
            }
            for task in self.tasks
        ]


def plan_placement(
    directory: StateDirectory,
    images: Sequence[StoreImage],
    *,
    siblings: Iterable[SiblingStore] = (),
    guarantee: ProcessingGuarantee,
    replace: bool = False,
    request_id: str = "",
    resumes: bool = True,
) -> PlacementPlan:
    """Decide what a placement does, under the application's lock; changes nothing.

    Args:
        directory: the application's state directory, locked.
        images: the stores to place; ``path`` may be ``None`` to look before building.
        siblings: the other declared stores of the same tasks (of other tasks: ignored).
        guarantee: the application's processing guarantee.
        replace: whether stores that exist may be replaced.
        request_id: tasks that a finished placement of the same request made are left as they are, where they have all
            of these stores.
        resumes: whether what the same request had placed was placed by the same plan; else it is as any other's.

    Raises:
        Invalid: something speaks against it; all reasons are named, nothing was changed.
        Fenced: the lock is not held, or somebody has a store of these tasks open.
    """
    directory.check_locked()
    record = read_record(directory.work_path) if request_id and resumes else None
    others = tuple(siblings)
    tasks: list[TaskPlan] = []
    problems: list[Reason] = []
    for task in dict.fromkeys(image.task for image in images):
        restored = tuple(image for image in images if image.task == task)
        live = directory.task_path(task)
        placed = record.placed(task, live, request_id) if record is not None else ()
        if {image.store for image in restored} <= {store.store for store in placed}:
            tasks.append(TaskPlan(task, True, restored, already_placed=placed))
            continue
        refuse_open_stores(live)
        declared = tuple(sibling for sibling in others if sibling.task == task)
        planner = _TaskPlanner(task, live, restored, declared, guarantee, replace)
        tasks.append(planner.plan())
        problems += planner.problems
    if problems:
        raise _refusal(directory, problems)
    return PlacementPlan(directory, tuple(tasks), request_id)


def in_the_way(directory: StateDirectory, images: Sequence[StoreImage]) -> Invalid | None:
    """What :func:`plan_placement` would refuse without ``replace``, for who only looks and does not hold the lock.

    Args:
        directory: the application's state directory.
        images: the stores that would be placed.
    """
    return _found(directory, images, _TaskPlanner.occupied)


def would_not_open(directory: StateDirectory, images: Sequence[StoreImage]) -> Invalid | None:
    """What :func:`plan_placement` would refuse for the RocksDB options of the application, without the lock.

    Args:
        directory: the application's state directory.
        images: the stores that would be placed.
    """
    return _found(directory, images, _TaskPlanner.unopenable)


def _found(
    directory: StateDirectory, images: Sequence[StoreImage], problems_of: Callable[[_TaskPlanner], list[Reason]]
) -> Invalid | None:
    """The refusal for what a check finds in the tasks of some images; ``None`` where it finds nothing."""
    problems: list[Reason] = []
    for task in dict.fromkeys(image.task for image in images):
        restored = tuple(image for image in images if image.task == task)
        problems += problems_of(_TaskPlanner(task, directory.task_path(task), restored))
    return _refusal(directory, problems) if problems else None


def placement_notes(
    directory: StateDirectory,
    images: Sequence[StoreImage],
    *,
    siblings: Iterable[SiblingStore] = (),
    guarantee: ProcessingGuarantee,
) -> list[str]:
    """:attr:`PlacementPlan.notes`, for who only looks and does not hold the lock.

    Args:
        directory: the application's state directory.
        images: the stores that would be placed.
        siblings: the other declared stores of the same tasks.
        guarantee: the application's processing guarantee.
    """
    exactly_once = guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    restored: dict[str, set[str]] = {}
    for image in images:
        restored.setdefault(image.task, set()).add(image.store)
    declared = list(siblings)
    found = []
    for task, names in restored.items():
        of_task = [one for one in declared if one.task == task]
        decided = CustomStores(directory.task_path(task), of_task, names, exactly_once).decide()
        found += [(task, one) for one in decided]
    return restored_by_kafka_streams(found)


def refusals(
    directory: StateDirectory,
    images: Sequence[StoreImage],
    *,
    siblings: Iterable[SiblingStore] = (),
    guarantee: ProcessingGuarantee,
) -> list[Reason]:
    """What :func:`plan_placement` would refuse with ``replace``, for who only looks and does not hold the lock.

    Args:
        directory: the application's state directory.
        images: the stores that would be placed.
        siblings: the other declared stores of the same tasks.
        guarantee: the application's processing guarantee.

    Returns:
        The reasons, each a sentence without its full stop that begins with the task; none where nothing stands in the
        way.

    Raises:
        Invalid: this user may not look.
    """
    others = tuple(siblings)
    problems: list[Reason] = []
    for task in dict.fromkeys(image.task for image in images):
        restored = tuple(image for image in images if image.task == task)
        declared = tuple(sibling for sibling in others if sibling.task == task)
        planner = _TaskPlanner(task, directory.task_path(task), restored, declared, guarantee, replace=True)
        planner.plan()
        problems += planner.problems
    return problems


class _TaskPlanner:
    """The decisions for one task."""

    def __init__(
        self,
        task: str,
        live: Path,
        restored: tuple[StoreImage, ...],
        declared: tuple[SiblingStore, ...] = (),
        guarantee: ProcessingGuarantee = ProcessingGuarantee.AT_LEAST_ONCE,
        replace: bool = False,
    ) -> None:
        self.task, self.live = task, live
        self.restored, self.replace = restored, replace
        self.exactly_once = guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        self.declared = {sibling.store: sibling for sibling in declared}
        self.names = {image.store for image in restored}
        self.custom = CustomStores(live, declared, self.names, self.exactly_once)
        self.problems: list[Reason] = []

    def plan(self) -> TaskPlan:
        """The plan; what speaks against it is in ``problems``."""
        kept: list[str] = []
        dropped: list[str] = []
        exists = self._live_exists()
        custom = self.custom.decide()
        if exists:
            self._check_rights()
            self._check_options()
            self._check_mounts()
            kept, dropped = self._sort_content()
            self._check_targets(dropped)
            gone = {name for one in custom for name in one.dropped}
            kept, dropped = [name for name in kept if name not in gone], [*dropped, *sorted(gone)]
        kept_stores = [store for store in stores_in(self.live) if store.name in kept] if exists else []
        kept_stores = [store for store in kept_stores if not self.custom.may_have(store.name)]
        if CHECKPOINT_FILE in dropped and kept_stores:
            self._check_checkpoint()
        created = self._missing({store.name for store in kept_stores})
        created += CarriedStores(self.task, self.declared, self.exactly_once, self._refuse).check(kept_stores)
        if self.task == GLOBAL:
            self._check_next_offsets()
        for sibling in self.custom.undecided:
            self._refuse_gap(sibling, "changelog", "changelog-undecided")
        return TaskPlan(self.task, exists, self.restored, tuple(kept), tuple(created), tuple(dropped), custom)

    def occupied(self) -> list[Reason]:
        """The stores that are there and would have to be replaced, each as a refusal."""
        if self.live.is_dir():
            self._check_targets(self._sort_content()[1])
        return self.problems

    def unopenable(self) -> list[Reason]:
        """The stores that the application would not open when they were replaced, each as a refusal."""
        if self.live.is_dir():
            self._check_options()
        return self.problems

    def _live_exists(self) -> bool:
        if self.live.is_symlink() or (self.live.exists() and not self.live.is_dir()):
            self._refuse(
                "task-directory-linked", "is not a directory of its own (a link or a file); replace it by a directory"
            )
            return False
        above = self.live.parent  # of a named topology
        if above.is_symlink() or (above.exists() and not above.is_dir()):
            self._refuse(
                "task-directory-linked",
                f"lies in {above.name}, which is not a directory of its own; replace it by a directory",
                path=str(above),
            )
            return False
        return self.live.is_dir()

    def _check_rights(self) -> None:
        closed = unwritable([self.live])
        if closed is not None:
            self._refuse(
                "permission-denied",
                f"cannot be replaced, because this user (uid {os.geteuid()}) may not change {closed}; run as the user"
                " that the application runs as, or let its group write there (umask 0007)",
                path=str(closed),
            )

    def _check_options(self) -> None:
        """Refuse what the application would not open, by the options that it last opened the same store with."""
        replaced = {store_directory(image.store, image.kind): image for image in self.restored if not image.advances}
        for found in stores_in(self.live):
            image, database = replaced.get(found.name), next(iter(found.databases), None)
            if image is None or database is None:
                continue
            if why := unopenable_there(database) or files_elsewhere(database):
                self._refuse(
                    "not-readable-here",
                    f"has the store {image.store} with RocksDB options of the application's own: {why}. The application"
                    " would not open what is placed; let it restore this store itself, or, if it does not set these"
                    " options, move the store's directory away first",
                    store=image.store,
                    why=why,
                )

    def _check_mounts(self) -> None:
        mount = mount_in(self.live)
        if mount is not None:
            self._refuse(
                "mount-in-the-way",
                f"cannot be replaced, because {mount} is a mount of its own; mount the directory above, and let this be"
                " a directory of it",
                path=str(mount),
            )

    def _sort_content(self) -> tuple[list[str], list[str]]:
        """Names in the live directory, ``rocksdb/<store>`` for those below, as (kept, dropped)."""
        kept: list[str] = []
        dropped: list[str] = []
        for name in names_in(self.live):
            (dropped if self._is_dropped(name) else kept).append(name)
        return kept, dropped

    def _is_dropped(self, name: str) -> bool:
        if self.custom.has(name):
            return False
        leftover = name.endswith((".lock", ".tmp")) and not (self.live / name).is_dir()
        return store_of(self.live, name) in self.names or name == CHECKPOINT_FILE or leftover

    def _check_targets(self, dropped: Iterable[str]) -> None:
        if self.replace:
            return
        replaced = self.names - {image.store for image in self.restored if image.advances}
        for name in dropped:
            store = name.removeprefix(f"{PLAIN_PARENT}/")
            if store in replaced and _has_content(self.live / name):
                self._refuse(
                    "store-exists",
                    f"holds the store {store} already; set replace (--replace) to replace it",
                    store=store,
                )

    def _check_checkpoint(self) -> None:
        ours = {topic for image in self.restored for topic in image.topics} | self.custom.topics
        file = self.live / CHECKPOINT_FILE
        try:
            named = read_offsets(file)
        except StatecoreError as error:
            self._refuse(
                "checkpoint-unreadable",
                f"has a {CHECKPOINT_FILE} file that cannot be read ({error}); restore all stores of the task",
                path=str(file),
            )
            return
        other = sorted({partition.topic for partition in named} - ours)
        if other:
            self._refuse(
                "checkpoint-of-other-stores",
                f"has a {CHECKPOINT_FILE} file of an older Kafka Streams with the offsets of {', '.join(other)};"
                " start the application once so that it takes them over, or restore all stores of the task",
                topics=other,
            )

    def _missing(self, present: set[str]) -> list[SiblingStore]:
        """The declared stores that are not there and have to be; refuses where it cannot be known what they are."""
        if not self.exactly_once or self.task == GLOBAL:
            return []
        missing = []
        for sibling in self.declared.values():
            if not sibling.logged:
                continue  # Kafka Streams makes it, and wants no offset of it
            if sibling.kind is StoreKind.UNKNOWN:
                if not {sibling.store, f"{PLAIN_PARENT}/{sibling.store}"} & present:
                    self._refuse_gap(sibling, "kind", "kind-undecided")
            elif sibling.kind.can_be_built and store_directory(sibling.store, sibling.kind) not in present:
                if sibling.changelog is None:
                    self._refuse_gap(sibling, "changelog", "changelog-undecided")
                else:
                    missing.append(sibling)
        return missing

    def _refuse_gap(self, sibling: SiblingStore, unknown: str, code: str) -> None:
        self._refuse(
            code,
            f"lacks the store {sibling.store} ({unknown} ?), and under exactly-once Kafka Streams wipes a task with"
            f" such a gap; decide its {unknown} in the spec, or let the application restore this task",
            store=sibling.store,
        )

    def _check_next_offsets(self) -> None:
        for image in self.restored:
            unknown = [str(partition) for partition, offset in (image.offsets or {}).items() if offset < 0]
            if unknown:
                self._refuse(
                    "offset-missing",
                    f"would get the store {image.store} without a next offset for {', '.join(unknown)}: Kafka Streams"
                    " would fail at every start; give the end of the partition, 0 when it is empty",
                    store=image.store,
                    partitions=unknown,
                )

    def _refuse(self, code: str, what: str, **context: Any) -> None:
        self.problems.append(Reason(f"{self.task} {what}", code, task=self.task, **context))


def _has_content(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _line(task: TaskPlan) -> str:
    """The plan of one task; of what is advanced nothing is dropped, because its files are linked."""
    if task.already_placed:
        return f"{task.task}: already placed by this request"
    restored = [image.store for image in task.restored if not image.advances]
    parts = ["replace" if task.live else "create"] if restored else []
    for word, names in (
        ("advance", [image.store for image in task.restored if image.advances]),
        ("restore", restored),
        ("keep", [name for name in task.kept if not name.startswith(".")]),
        ("create without data", [sibling.store for sibling in task.created]),
        ("leave to Kafka Streams", [one.store for one in task.custom if one.left]),
        ("drop", list(task.left_behind)),
    ):
        if names:
            parts.append(f"{word} {', '.join(names)}")
    return f"{task.task}: " + "; ".join(parts)


def _refusal(directory: StateDirectory, problems: list[Reason]) -> Invalid:
    shown = problems[:20]
    more = [f"... and {len(problems) - 20} more"] if len(problems) > 20 else []
    return Invalid(
        f"The stores cannot be placed in {directory.path}:\n  " + "\n  ".join([*shown, *more]) + "\n",
        code="placement-refused",
        action="Do what each line says; nothing was changed.",
        state_dir=str(directory.path),
        problems=[one.to_json() for one in problems],
    )
