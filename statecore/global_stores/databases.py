"""The databases of one global store: which one serves, which one is built, and which are closed and moved away.

Each of them is in one place at any time, so a step that failed half way (a rename that the disk refused) is repeated
from where it is, and nothing counts as complete that is not in its place.
"""

from __future__ import annotations

import statecore.extras.pipeline

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.faults import FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.backups import GlobalBackups
from statecore.global_stores.offset_validation import InvalidOffsets
from statecore.global_stores.paths import GlobalPaths
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import RecoveryReason
from statecore.global_stores.views import ViewedStore
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, unfinished_in
from statecore.stores.rocksdb.directory import identity_of
from statecore.stores.rocksdb.store import RocksDBStore

_LOG = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]


class GlobalDatabases:
    """The databases of one global store. One thread changes them; any thread may ask for a view."""

    def __init__(
        self,
        table: GlobalTable,
        directory: StateDirectory,
        settings: GlobalSettings,
        backups: GlobalBackups,
        faults: FaultPoints,
    ) -> None:
        self._table, self._settings, self._backups, self._faults = table, settings, backups, faults
        self._paths = GlobalPaths(directory, table.name, table.kind, faults)
        self.serving = threading.RLock()  # held while the serving database changes
        self.live: ViewedStore | None = None  # the open database in its place; None while there is none
        self.old: ViewedStore | None = None  # the open database with the former rows
        self._building: RocksDBStore | None = None
        self._is_built = False
        self._retired: list[ViewedStore] = []
        self._may_be_set_aside = True  # whether something may be set aside and still there

    @property
    def runs(self) -> Path:
        """Directory of runs."""
        return self._paths.runs

    @property
    def is_building(self) -> bool:
        """Whether a database is open to be built."""
        return self._building is not None

    @property
    def is_built(self) -> bool:
        """Whether a database is built and closed, and has to be put in its place before anything else."""
        return self._is_built

    @property
    def identity(self) -> str:
        """RocksDB's identity of the database in its place, which never changes; empty where there is none."""
        return identity_of(self._paths.live)

    def open(self) -> tuple[dict[int, int], InvalidOffsets | None]:
        """Open what is on disk; return the offsets by partition, and why they cannot be used, where that is so."""
        self._paths.start_build()
        if not self._paths.live.exists():
            return {}, None
        if unfinished_in(StoreDirectory(self._table.name, self._paths.live, segmented=False)):
            return {}, InvalidOffsets(RecoveryReason.STORE_UNUSABLE, "its creation was interrupted", trusted=False)
        store = self._store(self._paths.live)
        try:
            store.open()
            offsets = store.committed_offsets()
        except (Corrupted, NotFound) as error:
            _close(store)
            return {}, why_unusable(error)
        found = {at.partition: offset for at, offset in offsets.items() if at.topic == self._table.topic}
        if offsets and not found:
            _close(store)
            raise self._of_another_topic({at.topic for at in offsets})
        self.live = ViewedStore(store)
        return found, None

    def _of_another_topic(self, topics: Iterable[str]) -> Invalid:
        named = ", ".join(sorted(topics))
        return Invalid(
            f"The global store {self._table.name} in {self._paths.live} has offsets of {named}, and is declared to be "
            f"of {self._table.topic}.",
            code="changelog-mismatch",
            action="Declare the topic that the application reads into it. Where that has changed, move the store's "
            "directory aside: it is then rebuilt from the other topic.",
            store=self._table.name,
            topic=self._table.topic,
        )

    def open_old(self, *, valid: bool) -> None:
        """Open the former rows for stale queries; or move them to the backups, where the live store is ``valid``."""
        if valid:
            self._back_up_set_aside()
            return
        former = self._paths.newest_set_aside()
        if former is None:
            return
        store = RocksDBStore(former, self._table.kind, read_only=True, settings=self._settings.store)
        try:
            store.open()
        except StatecoreError as error:
            _LOG.warning("The former rows of the global store %s cannot be read: %s", self._table.name, error)
            return
        self.old = ViewedStore(store)

    def start_build(self) -> None:
        """Begin to build a database; raises as :meth:`RocksDBStore.open`."""
        self._paths.start_build()
        store = RocksDBStore(self._paths.new, self._table.kind, create=True, settings=self._settings.store)
        store.open()
        self._building = store

    def write(self, runs: Sequence[Path], offsets: Offsets) -> None:
        """Commit rows and next offsets atomically, to the database being built or else to the live one."""
        if self._building is not None:
            self._write(self._building, runs, offsets)
            return
        if self.live is None:
            raise AssertionError(f"the global store {self._table.name} has no database to write to")
        with self.live.commits:
            self._write(self.live.store, runs, offsets)

    def _write(self, store: RocksDBStore, runs: Sequence[Path], offsets: Offsets) -> None:
        store.ingest(list(runs))
        self._faults.reach("global.after-ingest")
        store.commit(dict(offsets))
        self._faults.reach("global.after-commit")

    def finish_build(self, expected: Offsets) -> None:
        """Verify the built database and close it; it is complete then, and not yet in its place."""
        built = self._building
        if built is None:
            return
        try:
            built.verify()
            if built.committed_offsets() != dict(expected):
                raise Corrupted(
                    f"The global store {self._table.name} was built, and does not have the offsets that were "
                    "committed.",
                    code="offsets-inconsistent",
                    action="It is built again; check the disk if this happens twice.",
                    store=self._table.name,
                )
            built.close()
        except StatecoreError:
            self._building = None
            _close(built)
            raise
        self._building, self._is_built = None, True

    def put_in_place(self, remember: Callable[[str], None]) -> None:
        """Move the built database to its place and open it; after a failure a repeated call continues."""
        if self._is_built:
            remember(self._paths.identity_of_built())
            self._paths.move_into_place()
            store = self._store(self._paths.live)
            try:
                store.open()
            except StatecoreError:
                _close(store)
                raise
            with self.serving:
                self.live, self._is_built = ViewedStore(store), False
        if self.live is None:
            raise AssertionError(f"the global store {self._table.name} has no database")

    def stop_serving(self, *, trusted: bool) -> None:
        """Stop serving the live store, and drop what is half built; :meth:`set_aside` follows."""
        with self.serving:
            live, self.live = self.live, None
            if live is not None:
                if not trusted:
                    self._retired.append(live)
                else:
                    self.retire_old()
                    self.old = live
        self._is_built = False
        building, self._building = self._building, None
        if building is not None:
            _close(building)

    def set_aside(self, *, trusted: bool) -> None:
        """Move the directory in the store's place away."""
        if self._paths.live.exists():
            self._may_be_set_aside = True
            self._paths.quarantine(trusted=trusted)

    def retire_old(self) -> None:
        """Stop serving the old store, because the live one is complete. ``serving`` is held."""
        if self.old is not None:
            self._retired.append(self.old)
        self.old = None

    def discard_replaced(self, *, valid: bool) -> None:
        """Close replaced databases without views; move set-aside ones to backups, or leave that to the next start."""
        done = [held for held in self._retired if not held.has_views]
        self._retired = [held for held in self._retired if held not in done]
        for held in done:
            _close(held.store)
        if self._may_be_set_aside and not self._retired and valid:
            self._back_up_set_aside()

    def _back_up_set_aside(self) -> None:
        self._may_be_set_aside = False
        try:
            for path in self._paths.all_set_aside():
                self._backups.add(path, self._paths.live)
        except (StatecoreError, OSError) as error:
            _LOG.warning(
                "Directories of the global store %s that were set aside could not be moved: %s", self._table.name, error
            )

    def close(self, *, valid: bool) -> list[StatecoreError]:
        """Close everything, delete what is not in its place yet, and return what could not be done."""
        with self.serving:
            live, old = self.live, self.old
            self.live = self.old = None
        failures: list[StatecoreError] = []
        for held in (live, old, *self._retired):
            if held is not None:
                _close(held.store, failures)
        self._retired = []
        building, self._building = self._building, None
        if building is not None:
            _close(building, failures)
        if building is not None or self._is_built:
            self._is_built = False
            try:
                self._paths.start_build()
            except StatecoreError as error:
                failures.append(error)
        if self._may_be_set_aside and valid:
            self._back_up_set_aside()
        return failures

    def _store(self, path: Path) -> RocksDBStore:
        return RocksDBStore(
            path, self._table.kind, exactly_once=self._settings.exactly_once, settings=self._settings.store
        )


def why_unusable(error: StatecoreError) -> InvalidOffsets:
    """The reason to rebuild a store that cannot be opened, read or written."""
    return InvalidOffsets(RecoveryReason.STORE_UNUSABLE, error.what.rstrip("."), trusted=False)


def _close(store: RocksDBStore, failures: list[StatecoreError] | None = None) -> None:
    try:
        store.close()
    except StatecoreError as error:
        if failures is None:
            _LOG.warning("A global store that was replaced could not be closed: %s", error)
        else:
            failures.append(error)
