"""Result of an inspection: an application, its tasks, stores and databases, as values and as JSON."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.errors import KINDS, Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import (
    FIRST_WITH_OFFSETS,
    GLOBAL,
    LAST_WITHOUT_OFFSETS,
    OFFSETS_COLUMN_FAMILY,
    PLAIN_PARENT,
)
from statecore.formats.segments import Segmentation
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, StoreSpec, segmentation_of
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.known_files import KnownFile, OffsetFileContent
from statecore.stores.lock_holder import Holder

_DAMAGE = frozenset({"segments-disagree", "global-offset-unknown"})

_DATABASE_FIELDS = (
    *("name", "start", "end", "status", "rows", "bytes", "families", "older_rows", "broken", "error", "lost"),
)


def is_problem(finding: Finding) -> bool:
    """Whether an inspection reports it: anything worse than a note, and rows of an older format."""
    return finding.severity is not Severity.NOTE or finding.code == "older-rows"


def is_damage(finding: Finding) -> bool:
    """Whether only a restore repairs it; for some codes the evidence says so."""
    return finding.code in _DAMAGE or bool(finding.evidence.get("damage"))


@dataclass(frozen=True)
class DatabaseView:
    """One database: a store, or one segment of it.

    Attributes:
        start: first ms of the segment's interval; ``None`` for a store that is one database.
        end: first ms after it; ``None`` if the interval is unknown.
        status: 0 closed, 1 open, ``None`` without status.
        older_rows: rows in the family of an older format; part of ``rows``.
        broken: why it could not be read; empty if it could.
        lost: files in ``lost/`` beside it, which its MANIFEST did not name at an earlier opening.
        error: error class (``Corrupted``, or ``Invalid`` and ``Capacity`` if this process lacked permissions or open
            files); empty if it could be read.
        cause: code of the finding; empty if it could be read.
        family_rows: rows of each family except ``offsets``.
        unnamed: complete SST files that its MANIFEST does not name.
        lost_end: why its MANIFEST must have lost its end although RocksDB would open it; empty without indication.
        foreign_log: why a log in its directory is another database's; empty without indication.
        formats: format versions of its SST files, the greatest first, if they were inspected.
        foreign: files in its directory that are not RocksDB's.
        flushed: whether its offset was flushed since it was last opened, by its close or before a kill.
        position_entry: encoded position; ``None`` without it.
        written_here_last: whether this library wrote to it last.
        not_files: what stands in the place of its files that RocksDB opens, by name: directories, pipes, broken links.
        identity: RocksDB's identity of it, which a copy keeps; empty without one.
        short_rows: checked rows with a key or a value that is too short for the kind.
        rows_outside: checked rows with a time that is not its segment's.
        wrong_key: the first key of such a row.
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
    lost_end: str = ""
    formats: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()
    flushed: bool = False
    position_entry: builtins.bytes | None = None
    written_here_last: bool = False
    not_files: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    short_rows: int = 0
    rows_outside: int = 0
    wrong_key: builtins.bytes = b""
    foreign_log: str = ""

    @property
    def state(self) -> DatabaseState:
        return DatabaseState(self.families, self.offsets, self.status, self.position_entry)

    @property
    def is_open(self) -> bool:
        """Whether its process died before it closed it."""
        return self.status not in (None, 0)

    @property
    def has_offsets_family(self) -> bool:
        """Whether a release with offsets inside has opened it."""
        return OFFSETS_COLUMN_FAMILY in self.families


