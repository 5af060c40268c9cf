"""``RocksDBStore``: a Kafka Streams store in one RocksDB directory, with a data column family and ``offsets``
(KIP-1035).

**Commit.** One ``WriteBatch`` over both families, written to the log (WAL), and synced unless the settings say
otherwise. Under SIGKILL at random points this was the only way in rocksdict 0.3.29 in which data and offset never
disagreed, whatever was flushed in between, and the only one that is durable when it returns. (Kafka Streams writes
without a log and relies on ``atomic_flush``; rocksdict flushes and closes one family at a time, so that loses or
replays data.) All writes are staged first (:mod:`statecore.stores.write_buffer_store`).

**Ingest.** No call spans two families, so files become visible just before their offset does. While the store is open,
``status`` is 1; a process killed in between leaves rows ahead of an older offset *and* that status. Under exactly-once
Kafka Streams wipes such a store; under at-least-once it applies the same records again, which changes nothing.
``close`` writes ``status`` = 0 only if a commit followed the ingest.

**Open** claims the directory for one store (:mod:`.directory_lock`), and checks its MANIFEST before RocksDB does
(:mod:`.manifest_guard`). Its guard record ``statecore-witness`` stays in the directory; RocksDB and
Kafka Streams ignore it. Use after a fork is refused (:mod:`.fork_safety`).

**Compaction** is RocksDB's own, in the background, as in Kafka Streams; ``KEEP_FILES``
(:mod:`statecore.stores.settings`) turns it off.

**Close** flushes every family, so that the log is empty, removes the files of rocksdict and RocksDB
(``rocksdict-config.json``, ``LOG``) and restores modes. Then all handles are released, including those of iterators and
query views, or the database stays locked; a process that waits for the lock finds everything done. :mod:`.handles` has
the order.

**Read-only** opens a temporary directory of symbolic links (:mod:`.readonly_links`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from statecore.errors import Invalid
from statecore.filesystem import AnyPath, validated_path
from statecore.formats import offsets as offset_format
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position, decode_position
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.rocksdb import fork_safety as forks
from statecore.stores.rocksdb.commit import commit_batch, status_batch, write
from statecore.stores.rocksdb.directory import check_request, first_failure
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.families import check_offsets, compact_files, ingest_files, read_row, refuse_unclean
from statecore.stores.rocksdb.handles import DatabaseHandles
from statecore.stores.rocksdb.manifest_guard import ManifestGuard
from statecore.stores.rocksdb.memory import SharedMemory
from statecore.stores.rocksdb.scan import ListScan, LongScan, committed_rows
from statecore.stores.rocksdb.snapshot import RocksDBReadView
from statecore.stores.rows import Row, check_key
from statecore.stores.settings import StoreSettings
from statecore.stores.write_buffer_store import Pending, WriteBufferStore

_T = TypeVar("_T")


class RocksDBStore(WriteBufferStore):
    """The store of one RocksDB directory.

    Args:
        path: the database directory. It is resolved when the store is opened, and not again until it is closed, even if
            it is renamed or a symbolic link is changed.
        kind: the store's kind; determines the data column family.
        create: create a database; ``path`` must not exist.
        create_if_missing: create a database if there is none, and finish a creation that was interrupted by a kill.
        read_only: change nothing, not even a file's time. If a writer has the database open, in this process or
            another, reads show the newest commit at the time of opening.
        exactly_once: refuse a store whose rows may be ahead of its offset: one last written by Kafka Streams and not
            closed cleanly (Kafka Streams wipes it too), or one with ingested files and no commit after them. A store
            last committed by this class is whole, killed or not, and is never refused.
        upgrade: add the column family ``offsets`` to a database written by Kafka Streams 4.2 or older, so that it can
            be written to. Those releases cannot open it afterwards. Nothing else is ever converted: rows of an older
            format are refused.
        replays: the caller ingests the same files again after a kill: under exactly-once, also accept a store with
            ingested files and no commit after them, if this class wrote to it last.
        settings: durability of commits, and the limit of staged bytes.

    Raises:
        Invalid: a kind that this version cannot open, more than one of create, create_if_missing and read_only,
            read_only with upgrade, or a path that is not UTF-8.
    """

    def __init__(
        self,
        path: AnyPath,
        kind: StoreKind,
        *,
        create: bool = False,
        create_if_missing: bool = False,
        read_only: bool = False,
        exactly_once: bool = False,
        upgrade: bool = False,
        replays: bool = False,
        settings: StoreSettings | None = None,
    ) -> None:
        check_request(kind, create=create, create_if_missing=create_if_missing, read_only=read_only, upgrade=upgrade)
        self._path = validated_path(path)
        super().__init__(str(self._path), settings or StoreSettings())
        self._kind = kind
        self._data_family = kind.data_column_family
        self._read_only = read_only
        self._exactly_once = exactly_once
        self._replays = replays
        opened = DatabaseHandles(
            self._path, kind, create=create, create_if_missing=create_if_missing, read_only=read_only, upgrade=upgrade
        )
        self._families, self._handles = opened.families, opened.column_families
        self._get: Any = None  # of the data family, while it is open
        self._rows_ahead = False
        self._scans: weakref.WeakSet[ListScan | LongScan] = weakref.WeakSet()
        self._opened = opened  # last: it has the claim, and garbage collection must drop native objects first

    @property
    def kind(self) -> StoreKind:
        """The store's kind."""
        return self._kind

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._db is not None

    @property
    def persistent(self) -> bool:
        """True."""
        return True

    @property
    def manages_offsets(self) -> bool:
        """Whether Kafka Streams asks a store of this kind for its offsets; false for a grace buffer.

        Its offsets are in the ``offsets`` column family all the same, written atomically with the rows.
        """
        return self._kind.manages_offsets

    def open(self) -> None:
        """Open the database; see :meth:`StateStore.open`.

        Raises:
            Fenced: another process, or another store of this one, has it open, under whatever path. Read-only: a writer
                changes its files faster than they can be opened.
            NotFound: there is no database at the path.
            Invalid: ``create`` and the path exists; written by an older release of Kafka Streams without ``upgrade``;
                its column families or comparator are not those of this kind, or its rows need a merge operator; missing
                permissions; or this process was forked from one that had opened a database.
            Corrupted: it is damaged; or ``exactly_once`` and it was not closed cleanly.
            Capacity, Retryable: the system refused a resource; this is no sign of damage.
        """
        with self._lock:  # concurrent queries wait until the store is fully open
            if not self.is_open:
                self._open()

    def _open(self) -> None:
        forks.register_store(self._path, self)
        self._opened.open(self._settings, self._begin)

    def _begin(self) -> None:
        try:
            self._forget(self._read_position())
            if self._memory is not None:
                self._memory.join(self)
            if not self._read_only:
                guard = self._manifest_guard
                trusted = guard.is_consistent or (self._replays and guard.written_here_last)
                if self._exactly_once and not trusted:
                    refuse_unclean(self._path, self.status, guard.why_inconsistent)
                guard.record(rows_ahead=False)  # before any write: else Kafka Streams could be taken for the writer
                self._write_status(offset_format.STATUS_OPEN)
        except BaseException:
            self._end_reads()
            raise

    @property
    def _db(self) -> Any:
        return self._opened.database

    @property
    def _memory(self) -> SharedMemory | None:
        return self._opened.memory

    @property
    def _manifest_guard(self) -> ManifestGuard:
        return self._opened.manifest_guard

    def close(self) -> None:
        """Close the database, cleanly unless rows were ingested without a commit after them; see the module.

        Raises:
            Capacity, Invalid, Retryable: memtables could not be flushed, or the directory could not be cleaned up. It
                is closed all the same, and what was committed is there.
            NotFound: the directory is gone.
        """
        if not self.is_open:
            return
        failure = unclosed = None
        try:
            if not self._read_only:
                failure = first_failure(self._write_out, self._opened.clean_up)
        finally:
            with self._lock:
                self._end_reads()
                for scan in list(self._scans):
                    scan.close()
                unclosed = self._opened.close()
        if failure := failure or unclosed:
            raise failure

    def _write_out(self) -> None:
        if not self._rows_ahead:
            self._write_status(offset_format.STATUS_CLOSED)
        self.flush()
        self._manifest_guard.delete_saved_files()

    def disown(self) -> list[Any]:
        """Close in a forked child; see :mod:`statecore.stores.rocksdb.fork_safety`."""
        native = []
        for scan in self._scans:
            native.append(scan.iterator)
            scan.close()
        for view in self._views:
            if isinstance(view.instant, RocksDBReadView):
                native += view.instant.native_objects()
        self._disown_reads()
        return native + self._opened.disown()

    @property
    def _data(self) -> Any:
        return self._families[self._data_family]

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``; includes uncommitted writes."""
        if not self._read_ready or type(key) is not bytes or key in self._staged.values:
            return super().get(key)
        try:
            row: bytes | None = self._get(key)
        except Exception as error:
            raise translate(self._path, "Reading", error) from error
        return row

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Staged and committed rows, merged, as of now; see :meth:`ReadableRows.scan`."""
        with self._lock:
            if not self._read_ready:
                self._before_read()
            if self._staged.values:
                return super().scan(lower, upper, reverse=reverse)
            if lower is not None:
                check_key(lower)
            if upper is not None:
                check_key(upper)
            return committed_rows(
                self._path,
                self._data,
                lower,
                upper,
                reverse=reverse,
                lock=self._lock,
                opened=self._handles,
                scans=self._scans,
                keep_alive=self._opened.claim,
            )

    def _read(self, key: bytes) -> bytes | None:
        row: bytes | None = read_row(self._path, self._data, key)
        return row

    def _forget(self, position: Position) -> None:
        self._get = self._data.get
        super()._forget(position)

    def _end_reads(self) -> None:
        self._get = None
        super()._end_reads()

    def _disown_reads(self) -> None:
        self._get = None
        super()._disown_reads()

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows: list[bytes | None] = read_row(self._path, self._data, list(keys))
        return rows

    def _instant(self) -> RocksDBReadView:
        offsets = self._families.get(OFFSETS_COLUMN_FAMILY)
        return RocksDBReadView(self._path, self._data, offsets, keep_alive=self._opened.claim)

    def _rows_instant(self) -> RocksDBReadView:
        return RocksDBReadView(self._path, self._data, None, points=False, keep_alive=self._opened.claim)

    def approximate_num_entries(self) -> int:
        """RocksDB's ``rocksdb.estimate-num-keys``, as in Kafka Streams: exact for keys written once."""
        self._check_open()
        return int(self._data.property_int_value("rocksdb.estimate-num-keys") or 0)

    def scan_lists(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All committed rows in key order, as lists of keys and values of tens of thousands.

        Raises:
            Corrupted: a block cannot be read.
        """
        return self._lists(self._data_family)

    def has_rows(self) -> bool:
        """Whether there is a committed row. Raises as :meth:`scan_lists`."""
        return next(self.scan_lists(), None) is not None

    def _lists(self, family: str) -> ListScan:
        self._check_open()
        scan = ListScan(self._path, self._families[family], keep_alive=self._opened.claim)
        self._scans.add(scan)
        return scan

    def verify(self) -> int:
        """Read every row of every column family; from disk with ``KEEP_FILES``, else what is not cached.

        Returns:
            The number of data rows.

        Raises:
            Corrupted: a block cannot be read, or the offsets are malformed.
        """
        for name in self._families.keys() - {self._data_family, OFFSETS_COLUMN_FAMILY}:
            sum(len(keys) for keys, _ in self._lists(name))
        if OFFSETS_COLUMN_FAMILY in self._families:
            check_offsets(self._lists(OFFSETS_COLUMN_FAMILY))
        return sum(len(keys) for keys, _ in self.scan_lists())

    def ingest(self, runs: Sequence[AnyPath]) -> list[Path]:
        """Add SST files to the data, in order: where they overlap, the later one wins. Commit afterwards.

        Args:
            runs: the files; they are moved into the database. (Linked first: after a crash a file may have both names,
                so never write into one again; unlink it.)

        Returns:
            Their paths in the database, in the same order, without those that have been compacted since.

        Raises:
            Invalid: there are uncommitted writes, or RocksDB refuses a file.
            Corrupted: a file cannot be read.
        """
        self._check_writable()
        if len(self._staged):
            raise Invalid(
                f"The store at {self._path} has writes that were not committed.",
                code="writes-not-committed",
                action="Commit before ingesting files.",
                store_path=str(self._path),
            )
        if not runs:
            return []
        try:
            self._data.flush()  # else RocksDB may flush overlapping keys, into a file that looks like one of the runs
        except Exception as error:
            raise translate(self._path, "Flushing", error) from error
        with self._lock:  # a concurrent flush would record that no rows are ahead
            self._rows_ahead = True
            self._manifest_guard.record(rows_ahead=True, durably=True)
            return ingest_files(self._path, self._opened.where, self._data, [validated_path(run) for run in runs])

    def compact(self) -> None:
        """Compact all data into disjoint files of about 64 MB, without deletes."""
        self._check_writable()
        compact_files(self._path, self._data)

    def _prepare(self, pending: Pending) -> Any:
        memory, handles = self._opened.memory, self._handles
        if memory is not None:
            memory.make_room(self)
        data, meta = handles[self._data_family], handles[OFFSETS_COLUMN_FAMILY]
        known = (key for keys, _ in self._lists(OFFSETS_COLUMN_FAMILY) for key in keys) if pending.forget else ()
        sets_offsets = pending.forget or bool(pending.offsets)
        written: list[None] = []
        return commit_batch(self._path, pending, data, meta, known), sets_offsets, written

    def _publish(self, prepared: Any) -> None:
        write(self._path, self._opened.database, prepared[0], self._settings.durability, prepared[2])

    def _published(self, prepared: Any) -> bool:
        _, sets_offsets, written = prepared
        if not written:
            return False
        if sets_offsets and self._rows_ahead:
            self._rows_ahead = False
            self._manifest_guard.record(rows_ahead=False)
        return True

    def flush(self) -> None:
        """Flush the memtables of all families; the log is empty afterwards."""
        self._check_writable()
        try:
            for family in self._families.values():
                family.flush()
        except Exception as error:
            raise translate(self._path, "Flushing", error) from error
        self._manifest_guard.record(rows_ahead=self._rows_ahead)

    def memtable_bytes(self) -> int:
        """See :class:`statecore.stores.rocksdb.memory.Member`."""
        return self._unless_busy(lambda: self._data.property_int_value("rocksdb.cur-size-all-mem-tables")) or 0

    def flush_memtables(self) -> None:
        """See :class:`statecore.stores.rocksdb.memory.Member`."""
        self._unless_busy(self.flush)

    def _unless_busy(self, action: Callable[[], _T]) -> _T | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._db is None or self._read_only else action()
        finally:
            self._lock.release()

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset in the ``offsets`` family, including -4 (``OFFSET_UNKNOWN``); ``None`` without an entry."""
        value = self._meta(offset_format.offset_key(as_topic_partition(partition)))
        return None if value is None else offset_format.decode_int64(value)

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """Every offset in the ``offsets`` family; empty for a database of an older release of Kafka Streams."""
        self._check_open()
        if OFFSETS_COLUMN_FAMILY not in self._families:
            return {}
        return {
            partition: offset_format.decode_int64(value)
            for keys, values in self._lists(OFFSETS_COLUMN_FAMILY)
            for key, value in zip(keys, values, strict=True)
            if (partition := offset_format.partition_of_key(key)) is not None
        }

    @property
    def status(self) -> int | None:
        """The ``status`` row: 1 while the store is open for writing, 0 after a clean close."""
        value = self._meta(offset_format.STATUS_KEY)
        return None if value is None else offset_format.decode_int64(value)

    def _read_position(self) -> Position:
        value = self._meta(offset_format.POSITION_KEY)
        return {} if value is None else decode_position(value)

    def _meta(self, key: bytes) -> bytes | None:
        self._check_open()
        family = self._families.get(OFFSETS_COLUMN_FAMILY)
        # None: written by Kafka Streams 4.2 or older, opened read-only
        value: bytes | None = None if family is None else read_row(self._path, family, key)
        return value

    def _write_status(self, status: int) -> None:
        batch = status_batch(status, self._handles[OFFSETS_COLUMN_FAMILY])
        write(self._path, self._db, batch, self._settings.durability, [])

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise Invalid(
                f"The store at {self._path} is open read-only.",
                code="store-read-only",
                action="Open it for writing.",
                store_path=str(self._path),
            )
