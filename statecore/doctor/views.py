"""What a look at a directory shows: an application, its tasks, stores and databases, as values and as JSON."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.errors import KINDS, Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL, OFFSETS_COLUMN_FAMILY
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, StoreSpec
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.offset_files import OffsetFile, OffsetsRead
from statecore.stores.lock_holder import Holder

_DAMAGE = frozenset({"segments-disagree", "global-offset-unknown"})

_DATABASE_FIELDS = (
    *("name", "start", "end", "status", "rows", "bytes", "families", "older_rows", "broken", "error", "lost"),
)


def is_trouble(finding: Finding) -> bool:
    """Whether an inspection says it: all that is more than a note, and what a store is that was upgraded in place."""
    return finding.severity is not Severity.NOTE or finding.code == "older-rows"


def is_damage(finding: Finding) -> bool:
    """Whether only a restore mends it; some codes are that only where the evidence says so."""
    return finding.code in _DAMAGE or bool(finding.evidence.get("damage"))


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
        cause: the code of the finding that it is; empty when it could be read.
        family_rows: how many rows each family but ``offsets`` has.
        unnamed: SST files that are whole and that its MANIFEST does not name.
        cut: why its MANIFEST must have lost its end although RocksDB would open it; empty where nothing says so.
        formats: format versions of its SST files, the greatest first, where they were looked at.
        foreign: files in its directory that are not RocksDB's.
        flushed: whether its offset was flushed since it was opened last, by its close or before a kill.
        position_entry: the row of its position; ``None`` when there is none.
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
    cause: str = ""
    family_rows: Mapping[str, int] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()
    cut: str = ""
    formats: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()
    flushed: bool = False
    position_entry: builtins.bytes | None = None

    @property
    def state(self) -> DatabaseState:
        """Its bookkeeping."""
        return DatabaseState(self.families, self.offsets, self.status, self.position_entry)

    @property
    def has_offsets_family(self) -> bool:
        """Whether it was opened by a release that keeps offsets inside."""
        return OFFSETS_COLUMN_FAMILY in self.families


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
        outside: offsets that lie in ``.checkpoint_<store>``, for stores that do not manage their own.
        logged: whether it has a changelog, as declared, or as far as its databases tell.
        holder: who has one of its databases open, or ``None``; a processor on this library's stores is seen by nothing
            else.
        findings: what was found of it, with sentences that have the store as their subject.
        declared: what the spec says of it, if it says something.
        in_use: whether it, or the application, is open, so that much is normal that else would be a finding.
        mismatch: why it cannot be of the kind that is declared; empty where it can.
        strange: why no class of Kafka Streams would open it; empty where one would.
        foreign: what its directory holds beside no database: a store of the application's own making; empty for others.
        miskeyed: how many rows were seen of a grace buffer that Kafka Streams has restored, with keys that it never
            finds again; not all rows are looked at.
    """

    task: str
    store: str
    kind: StoreKind
    kinds_left: str
    segmented: bool
    databases: tuple[DatabaseView, ...]
    outside: Mapping[TopicPartition, int]
    logged: bool = True
    holder: Holder | None = None
    findings: tuple[Finding, ...] = ()
    declared: StoreSpec | None = None
    in_use: bool = False
    mismatch: str = ""
    strange: str = ""
    miskeyed: int = 0
    foreign: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether there is nothing of it but, perhaps, a directory."""
        return not self.databases and not self.foreign

    @property
    def trouble(self) -> tuple[str, ...]:
        """What is wrong with it, and what of it a person should know."""
        return tuple(one.what for one in self.findings if is_trouble(one))

    @property
    def damage(self) -> tuple[str, ...]:
        """What of that only a restore mends: rows that cannot be read, or that the application would miss without
        noticing, or with which it cannot start.
        """
        return tuple(one.what for one in self.findings if is_damage(one))

    @property
    def readable(self) -> tuple[DatabaseView, ...]:
        """Its databases that could be read."""
        return tuple(one for one in self.databases if not one.broken)

    @property
    def topology(self) -> str | None:
        """The named topology that it is of, or ``None``."""
        return TaskId.parse(self.task).topology

    @property
    def has_decided_changelog(self) -> bool:
        """Whether the spec says of which topic it is, or that it is of none; ``?`` there says nothing."""
        return self.declared is not None and self.declared.changelog != UNKNOWN_CHANGELOG

    @property
    def keeps_offsets_inside(self) -> bool | None:
        """Whether its databases keep offsets, as 4.3 does it; ``None`` where that differs, or nothing could be read."""
        said = {one.has_offsets_family for one in self.databases if one.families}
        return said.pop() if len(said) == 1 else None

    @property
    def keeps_no_offset(self) -> bool:
        """Whether all its databases were closed cleanly without an offset, as a store is left that is not logged."""
        if self.task == GLOBAL or self.outside or any(one.broken for one in self.databases):
            return False
        return all(one.state.keeps_no_offset for one in self.databases)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets Kafka Streams goes by: those of the newest segment that has one, or those kept outside."""
        found: dict[TopicPartition, int] = {}
        for database in self.databases:
            found.update(database.offsets)
        return found or dict(self.outside)

    @property
    def transactional(self) -> bool:
        """Whether 4.4 wrote one of its databases with transactional stores last: an offset, and never a status."""
        return any(one.state.transactional for one in self.databases)

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
class TaskView:
    """The files of one task, or of ``global/``, beside its stores.

    Attributes:
        task: which.
        checkpoint: its ``.checkpoint``.
        stores: what each ``.checkpoint_<store>`` says, by store.
        positions: the ``.position`` of each store that has one.
        foreign: files that neither Kafka Streams nor this library makes.
        modified_ms: when the directory was changed last.
        unusable: files and directories that the application cannot use, each with the reason.
        written_ns: when ``.checkpoint`` was written.
        late: by store, files with rows that were flushed after that, each with its time (ns).
    """

    task: str
    checkpoint: OffsetsRead
    stores: Mapping[str, OffsetsRead] = field(default_factory=dict)
    positions: Mapping[str, OffsetsRead] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    modified_ms: int = 0
    unusable: tuple[tuple[str, str], ...] = ()
    written_ns: int = 0
    late: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspection:
    """An application's directory.

    Attributes:
        application_id: its ``application.id``.
        path: the directory.
        holder: who has it in use, or ``None``.
        estimated: whether rows are RocksDB's estimate instead of a count.
        stores: by task, each with what was found of it.
        leftovers: files beside the stores that mean something.
        findings: what was found beyond single stores.
    """

    application_id: str
    path: Path
    holder: Holder | None
    estimated: bool
    stores: tuple[StoreView, ...]
    leftovers: tuple[OffsetFile, ...]
    findings: tuple[Finding, ...]

    @property
    def trouble(self) -> tuple[str, ...]:
        """What is wrong beyond single stores."""
        return tuple(dict.fromkeys(one.what for one in self.findings if is_trouble(one)))

    @property
    def damage(self) -> tuple[str, ...]:
        """What of that is damage."""
        return tuple(dict.fromkeys(one.what for one in self.findings if is_damage(one)))

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
            "lock": holder_json(self.holder),
            "rows_are": "estimated" if self.estimated else "counted",
            "stores": [_store_json(store) for store in self.stores],
            "leftovers": [asdict(leftover) for leftover in self.leftovers],
            "trouble": list(self.trouble),
            "damage": list(self.damage),
            "findings": _findings_json(self.findings),
            "exit_code": self.exit_code,
        }


