"""Assembles the new task directories of a placement in its staging directory, checks them and makes them durable."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from statecore.errors import Corrupted
from statecore.faults import FaultPoints
from statecore.filesystem import FileId, break_hard_link, file_id, sync_tree
from statecore.formats.checkpoint import encode_checkpoint, store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import PLAIN_PARENT
from statecore.formats.topic_partition import TopicPartition, offsets_in_words
from statecore.progress import Progress
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.file_ownership import FileOwnership
from statecore.statedir.file_trees import file_sizes, fingerprint, inode, link_tree, move, remove_tree
from statecore.statedir.journal import JournalTask, PlacedStore
from statecore.statedir.placement_plan import TaskPlan
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.task_layout import databases_of
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.directory import CONFIG_FILE, identity_of


class TaskAssembly:
    """Builds complete task directories in a new staging directory."""

    def __init__(
        self,
        directory: StateDirectory,
        staging: Path,
        faults: FaultPoints,
        progress: Progress,
        staged: Collection[Path] = (),
    ) -> None:
        self.directory, self.staging, self.faults, self.progress = directory, staging, faults, progress
        self._ownership = directory.ownership  # once, because it queries this process's capabilities
        self._shared = SharedFiles(self._ownership, (staging, *staged))

    def assemble(self, tasks: Collection[TaskPlan]) -> tuple[JournalTask, ...]:
        """Assemble all tasks durably; returns their journal entries."""
        self.progress.phase("assemble", len(tasks), "tasks")
        (self.staging / "aside").mkdir(parents=True)
        entries = []
        for task in tasks:
            target = self.staging / "tasks" / task.task
            target.mkdir(parents=True)
            stores = self._fill(task, target)
            entries.append(self._entry(task, target, stores))
            self.progress.advance()
        self.faults.reach("placement.after-assembly")
        sync_tree(self.staging)
        self.faults.reach("placement.after-sync")
        self.progress.done()
        return tuple(entries)

    def _fill(self, task: TaskPlan, target: Path) -> list[PlacedStore]:
        live = self.directory.task_path(task.task)
        stores: list[PlacedStore] = []
        for image in task.restored:
            if image.path is None or not image.offsets:
                raise ValueError(f"the image of {image.store} in {task.task} has no path or no offsets")
            where = target / store_directory(image.store, image.kind)
            where.parent.mkdir(exist_ok=True)
            move(image.path, where)
            self.faults.reach("placement.after-image-move")
            stores += self._databases(image, target, where, image.offsets)
        for name in task.carried:
            link_tree(live / name, target / name, self._ownership)
        for sibling in task.created:
            where = target / store_directory(sibling.store, sibling.kind)
            if sibling.changelog is None:
                raise ValueError(f"{sibling.store} in {task.task} has no changelog to restore it from")
            offsets = {sibling.changelog: OFFSET_UNKNOWN}
            database = _first_segment(where, sibling)
            remove_tree(database)  # a carried segment without rows, half deleted: else the placement is refused
            create_database(database, sibling.kind, offsets)
            stores += self._databases(sibling, target, where, offsets)
        for custom in task.custom:
            if custom.offsets is not None:
                (target / custom.file).write_bytes(encode_checkpoint(custom.offsets))
                self._ownership.apply(target / custom.file)
        self.faults.reach("placement.after-siblings")
        for path in (target, target / PLAIN_PARENT):
            if path.is_dir():
                self._ownership.apply(path)
        # Kafka Streams may delete directories that were unchanged for long (state.cleanup.dir.max.age.ms).
        os.utime(target)
        return stores

    def _databases(
        self, store: SiblingStore, target: Path, where: Path, offsets: Mapping[TopicPartition, int]
    ) -> list[PlacedStore]:
        """The databases of a restored or created store, checked before anything live is changed."""
        for leftover in where.rglob(CONFIG_FILE):
            leftover.unlink()
        self._shared.give_tree(where)
        checkpoint = "" if store.kind.manages_offsets else store_checkpoint_file(store.store)
        if checkpoint:
            (target / checkpoint).write_bytes(encode_checkpoint(offsets))
            self._ownership.apply(target / checkpoint)
        placed = []
        for database in _checked_databases(store, where):
            entry = PlacedStore(
                store.store,
                str(database.relative_to(target)),
                offsets,
                sum(file_sizes(database).values()),
                identity_of(database),
                checkpoint,
            )
            check_placed(store.task, entry, target)
            placed.append(entry)
        return placed

    def _entry(self, task: TaskPlan, target: Path, stores: list[PlacedStore]) -> JournalTask:
        live = self.directory.task_path(task.task)
        old = inode(live)
        new = inode(target)
        assert new is not None
        return JournalTask(
            task.task, new, file_sizes(target), old, fingerprint(live) if old is not None else None, tuple(stores)
        )


def _first_segment(where: Path, sibling: SiblingStore) -> Path:
    """The database of a store without data: its directory, or the segment of time 0."""
    return where / f"{sibling.store}.0" if sibling.kind.is_segmented else where


def _checked_databases(store: SiblingStore, where: Path) -> list[Path]:
    """The databases of a store; a stray name among segments, which stops Kafka Streams at a start, is an error."""
    found, stray = databases_of(where), list[str]()
    if not found:
        wrong = "contains no database"
    elif not store.kind.is_segmented:
        wrong = "" if found == [where] else "is a directory of databases, and stores of its kind have one"
    else:
        segments = re.compile(re.escape(store.store) + r"\.[0-9]+")
        stray = sorted({path.name for path in where.iterdir()} - {path.name for path in found if path != where})
        stray += [path.name for path in found if path != where and not segments.fullmatch(path.name)]
        wrong = f"contains {', '.join(stray)}, which is no segment of it" if stray else ""
    if wrong:
        raise Corrupted(
            f"The image of the store {store.store} (kind {store.kind}) in task {store.task} {wrong}.",
            code="image-mismatch",
            action="Run the restore again; nothing was replaced.",
            task=store.task,
            store=store.store,
            databases=len(found),
            stray=stray,
        )
    return found


def check_placed(task: str, store: PlacedStore, task_directory: Path) -> None:
    """Check that a placed database and its offset file hold the expected offsets, and read a row of every family."""
    state = read_database_state(task_directory / store.directory, sample=True)
    if state.offsets != store.offsets or not state.closed_cleanly:
        actual = f"says {_describe(state.offsets)} and status {state.status}"
        raise _not_as_placed(task, store, actual, "and status 0 ", offsets=state.offsets, status=state.status)
    if store.checkpoint:
        found = read_offsets(task_directory / store.checkpoint)
        if found != store.offsets:
            raise _not_as_placed(task, store, f"has {_describe(found)} in {store.checkpoint}", "", offsets=found)


def _not_as_placed(
    task: str,
    store: PlacedStore,
    found: str,
    also: str,
    *,
    offsets: Mapping[TopicPartition, int],
    status: int | None = None,
) -> Corrupted:
    return Corrupted(
        f"The image of the store {store.store} in task {task} {found}; {_describe(store.offsets)} {also}were expected.",
        code="image-mismatch",
        action="Run the restore again; nothing was replaced.",
        task=task,
        store=store.store,
        directory=store.directory,
        offsets={str(partition): offset for partition, offset in offsets.items()},
        status=status,
    )


def _describe(offsets: Mapping[TopicPartition, int]) -> str:
    return offsets_in_words(offsets) or "no offset"


class SharedFiles:
    """Sets owner and modes of images, whose files may have other names: in the staging, a repository, the live task.

    All names of a file share one owner and mode. A file with all its names in the staging is changed in place. One with
    a name elsewhere stays shared if its owner is right and its permissions suffice; otherwise it becomes a separate
    file, so that neither a repository nor a live file is changed before the swap.
    """

    def __init__(self, ownership: FileOwnership, staged: Collection[Path]) -> None:
        self._ownership, self._staged = ownership, staged

    def give_tree(self, root: Path) -> None:
        """Set owner and modes of a whole tree, contents before their directory."""
        for directory, _, names in os.walk(root, topdown=False):
            for name in names:
                self._give(Path(directory, name))
            self._ownership.apply(Path(directory))

    def _give(self, path: Path) -> None:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and self._is_elsewhere(status):
            if self._ownership.accepts(status):
                return
            break_hard_link(path)
            self._names[file_id(status)] -= 1
        self._ownership.apply(path)

    def _is_elsewhere(self, status: os.stat_result) -> bool:
        return status.st_nlink > self._names[file_id(status)]

    @cached_property
    def _names(self) -> Counter[FileId]:
        """Number of names each file has in the staging, by device and inode."""
        found: Counter[FileId] = Counter()
        for root in self._staged:
            for directory, _, names in os.walk(root):
                found.update(file_id(os.lstat(Path(directory, name))) for name in names)
        return found
