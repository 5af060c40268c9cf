"""Placement plans: what happens to every store of a task directory, and every reason to refuse, before any change.

A task directory is replaced as a whole, so every store in it is restored, carried over or dropped. Under exactly-once
Kafka Streams deletes the whole task if one persistent store in it has no offset, or was not closed cleanly. A restore
of some stores therefore leaves every other store with a valid offset, and a store that does not exist yet gets an empty
database with offset -4 ("unknown": restored from the start, nothing wiped).

============================  ==================================  =============================================
in the live task              at-least-once                       exactly-once
============================  ==================================  =============================================
a store to be restored        refused without ``replace``         the same
another store                 carried over                        carried over; refused without an offset or
                                                                  when open
declared, missing             left to the application             created with offset -4
declared, no segment yet      carried over                        one segment created with offset -4
not logged                    carried over; left to the           the same; refused when open
                              application
``.checkpoint``               dropped if carried stores have      the same
                              its offsets themselves, or later
                              ones (-4 is none), else refused
``.checkpoint_<store>``,      carried over with their store;      the same
``<store>.position``          rewritten for a restored grace
                              buffer
============================  ==================================  =============================================

A store without changelog (``changelog: none``) needs no offset: Kafka Streams restores nothing into it and creates an
empty one if it is missing. Its rows have no other copy, so it is carried over as it is.

Global stores have no gaps: Kafka Streams reads one without an offset from the start of its topic, and fails at one with
-4, so nothing is created in ``global/``; see :mod:`statecore.statedir.carried_stores` for what is refused there.

A grace buffer's offset counts only in ``.checkpoint_<store>`` (``LegacyCheckpointingStateStore``), where -4 means the
same as in a database. Its database still has to be closed cleanly, because the wrapped store opens as any other.

For stores of the application's own classes (kind ``custom``) see :mod:`statecore.statedir.custom_stores`.

A ``.checkpoint`` always wins over the offsets inside the stores (``migrateLegacyOffsets``), so a restored store must
never stand beside one that names its changelog. It is the only place where stores of older versions keep their offsets,
so it must not be dropped while such a store is carried over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import Invalid, Reason
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, PLAIN_PARENT
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.carried_stores import CarriedStores
from statecore.statedir.checkpoint_overlay import migrated
from statecore.statedir.custom_stores import CustomStore, CustomStores, restored_by_kafka_streams
from statecore.statedir.file_ownership import unwritable
from statecore.statedir.journal import PlacedStore, read_record
from statecore.statedir.known_files import read_offset_file
from statecore.statedir.mounts import mount_in
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.store_on_disk import read_store
from statecore.statedir.task_layout import StoreDirectory, names_in, rows_without_current, store_of, stores_in
from statecore.stores.rocksdb.files import files_elsewhere
from statecore.stores.rocksdb.options_file import unopenable_there


@dataclass(frozen=True)
class TaskPlan:
    """The plan for one task directory.

    Attributes:
        live: whether it has a directory now.
        carried: names in the live directory that are carried over (``rocksdb/profile``, ``clicks``).
        created: stores that get an empty database with offset -4.
        dropped: names in the live directory that are not carried over.
        custom: declared stores of the application's own classes, and their treatment.
        already_placed: databases that an earlier attempt of the same request placed, if it finished; then nothing is
            done.
    """

    task: str
    live: bool
    restored: tuple[StoreImage, ...]
    carried: tuple[str, ...] = ()
    created: tuple[SiblingStore, ...] = ()
    dropped: tuple[str, ...] = ()
    custom: tuple[CustomStore, ...] = ()
    already_placed: tuple[PlacedStore, ...] = ()

    @property
    def replaced(self) -> tuple[str, ...]:
        """Dropped names of restored stores, which what was built replaces; nothing of an advanced one is replaced."""
        stores = [image.store for image in self.restored if not image.advances]
        built = {name for one in stores for name in (one, f"{PLAIN_PARENT}/{one}", store_checkpoint_file(one))}
        return tuple(name for name in self.dropped if name in built)

    @property
    def removed(self) -> tuple[str, ...]:
        """Dropped names that nothing replaces; the files of a store that is advanced are linked."""
        advanced = [image for image in self.restored if image.advances]
        linked = {store_directory(image.store, image.kind) for image in advanced}
        linked |= {store_checkpoint_file(image.store) for image in advanced}
        linked |= {one.file for one in self.custom if one.offsets is not None}  # rewritten
        return tuple(name for name in self.dropped if name not in {*linked, *self.replaced})


@dataclass(frozen=True)
class PlacementPlan:
    """A placement without objections.

    Attributes:
        request_id, plan_id: the request it belongs to, and its plan, by which a retry is recognized.
    """

    directory: StateDirectory
    tasks: tuple[TaskPlan, ...]
    request_id: str
    plan_id: str = ""

    @property
    def lines(self) -> list[str]:
        """The plan for a person, one line per task."""
        return [_line(task) for task in self.tasks]

    @property
    def notes(self) -> list[str]:
        """Notes for the operator that are no reason to refuse."""
        return restored_by_kafka_streams([(task.task, one) for task in self.tasks for one in task.custom])

    def to_json(self) -> list[dict[str, Any]]:
        """The plan for a program, one object per task."""
        return [
            {
                "task": task.task,
                "live": task.live,
                "restored": [image.store for image in task.restored],
                "kept": list(task.carried),
                "created": [sibling.store for sibling in task.created],
                "replaced": list(task.replaced),
                "dropped": list(task.removed),
                "restored_by_kafka_streams": [one.store for one in task.custom if one.why_restored],
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
    plan_id: str = "",
    resumes: bool = True,
) -> PlacementPlan:
    """Plan a placement, under the application's lock; changes nothing."""
    directory.check_locked()
    record = read_record(directory.work_path) if request_id and resumes else None
    others = tuple(siblings)
    tasks: list[TaskPlan] = []
    problems: list[Reason] = []
    for task in dict.fromkeys(image.task for image in images):
        restored = tuple(image for image in images if image.task == task)
        live = directory.task_path(task)
        placed = record.placed(task, live, request_id, plan_id) if record is not None else ()
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
    return PlacementPlan(directory, tuple(tasks), request_id, plan_id)


