"""All databases of one task in Kafka Streams' layout, open for writing, as the spec declares them.

The kind of a store decides what happens to it:

==========================================  =========================================================================
store                                       here
==========================================  =========================================================================
one database, or segments, grace buffers    open, and advanced by runs (:class:`StandbyStore`)
versioned                                   not followed, because its rows depend on every record: it is left empty at
                                            -4, so that Kafka Streams restores it alone, and wipes nothing; its rows
                                            are moved aside
in memory                                   nothing: Kafka Streams restores it from the start of its changelog
not logged (``changelog: none``)            unchanged, because its rows exist nowhere else; under exactly-once one that
                                            was not closed cleanly is an error, because Kafka Streams would wipe the
                                            task
==========================================  =========================================================================

While the task is open ``.checkpoint`` names every store of it, never ahead of the databases. At a clean close it stays
or is deleted as the next reader needs it (:class:`NextReader`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from statecore.discover.contradicted_kinds import contradiction_error
from statecore.errors import Corrupted, Fenced, Invalid, NotFound, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import make_directories
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, OFFSETS_COLUMN_FAMILY
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import RunFile
from statecore.spec.model import ApplicationSpec, StoreSpec, is_source, segmentation_of, task_of, undecided_note
from statecore.statedir.database_state import read_database_state
from statecore.statedir.journal import read_journal
from statecore.statedir.placement import recover
from statecore.statedir.quarantine import delete_expired, quarantine_store
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.task_layout import StoreDirectory, stores_in
from statecore.statedir.work_directory import STALE, STANDBY
from statecore.stores.legacy_offsets import remove_offsets, write_offsets
from statecore.stores.rocksdb.directory_lock import fenced, writer_of
from statecore.stores.settings import StoreSettings
from statecore.system_errors import RUN_AS_APPLICATION, system_error
from statecore.tasks.excluded_stores import close_unlogged, empty_versioned_store, refuse_half_deleted
from statecore.tasks.standby_store import StandbyStore, StandbyStoreSpec, written_by_older_release
from statecore.tasks.task_offsets import NextReader


def tasks_of(spec: ApplicationSpec, partitions: Mapping[str, int]) -> list[str]:
    """The tasks that have a store for a standby, in numeric order."""
    found = {
        task_of(store, partition): (store.subtopology, partition)
        for store in spec.stores
        if store.is_restorable
        for partition in range(partitions.get(store.changelog, 0))
    }
    return sorted(found, key=found.__getitem__)


def standby_stores(spec: ApplicationSpec, task: str) -> tuple[StandbyStoreSpec, ...]:
    """The stores of a task that follow changelogs."""
    found: list[StandbyStoreSpec] = []
    for store in _declared(spec, task):
        if not store.is_restorable or store.kind.is_versioned:
            continue
        changelog = TaskId.parse(task).partition_of(store.changelog)
        found.append(
            StandbyStoreSpec(store.name, store.kind, changelog, segmentation_of(store), is_source(spec, store))
        )
    return tuple(found)


def _declared(spec: ApplicationSpec, task: str) -> list[StoreSpec]:
    if TaskId.parse(task).is_global:
        raise Invalid("Global stores have no task.", code="task-invalid", action="Name a task such as 0_1.", task=task)
    declared = spec.stores_of(task)
    if any(store.is_undecided for store in declared):
        undecided = undecided_note(spec) or "a changelog is undecided (?)"
        raise Invalid(
            f"The stores of task {task} are not all known: {undecided}.",
            code="spec-undecided",
            action="Decide them in the spec; statecore inspect shows the kinds.",
            task=task,
        )
    return sorted(declared, key=lambda store: store.name)


class TaskStores:
    """The stores of one task, for one thread; the caller holds the application's lock until they are closed.

    Args:
        spec: the application's spec.
        directory: its state directory.
        task: the task.
        settings: of every database.
        faults: fault points of tests, also for users of the stores.
        now: seconds since the epoch.

    Raises:
        Invalid: the kind or the changelog of a store of the task is undecided.
        NotFound: the spec declares no store of it.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        directory: StateDirectory,
        task: str,
        *,
        settings: StoreSettings | None = None,
        faults: FaultPoints = NO_FAULTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._name = task
        self.faults, self._now = faults, now
        self._directory = directory
        self.path = directory.task_path(task)
        self.work_path = directory.work_path / STANDBY / task
        """The task's work directory: files being created, and what is known of its changelogs."""
        self._spec = spec
        self._declared = _declared(spec, task)
        if not self._declared:
            raise NotFound(
                f"{spec.source} declares no store of task {task}.",
                code="task-not-found",
                action="Name tasks that have stores; statecore inspect shows them.",
                task=task,
            )
        exactly_once = self._exactly_once = spec.processing_guarantee.is_exactly_once
        self._stores = {
            one.name: StandbyStore(
                one,
                self.path,
                self.scratch,
                exactly_once=exactly_once,
                settings=settings,
                faults=faults,
                keep=self._quarantine,
            )
            for one in standby_stores(spec, task)
        }
        self._versioned: dict[TopicPartition, int] = {}
        self._is_open = False

    @property
    def name(self) -> str:
        """The task id: ``0_1``."""
        return self._name

    @property
    def scratch(self) -> Path:
        """A directory on the file system of the stores, emptied when they are opened."""
        return self.work_path / "scratch"

    @property
    def stores(self) -> tuple[StandbyStore, ...]:
        """The stores that follow their changelogs."""
        return tuple(self._stores.values())

    def open(self) -> None:
        """Open every store, created where it is missing; an interrupted placement is recovered first.

        All stores are checked, and their databases opened, before one of them is emptied, created or set to an offset.

        Raises:
            Fenced: the application's lock is not held, or another process has a database open.
            Invalid: the directory has a store that the spec does not declare, or Kafka Streams 4.2 or older wrote it;
                or this user has no right to it.
            Corrupted: see :meth:`StandbyStore.open`; or Kafka Streams would wipe the task for a store without a
                changelog.
            Capacity: the disk is full.
            Retryable: the disk failed.
        """
        if self._is_open:
            return
        self._directory.check_locked()
        with translated_errors(self.name, "", "could not be opened"):
            if read_journal(self._directory.work_path) is not None:  # a service has recovered when it started
                recover(self._directory, self.faults)
            self._refuse_undeclared()
            self._refuse_older_release()
            self._check_unlogged()
            self._check_versioned()
            shutil.rmtree(self.scratch, ignore_errors=True)
            make_directories(self.scratch)
            try:
                for store in self._stores.values():
                    with translated_errors(self.name, store.name, "could not be opened"):
                        store.open_databases()
                delete_expired(self._directory, STALE, self._now_ms())
                make_directories(self.path)
                self._empty_versioned_stores()
                for store in self._stores.values():
                    with translated_errors(self.name, store.name, "could not be opened"):
                        store.settle()
                remove_offsets(self.path / CHECKPOINT_FILE)
                self.checkpoint()
            except BaseException:
                for store in self._stores.values():
                    with suppress(StatecoreError, OSError):
                        store.close()
                raise
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether the task is open; a store of it that failed may be closed all the same."""
        return self._is_open

    def check_locked(self) -> None:
        """Check that paths still name the directory that was opened.

        RocksDB still writes to a directory that was renamed away; one that has its name now belongs to another process.

        Raises:
            Fenced: the application's lock was lost.
        """
        self._directory.check_locked()

    def offsets(self) -> dict[TopicPartition, int]:
        """The last applied offset of the changelog of each logged store on disk; -4 where there is none."""
        found = {one.changelog: OFFSET_UNKNOWN if one.offset is None else one.offset for one in self._stores.values()}
        return {**self._versioned, **found}

    def apply(self, store: str, runs: Sequence[RunFile], end: int, stream_time: int = -1) -> None:
        """Ingest runs into a store and commit its offset; see :meth:`StandbyStore.apply`.

        A store that fails is closed; see :meth:`reopen`.

        Raises:
            NotFound: there is no such store.
            Fenced: see :meth:`check_locked`.
            StatecoreError: see :meth:`StandbyStore.apply`, and converted system errors.
        """
        self.check_locked()
        found = self.store(store)
        try:
            with translated_errors(self.name, store, "could not be advanced"):
                self._check_in_place(found)
                found.apply(runs, end, stream_time)
        except Exception:
            found.close_after_failure()
            raise

    def reopen(self, store: str) -> None:
        """Open a store that failed, at its last commit; nothing where it is open.

        Raises:
            NotFound: there is no such store.
            Fenced: see :meth:`check_locked`.
            StatecoreError: see :meth:`StandbyStore.open`.
        """
        self.check_locked()
        with translated_errors(self.name, store, "could not be opened"):
            self.store(store).open()

    def store(self, name: str) -> StandbyStore:
        """A store that follows its changelog. Raises ``NotFound`` where there is none of that name."""
        if name not in self._stores:
            raise NotFound(
                f"Task {self.name} has no store {name} that follows a changelog; it has {', '.join(self._stores)}.",
                code="store-not-found",
                action="Name one of them.",
                task=self.name,
                store=name,
            )
        return self._stores[name]

    def checkpoint(self) -> None:
        """Write ``.checkpoint`` with the committed offsets of all stores.

        Raises:
            Fenced: see :meth:`check_locked`.
            Corrupted: a database was deleted or replaced while it was open; there is no ``.checkpoint`` then.
            Invalid, Capacity: it cannot be written.
        """
        self.check_locked()
        with translated_errors(self.name, "", "could not be checkpointed"):
            for store in self._stores.values():
                self._check_in_place(store)
                store.checkpoint()
            write_offsets(self.path / CHECKPOINT_FILE, self.offsets())

    def reset(self, store: str, *, discard: bool = False) -> None:
        """Empty a store, its offset first; it then follows its changelog from the start.

        Its rows are moved aside and kept for a week, or deleted with ``discard``, because the changelog has all of
        them.

        Raises:
            NotFound: there is no such store.
            Fenced: see :meth:`check_locked`.
            Invalid, Capacity, Retryable: see :meth:`StandbyStore.reset`.
        """
        self.check_locked()
        with translated_errors(self.name, store, "could not be emptied"):
            remove_offsets(self.path / CHECKPOINT_FILE)
            delete_expired(self._directory, STALE, self._now_ms())
            self.store(store).reset(None if discard else self._quarantine)
        self.checkpoint()

    def close(self, next_reader: NextReader = NextReader.KAFKA_STREAMS_4_3) -> None:
        """Close every store, and give created files to the owner of the directory; idempotent.

        Args:
            next_reader: the next reader of the directory.

        Raises:
            Invalid: it is meant for Kafka Streams 4.2, which does not open these databases; nothing was closed.
            Fenced: see :meth:`check_locked`; the stores were closed, and no file was written beside them.
            StatecoreError: a store could not be closed, or a file not be written or deleted; the stores were closed as
                far as they could be.
        """
        if next_reader is NextReader.KAFKA_STREAMS_4_2:
            raise Invalid(
                f"The stores of task {self.name} are in the layout of Kafka Streams 4.3 and later, which 4.2 does not "
                "open.",
                code="migration-required",
                action="Close them for 4.3, then run statecore migrate --to 4.2.",
                task=self.name,
            )
        if not self._is_open:
            return
        try:
            self.check_locked()
        except Fenced:
            self._is_open = False
            for store in self._stores.values():
                store.close_after_failure()
            raise
        self._is_open = False
        failures: list[StatecoreError] = []
        failed: set[TopicPartition] = set()
        if not next_reader.files.task:
            try:
                with translated_errors(self.name, "", "could not be closed cleanly"):
                    remove_offsets(self.path / CHECKPOINT_FILE)
            except StatecoreError as error:
                failures.append(error)
        for store in self._stores.values():
            if not store.is_open:  # it failed, perhaps before it was closed
                failed.add(store.changelog)
            try:
                with translated_errors(self.name, store.name, "could not be closed"):
                    try:
                        self._check_in_place(store)
                    finally:
                        store.close()
            except StatecoreError as error:
                failures.append(error)
                failed.add(store.changelog)
        with translated_errors(self.name, "", "could not be closed cleanly"):
            if next_reader.files.task:
                sound = {at: offset for at, offset in self.offsets().items() if at not in failed}
                write_offsets(self.path / CHECKPOINT_FILE, sound)
            shutil.rmtree(self.scratch, ignore_errors=True)
            self._give_to_owner()
        if failures:
            raise failures[0]

    def _check_in_place(self, store: StandbyStore) -> None:
        try:
            store.check_in_place()
        except Corrupted:
            remove_offsets(self.path / CHECKPOINT_FILE)  # Kafka Streams would trust its offset for an empty store
            raise

    def _refuse_undeclared(self) -> None:
        declared = {store_directory(store.name, store.kind) for store in self._declared if store.is_restorable}
        declared |= {store_directory(store.name, store.kind) for store in self._declared if not store.is_logged}
        foreign = [one.name for one in self._of_known_formats() if one.databases and one.name not in declared]
        if foreign:
            raise Invalid(
                f"{self.path} has stores that the spec does not declare for task {self.name}: {', '.join(foreign)}.",
                code="store-undeclared",
                action="Declare them, or move their directories away where the application has them no more.",
                task=self.name,
                stores=foreign,
            )

    def _refuse_older_release(self) -> None:
        """Refuse Kafka Streams 4.2 or older before anything is changed; one database of each store is read."""
        for store in self._of_known_formats():
            for database in store.databases[-1:]:
                try:
                    families = read_database_state(database).column_families
                except Corrupted:
                    continue  # opening it reports the damage
                if OFFSETS_COLUMN_FAMILY not in families:
                    raise written_by_older_release(database, store.store)

    def _of_known_formats(self) -> list[StoreDirectory]:
        """The stores on disk, without those of the application's own classes."""
        custom = {store.name for store in self._declared if store.kind is StoreKind.CUSTOM}
        return [one for one in stores_in(self.path) if one.store not in custom]

    def _check_unlogged(self) -> None:
        for store in self._declared:
            if not store.is_logged and store.kind.can_be_built:
                refuse_half_deleted(self._directory, self.name, store)
                if self._exactly_once:
                    close_unlogged(self._directory, self.name, store)

    def _versioned_stores(self) -> list[StoreSpec]:
        return [store for store in self._declared if store.is_restorable and store.kind.is_versioned]

    def _check_versioned(self) -> None:
        """Refuse to empty a store that is of another kind, or that another process has open."""
        stores = self._versioned_stores()
        for store in stores:
            path = self._directory.store_path(self.name, store.name, store.kind)
            if (holder := writer_of(path)) is not None:
                raise fenced(path, holder)
        spec = replace(self._spec, stores=tuple(stores))
        if stores and (error := contradiction_error(self._directory, spec, [self.name])) is not None:
            raise error

    def _empty_versioned_stores(self) -> None:
        for store in self._versioned_stores():
            changelog = TaskId.parse(self.name).partition_of(store.changelog)
            made = self.scratch / f"{store.name}-made"
            with translated_errors(self.name, store.name, "could not be created"):
                empty_versioned_store(self._directory, self.name, store, changelog, made, self._now_ms())
            self._versioned[changelog] = OFFSET_UNKNOWN

    def _quarantine(self, store: Path) -> None:
        quarantine_store(self._directory, self.name, store, STALE, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _give_to_owner(self) -> None:
        ownership = self._directory.ownership
        for path in (self.path, *self.path.rglob("*")):
            if not ownership.accepts(path.lstat()):
                ownership.apply(path)


@contextmanager
def translated_errors(task: str, store: str, what: str) -> Iterator[None]:
    """Convert ``OSError`` into ``Capacity``, ``Retryable`` or ``Invalid``."""
    try:
        yield
    except OSError as error:
        whose = f"The store {store} of task {task}" if store else f"The task {task}"
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        named = {"task": task, **({"store": store} if store else {})}
        raise system_error(error, f"{whose} {what}{where}", action=RUN_AS_APPLICATION, **named) from error
