"""The offsets of all stores of one task in files beside them: adopted from older versions, written, left at the close.

``.checkpoint`` in a task directory (or ``global/``) names every persistent store with a changelog. Three rules:

- **Adopted once.** An offset is imported into a store only if the store has none (``committed_offset`` returns
  ``None``), and the store has rows: a fresh store beside an old file would otherwise count as restored. Likewise the
  position. Afterwards the file has every store's own offset. (In Kafka Streams the file wins over the store's own
  offset, and is deleted.)
- **Never ahead.** The file is written after the commits it describes, and lowered before one that sets a store back
  (:meth:`TaskOffsets.commit`). It counts for a store only while that store is closed; an open one is asked.
- **Left for the next reader.** Which files stay after a clean close depends on :class:`NextReader`.

Under exactly-once a store that keeps its offset in a file has none while it is open: after a crash its rows are not
trusted. A store with its offsets inside needs no such thing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from statecore.choices import enum_value
from statecore.errors import Invalid, NotFound
from statecore.filesystem import AnyPath, validated_path
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.offsets import OFFSET_UNKNOWN, checked_offsets
from statecore.formats.position import Position
from statecore.formats.releases import CHECKPOINT_FILE, RELEASES, OffsetFiles
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import find_wrapper
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.legacy_offsets import (
    adopt_position,
    read_offsets,
    read_position,
    remove_offsets,
    write_offsets,
    write_position,
)


class NextReader(StrEnum):
    """The next reader of the directory after a clean close, which decides the files that are left in it."""

    STATECORE = "statecore"
    """This library: ``.checkpoint`` stays, so that the offsets of closed stores can be read without opening them."""

    KAFKA_STREAMS_4_3 = "4.3"
    """Kafka Streams 4.3 and later: no ``.checkpoint``, because there it would win over the offsets in the stores."""

    KAFKA_STREAMS_4_2 = "4.2"
    """Kafka Streams 4.2 and older: ``.checkpoint`` and ``<store>.position``, no ``.checkpoint_<store>``; under
    exactly-once no ``.checkpoint`` while the stores are open. (The column families of such a directory have to be those
    of the older version too, which is the caller's business.)"""

    @property
    def files(self) -> OffsetFiles:
        """The files that it reads in the directory."""
        return _STATECORE_FILES if self is NextReader.STATECORE else RELEASES[self].files


_STATECORE_FILES = OffsetFiles(task=True, task_while_open=True, stores=True, positions=False)


@dataclass(frozen=True)
class TaskStore:
    """A store of a task.

    Attributes:
        name: its name.
        store: the store; one that does not manage its offsets wrapped in a ``LegacyCheckpointingStore``.
        changelogs: its changelog partition; of a global store all partitions of its topic; empty when not logged.

    Raises:
        Invalid: a changelog is not a partition.
    """

    name: str
    store: StateStore
    changelogs: tuple[TopicPartition, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changelogs", tuple(as_topic_partition(changelog) for changelog in self.changelogs))

    @property
    def has_offsets(self) -> bool:
        """Whether the store has offsets to record: it is logged and persistent."""
        return bool(self.changelogs) and self.store.persistent


@dataclass(frozen=True)
class AdoptedOffsets:
    """What was adopted from the files of a task when its stores were opened.

    Attributes:
        offsets: the offsets that were imported, by store.
        positions: the stores whose position was imported.
        without_rows: stores without rows, for which the file's offset did not count; they are restored in full.
        unknown: stores that have no offset after this, neither their own nor the file's.
    """

    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    positions: tuple[str, ...] = ()
    without_rows: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class TaskOffsets:
    """The stores of one task (or all global stores) and the files with their offsets.

    Args:
        directory: the task directory, or ``global/``.
        stores: all stores of the task.
        exactly_once: whether rows that may be ahead of their offset are refused: a store that keeps its offset in a
            file has none after a crash. It means the same for ``RocksDBStore``.
        is_global: whether these are global stores: their file never has -4, which older versions cannot read there.
        next_reader: the next reader of the directory after a clean close.

    Raises:
        Invalid: a persistent store with a changelog keeps its offset nowhere, or two stores have one name.
    """

    def __init__(
        self,
        directory: AnyPath,
        stores: Sequence[TaskStore],
        *,
        exactly_once: bool,
        is_global: bool = False,
        next_reader: NextReader = NextReader.STATECORE,
    ) -> None:
        names = [one.name for one in stores]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise Invalid(
                f"Two stores of {directory} have the name {', '.join(twice)}.",
                code="store-duplicated",
                action="Give each store of a task a name of its own.",
                stores=twice,
            )
        for one in stores:
            if one.has_offsets and not one.store.manages_offsets:
                raise Invalid(
                    f"The store {one.name} of {directory} does not manage its offsets.",
                    code="offsets-not-managed",
                    action="Wrap it in a LegacyCheckpointingStore.",
                    store=one.name,
                )
        self.directory = validated_path(directory)
        self.stores = tuple(stores)
        self.next_reader = enum_value(NextReader, next_reader, "next_reader")
        self._files = self.next_reader.files
        self._exactly_once = exactly_once
        self._is_global = is_global
        self._file = self.directory / CHECKPOINT_FILE
        self._written: dict[TopicPartition, int] = {}

    def open(self, *, ignore_foreign: bool = False) -> AdoptedOffsets:
        """Open every store and adopt offsets and positions that only the files have.

        Every file is read and validated before a store is opened. A failure leaves the files unchanged and the stores
        closed; what had been imported until then is not imported again.

        Args:
            ignore_foreign: leave out entries of ``.checkpoint`` that no store has, as Kafka Streams does, instead of
                refusing the file; they are lost.

        Raises:
            Corrupted: a file is malformed, or a store cannot be read.
            Invalid: ``.checkpoint`` names a changelog partition that no store has.
            Fenced: another process has a store open.
        """
        in_file = read_offsets(self._file)
        positions = {one.name: read_position(self.directory, one.name) for one in self.stores if one.store.persistent}
        for one in self.stores:
            if _as_in_file(one):  # read again when the store opens it
                read_offsets(self.directory / store_checkpoint_file(one.name))
        known = {partition for one in self.stores for partition in one.changelogs}
        foreign = sorted(str(partition) for partition in in_file.keys() - known)
        if foreign and not ignore_foreign:
            raise Invalid(
                f"{self._file} has offsets of partitions that no store of the task has: {', '.join(foreign)}.",
                code="offsets-of-unknown-partitions",
                action="Name all stores of the task, or say that these offsets may be lost.",
                file=str(self._file),
                foreign=foreign,
            )
        opened: list[StateStore] = []
        try:
            for one in self.stores:
                if not one.store.is_open:
                    one.store.open()
                    opened.append(one.store)
            adopted = self._adopt_offsets(in_file, positions)
            self._replace_adopted_file()
        except BaseException:
            for store in opened:
                store.close()
            raise
        return adopted

    def known_offsets(self) -> dict[TopicPartition, int]:
        """The known offset of every changelog partition: from open stores, and from the files of closed ones.

        Raises:
            Corrupted: a file of a closed store is malformed.
        """
        in_file = {} if all(one.store.is_open for one in self.stores) else read_offsets(self._file)
        offsets: dict[TopicPartition, int] = {}
        for one in self.stores:
            if not one.has_offsets:
                continue
            if one.store.is_open:
                offsets |= _committed(one)
            else:
                own = read_offsets(self.directory / store_checkpoint_file(one.name))
                both = {**in_file, **own}
                offsets |= {partition: both[partition] for partition in one.changelogs if partition in both}
        return offsets

    def commit(self, offsets: Mapping[str, Mapping[TopicPartition, int | None]]) -> None:
        """Commit stores, one after the other; when one is set back, ``.checkpoint`` is lowered first.

        Args:
            offsets: by store what :meth:`StateStore.commit` takes.

        Raises:
            NotFound: there is no such store; nothing was committed.
            Invalid: an offset does not fit into a file, or is of a partition that is not the store's changelog: it
                would be lost when the store is opened. Nothing was committed.
            StatecoreError: see :meth:`StateStore.commit`; stores before the one that failed are committed.
        """
        by_name = self._named(offsets)
        checked = {name: checked_offsets(of) for name, of in offsets.items()}
        for name, of in checked.items():
            if foreign := sorted(str(at) for at in of.keys() - set(by_name[name].changelogs)):
                raise Invalid(
                    f"{', '.join(foreign)} is not a changelog partition of the store {name} of {self.directory}.",
                    code="offsets-of-unknown-partitions",
                    action="Name it among the store's changelogs, or correct it; nothing was committed.",
                    store=name,
                    foreign=foreign,
                )
        self._lower({partition: offset for of in checked.values() for partition, offset in of.items()})
        for name, of in checked.items():
            by_name[name].store.commit(of)

    def forget_offsets(self, store: str) -> None:
        """Commit a store, and forget its offsets and position; ``.checkpoint`` is lowered first.

        Raises:
            NotFound: there is no such store.
            StatecoreError: see :meth:`StateStore.forget_offsets`.
        """
        one = self._named((store,))[store]
        self._lower(dict.fromkeys(one.changelogs))
        one.store.forget_offsets()

    def _named(self, names: Collection[str]) -> dict[str, TaskStore]:
        by_name = {one.name: one for one in self.stores}
        if missing := sorted(set(names) - by_name.keys()):
            raise NotFound(
                f"{self.directory} has no store {', '.join(missing)}.",
                code="store-not-found",
                action="Check the names of the stores; nothing was changed.",
                stores=missing,
            )
        return by_name

    def _lower(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Lower offsets in the file that are ahead of the coming commit."""
        sound = dict(self._written)
        for partition, offset in offsets.items():
            if partition in sound:
                sound[partition] = min(sound[partition], OFFSET_UNKNOWN if offset is None else offset)
        if sound != self._written:
            self._replace(sound)

    def must_be_lowered(self) -> bool:
        """Whether ``.checkpoint`` is ahead of a store that was committed without :meth:`commit`; that must not wait."""
        if not self._written:
            return False
        offsets = self.known_offsets()
        return any(offsets.get(partition, offset - 1) < offset for partition, offset in self._written.items())

    def checkpoint(self) -> None:
        """Write the files of the open stores, each after the flush of what it describes.

        Under exactly-once the files of stores that keep their offset there, and files meant for Kafka Streams 4.2, wait
        for the clean close.

        Raises:
            Invalid: a file cannot be written.
            Capacity: the disk is full.
        """
        for one in self.stores:
            if not one.has_offsets or not one.store.is_open:
                continue
            legacy = find_wrapper(one.store, LegacyCheckpointingStore)
            if legacy is not None:
                legacy.checkpoint()
            else:
                one.store.flush()
        if self._keeps_file_while_open:
            self._write(self.known_offsets(), self._trusted_after_crash())

    def close(self) -> None:
        """Close every store and leave the files for the next reader; nothing when all are closed.

        A store that fails to close is in none of them, so that it counts as one without an offset.

        Raises:
            StatecoreError: a store could not be closed; the others were, and their files are written.
        """
        if not any(one.store.is_open for one in self.stores):
            return
        offsets = self.known_offsets()
        positions = {
            one.name: _committed_position(one.store)
            for one in self.stores
            if one.store.persistent and one.store.is_open
        }
        if not self._files.task:
            remove_offsets(self._file)  # before a store counts as closed: its offset would win over the store's
        failures: list[Exception] = []
        closed: list[TaskStore] = []
        for one in self.stores:
            try:
                one.store.close()
            except Exception as error:
                failures.append(error)
            else:
                closed.append(one)
        if self._files.task:
            self._write(offsets, closed)
        for one in closed:
            if one.store.persistent and self._files.positions:
                write_position(self.directory, one.name, positions.get(one.name, {}))
            if one.store.persistent and not self._files.stores:
                remove_offsets(self.directory / store_checkpoint_file(one.name))
        if failures:
            raise failures[0]

    def _replace_adopted_file(self) -> None:
        """Replace an adopted file by the stores' offsets, unless a release would prefer it to newer ones inside."""
        offsets = self.known_offsets()
        if not self._files.task or not self._keeps_file_while_open or not offsets:
            remove_offsets(self._file)
            self._written = {}
        else:
            self._write(offsets, self._trusted_after_crash())

    @property
    def _keeps_file_while_open(self) -> bool:
        return self._files.task_while_open or not self._exactly_once

    def _trusted_after_crash(self) -> list[TaskStore]:
        """The stores whose offset in ``.checkpoint`` is valid after a crash."""
        return [one for one in self.stores if not (self._exactly_once and _as_in_file(one))]

    def _adopt_offsets(
        self, in_file: Mapping[TopicPartition, int], positions: Mapping[str, Position]
    ) -> AdoptedOffsets:
        imported: dict[str, dict[TopicPartition, int]] = {}
        with_position: list[str] = []
        without_rows: list[str] = []
        unknown: list[str] = []
        for one in self.stores:
            if not one.has_offsets:
                continue
            own = _committed(one)
            wanted = {
                partition: in_file[partition]
                for partition in one.changelogs
                if partition not in own and in_file.get(partition, OFFSET_UNKNOWN) != OFFSET_UNKNOWN
            }
            if wanted and not _has_rows(one.store):
                without_rows.append(one.name)
                wanted = {}
            position = positions[one.name]
            adopts = bool(position) and not one.store.position and bool(own or wanted)
            if adopts:
                adopt_position(one.store, position)
                with_position.append(one.name)
            if wanted or adopts:
                one.store.commit({**own, **wanted})
            if wanted:
                one.store.flush()  # before the file has it too
                imported[one.name] = wanted
            if not own and not wanted:
                unknown.append(one.name)
        for one in self.stores:  # once imported, or no longer needed
            if one.name in positions and not _as_in_file(one):
                remove_offsets(self.directory / position_file(one.name))
        return AdoptedOffsets(imported, tuple(with_position), tuple(without_rows), tuple(unknown))

    def _write(self, offsets: Mapping[TopicPartition, int], stores: Sequence[TaskStore]) -> None:
        written: dict[TopicPartition, int] = {}
        for one in stores:
            for partition in one.changelogs if one.has_offsets else ():
                written[partition] = offsets.get(partition, OFFSET_UNKNOWN)
        self._replace(written)

    def _replace(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._is_global:
            offsets = {at: offset for at, offset in offsets.items() if offset != OFFSET_UNKNOWN}
        write_offsets(self._file, offsets)
        self._written = dict(offsets)


def _committed(one: TaskStore) -> dict[TopicPartition, int]:
    committed = ((partition, one.store.committed_offset(partition)) for partition in one.changelogs)
    return {partition: offset for partition, offset in committed if offset is not None}


def _committed_position(store: StateStore) -> Position:
    with store.query_view() as view:
        return view.position


def _as_in_file(one: TaskStore) -> bool:
    return find_wrapper(one.store, LegacyCheckpointingStore) is not None


def _has_rows(store: StateStore) -> bool:
    rows = store.all()
    try:
        return next(rows, None) is not None
    finally:
        close = getattr(rows, "close", None)  # a generator holds an iterator of the database until it is closed
        if close is not None:
            close()
