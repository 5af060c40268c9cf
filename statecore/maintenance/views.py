"""What an inspection shows: an application, its stores, their databases, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from statecore.errors import KINDS, Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.leftovers import Leftover
from statecore.placement.database_state import DatabaseState
from statecore.placement.state_directory import partition_of
from statecore.stores.lock_holder import Holder


@dataclass(frozen=True)
class DatabaseView:
    """One database: a store, or one segment of it.

    Attributes:
        name: of its directory.
        start: first ms of the segment's interval; ``None`` for a store that is one database.
        end: the ms behind it; ``None`` where the interval is not known.
        offsets: what it says of each changelog partition.
        status: 0 closed, 1 open, ``None`` unsaid.
        rows: how many it holds.
        bytes: of its files.
        families: its column families.
        older_rows: rows that still lie in the family of an older format; part of ``rows``.
        broken: why it could not be read; empty when it could.
        lost: files kept in ``lost/`` beside it: its MANIFEST did not name them when it was opened once.
        error: which kind of error that is (``Corrupted``, or ``Invalid`` and ``Capacity`` where this process could not
            look, for want of rights or open files); empty when it could be read.
    """

    name: str
    start: int | None
    end: int | None
    offsets: Mapping[TopicPartition, int]
    status: int | None
    rows: int
    bytes: int
    families: tuple[str, ...]
    older_rows: int = 0
    broken: str = ""
    error: str = ""
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoreView:
    """One store of one task.

    Attributes:
        task: ``0_1``, ``__north__/0_1`` or ``global``.
        store: its name.
        kind: what it is; ``?`` where that cannot be told.
        kinds_left: what it may be, when the kind is ``?``.
        segmented: whether it is a directory of databases.
        databases: the store's, or its segments in order of time.
        trouble: what is wrong with it.
        damage: what of that only a restore mends: rows that cannot be read, or that the application would miss without
            noticing, or with which it cannot start.
        outside: offsets that lie in ``.checkpoint_<store>``, for stores that do not manage their own.
        logged: whether it has a changelog, as declared, or as far as its databases tell.
        holder: who has one of its databases open, or ``None``; a processor on this library's stores is seen by nothing
            else.
    """

    task: str
    store: str
    kind: StoreKind
    kinds_left: str
    segmented: bool
    databases: tuple[DatabaseView, ...]
    trouble: tuple[str, ...]
    damage: tuple[str, ...]
    outside: Mapping[TopicPartition, int]
    logged: bool = True
    holder: Holder | None = None

    @property
    def keeps_no_offset(self) -> bool:
        """Whether all its databases were closed cleanly without an offset, as a store is left that is not logged."""
        if self.task == GLOBAL or self.outside or any(one.broken for one in self.databases):
            return False
        return all(DatabaseState(one.families, one.offsets, one.status).keeps_no_offset for one in self.databases)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets Kafka Streams goes by: those of the newest segment that has one, or those kept outside."""
        found: dict[TopicPartition, int] = {}
        for database in self.databases:
            found.update(database.offsets)
        return found or dict(self.outside)

    @property
    def rows(self) -> int:
        """Rows of all its databases."""
        return sum(database.rows for database in self.databases)

    @property
    def bytes(self) -> int:
        """Bytes of all its databases."""
        return sum(database.bytes for database in self.databases)

    @property
    def closed(self) -> bool | None:
        """Whether every database says it was closed; ``None`` when none says anything."""
        said = [database.status for database in self.databases if database.status is not None]
        return None if not said else all(status == 0 for status in said)


@dataclass(frozen=True)
class Inspection:
    """An application's directory.

    Attributes:
        application_id: its ``application.id``.
        path: the directory.
        holder: who has its lock, or ``None``.
        estimated: whether rows are RocksDB's estimate instead of a count.
        stores: by task.
        leftovers: files beside the stores that mean something.
        trouble: what is wrong beyond single stores.
        damage: what of that is damage.
    """

    application_id: str
    path: Path
    holder: Holder | None
    estimated: bool
    stores: tuple[StoreView, ...]
    leftovers: tuple[Leftover, ...]
    trouble: tuple[str, ...]
    damage: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 when nothing is damaged and all could be looked at, else the code of the kind of error that it is."""
        if self.damage or any(store.damage for store in self.stores):
            return Corrupted.exit_code
        unseen = [database.error for store in self.stores for database in store.databases if database.error]
        return max((KINDS[error].exit_code for error in unseen), default=0)

    def to_json(self) -> dict[str, Any]:
        """Everything, as one JSON object; times in ms."""
        return {
            "application_id": self.application_id,
            "path": str(self.path),
            "lock": _holder_json(self.holder),
            "rows_are": "estimated" if self.estimated else "counted",
            "stores": [_store_json(store) for store in self.stores],
            "leftovers": [asdict(leftover) for leftover in self.leftovers],
            "trouble": list(self.trouble),
            "damage": list(self.damage),
            "exit_code": self.exit_code,
        }


def _holder_json(holder: Holder | None) -> dict[str, Any] | None:
    return {"process": holder.process, "command": holder.command} if holder else None


def _store_json(store: StoreView) -> dict[str, Any]:
    return {
        "task": store.task,
        "partition": partition_of(store.task),
        "store": store.store,
        "kind": str(store.kind),
        "kinds_left": store.kinds_left or None,
        "offsets": {str(partition): offset for partition, offset in store.offsets.items()},
        "logged": store.logged,
        "closed": store.closed,
        "open_by": _holder_json(store.holder),
        "rows": store.rows,
        "bytes": store.bytes,
        "segmented": store.segmented,
        "databases": [
            {**asdict(database), "offsets": {str(part): offset for part, offset in database.offsets.items()}}
            for database in store.databases
        ],
        "trouble": list(store.trouble),
        "damage": list(store.damage),
    }