def existing_stores_error(directory: StateDirectory, images: Sequence[StoreImage]) -> Invalid | None:
    """The error :func:`plan_placement` would raise without ``replace`` for existing stores; needs no lock."""
    return _refusal_of(directory, images, _TaskPlanner.existing_stores)


def unopenable_stores_error(directory: StateDirectory, images: Sequence[StoreImage]) -> Invalid | None:
    """The error :func:`plan_placement` would raise for RocksDB options of the application; needs no lock."""
    return _refusal_of(directory, images, _TaskPlanner.unopenable_stores)


def _refusal_of(
    directory: StateDirectory, images: Sequence[StoreImage], problems_of: Callable[[_TaskPlanner], list[Reason]]
) -> Invalid | None:
    """The refusal with all problems of one check over the tasks of some images; ``None`` without problems."""
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
    """:attr:`PlacementPlan.notes` of a placement that is not planned yet; needs no lock."""
    exactly_once = guarantee.is_exactly_once
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
    """Why :func:`plan_placement` would refuse with ``replace``, each beginning with the task; needs no lock."""
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
        self.exactly_once = guarantee.is_exactly_once
        self.declared = {sibling.store: sibling for sibling in declared}
        self.names = {image.store for image in restored}
        self.custom = CustomStores(live, declared, self.names, self.exactly_once)
        self.problems: list[Reason] = []

    def plan(self) -> TaskPlan:
        """The plan; objections are added to ``problems``."""
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
            self._check_checkpoint(kept_stores)
        created = self._missing({store.name for store in kept_stores})
        created += CarriedStores(self.task, self.declared, self.exactly_once, self._refuse).check(kept_stores)
        if self.task == GLOBAL:
            self._check_next_offsets()
        for sibling in self.custom.undecided:
            self._refuse(
                "changelog-undecided",
                f"needs an offset of the store {sibling.store} (changelog ?), and under exactly-once Kafka Streams"
                " wipes a task without it; decide its changelog in the spec, or let the application restore this task",
                store=sibling.store,
            )
        return TaskPlan(self.task, exists, self.restored, tuple(kept), tuple(created), tuple(dropped), custom)

    def existing_stores(self) -> list[Reason]:
        """Existing stores that would have to be replaced, as reasons to refuse."""
        if self.live.is_dir():
            self._check_targets(self._sort_content()[1])
        return self.problems

    def unopenable_stores(self) -> list[Reason]:
        """Stores that the application could not open after they were replaced, as reasons to refuse."""
        if self.live.is_dir():
            self._check_options()
        return self.problems

    def _live_exists(self) -> bool:
        if self.live.is_symlink() or (self.live.exists() and not self.live.is_dir()):
            self._refuse(
                "task-directory-linked", "is not a real directory (a link or a file); replace it by a directory"
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
        """Refuse a store that the application could not open with the options that it last used for it."""
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
                f"cannot be replaced, because {mount} is a separate mount; mount the directory above, and make this"
                " a directory of it",
                path=str(mount),
            )

    def _sort_content(self) -> tuple[list[str], list[str]]:
        """Split the names in the live directory, ``rocksdb/<store>`` for those below, into (carried over, dropped)."""
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
                damage = self._damage(name)
                self._refuse(
                    "store-exists",
                    f"contains the store {store}, which is damaged: {damage}; set replace (--replace) to rebuild it"
                    if damage
                    else f"contains the store {store} already; set replace (--replace) to replace it",
                    store=store,
                    **({"damage": damage} if damage else {}),
                )

    def _damage(self, name: str) -> str:
        """Why a directory has no intact store; empty if it has one, or is no store's."""
        found = next((one for one in stores_in(self.live) if one.name == name), None)
        if found is None:
            return ""
        if lost := next(iter(rows_without_current(found)), None):
            return f"{lost} has data files and no CURRENT"
        damage = read_store(found, manifests=True).damage
        return "" if damage is None else damage.what.rstrip(".")

    def _check_checkpoint(self, kept: Iterable[StoreDirectory]) -> None:
        ours = {topic for image in self.restored for topic in image.topics} | self.custom.topics
        file = self.live / CHECKPOINT_FILE
        read = read_offset_file(file)
        if read.unreadable:
            self._refuse(
                "checkpoint-unreadable",
                f"has a {CHECKPOINT_FILE} file that cannot be read ({read.unreadable}); restore all stores of the task",
                path=str(file),
            )
            return
        entries = {entry: offset for entry, offset in migrated(read.offsets).items() if entry.topic not in ours}
        own = {at: offset for store in kept if entries for at, offset in read_store(store).smallest_offsets.items()}
        other = sorted({entry.topic for entry, offset in entries.items() if own.get(entry, OFFSET_UNKNOWN) < offset})
        if other:
            self._refuse(
                "checkpoint-of-other-stores",
                f"has a {CHECKPOINT_FILE} file with offsets of {', '.join(other)} that no store has, as an older"
                " Kafka Streams leaves it; start the application once so that it reads them, or restore all stores of"
                " the task",
                topics=other,
            )

    def _missing(self, present: set[str]) -> list[SiblingStore]:
        """The declared stores that have to be created; refuses those whose kind or changelog is unknown."""
        if not self.exactly_once or self.task == GLOBAL:
            return []
        missing = []
        for sibling in self.declared.values():
            if not sibling.logged:
                continue  # Kafka Streams creates it, and expects no offset
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
    """The plan of one task. Nothing of an advanced store is dropped, because its files are linked."""
    if task.already_placed:
        return f"{task.task}: already placed by this request"
    restored = [image.store for image in task.restored if not image.advances]
    parts = ["replace" if task.live else "create"] if restored else []
    for word, names in (
        ("advance", [image.store for image in task.restored if image.advances]),
        ("restore", restored),
        ("keep", [name for name in task.carried if not name.startswith(".")]),
        ("create without data", [sibling.store for sibling in task.created]),
        ("restored by Kafka Streams", [one.store for one in task.custom if one.why_restored]),
        ("drop", list(task.removed)),
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
