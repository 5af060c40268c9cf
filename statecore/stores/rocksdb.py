"""The store Kafka Streams keeps in one RocksDB directory: a data column family and ``offsets`` (KIP-1035).

**Commit.** One ``WriteBatch`` over both families, written to the log (WAL), and forced to the disk unless the settings
say otherwise. Measured with SIGKILL at random points, this is the only way in rocksdict 0.3.29 that never had data and
offset disagree whatever was flushed in between, and the only one that is also durable when it returns. (Kafka Streams
writes without a log and relies on ``atomic_flush``; through rocksdict, which flushes and closes one family at a time,
that loses data or replays it.) Nothing writes rows past this: writes are staged (:mod:`statecore.stores.staged`).

**Ingest.** No call spans two families, so files become visible just before their offset does. From ``open`` on, the
database itself says ``status`` = 1; a process killed in between leaves rows ahead of an older offset *and* that status:
under exactly-once Kafka Streams wipes such a store, under at-least-once it applies the same records again, which
changes nothing. ``close`` only writes ``status`` = 0 when a commit followed the ingest.

**Close** flushes every family, so that no log content is left, and leaves the directory as Kafka Streams expects it:
without rocksdict's and RocksDB's own notes (``rocksdict-config.json``, ``LOG``), with its modes, all handles released:
those of iterators and query views too, else the database stays locked. A fork is refused (:mod:`.forks`).

**Read-only** goes through a temporary directory of symbolic links: RocksDB and rocksdict both write into a directory
they open read-only, and a verifier must not.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from statecore.errors import Invalid, StatecoreError
from statecore.formats import offsets as offset_format
from statecore.formats.kinds import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY, StoreKind
from statecore.formats.position import Position, decode_position, encode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores import forks
from statecore.stores.files import sync_tree
from statecore.stores.rocksdb_directory import (
    Shadow,
    check_request,
    close_handles,
    existing_families,
    has_database,
    make_directory,
    open_database,
    shadow_of,
    tidy,
    without_handles,
)
from statecore.stores.rocksdb_errors import translate
from statecore.stores.rocksdb_files import (
    check_offsets,
    compact_files,
    ingest_files,
    looked_up,
    refuse_foreign_rows,
    refuse_unclean,
)
from statecore.stores.rocksdb_instant import RocksDBInstant
from statecore.stores.rocksdb_scan import ListScan
from statecore.stores.rocksdb_witness import Witness
from statecore.stores.settings import Durability, StoreSettings
from statecore.stores.staged import Pending, StagedStore


class RocksDBStore(StagedStore):
    """One RocksDB directory of one store.

    Args:
        path: the database directory.
        kind: what the store is; decides the data column family.
        create: make a fresh database; ``path`` must not exist.
        create_if_missing: make one if there is none, and finish one that a killed process had begun to make.
        read_only: change nothing, not even a file's time; the database must not be open for writing anywhere.
        exactly_once: refuse a store whose rows may be ahead of its offset: one that Kafka Streams wrote to last and did
            not close cleanly (it wipes such a store itself), or one with ingested files and no commit after them. A
            store that this class committed to last is whole, killed or not, and is never refused.
        settings: durability of commits, and the limit of staged bytes.

    Raises:
        Invalid: a kind that this version cannot open, or more than one of create, create_if_missing and read_only.
    """

    def __init__(
        self,
        path: Path,
        kind: StoreKind,
        *,
        create: bool = False,
        create_if_missing: bool = False,
        read_only: bool = False,
        exactly_once: bool = False,
        settings: StoreSettings | None = None,
    ) -> None:
        check_request(kind, create=create, create_if_missing=create_if_missing, read_only=read_only)
        super().__init__(str(path), settings or StoreSettings())
        self._path = path
        self._kind = kind
        self._create = create
        self._create_if_missing = create_if_missing
        self._made = False
        self._read_only = read_only
        self._exactly_once = exactly_once
        self._families: dict[str, Any] = {}
        self._handles: dict[str, Any] = {}
        self._db: Any = None
        self._shadow: Shadow | None = None
        self._rows_ahead = False
        self._witness = Witness(path)
        self._scans: weakref.WeakSet[ListScan] = weakref.WeakSet()

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
        """Whether Kafka Streams asks a store of this kind for its offsets: not a grace buffer.

        They lie in the ``offsets`` column family all the same, in one write with the rows.
        """
        return self._kind.manages_offsets

    def open(self) -> None:
        """Open the database; see :meth:`StateStore.open`.

        Raises:
            Fenced: another process, or another store of this one, has it open.
            NotFound: there is no database at the path.
            Invalid: a fresh one was asked for and the path exists; its column families or comparator are not those of
                this kind, or its rows need a merge operator; this user has no right to it; or this process was forked
                from one that had opened a database.
            Corrupted: it cannot be read; or exactly-once was asked for and it was not closed cleanly.
        """
        with self._lock:  # a query that comes now waits for the whole store
            if not self.is_open:
                self._open()

    def _open(self) -> None:
        forks.opening(self._path, self)
        begun = self._create_if_missing
        self._made = self._create or (begun and not has_database(self._path))
        wanted = {DEFAULT_COLUMN_FAMILY, self._kind.data_column_family, OFFSETS_COLUMN_FAMILY}
        where = self._path
        if self._made:
            make_directory(self._path, begun=begun)
        else:
            self._witness.look(read_only=self._read_only)
            found = existing_families(self._path, self._kind, begun=begun)
            wanted = found if self._read_only else wanted | found
            if self._read_only:
                self._shadow = shadow_of(self._path)
                where = Path(self._shadow.name)
        try:
            self._db = open_database(
                self._path,
                where,
                wanted,
                create=self._made,
                read_only=self._read_only,
                automatic_compaction=self._settings.automatic_compaction,
            )
            for name in wanted:
                self._families[name] = self._db.get_column_family(name)
                self._handles[name] = self._db.get_column_family_handle(name)
            refuse_foreign_rows(self._path, self._kind, self._families)
            self._forget(self._read_position())
            self._witness.opened(self._families, self._kind.data_column_family, self._db.latest_sequence_number())
            if not self._read_only:
                if self._exactly_once and not self._witness.whole:
                    refuse_unclean(self._path, self.status)
                self._witness.record(rows_ahead=False)  # before anything is written: else it could be Kafka Streams'
                self._write_status(offset_format.STATUS_OPEN)
        except BaseException:
            touched = self._db is not None and not self._read_only
            self._release()
            if touched:
                tidy(self._path)
            raise

    def close(self) -> None:
        """Close the database, cleanly unless rows were ingested and no commit followed; see the module's text.

        Raises:
            Capacity, Invalid, Corrupted: what is in memory and log could not be written to files, or the directory
                could not be tidied. It is closed all the same, and what was committed is there.
        """
        if not self.is_open:
            return
        unflushed = unclosed = None
        try:
            if not self._read_only:
                if not self._rows_ahead:
                    self._write_status(offset_format.STATUS_CLOSED)
                self.flush()
        except StatecoreError as error:
            unflushed = without_handles(error)
        finally:
            unclosed = self._release()
        if not self._read_only:
            tidy(self._path)
            if not unflushed:
                self._witness.closed()
        if failure := unflushed or unclosed:
            raise failure
        if self._made:
            sync_tree(self._path)

    def _release(self) -> StatecoreError | None:
        """Drop every handle: RocksDB keeps its lock as long as one of them lives; returns what failed meanwhile."""
        with self._lock:
            self._end_reads()
            for scan in list(self._scans):
                scan.close()
            self._handles.clear()
            families, self._families = self._families, {}
            db, self._db = self._db, None
            failure = close_handles(self._path, [*families.values(), *([] if db is None else [db])])
            if self._shadow is not None:
                self._shadow.cleanup()
                self._shadow = None
        return failure

    def disown(self) -> list[Any]:
        """Be closed in a forked child; see :mod:`statecore.stores.forks`."""
        native = [self._db, *self._families.values(), *self._handles.values()]
        for scan in self._scans:
            native.append(scan.iterator)
            scan.close()
        for view in self._views:
            if isinstance(view.instant, RocksDBInstant):
                native += view.instant.native_objects()
        self._disown_reads()
        self._db, self._families, self._handles, self._shadow = None, {}, {}, None
        return native

    @property
    def _data(self) -> Any:
        return self._families[self._kind.data_column_family]

    def _read(self, key: bytes) -> bytes | None:
        row: bytes | None = looked_up(self._path, self._data, key)
        return row

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows: list[bytes | None] = looked_up(self._path, self._data, list(keys))
        return rows

    def _instant(self) -> RocksDBInstant:
        return RocksDBInstant(self._path, self._data, self._families.get(OFFSETS_COLUMN_FAMILY))

    def approximate_num_entries(self) -> int:
        """RocksDB's ``rocksdb.estimate-num-keys``, which Kafka Streams shows too: exact for keys written once."""
        self._check_open()
        return int(self._data.property_int_value("rocksdb.estimate-num-keys") or 0)

    def scan_lists(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All committed rows in key order, as lists of keys and values, tens of thousands at a time.

        Raises:
            Corrupted: a block cannot be read.
        """
        return self._lists(self._kind.data_column_family)

    def _lists(self, family: str) -> ListScan:
        self._check_open()
        scan = ListScan(self._path, self._families[family])
        self._scans.add(scan)
        return scan

    def verify(self) -> int:
        """Read every row of every column family, with checksums.

        Returns:
            How many rows the data has.

        Raises:
            Corrupted: a block cannot be read, or the offsets are not in their format.
        """
        for name in self._families.keys() - {self._kind.data_column_family, OFFSETS_COLUMN_FAMILY}:
            sum(len(keys) for keys, _ in self._lists(name))
        if OFFSETS_COLUMN_FAMILY in self._families:
            check_offsets(self._lists(OFFSETS_COLUMN_FAMILY))
        return sum(len(keys) for keys, _ in self.scan_lists())

    def ingest(self, runs: Sequence[Path]) -> list[Path]:
        """Add SST files to the data, in order: where they overlap, the later one wins. Commit afterwards.

        Args:
            runs: the files; they are moved into the database and gone from where they were. (Linked first: after a
                crash a file may have both names, so never write into one again; unlink it.)

        Returns:
            The same files under their names in the database, in the same order.

        Raises:
            Invalid: there are writes that were not committed, or RocksDB refuses a file.
            Corrupted: a file cannot be read.
        """
        self._check_writable()
        if len(self._staged):
            raise Invalid(
                f"The store at {self._path} has writes that were not committed.",
                action="Commit before ingesting files.",
                store_path=str(self._path),
            )
        if not runs:
            return []
        try:
            self._data.flush()  # else RocksDB may flush keys that overlap, and its file would look like one of the runs
        except Exception as error:
            raise translate(self._path, "Flushing", error) from error
        self._rows_ahead = True
        self._witness.record(rows_ahead=True, durably=True)
        with self._lock:
            return ingest_files(self._path, self._data, runs)

    def compact(self) -> None:
        """Merge all files of the data into disjoint ones of about 64 MB, without deletes."""
        self._check_writable()
        compact_files(self._path, self._data)

    def _prepare(self, pending: Pending) -> Any:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        data, meta = self._handles[self._kind.data_column_family], self._handles[OFFSETS_COLUMN_FAMILY]
        put, delete = batch.put, batch.delete
        for key, value in pending.staged.items():
            if value is None:
                delete(key, data)
            else:
                put(key, value, data)
        if not pending.offsets:
            known = [key for keys, _ in self._lists(OFFSETS_COLUMN_FAMILY) for key in keys]
            for key in filter(offset_format.STATUS_KEY.__ne__, known):
                delete(key, meta)
        for partition, offset in pending.offsets.items():
            if offset is None:
                delete(offset_format.offset_key(partition), meta)
            else:
                put(offset_format.offset_key(partition), offset_format.encode_int64(offset), meta)
        if pending.offsets and pending.position != self._committed_position:
            put(offset_format.POSITION_KEY, encode_position(pending.position), meta)
        return batch

    def _publish(self, prepared: Any) -> None:
        self._write(prepared)
        if self._rows_ahead:
            self._rows_ahead = False
            self._witness.record(rows_ahead=False)

    def flush(self) -> None:
        """Write the memtables of all families to files; the log is empty afterwards."""
        self._check_writable()
        try:
            for family in self._families.values():
                family.flush()
        except Exception as error:
            raise translate(self._path, "Flushing", error) from error
        self._witness.record(rows_ahead=self._rows_ahead)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset in the ``offsets`` family, -4 (``OFFSET_UNKNOWN``) included; ``None`` without an entry."""
        value = self._meta(offset_format.offset_key(partition))
        return None if value is None else offset_format.decode_int64(value)

    @property
    def status(self) -> int | None:
        """The ``status`` row: 1 while somebody has the store open for writing, 0 after a clean close."""
        value = self._meta(offset_format.STATUS_KEY)
        return None if value is None else offset_format.decode_int64(value)

    def _read_position(self) -> Position:
        value = self._meta(offset_format.POSITION_KEY)
        return {} if value is None else decode_position(value)

    def _meta(self, key: bytes) -> bytes | None:
        self._check_open()
        family = self._families.get(OFFSETS_COLUMN_FAMILY)
        # None: written by Kafka Streams 4.2 or older, opened read-only
        value: bytes | None = None if family is None else looked_up(self._path, family, key)
        return value

    def _write_status(self, status: int) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        batch.put(offset_format.STATUS_KEY, offset_format.encode_int64(status), self._handles[OFFSETS_COLUMN_FAMILY])
        self._write(batch)

    def _write(self, batch: Any) -> None:
        from rocksdict import WriteOptions

        options = WriteOptions()  # with the log: see the module's text
        options.sync = self._settings.durability is Durability.SYNC
        try:
            self._db.write(batch, options)
        except Exception as error:
            raise translate(self._path, "Writing to", error) from error

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise Invalid(
                f"The store at {self._path} is open read-only.",
                action="Open it for writing.",
                store_path=str(self._path),
            )
