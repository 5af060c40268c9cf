"""Opens a task's directory with everything in it: stores, older offsets, and the checkpointer.

::

    stores = {"counts": LoggedStore(StoreKind.KEY_VALUE, (changelog,))}
    with open_task_directory(state_dir / "my-app" / "0_0", stores, exactly_once=True) as task:
        counts = task.stores["counts"]
        for last_offset in process(counts):
            task.commit({"counts": {changelog: last_offset}})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from statecore.errors import Invalid
from statecore.filesystem import DIRECTORY_MODE, AnyPath, validated_path
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import PLAIN_PARENT
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import NO_METRICS, Metrics
from statecore.statedir.task_layout import stores_in
from statecore.stores.base import StateStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings
from statecore.tasks.checkpoint_policy import CheckpointSettings, TaskCheckpointer
from statecore.tasks.task_offsets import AdoptedOffsets, NextReader, TaskOffsets, TaskStore


@dataclass(frozen=True)
class LoggedStore:
    """A store of a task, as its processor declares it.

    Attributes:
        kind: its kind; it is kept in ``rocksdb/<store>``.
        changelogs: its changelog partition; of a global store all partitions of its topic; empty when not logged.
        store: a store of your own in place of RocksDB's, closed; one that keeps no offsets is wrapped.
    """

    kind: StoreKind
    changelogs: tuple[TopicPartition, ...] = ()
    store: StateStore | None = None


class TaskDirectory:
    """An open task directory; close it, or use it in a ``with`` block.

    Attributes:
        stores: the open stores by name.
        adopted: offsets adopted from files of an older version.
        checkpointer: commits the stores and writes task checkpoints.
    """

    def __init__(
        self, stores: Mapping[str, StateStore], adopted: AdoptedOffsets, checkpointer: TaskCheckpointer
    ) -> None:
        self.stores = MappingProxyType(dict(stores))
        self.adopted = adopted
        self.checkpointer = checkpointer

    def commit(self, offsets: Mapping[str, Mapping[TopicPartition, int | None]]) -> bool:
        """Commit stores, and write a task checkpoint when it is due; see :meth:`TaskCheckpointer.commit`."""
        return self.checkpointer.commit(offsets)

    def close(self) -> None:
        """Close all stores and write the final files; idempotent."""
        self.checkpointer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_task_directory(
    directory: AnyPath,
    stores: Mapping[str, LoggedStore],
    *,
    exactly_once: bool,
    settings: StoreSettings | None = None,
    checkpoints: CheckpointSettings | None = None,
    next_reader: NextReader = NextReader.STATECORE,
    is_global: bool = False,
    ignore_foreign: bool = False,
    metrics: Metrics = NO_METRICS,
) -> TaskDirectory:
    """Open every store of a task, created where it is missing, and adopt the offsets of older versions.

    Databases of Kafka Streams 4.2 and older get the column family ``offsets``, and cannot be opened by those any more.

    Args:
        directory: the task directory (``<state.dir>/<application.id>/0_1``), or ``global/``; created if it is missing.
        stores: all stores of the task by name.
        exactly_once: whether a store whose rows may be ahead of its offset is refused; see :class:`RocksDBStore`.
        settings: of every RocksDB store.
        checkpoints: how often offsets are written beside the stores.
        next_reader: the next reader of the directory after a clean close.
        is_global: whether these are global stores.
        ignore_foreign: leave undeclared stores in the directory, and undeclared entries of ``.checkpoint``, alone; the
            entries are lost.
        metrics: gets the checkpoints.

    Raises:
        Invalid: the directory has an undeclared store or offset, or a kind is kept in segments, one database each; it
            is not a directory, or this user has no right to it. Nothing was changed.
        Fenced, Corrupted, Capacity: see :meth:`TaskOffsets.open`; the stores are closed.
    """
    directory = validated_path(directory)
    undeclared = [found.name for found in stores_in(directory) if found.databases and found.store not in stores]
    if undeclared and not ignore_foreign:
        raise Invalid(
            f"{directory} has stores that were not declared: {', '.join(undeclared)}.",
            code="store-undeclared",
            action="Name all stores of the task, or leave the others alone (ignore_foreign).",
            stores=undeclared,
        )
    listed = [
        TaskStore(name, _store(directory, name, one, exactly_once, settings), one.changelogs)
        for name, one in stores.items()
    ]
    offsets = TaskOffsets(directory, listed, exactly_once=exactly_once, is_global=is_global, next_reader=next_reader)
    _make(directory)
    checkpointer = TaskCheckpointer(offsets, checkpoints, metrics=metrics)
    adopted = checkpointer.open(ignore_foreign=ignore_foreign)
    return TaskDirectory({one.name: one.store for one in listed}, adopted, checkpointer)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise Invalid(
            f"{directory} is not a directory.",
            code="task-directory-invalid",
            action="Name a directory; nothing was changed.",
            path=str(directory),
        ) from error
    except OSError as error:
        raise translate(directory, "Making", error) from error


def _store(
    directory: Path, name: str, one: LoggedStore, exactly_once: bool, settings: StoreSettings | None
) -> StateStore:
    store = one.store
    if store is None:
        if one.kind.is_segmented:
            raise Invalid(
                f"The store {name} is a {one.kind.value} store, which has a database for each segment.",
                code="kind-unsupported",
                action="Open the segments one by one as RocksDBStore, or give a store of your own.",
                store=name,
                kind=one.kind.value,
            )
        path = directory / PLAIN_PARENT / name
        store = RocksDBStore(
            path, one.kind, create_if_missing=True, exactly_once=exactly_once, upgrade=True, settings=settings
        )
    if one.changelogs and store.persistent and not store.manages_offsets:
        return LegacyCheckpointingStore(store, directory, name, one.changelogs, exactly_once=exactly_once)
    return store
