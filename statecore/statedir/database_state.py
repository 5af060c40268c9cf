"""The bookkeeping in the ``offsets`` column family of a database (offsets, status, position), read without changing it.

Reading takes milliseconds whatever the size of the store, and needs no store kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import (
    POSITION_KEY,
    STATUS_CLOSED,
    STATUS_KEY,
    STATUS_OPEN,
    decode_int64,
    partition_of_key,
)
from statecore.formats.position import Position, decode_position
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.files import check_blobs, manifest_of
from statecore.stores.rocksdb.reading import OpenedFamilies
from statecore.stores.rocksdb.readonly_links import open_through_links


@dataclass(frozen=True)
class DatabaseState:
    """The bookkeeping of one database.

    Attributes:
        offsets: changelog partition → last applied offset, or -4.
        status: value of the key ``status`` (0 closed cleanly, 1 open), or ``None`` without it.
        position_entry: encoded position; ``None`` without it.
    """

    column_families: tuple[str, ...]
    offsets: Mapping[TopicPartition, int]
    status: int | None
    position_entry: bytes | None = None

    @classmethod
    def of_entries(cls, column_families: Iterable[str], entries: Mapping[bytes, bytes]) -> Self:
        """Decode the rows of the ``offsets`` family. Raises ``Corrupted`` if the only offset is malformed.

        Kafka Streams reads only the entries of its own partitions, whatever others there are, and takes a store as
        closed only if the status is that of a close.
        """
        offsets: dict[TopicPartition, int] = {}
        malformed = None
        for key, value in entries.items():
            try:
                partition = partition_of_key(key)
            except Corrupted:
                continue
            try:
                if partition is not None:
                    offsets[partition] = decode_int64(value)
            except Corrupted as error:
                malformed = error
        if malformed is not None and not offsets:
            raise malformed
        status = None
        if STATUS_KEY in entries:
            status = STATUS_OPEN
            with suppress(Corrupted):
                status = decode_int64(entries[STATUS_KEY])
        return cls(tuple(sorted(column_families)), offsets, status, entries.get(POSITION_KEY))

    @property
    def position(self) -> Position:
        """Input partition → greatest offset seen; empty if there is none. Raises ``Corrupted`` if it is damaged."""
        return {} if self.position_entry is None else decode_position(self.position_entry)

    @property
    def closed_cleanly(self) -> bool:
        """Whether Kafka Streams treats it as closed cleanly; if not, it wipes the task under exactly-once.

        A database that only transactional stores wrote to has no status: it is at its offset even after a kill.
        """
        return self.status in (None, STATUS_CLOSED)

    @property
    def transactional(self) -> bool:
        """Whether only transactional stores of 4.4 wrote to it (KIP-892): it has an offset and no status.

        A database that was written without them before keeps its old status, so ``False`` does not prove that stores
        are not transactional.
        """
        return self.status is None and bool(self.offsets)

    @property
    def keeps_no_offset(self) -> bool:
        """Whether it was closed cleanly without an offset, as Kafka Streams leaves a store without changelog.

        For a logged store it writes an offset, -4 if need be, at every close (``ProcessorStateManager.commit``).
        Versions that keep offsets elsewhere write no status either. Transactional stores have no status, and write
        their position with every commit.
        """
        is_closed = self.status == STATUS_CLOSED or (self.status is None and self.position_entry is not None)
        return is_closed and not self.offsets


def smallest_offsets(several: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """The smallest offset of each partition over several databases; -4 is the smallest of all."""
    found: dict[TopicPartition, int] = {}
    for offsets in several:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def read_database_state(database: Path, *, sample: bool = False) -> DatabaseState:
    """Read the bookkeeping of a database as last flushed, even if a process has it open. Changes nothing."""
    try:
        if sample:
            check_blobs(database, database, manifest_of(database)[1].blobs.values())
        links, (families, entries) = open_through_links(database, lambda where: _read(database, where, sample))
    except Corrupted as error:
        raise Corrupted(
            f"The database {database} cannot be opened: {error.what}",
            code="database-damaged",
            action="Restore this store from its changelog (with --replace), or repair it first.",
            database=str(database),
        ) from error
    links.cleanup()
    return DatabaseState.of_entries(families, entries)


def _read(database: Path, where: Path, sample: bool) -> tuple[frozenset[str], dict[bytes, bytes]]:
    with OpenedFamilies(database, where) as opened:
        for family in opened.names if sample else ():
            next(opened.rows(family), None)
        return opened.names, dict(opened.rows(OFFSETS_COLUMN_FAMILY))


def create_database(database: Path, kind: StoreKind, offsets: Mapping[TopicPartition, int]) -> None:
    """Create an empty database with these offsets. At -4 Kafka Streams restores it from the start; nothing is wiped."""
    from statecore.stores.rocksdb.manifest_guard import remove_guard_record
    from statecore.stores.rocksdb.store import RocksDBStore
    from statecore.stores.settings import KEEP_FILES

    store = RocksDBStore(database, kind, create=True, settings=KEEP_FILES)
    store.open()
    try:
        store.commit(offsets)
    finally:
        store.close()
    remove_guard_record(database)
