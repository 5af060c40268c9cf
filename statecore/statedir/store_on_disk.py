"""What the databases of one store say, and whether they are whole: the one reader of both.

Nothing is changed. Where a process has the store open, what it flushed last is read, and files that come and go are no
damage. What follows from it is for policies, which differ on purpose:

==========================  ==========================================================================================
policy                      who goes by it
==========================  ==========================================================================================
``smallest_offsets``        offset sums and standbys: below it no record is missing in any segment
``newest_offsets``          Kafka Streams: of the segments that have an offset the newest counts
``agreed_offsets``          whoever builds upon the store: all segments say the same, or there is none
``closed_cleanly``          Kafka Streams under exactly-once: it wipes the task otherwise
``trusted``                 this library: also what it wrote last itself, for it commits rows and offset at once
==========================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from statecore.errors import Corrupted, NotFound, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState, read_database_state, smallest_offsets
from statecore.statedir.manifest_check import ManifestCheck, check_manifest
from statecore.statedir.task_layout import StoreDirectory
from statecore.stores.rocksdb.db_paths import files_elsewhere
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.stores.rocksdb.errors import not_readable_here
from statecore.stores.rocksdb.manifest_guard import ManifestGuard
from statecore.stores.rocksdb.readonly_links import files_of

_NOTHING = DatabaseState((), {}, None)


@dataclass(frozen=True)
class DatabaseOnDisk:
    """One database.

    Attributes:
        path: its directory.
        state: its column families, offsets and status; empty where it does not open.
        written_here_last: whether this library wrote to it last.
        damage: why its rows are not all there, or cannot be read here; ``None`` where nothing says so.
        opens: whether RocksDB opens it, and so Kafka Streams: it does where a MANIFEST has lost its end.
        refused: whether it is its record, its log or its blob files that prove the damage.
        manifest: its MANIFEST checked, where that was asked for; ``None`` also where a process is at work in it, or
            where the MANIFEST is not understood.
    """

    path: Path
    state: DatabaseState
    written_here_last: bool = False
    damage: StatecoreError | None = None
    opens: bool = True
    refused: bool = False
    manifest: ManifestCheck | None = None

    @property
    def trusted(self) -> bool:
        """Whether rows and offset agree: it was closed cleanly, or this library wrote to it last."""
        return self.state.closed_cleanly or self.written_here_last

    def opened(self) -> DatabaseState:
        """What it says. Raises what :meth:`checked` does, but only where it does not open."""
        return self.state if self.opens else self.checked().state

    def checked(self) -> DatabaseOnDisk:
        """This database. Raises ``Corrupted`` where it is damaged, ``Invalid`` where its files lie elsewhere."""
        if self.damage is not None:
            raise self.damage
        return self


@dataclass(frozen=True)
class StoreOnDisk:
    """The databases of one store, segments in order of time.

    Attributes:
        databases: all that there are.
    """

    databases: tuple[DatabaseOnDisk, ...]

    @property
    def damage(self) -> StatecoreError | None:
        """What is wrong with the first database that is damaged."""
        return next((one.damage for one in self.databases if one.damage is not None), None)

    def checked(self) -> StoreOnDisk:
        """This store. Raises what :meth:`DatabaseOnDisk.checked` does."""
        for one in self.databases:
            one.checked()
        return self

    @cached_property
    def smallest_offsets(self) -> dict[TopicPartition, int]:
        """The smallest offset that a database says of each partition."""
        return smallest_offsets(one.state.offsets for one in self.databases)

    @property
    def newest_offsets(self) -> Mapping[TopicPartition, int]:
        """What the newest database says that has an offset."""
        return next((one.state.offsets for one in reversed(self.databases) if one.state.offsets), {})

    @property
    def agreed_offsets(self) -> Mapping[TopicPartition, int] | None:
        """What all databases say; ``None`` where they do not agree, or there is none."""
        said = [dict(one.state.offsets) for one in self.databases]
        return said[0] if said and all(one == said[0] for one in said) else None

    @property
    def closed_cleanly(self) -> bool:
        """Whether Kafka Streams takes all of them for closed cleanly."""
        return all(one.state.closed_cleanly for one in self.databases)

    @property
    def keeps_no_offset(self) -> bool:
        """Whether all were closed cleanly without an offset, as Kafka Streams leaves a store that it does not log."""
        return bool(self.databases) and all(one.state.keeps_no_offset for one in self.databases)


def read_store(place: StoreDirectory, *, manifests: bool = False) -> StoreOnDisk:
    """Read the databases of a store. Segments that expire meanwhile are passed over.

    Args:
        place: its directory.
        manifests: see :func:`read_database`.

    Raises:
        Fenced, Capacity, Invalid, Retryable: see :func:`read_database`.
    """
    found = []
    for path in place.databases:
        with suppress(NotFound):
            found.append(read_database(path, manifests=manifests))
    return StoreOnDisk(tuple(found))


def read_database(
    path: Path, read: Callable[[Path], DatabaseState] = read_database_state, *, manifests: bool = False
) -> DatabaseOnDisk:
    """Read one database.

    Args:
        path: its directory.
        read: opens it and reads its state, as :func:`read_database_state` does; for callers that keep it open.
        manifests: whether its MANIFEST is checked against OPTIONS and SST files (:mod:`.manifest_check`), too. One that
            must have lost its end is damage then.

    Raises:
        NotFound: it is gone, as expired segments go.
        Invalid: this user may not read it.
        Fenced: a writer has it open, and it cannot be read.
        Capacity, Retryable: the system did not give what it takes.
    """
    before, witness = files_of(path), ManifestGuard(path, path)
    state, opens = _NOTHING, True
    damage: StatecoreError | None = None
    try:
        witness.look(read_only=True)
    except Corrupted as error:
        damage = error if _is_quiet(path, before) else None
    refused = damage is not None
    try:
        state = read(path)
    except Corrupted as error:
        damage, opens = damage or error, False
        if why := files_elsewhere(path):
            damage, refused = not_readable_here(f"{path} cannot be opened: {why}", path), False
    checked = None
    if manifests and _is_quiet(path, before):
        checked = check_manifest(path, state if damage is None else None)
        if checked is not None and checked.lost_end:
            damage = _lost_end(path, checked.lost_end)
    return DatabaseOnDisk(path, state, witness.written_here_last, damage, opens, refused, checked)


def _is_quiet(path: Path, before: frozenset[tuple[str, int]]) -> bool:
    """Whether no process was at work in it; else its files change while they are looked at."""
    return writer_of(path) is None and files_of(path) == before


def _lost_end(path: Path, why: str) -> Corrupted:
    return Corrupted(
        f"The database at {path} has lost the end of its MANIFEST: {why}.",
        code="database-damaged",
        action="Rebuild the store from its changelog.",
        store_path=str(path),
    )
