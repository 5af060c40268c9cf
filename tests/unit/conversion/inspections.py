"""Inspections of task directories built in memory, for decisions that need no disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statecore.conversion.inspection import DatabaseInspection, StoreInspection, TaskInspection
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState

APPLICATION = "app"


def at(store: str, partition: int = 0) -> TopicPartition:
    """A partition of the changelog of a store."""
    return TopicPartition(f"{APPLICATION}-{store}-changelog", partition)


def database(
    directory: str,
    offsets: Mapping[TopicPartition, int] | None = None,
    *,
    status: int | None = 0,
    filled: bool = True,
    data: str = "default",
    sst_format: int = 6,
    position: Mapping[str, Mapping[int, int]] | None = None,
    **more: Any,
) -> DatabaseInspection:
    """A database; ``offsets`` of ``None`` for one without the family."""
    families = {"default", data, *([] if offsets is None else ["offsets"])}
    state = DatabaseState(tuple(sorted(families)), offsets or {}, None if offsets is None else status)
    return DatabaseInspection(
        directory,
        state,
        {topic: dict(partitions) for topic, partitions in (position or {}).items()},
        frozenset({data} if filled else ()),
        {data: frozenset({sst_format})} if filled else {},
        {data: {"000007.sst": 1000}} if filled else {},
        **more,
    )


def plain(store: str, offsets: Mapping[TopicPartition, int] | None = None, **more: Any) -> StoreInspection:
    """A store of one database; ``seen_...`` are of the store, others of its database."""
    of_store = {name.removeprefix("seen_"): more.pop(name) for name in list(more) if name.startswith("seen_")}
    directory = f"rocksdb/{store}"
    made = {"changelog": at(store).topic, **of_store}
    return StoreInspection(store, directory, False, (database(directory, offsets, **more),), **made)


def segmented(store: str, segments: Iterable[Mapping[TopicPartition, int] | None] = (), **more: Any) -> StoreInspection:
    """A store with a segment for each of these offsets."""
    of_store = {name.removeprefix("seen_"): more.pop(name) for name in list(more) if name.startswith("seen_")}
    databases = tuple(
        database(f"{store}/{store}.{number}000", offsets, **more) for number, offsets in enumerate(segments, 1)
    )
    return StoreInspection(store, store, True, databases, **{"changelog": at(store).topic, **of_store})


def buffer(store: str, **more: Any) -> StoreInspection:
    """A grace buffer."""
    made = segmented(store, [None], seen_kind=StoreKind.GRACE_BUFFER)
    return StoreInspection(**{**vars(made), **more})


def task(
    *stores: StoreInspection, checkpoint: Mapping[TopicPartition, int] | None = None, name: str = "0_0", **more: Any
) -> TaskInspection:
    """A task's directory."""
    return TaskInspection(name, stores, checkpoint, **more)
