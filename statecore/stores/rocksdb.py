"""The store Kafka Streams keeps in one RocksDB directory: a data column family and ``offsets`` (KIP-1035).

**Commit.** One ``WriteBatch`` over both families, written to the log (WAL) with ``sync``. Measured with SIGKILL at
random points, this is the only way in rocksdict 0.3.29 that never had data and offset disagree whatever was flushed in
between, and the only one that is also durable when it returns. (Kafka Streams writes without a log and relies on
``atomic_flush``; through rocksdict, which flushes and closes one family at a time, that loses data or replays it.)

**Ingest.** No call spans two families, so files become visible just before their offset does. From ``open`` on, the
database itself says ``status`` = 1; a process killed in between leaves rows ahead of an older offset *and* that status:
under exactly-once Kafka Streams wipes such a store, under at-least-once it applies the same records again, which
changes nothing. ``close`` only writes ``status`` = 0 when a commit followed the ingest.

**Close** flushes every family, so that no log content is left, and leaves the directory as Kafka Streams expects it:
without rocksdict's and RocksDB's own notes (``rocksdict-config.json``, ``LOG``), with its modes, all handles released.

**Read-only** goes through a temporary directory of symbolic links: RocksDB and rocksdict both write into a directory
they open read-only, and a verifier must not.

A process that opened a database must not fork children that open one: they hang at flush. Use spawn.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from statecore.errors import Corrupted, Invalid
from statecore.formats import offsets as offset_format
from statecore.formats.kinds import DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY, StoreKind
from statecore.formats.position import Position, decode_position, encode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.stores.files import sync_tree
from statecore.stores.rocksdb_directory import existing_families, make_directory, open_database, shadow_of, tidy
from statecore.stores.rocksdb_errors import translate
from statecore.stores.rocksdb_scan import overlaid, scan, scan_lists

T = TypeVar("T")


class RocksDBStore(StateStore):
    """One RocksDB directory of one store.

    Args:
        path: the database directory.
        kind: what the store is; decides the data column family.
        create: make a fresh database; ``path`` must not exist.
        read_only: change nothing, not even a file's time; the database must not be open for writing anywhere.
        exactly_once: refuse a store that its last process did not close cleanly, as Kafka Streams does under
            exactly-once (there its rows may be ahead of its offset).
    """

    def __init__(
        self,
        path: Path,
        kind: StoreKind,
        *,
        create: bool = False,
        read_only: bool = False,
        exactly_once: bool = False,
    ) -> None:
        if not kind.can_be_built:
            raise Invalid(
                f"A store of kind {kind.value} cannot be opened by this version.",
                action="Leave the store out of the spec.",
                kind=kind.value,
            )
        self._path = path
        self._kind = kind
        self._create = create
        self._read_only = read_only
        self._exactly_once = exactly_once
        self._families: dict[str, Any] = {}
        self._handles: dict[str, Any] = {}
        self._db: Any = None
        self._shadow: tempfile.TemporaryDirectory[str] | None = None
        self._pending: dict[bytes, bytes | None] = {}
        self._position: Position = {}
        self._rows_ahead = False
        self._scans: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()

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
        """True: offsets lie in the ``offsets`` column family."""
        return True

    def open(self) -> None:
        """Open the database; see :meth:`StateStore.open`.

        Raises:
            Fenced: another process has it open.
            NotFound: there is no database at the path.
            Invalid: a fresh one was asked for and the path exists; or its column families or comparator are not those
                of this kind.
            Corrupted: it cannot be read; or exactly-once was asked for and it was not closed cleanly.
        """
        if self.is_open:
            return
        wanted = {DEFAULT_COLUMN_FAMILY, self._kind.data_column_family, OFFSETS_COLUMN_FAMILY}
        where = self._path
        if self._create:
            make_directory(self._path)
        else:
            found = existing_families(self._path, self._kind)
            if self._read_only:
                wanted &= found
                self._shadow = shadow_of(self._path)
                where = Path(self._shadow.name)
        try:
            self._db = open_database(self._path, where, wanted, create=self._create, read_only=self._read_only)
            for name in wanted:
                self._families[name] = self._db.get_column_family(name)
                self._handles[name] = self._db.get_column_family_handle(name)
            self._refuse_legacy_rows()
            self._position = self._read_position()
            if not self._read_only:
                self._refuse_unclean()
                self._write_status(offset_format.STATUS_OPEN)
        except BaseException:
            self._release()
            raise

    def _refuse_legacy_rows(self) -> None:
        """Kafka Streams reads rows of a plain store below a timestamped one on the fly; here they would be missed."""
        if self._kind.data_column_family == DEFAULT_COLUMN_FAMILY:
            return
        if next(scan(self._path, self._families[DEFAULT_COLUMN_FAMILY], None), None) is not None:
            raise Invalid(
                f"{self._path} is a {self._kind.value} store that still has rows of an older format.",
                action="Rebuild the store from its changelog, or let the application rewrite its rows first.",
                store_path=str(self._path),
            )

    def _refuse_unclean(self) -> None:
        status = self.status
        if self._exactly_once and status not in (None, offset_format.STATUS_CLOSED):
            raise Corrupted(
                f"{self._path} was not closed cleanly (status {status}): under exactly-once its rows may be ahead of "
                "its offset.",
                action="Rebuild the store from its changelog or a snapshot.",
                store_path=str(self._path),
            )

    def close(self) -> None:
        """Close the database, cleanly unless rows were ingested and no commit followed; see the module's text."""
        if not self.is_open:
            return
        try:
            if not self._read_only:
                if not self._rows_ahead:
                    self._write_status(offset_format.STATUS_CLOSED)
                self.flush()
        finally:
            self._release()
        if not self._read_only:
            tidy(self._path)
            if self._create:
                sync_tree(self._path)

    def _release(self) -> None:
        """Drop every handle: RocksDB keeps its lock as long as one of them lives."""
        for rows in list(self._scans):
            rows.close()
        self._handles.clear()
        families, self._families = self._families, {}
        db, self._db = self._db, None
        self._pending = {}
        for family in families.values():
            family.close()
        families.clear()
        if db is not None:
            db.close()
        if self._shadow is not None:
            self._shadow.cleanup()
            self._shadow = None

    @property
    def _data(self) -> Any:
        return self._opened()[self._kind.data_column_family]

    def _opened(self) -> dict[str, Any]:
        if not self.is_open:
            raise Invalid(
                f"The store at {self._path} is not open.", action="Open it first.", store_path=str(self._path)
            )
        return self._families

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``; writes that are not committed yet are seen."""
        data = self._data
        if key in self._pending:
            return self._pending[key]
        try:
            value: bytes | None = data.get(key)
        except Exception as error:
            raise translate(self._path, "Reading", error) from error
        return value

    def range(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``first <= key <= last`` in key order; see :meth:`StateStore.range`."""
        return self._rows(first, lambda key: last is None or key <= last)

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with ``prefix``, in key order."""
        return self._rows(prefix, lambda key: key.startswith(prefix))

    def _rows(self, first: bytes | None, wanted: Callable[[bytes], bool]) -> Iterator[tuple[bytes, bytes]]:
        """Stored rows with the pending writes of this moment laid over them, from ``first`` on while wanted."""
        pending = sorted((key, value) for key, value in self._pending.items() if first is None or key >= first)
        rows = overlaid(scan(self._path, self._data, first), pending)
        return self._until_closed(takewhile(lambda row: wanted(row[0]), rows), rows)

    def scan_lists(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All committed rows in key order, as lists of keys and values, tens of thousands at a time.

        Raises:
            Corrupted: a block cannot be read.
        """
        chunks = scan_lists(self._path, self._data)
        return self._until_closed(chunks, chunks)

    def _until_closed(self, items: Iterator[T], source: Generator[Any, None, None]) -> Iterator[T]:
        """The items; a store that is closed meanwhile ends its scans, and that must not look like the last row."""
        self._scans.add(source)
        return self._checked(items, source, self._db)

    def _checked(self, items: Iterator[T], source: Generator[Any, None, None], database: Any) -> Iterator[T]:
        try:
            yield from items
        finally:
            source.close()
        if self._db is not database:
            raise Invalid(
                f"The store at {self._path} was closed during a scan.",
                action="Keep it open until the scan has ended.",
                store_path=str(self._path),
            )

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the row of a key with the next commit; ``None`` deletes it."""
        self._writable()
        self._pending[key] = value

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
        from rocksdict import IngestExternalFileOptions

        self._writable()
        if self._pending:
            raise Invalid(
                f"The store at {self._path} has writes that were not committed.",
                action="Commit before ingesting files.",
                store_path=str(self._path),
            )
        if not runs:
            return []
        self.flush()  # else RocksDB may flush keys that overlap, and its file would look like one of the runs
        before = set(self._path.glob("*.sst"))
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._rows_ahead = True
        try:
            self._data.ingest_external_file([str(run) for run in runs], options)
        except Exception as error:
            raise translate(self._path, "Ingesting files into", error) from error
        return sorted(set(self._path.glob("*.sst")) - before, key=lambda file: int(file.stem))

    def compact(self) -> None:
        """Merge all files of the data into disjoint ones of about 64 MB, without deletes."""
        from rocksdict import BottommostLevelCompaction, CompactOptions

        self._writable()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        try:
            self._data.compact_range(None, None, options)
        except Exception as error:
            raise translate(self._path, "Compacting", error) from error

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Write pending rows, offsets and position as one batch, durable when this returns; see the module's text."""
        from rocksdict import WriteBatch

        self._writable()
        batch = WriteBatch(raw_mode=True)
        data, meta = self._handles[self._kind.data_column_family], self._handles[OFFSETS_COLUMN_FAMILY]
        for key, value in self._pending.items():
            if value is None:
                batch.delete(key, data)
            else:
                batch.put(key, value, data)
        if not offsets:
            self._position = {}
            for key, _ in scan(self._path, self._families[OFFSETS_COLUMN_FAMILY], None):
                if key != offset_format.STATUS_KEY:
                    batch.delete(key, meta)
        for partition, offset in offsets.items():
            if offset is None:
                batch.delete(offset_format.offset_key(partition), meta)
            else:
                batch.put(offset_format.offset_key(partition), offset_format.encode_int64(offset), meta)
        if self._position:
            batch.put(offset_format.POSITION_KEY, encode_position(self._position), meta)
        self._write(batch)
        self._pending = {}
        self._rows_ahead = False

    def flush(self) -> None:
        """Write the memtables of all families to files; the log is empty afterwards."""
        self._writable()
        try:
            for family in self._families.values():
                family.flush()
        except Exception as error:
            raise translate(self._path, "Flushing", error) from error

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset in the ``offsets`` family, -4 (``OFFSET_UNKNOWN``) included; ``None`` without an entry."""
        value = self._meta(offset_format.offset_key(partition))
        return None if value is None else offset_format.decode_int64(value)

    @property
    def position(self) -> Position:
        """The position as stored, plus what was changed in it since."""
        self._opened()
        return self._position

    @property
    def status(self) -> int | None:
        """The ``status`` row: 1 while somebody has the store open for writing, 0 after a clean close."""
        value = self._meta(offset_format.STATUS_KEY)
        return None if value is None else offset_format.decode_int64(value)

    def _read_position(self) -> Position:
        value = self._meta(offset_format.POSITION_KEY)
        return {} if value is None else decode_position(value)

    def _meta(self, key: bytes) -> bytes | None:
        family = self._opened().get(OFFSETS_COLUMN_FAMILY)
        if family is None:  # written by Kafka Streams 4.2 or older, opened read-only
            return None
        try:
            value: bytes | None = family.get(key)
        except Exception as error:
            raise translate(self._path, "Reading the offsets of", error) from error
        return value

    def _write_status(self, status: int) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        batch.put(offset_format.STATUS_KEY, offset_format.encode_int64(status), self._handles[OFFSETS_COLUMN_FAMILY])
        self._write(batch)

    def _write(self, batch: Any) -> None:
        from rocksdict import WriteOptions

        options = WriteOptions()
        options.sync = True
        try:
            self._db.write(batch, options)
        except Exception as error:
            raise translate(self._path, "Writing to", error) from error

    def _writable(self) -> None:
        self._opened()
        if self._read_only:
            raise Invalid(
                f"The store at {self._path} is open read-only.",
                action="Open it for writing.",
                store_path=str(self._path),
            )