@dataclass(frozen=True)
class StoreView:
    """One store of one task.

    Attributes:
        kind: ``?`` if unknown.
        possible_kinds: possible kinds, if the kind is ``?``.
        segmented: whether it is a directory of databases.
        databases: the store's, or its segments in order of time.
        outside: offsets in ``.checkpoint_<store>``, for stores that do not manage their own.
        logged: whether it has a changelog, as declared, or as its databases show.
        holder: the process that has one of its databases open, or ``None``; the only sign of a Python processor.
        findings: its findings, with the store as the subject of their sentences.
        in_use: whether it or the application is open, so that some conditions are normal and no findings.
        mismatch: why it cannot be of the declared kind; empty if it can.
        unopenable: why no class of Kafka Streams would open it; empty if one would.
        foreign: files in its directory if that has no database: a store of the application's own class; empty for
            others.
        miskeyed: rows seen in a grace buffer with the keys of a restore by Kafka Streams, which it never finds again;
            not all rows are read.
        strays: entries among its segments with which Kafka Streams does not open it, each with the reason.
        is_upgraded_at_start: whether the databases of all tasks are of an older format than that of the declared kind,
            which Kafka Streams opens as that kind.
    """

    task: str
    store: str
    kind: StoreKind
    possible_kinds: str
    segmented: bool
    databases: tuple[DatabaseView, ...]
    outside: Mapping[TopicPartition, int]
    logged: bool = True
    holder: Holder | None = None
    findings: tuple[Finding, ...] = ()
    declared: StoreSpec | None = None
    in_use: bool = False
    mismatch: str = ""
    unopenable: str = ""
    miskeyed: int = 0
    foreign: tuple[str, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    is_upgraded_at_start: bool = False

    @property
    def directory(self) -> str:
        """Its directory, relative to the task's."""
        return self.store if self.segmented else f"{PLAIN_PARENT}/{self.store}"

    @property
    def is_gone(self) -> bool:
        """Whether nothing but, perhaps, a directory is left of it."""
        return not self.databases and not self.foreign

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences of its findings that an inspection reports."""
        return tuple(one.what for one in self.findings if is_problem(one))

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences of findings that only a restore repairs."""
        return tuple(one.what for one in self.findings if is_damage(one))

    @property
    def readable(self) -> tuple[DatabaseView, ...]:
        return tuple(one for one in self.databases if not one.broken)

    @property
    def segmentation(self) -> Segmentation | None:
        """How its rows are divided by time, as declared; ``None`` if they are not, or it is not declared."""
        return None if self.declared is None else segmentation_of(replace(self.declared, kind=self.kind))

    @property
    def has_decided_changelog(self) -> bool:
        """Whether the spec declares its changelog, or that it has none; ``?`` does not."""
        return self.declared is not None and self.declared.changelog != UNKNOWN_CHANGELOG

    @property
    def keeps_offsets_inside(self) -> bool | None:
        """Whether its databases keep offsets, as since 4.3; ``None`` if they differ, or none could be read."""
        states = {one.has_offsets_family for one in self.databases if one.families}
        return states.pop() if len(states) == 1 else None

    @property
    def keeps_no_offset(self) -> bool:
        """Whether all its databases were closed cleanly without an offset, as a store without changelog is left."""
        if self.task == GLOBAL or self.outside or any(one.broken for one in self.databases):
            return False
        return all(one.state.keeps_no_offset for one in self.databases)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets Kafka Streams uses: those of the newest segment that has one, or those kept outside.

        Without either, those at the other place, which it does not read: another kind of store left them.
        """
        found: dict[TopicPartition, int] = {}
        for database in self.databases:
            found.update(database.offsets)
        outside = dict(self.outside)
        return (found or outside) if self.kind.manages_offsets else (outside or found)

    @property
    def transactional(self) -> bool:
        """Whether 4.4 last wrote one of its databases with transactional stores: an offset, and no status."""
        return any(one.state.transactional for one in self.databases)

    @property
    def rows(self) -> int:
        return sum(database.rows for database in self.databases)

    @property
    def bytes(self) -> int:
        return sum(database.bytes for database in self.databases)

    @property
    def closed(self) -> bool | None:
        """Whether every database with a status was closed; ``None`` if none has one."""
        statuses = [database.status for database in self.databases if database.status is not None]
        return None if not statuses else all(status == 0 for status in statuses)


@dataclass(frozen=True)
class TaskView:
    """The files of one task, or of ``global/``, beside its stores.

    Attributes:
        stores: each ``.checkpoint_<store>``, by store.
        positions: the ``.position`` of each store that has one.
        foreign: files that neither Kafka Streams nor this library creates.
        modified_ms: when the directory was last changed.
        unusable: files and directories that the application cannot use, each with the reason.
        written_ns: when ``.checkpoint`` was written.
        rows_after_checkpoint: by store, files with rows that were flushed after that → their time (ns).
        followed: whether ``statecore standby`` has followed it here.
        wrong_types: what stands in the place of its files and directories, by name.
        has_content: whether Kafka Streams takes its directory for one that is not empty.
        store_names: the names of its stores.
        unparsable: beside the tasks, directories whose name Kafka Streams takes for a task's and cannot parse.
    """

    task: str
    checkpoint: OffsetFileContent
    stores: Mapping[str, OffsetFileContent] = field(default_factory=dict)
    positions: Mapping[str, OffsetFileContent] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    modified_ms: int = 0
    unusable: tuple[tuple[str, str], ...] = ()
    written_ns: int = 0
    rows_after_checkpoint: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    followed: bool = False
    wrong_types: Mapping[str, str] = field(default_factory=dict)
    unparsable: tuple[str, ...] = ()
    has_content: bool = False
    store_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """An inspected application directory.

    Attributes:
        holder: the process that has it in use, or ``None``.
        estimated: whether rows are RocksDB's estimate instead of a count.
        findings: findings beyond single stores.
        whole_tasks: tasks of which all stores were inspected, also those without a store.
    """

    application_id: str
    path: Path
    holder: Holder | None
    estimated: bool
    stores: tuple[StoreView, ...]
    offset_files: tuple[KnownFile, ...]
    findings: tuple[Finding, ...]
    whole_tasks: frozenset[str]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Releases of Kafka Streams whose layout its databases have; several if they differ."""
        inside = {one.has_offsets_family for store in self.stores for one in store.databases if one.families}
        return tuple(
            f"{FIRST_WITH_OFFSETS} or later" if has_offsets else f"{LAST_WITHOUT_OFFSETS} or older"
            for has_offsets in sorted(inside)
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences of findings beyond single stores that an inspection reports."""
        return tuple(dict.fromkeys(one.what for one in self.findings if is_problem(one)))

    @property
    def damage(self) -> tuple[str, ...]:
        """Sentences of findings beyond single stores that are damage."""
        return tuple(dict.fromkeys(one.what for one in self.findings if is_damage(one)))

    @property
    def exit_code(self) -> int:
        """0 without damage and unread databases, else the exit code of that kind of error."""
        if self.damage or any(store.damage for store in self.stores):
            return Corrupted.exit_code
        unseen = [database.error for store in self.stores for database in store.databases if database.error]
        return max((KINDS[error].exit_code for error in unseen), default=0)

    def to_json(self) -> dict[str, Any]:
        """The inspection as one JSON object; times in ms."""
        return {
            "application_id": self.application_id,
            "path": str(self.path),
            "lock": holder_json(self.holder),
            "layouts": list(self.layouts),
            "rows_are": "estimated" if self.estimated else "counted",
            "stores": [_store_json(store) for store in self.stores],
            "leftovers": [asdict(leftover) for leftover in self.offset_files],
            "problems": list(self.problems),
            "damage": list(self.damage),
            "findings": _findings_json(self.findings),
            "exit_code": self.exit_code,
        }


def holder_json(holder: Holder | None) -> dict[str, Any] | None:
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
        "kinds_left": store.possible_kinds or None,
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
        "problems": list(store.problems),
        "damage": list(store.damage),
        "findings": _findings_json(store.findings),
    }


def _findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings that are problems or damage, as JSON."""
    return [{**one.to_json(), "damage": is_damage(one)} for one in findings if is_problem(one) or is_damage(one)]
