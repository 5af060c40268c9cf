"""Plans of conversions and their steps: plain values that a job shows, freezes and executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.position import Position
from statecore.formats.releases import RELEASES, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import StoreDigest


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        text: the same for every task; rows are named before it, the offset after it.
        rows: number of rows; 0 if it is not about rows.
        offsets: resulting offsets; empty if it is not about offsets.
    """

    text: str
    rows: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def affected_databases(count: int, total: int, *, segmented: bool) -> str:
    """The affected databases of a store, in words that are the same for most of its tasks."""
    if not segmented:
        return "its database"
    if count == total:
        return "its segments" if total > 1 else "its segment"
    return f"{count} of its segments"


_BYTES_BESIDE = 64 << 10
"""Bytes of a database besides rows: MANIFEST, options, the family ``offsets``."""


@dataclass(frozen=True)
class RowMove:
    """A move of rows with headers to another column family, as rows of a kind without headers.

    Attributes:
        source: the family that has them; it is dropped.
        target: the family that gets them, over its own rows.
        rows: number of rows in ``source``.
        headers: number of them that lose headers.
        content: digest of the moved rows.
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
    """Plan for one database of a store: its only one, or a segment.

    Attributes:
        directory: relative to the task's.
        families: its column families afterwards.
        offsets: content of the family ``offsets`` afterwards; ``None`` without such a family.
        create: whether it is created, without rows.
        entries: encoded rows that are written to the family ``offsets``.
        moves: rows that change their family and format.
        drop: families that are dropped, after the rows were moved.
        rewrite: families whose SST files are rewritten in an older format.
        sst_format: the newest format version of its files afterwards.
        contents: digests of families with rewritten files; others keep their files.
        files: SST files of families that keep theirs, by family.
        rewritten_bytes: bytes of rewritten files.
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
    def is_empty(self) -> bool:
        return not (self.create or self.entries or self.moves or self.drop or self.rewrite)


@dataclass(frozen=True)
class StoreConversion:
    """Plan for one store of the task.

    Attributes:
        directory: relative to the task's: ``rocksdb/<store>``, or ``<store>`` if it has segments.
        kind: its kind afterwards, if that matters and can be detected; else ``None``.
        databases: its databases, segments in order of time.
        offsets: the store's offsets afterwards, inside or in a file beside it; empty if unknown, or not needed.
        steps: what is done; empty if it stays unchanged.
        refused: why it cannot be converted; ``None`` if it can.
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
    def is_empty(self) -> bool:
        return all(one.is_empty for one in self.databases)

    @property
    def rewritten_bytes(self) -> int:
        """Bytes of files that are rewritten because the release cannot read them."""
        return sum(one.rewritten_bytes for one in self.databases)


@dataclass(frozen=True)
class TaskConversion:
    """Plan for a task's directory, or for ``global/``.

    Attributes:
        seen: releases that may have written it: ``3.9 or 4.2``; several if it is mixed.
        moved: files beside the stores that are deleted or replaced.
        written: offset and position files that are written beside the stores, with their content.
        refused: why it is not converted; then nothing is done.
        left: what stays as it is, and why.
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
        return RELEASES[self.release_to]

    @property
    def is_empty(self) -> bool:
        """Whether it stays unchanged: it is already converted, or refused, or cannot be converted."""
        if self.refused:
            return True
        return not self.moved and not self.written and all(store.is_empty for store in self.stores)

    @property
    def notes(self) -> tuple[str, ...]:
        """Comments on the task and, by name, on its stores."""
        return (*self.remarks, *(f"{store.store}: {note}" for store in self.stores for note in store.notes))

    @property
    def steps(self) -> tuple[str, ...]:
        """Changes of files beside the stores, in words."""
        gone = [name for name in self.moved if name not in self.written]
        return (
            *([f"{', '.join(gone)}: moved aside"] if gone else []),
            *([f"{', '.join(sorted(self.written))}: written"] if self.written else []),
        )

    @property
    def needed_bytes(self) -> int:
        """Estimated disk space of a converted copy; SST files that stay are links."""
        databases = sum(len(store.databases) for store in self.stores)
        return sum(store.rewritten_bytes for store in self.stores) + databases * _BYTES_BESIDE

    @property
    def databases(self) -> int:
        """Number of databases that are changed or created."""
        return sum(not one.is_empty for store in self.stores for one in store.databases)


def with_store(store: str, why: Reason) -> Reason:
    """A reason with the name of its store."""
    return Reason(f"{store}: {why}", why.code, **{**why.context, "store": store})