def holder_json(holder: Holder | None) -> dict[str, Any] | None:
    """Who holds a lock, as JSON."""
    if holder is None:
        return None
    lost = {"lost": True} if holder.lost else {}
    return {"process": holder.process, "command": holder.command, **lost}


def _store_json(store: StoreView) -> dict[str, Any]:
    return {
        "task": store.task,
        "partition": TaskId.parse(store.task).partition,
        "store": store.store,
        "kind": str(store.kind),
        "kinds_left": store.kinds_left or None,
        "offsets": {str(partition): offset for partition, offset in store.offsets.items()},
        "logged": store.logged,
        "closed": store.closed,
        "transactional": store.transactional,
        "open_by": holder_json(store.holder),
        "rows": store.rows,
        "bytes": store.bytes,
        "segmented": store.segmented,
        "databases": [
            {
                **{name: getattr(database, name) for name in _DATABASE_FIELDS},
                "code": database.cause,
                "offsets": {str(part): offset for part, offset in database.offsets.items()},
            }
            for database in store.databases
        ],
        "trouble": list(store.trouble),
        "damage": list(store.damage),
        "findings": _findings_json(store.findings),
    }


def _findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """What trouble and damage are, each with its code and its values."""
    return [{**one.to_json(), "damage": is_damage(one)} for one in findings if is_trouble(one) or is_damage(one)]
