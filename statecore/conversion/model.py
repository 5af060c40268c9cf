"""What is to become of a task's directory: plain values that a job shows, freezes and carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.conversion.step import Step
from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position
from statecore.formats.releases import RELEASES, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import StoreDigest

_BYTES_BESIDE = 64 << 10
"""Of a database besides rows: MANIFEST, options, the family ``offsets``."""


@dataclass(frozen=True)
class RowMove:
    """Rows with headers that become rows of a kind without, in another column family.

    Attributes:
        source: the family that they lie in; it is dropped.
        target: the family that they come to, above what lies there.
        source_kind: what they are.
        target_kind: what they become.
        rows: how many lie in ``source``.
        headers: how many of them lose headers.
        content: what they come to, once moved.
    """

    source: str
    target: str
    source_kind: StoreKind
    target_kind: StoreKind
    rows: int
    headers: int
    content: StoreDigest


@dataclass(frozen=True)
class DatabaseConversion:
    """What is to become of one database: of a store, or of one segment.

    Attributes:
        directory: relative to the task's.
        families: its column families afterwards.
        offsets: what the family ``offsets`` says afterwards; ``None`` where there is no such family afterwards.
        status: what it says of the status.
        position: what it says of the position.
        create: whether it is made, without rows.
        entries: rows that are written to the family ``offsets``, as they lie there.
        moves: rows that change their family and format.
        drop: families that are dropped, after the rows were moved.
        rewrite: families whose SST files are written anew in an older format.
        sst_format: the newest format version that its files have afterwards.
        contents: what families hold afterwards, where files are written anew; others keep their files.
        files: SST files of families that keep theirs, by family.
        rewritten_bytes: of files that are written anew.
    """

    directory: str
    families: frozenset[str]
    offsets: Mapping[TopicPartition, int] | None
    status: int | None
    position: Position
    sst_format: int
    create: bool = False
    entries: Mapping[bytes, bytes] = field(default_factory=dict)
    moves: tuple[RowMove, ...] = ()
    drop: tuple[str, ...] = ()
    rewrite: tuple[str, ...] = ()
    contents: Mapping[str, StoreDigest] = field(default_factory=dict)
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rewritten_bytes: int = 0

    @property
    def is_nothing_to_do(self) -> bool:
        """Whether it stays as it is."""
        return not (self.create or self.entries or self.moves or self.drop or self.rewrite)


@dataclass(frozen=True)
class StoreConversion:
    """What is to become of one store of the task.

    Attributes:
        store: its name.
        directory: relative to the task's: ``rocksdb/<store>``, or ``<store>`` where it has segments.
        kind: what it is afterwards, where that matters and can be told; else ``None``.
        databases: what becomes of each of its databases, segments in order of time.
        offsets: what the store says afterwards, inside or in a file beside it; empty where nothing is known, or needed.
        position: its position afterwards.
        steps: what is done; nothing where it stays as it is.
        notes: what a person should know of it.
        refused: why it cannot be converted; ``None`` where it can.
    """

    store: str
    directory: str
    kind: StoreKind | None
    databases: tuple[DatabaseConversion, ...]
    offsets: Mapping[TopicPartition, int]
    position: Position
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    refused: Reason | None = None

    @property
    def is_nothing_to_do(self) -> bool:
        """Whether its databases stay as they are."""
        return all(one.is_nothing_to_do for one in self.databases)

    @property
    def rewritten_bytes(self) -> int:
        """Bytes of files that are written anew, because the release cannot read those that are there."""
        return sum(one.rewritten_bytes for one in self.databases)


@dataclass(frozen=True)
class TaskConversion:
    """What is to become of a task's directory, or of ``global/``.

    Attributes:
        task: ``0_1``, ``__north__/0_1`` or ``global``.
        seen: which releases may have left it, by what was seen: ``3.9 or 4.2``; several where it is mixed.
        release_to: the name of the release that it is converted for.
        stores: what becomes of each store.
        moved: files beside the stores that are gone afterwards, or say something else.
        written: files with offsets or positions that are written beside the stores, with what they say.
        refused: why it is not converted; nothing is done then.
        left: what stays as it is, and why.
        remarks: what a person should know of the task.
    """

    task: str
    seen: str
    release_to: str
    stores: tuple[StoreConversion, ...]
    moved: tuple[str, ...] = ()
    written: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    refused: tuple[Reason, ...] = ()
    left: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def to(self) -> Release:
        """The release that it is converted for."""
        return RELEASES[self.release_to]

    @property
    def is_nothing_to_do(self) -> bool:
        """Whether it stays as it is: it is converted already, or refused, or cannot be saved."""
        if self.refused:
            return True
        return not self.moved and not self.written and all(store.is_nothing_to_do for store in self.stores)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it, and of its stores, each named."""
        return (*self.remarks, *(f"{store.store}: {note}" for store in self.stores for note in store.notes))

    @property
    def steps(self) -> tuple[str, ...]:
        """What is done to files beside the stores, in words."""
        gone = [name for name in self.moved if name not in self.written]
        return (
            *([f"{', '.join(gone)}: moved aside"] if gone else []),
            *([f"{', '.join(sorted(self.written))}: written"] if self.written else []),
        )

    @property
    def needed_bytes(self) -> int:
        """About how much room a converted copy takes on the disk, SST files that stay being links."""
        databases = sum(len(store.databases) for store in self.stores)
        return sum(store.rewritten_bytes for store in self.stores) + databases * _BYTES_BESIDE

    @property
    def databases(self) -> int:
        """How many databases are changed or made."""
        return sum(not one.is_nothing_to_do for store in self.stores for one in store.databases)


def of_store(store: str, why: Reason) -> Reason:
    """A reason that is about one store of a task, which it names."""
    return Reason(f"{store}: {why}", why.code, **{**why.context, "store": store})
