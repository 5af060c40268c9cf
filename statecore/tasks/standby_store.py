"""A store of a standby task: databases at one offset, advanced by ingested runs.

A store of a kind without segments is one database. Others have one for each segment, all at the same offset:

- **A commit** goes from the oldest segment to the newest, because Kafka Streams reads the newest: a killed process
  leaves the older offset where Kafka Streams reads it.
- **When it is opened** after that, all are set to the least of their offsets. The rows that are ahead of it come again
  with the next runs, which changes nothing.
- **A new segment** is created in the scratch directory, with the offset of the others, and renamed into place, so none
  is ever seen without an offset.
- **A database whose creation was interrupted** (:mod:`statecore.stores.rocksdb.directory`) is deleted.
- **A segment that has expired** by the stream time is renamed away before it is deleted. Where that fails it is tried
  again, and the segment's offset does not count. One segment always stays: without a database there is no offset, and
  under exactly-once Kafka Streams would wipe the whole task.
- **A segment that had expired when the store was opened** was left by a kill, or the declared retention is too short.
  So it stays until the next rows come, as in Kafka Streams. Then it is kept aside instead of being deleted, and so are
  the other segments of that time when they expire.
- **A segment that expires later** is deleted at once, also if the declared retention is too short. Nothing
  distinguishes that from a normal expiry, and a week of segments of one hour is fifty times the store.
  Its rows are in the changelog, which by default keeps them a day longer than the application's own retention, so a
  rebuild with the correct retention has them.

The stream time is not on the disk: it is the greatest that was seen since the store was opened, or that of the newest
segment's beginning.

The offset of a grace buffer is in its database too, but Kafka Streams reads it from ``.checkpoint_<store>``. That file
takes precedence where it exists, is deleted under exactly-once while the store is open, as Kafka Streams does it, and
is written when the store is closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.filesystem import FileId, discard_tree, file_id, make_directories, sync_file
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CURRENT, OFFSETS_COLUMN_FAMILY
from statecore.formats.segments import Segmentation, segment_name
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import BaseDatabases, RunFile, segment_order
from statecore.spec.units import format_duration
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.state_directory import store_directory
from statecore.statedir.task_layout import (
    StoreDirectory,
    half_expired,
    segments_in,
    unfinished_in,
    why_partially_deleted,
)
from statecore.stores.legacy_offsets import read_offsets, remove_offsets, write_offsets
from statecore.stores.rocksdb.directory import has_database, identity_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings


@dataclass(frozen=True)
class StandbyStoreSpec:
    """A store that follows a changelog."""

    name: str
    kind: StoreKind
    changelog: TopicPartition
    segmentation: Segmentation | None = None  # how its rows are segmented by time; None where it is one database
    # whether the changelog is a source topic, of which the store has what the application has consumed
    is_source: bool = False


def written_by_older_release(database: Path, store: str) -> Invalid:
    """The error for a database that Kafka Streams 4.2 or older wrote."""
    return Invalid(
        f"{database} was written by Kafka Streams 4.2 or older, which keeps no offset in its databases.",
        code="migration-required",
        action=f"Convert the state directory first: statecore migrate --to {CURRENT.name}.",
        store=store,
    )


class StandbyStore:
    """The databases of one store of a task, for one thread."""

    def __init__(
        self,
        spec: StandbyStoreSpec,
        task_directory: Path,
        scratch: Path,
        *,
        exactly_once: bool,
        settings: StoreSettings | None = None,
        faults: FaultPoints = NO_FAULTS,
        keep: Callable[[Path], object] | None = None,
    ) -> None:
        self.spec = spec
        self._keep = keep or self._remove
        self.path = task_directory / store_directory(spec.name, spec.kind)
        self._file = task_directory / store_checkpoint_file(spec.name)
        self._scratch = scratch
        self._exactly_once = exactly_once
        self._settings = settings
        self._faults = faults
        self._databases: dict[int | None, RocksDBStore] = {}
        self._identities: dict[int | None, str] = {}
        self._file_ids: dict[int | None, FileId] = {}
        self._unfinished: list[Path] = []
        self._expired: list[Path] = []
        self._doubted: set[Path] = set()
        self._offset: int | None = None
        self._is_settled = False
        self._stream_time = -1
        self._numbers = count()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def changelog(self) -> TopicPartition:
        return self.spec.changelog

    @property
    def is_open(self) -> bool:
        """Whether its databases are open."""
        return bool(self._databases)

    @property
    def offset(self) -> int | None:
        """The last applied offset, -4 where nothing was applied; ``None`` where it is unknown."""
        return self._offset

    @property
    def position(self) -> int:
        """The next offset to apply."""
        return 0 if self._offset is None or self._offset < 0 else self._offset + 1

    @property
    def stream_time(self) -> int:
        """The greatest known time of a row, in ms; -1 without one."""
        return self._stream_time

    @property
    def base_databases(self) -> BaseDatabases:
        """Its databases, in which deletes have something to hide."""
        return BaseDatabases(segments=frozenset(self._databases))

    @property
    def segments(self) -> tuple[int, ...]:
        """The ids of its segments, oldest first; empty for a store without segments."""
        return tuple(segment for segment in self._in_order() if segment is not None)

    @property
    def other_changelogs(self) -> tuple[TopicPartition, ...]:
        """Other changelogs that its databases have offsets of."""
        found = {at for database in self._databases.values() for at in database.committed_offsets()}
        return tuple(sorted(found - {self.changelog}))

    @property
    def identities(self) -> frozenset[str]:
        """RocksDB's identities of its open databases; see :func:`identity_of`."""
        return frozenset(self._identities[segment] for segment in self._databases) - {""}

    @property
    def has_rows(self) -> bool:
        """Whether there is a row in any of its databases."""
        return any(database.has_rows() for database in self._databases.values())

    def open(self) -> None:
        """Open every database, set all to one offset, and create one where there is none."""
        if not self.is_open:
            self.open_databases()
            self.settle()

    def open_databases(self) -> None:
        """Open the existing databases, and change none: all that is refused is refused here; see :meth:`settle`."""
        self._is_settled = False
        self._expired = []
        try:
            self._refuse_half_deleted()
            self._unfinished = unfinished_in(self._directory)
            found = self._existing_databases()
            if self.spec.segmentation is not None:
                newest = max((segment for segment in found if segment is not None), default=0)
                self._stream_time = newest * self.spec.segmentation.interval_ms if newest else -1
                # In whatever state: their rows are not needed.
                self._expired = half_expired(self._directory, self.spec.segmentation)
                self._expired += [found.pop(segment) for segment in list(found) if not self._is_live(segment)]
            self._doubted = {*self._expired, *found.values()} if self._expired else set()
            for segment, path in found.items():
                self._open_database(segment, path)
        except BaseException:
            self.close_after_failure()
            raise

    def settle(self) -> None:
        """Set the open databases to one offset, and create one where there is none."""
        try:
            while self._unfinished:
                self._remove(self._unfinished.pop())
            if self._databases:
                self._equalize_offsets()
            else:
                self._offset = None
                remove_offsets(self._file)  # of a deleted database, for which it must not count
                self._create_database(None if self.spec.segmentation is None else 0)
                self._offset = OFFSET_UNKNOWN
            self._adopt_offset_file()
            self._is_settled = True
        except BaseException:
            self.close_after_failure()
            raise

    def check_in_place(self) -> None:
        """Refuse to continue a store of which a directory was deleted or replaced while it was open.

        The segments that are left lose their offsets, and expired ones go: a later open would else continue them,
        without the lost rows.
        """
        lost = [segment for segment in self._databases if not self._is_in_place(segment)]
        if not lost:
            return
        self._offset = None
        for segment in self._databases.keys() - set(lost):
            with suppress(StatecoreError):  # the error of what was lost says more
                self._databases[segment].forget_offsets()
        with suppress(StatecoreError):
            self._delete_expired()
        path = self._path_of(lost[0])
        raise Corrupted(
            f"{path} was deleted or replaced while the store {self.name} was open.",
            code="database-damaged",
            action="Find out what deletes it: Kafka Streams and other programs must leave this directory alone.",
            store=self.name,
            path=str(path),
        )

    def _is_in_place(self, segment: int | None) -> bool:
        try:
            return file_id(self._path_of(segment).stat()) == self._file_ids[segment]
        except FileNotFoundError:
            return False

    def apply(self, runs: Sequence[RunFile], end: int, stream_time: int = -1) -> None:
        """Ingest runs, and commit the offset: everything before ``end`` is in the store then."""
        if not self.is_open or end < self.position:
            raise Invalid(
                f"Rows up to offset {end} of {self.changelog} cannot be put into the store {self.name}, which "
                + (f"is at offset {self.offset}." if self.is_open else "is not open."),
                code="offset-unexpected",
                action="Read the changelog from the store's own position on.",
                store=self.name,
                topic=self.changelog.topic,
                partition=self.changelog.partition,
                offset=end,
                expected=self.offset,
            )
        self._stream_time = max(self._stream_time, stream_time)
        by_database: dict[int | None, list[Path]] = defaultdict(list)
        for run in runs:
            if self._is_live(run.segment):
                by_database[run.segment].append(run.path)
        for segment in sorted(by_database.keys() - self._databases.keys(), key=segment_order):
            self._create_database(segment)
        if self.spec.segmentation is not None and not any(map(self._is_live, self._databases)):
            self._create_database(max(self._stream_time, 0) // self.spec.segmentation.interval_ms)
        self._faults.reach("standby.before-ingest")
        for segment in sorted(by_database, key=segment_order):
            self._databases[segment].ingest(by_database[segment])
        self._faults.reach("standby.after-ingest")
        self._commit(end - 1)
        self._faults.reach("standby.before-expiry")
        self._expire()

    @property
    def database(self) -> RocksDBStore:
        """The one open database, for another writer; call :meth:`read_committed_offset` after each of its commits."""
        if self.spec.segmentation is not None or not self.is_open:
            raise Invalid(
                f"The store {self.name} is {'divided into segments' if self.is_open else 'not open'}.",
                code="kind-unsupported" if self.is_open else "store-not-open",
                action="Write to open stores of kinds without segments.",
                store=self.name,
            )
        return self._databases[None]

    def read_committed_offset(self) -> None:
        """Read the offset that another writer has committed to the :attr:`database`."""
        offset = self.database.committed_offset(self.changelog)
        self._offset = OFFSET_UNKNOWN if offset is None and not self.has_rows else offset

    def reset(self, keep: Callable[[Path], object] | None = None) -> None:
        """Empty the store; it then follows its changelog from the start."""
        remove_offsets(self._file)
        for segment in self._in_order():
            with suppress(StatecoreError):  # it may be damaged, and is removed in any case
                self._databases[segment].close()
        self._databases.clear()
        if self.path.exists():
            (keep or self._remove)(self.path)
        self._offset, self._stream_time = None, -1
        self.open()

    def checkpoint(self) -> None:
        """Write ``.checkpoint_<store>`` of a grace buffer, never ahead of its rows; nothing under exactly-once.

        None before the first rows: after a kill -4 would take precedence over the offset that was committed with them.
        """
        if self.spec.kind.manages_offsets or self._exactly_once or self._offset is None:
            return
        if self._offset == OFFSET_UNKNOWN:
            remove_offsets(self._file)
        else:
            write_offsets(self._file, {self.changelog: self._offset})

    def close(self) -> None:
        """Close every database; of a grace buffer write ``.checkpoint_<store>``. Idempotent."""
        if not self.is_open:
            return
        failures: list[StatecoreError] = []
        for segment in self._in_order():
            try:
                self._databases[segment].close()
            except StatecoreError as error:
                failures.append(error)
        self._databases.clear()
        if failures:
            raise failures[0]
        if self._is_settled and not self.spec.kind.manages_offsets and self._offset is not None:
            write_offsets(self._file, {self.changelog: self._offset})

    def _in_order(self) -> list[int | None]:
        return sorted(self._databases, key=segment_order)

    def _refuse_half_deleted(self) -> None:
        """Refuse a partly deleted directory, which would count as empty and lose its rows silently."""
        if lost := why_partially_deleted(self._directory, self.spec.segmentation):
            raise Corrupted(
                lost,
                code="database-damaged",
                action="Copy it again from its source; or move the store's directory away: it is rebuilt.",
                store=self.name,
            )

    @property
    def _directory(self) -> StoreDirectory:
        return StoreDirectory(self.name, self.path, self.spec.segmentation is not None)

    def _existing_databases(self) -> dict[int | None, Path]:
        """The existing databases by segment, oldest first."""
        of = self.spec.segmentation
        if of is None:
            return {None: self.path} if has_database(self.path) and self.path not in self._unfinished else {}
        found: dict[int | None, Path] = {}
        for segment in segments_in(self.path, self.name):
            if (
                segment.start is None
                or segment.start % of.interval_ms
                or segment.path != self._path_of(segment.start // of.interval_ms)
            ):
                raise Invalid(
                    f"{segment.path} is not a segment of the store {self.name}, whose segments span "
                    f"{format_duration(of.interval_ms)}.",
                    code="segment-interval-mismatch",
                    action="Correct retention or segment interval of the store in the spec.",
                    store=self.name,
                    path=str(segment.path),
                )
            found[segment.start // of.interval_ms] = segment.path
        return found

    def _path_of(self, segment: int | None) -> Path:
        if segment is None or self.spec.segmentation is None:
            return self.path
        return self.path / segment_name(self.name, segment, self.spec.segmentation.interval_ms)

    def _open_database(self, segment: int | None, path: Path) -> None:
        self._databases[segment] = self._open_rocksdb(path)
        self._identities[segment] = identity_of(path, ignore_errors=True)
        self._file_ids[segment] = file_id(path.stat())

    def _open_rocksdb(self, path: Path) -> RocksDBStore:
        store = RocksDBStore(
            path, self.spec.kind, exactly_once=self._exactly_once, replays=True, settings=self._settings
        )
        try:
            store.open()
        except Invalid as error:
            if OFFSETS_COLUMN_FAMILY in read_database_state(path).column_families:
                raise
            raise written_by_older_release(path, self.name) from error
        return store

    def _create_database(self, segment: int | None) -> None:
        """Create an empty database at the offset of the others."""
        made, path = self._scratch_path(), self._path_of(segment)
        offset = OFFSET_UNKNOWN if self._offset is None else self._offset
        create_database(made, self.spec.kind, {self.changelog: offset})
        make_directories(path.parent)
        if path.is_dir():  # left by a process that was killed while creating one
            self._remove(path)
        made.rename(path)
        sync_file(path.parent)
        self._open_database(segment, path)

    def _scratch_path(self) -> Path:
        while (path := self._scratch / f"{self.name}-{next(self._numbers)}").exists():
            pass
        return path

    def _remove(self, path: Path) -> None:
        removed = self._scratch_path()
        path.rename(removed)
        sync_file(path.parent)
        discard_tree(removed)

    def _is_live(self, segment: int | None) -> bool:
        of = self.spec.segmentation
        if segment is None or of is None:
            return True
        return segment >= of.first_live(self._stream_time)

    def _expire(self) -> None:
        """Remove expired segments, also after a failed removal. One that fails to close counts as closed."""
        for segment in [segment for segment in self._in_order() if not self._is_live(segment)]:
            self._expired.append(self._path_of(segment))
            with suppress(StatecoreError):
                self._databases.pop(segment).close()
        self._delete_expired()

    def _delete_expired(self) -> None:
        while self._expired:
            path = self._expired[-1]
            if path.exists():
                (self._keep if path in self._doubted else self._remove)(path)
            self._expired.pop()

    def _equalize_offsets(self) -> None:
        """Set all databases to the least of their offsets; unknown where one of several has none."""
        found = [database.committed_offset(self.changelog) for database in self._databases.values()]
        known = [offset for offset in found if offset is not None]
        if len(known) < len(found):
            self._offset = None
            if not self.has_rows:
                self._commit(OFFSET_UNKNOWN)
            return
        self._offset = min(known)
        if max(known) != self._offset:
            self._commit(self._offset)

    def _commit(self, offset: int) -> None:
        """Commit an offset to every database, the newest last."""
        for number, segment in enumerate(self._in_order()):
            if number:
                self._faults.reach("standby.between-segments")
            self._databases[segment].commit({self.changelog: offset})
        self._offset = offset

    def _adopt_offset_file(self) -> None:
        if self.spec.kind.manages_offsets:
            return
        try:
            in_file = read_offsets(self._file).get(self.changelog)
        except Corrupted:  # Kafka Streams would read this file, so the offset is unknown until the store is emptied
            self._offset = None
            return
        if in_file is not None and in_file != self._offset:
            self._commit(in_file)
        if self._exactly_once:
            remove_offsets(self._file)

    def close_after_failure(self) -> None:
        """Close every database after a failure; :meth:`open` continues from what was committed."""
        for database in self._databases.values():
            with suppress(StatecoreError):
                database.close()
        self._databases.clear()
