"""Reads the databases of one store and decides whether they are intact; nothing else decides that.

A directory whose rows have no database, because its ``CURRENT`` is gone, is not read here:
:func:`statecore.statedir.task_layout.why_partially_deleted` finds it.

Nothing is changed. If a process has the store open, its last flushed state is read, and files that come and go are no
damage. Callers who know that a database is whole, because they have just written or checked it, read its state alone
(`database_state.py`). Callers choose a policy:

==========================  ==========================================================================================
policy                      used by
==========================  ==========================================================================================
``smallest_offsets``        offset sums and repairs: below it no record is missing in any segment
``agreed_offsets``          offset sums: ``None`` tells that segments differ
``trusted`` (a database)    this library: also databases it wrote last, because it commits rows and offset at once
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
from statecore.statedir.task_layout import StoreDirectory, stores_in
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.stores.rocksdb.errors import not_readable_here
from statecore.stores.rocksdb.files import files_elsewhere
from statecore.stores.rocksdb.manifest_guard import ManifestGuard
from statecore.stores.rocksdb.readonly_links import files_of

_NOTHING = DatabaseState((), {}, None)


@dataclass(frozen=True)
class DatabaseOnDisk:
    """State and damage of one database.

    Attributes:
        state: its column families, offsets and status; empty if it does not open.
        written_here_last: whether this library wrote to it last.
        damage: why rows are missing, or why it cannot be read here; ``None`` without indication.
        opens: whether RocksDB, and so Kafka Streams, opens it; a MANIFEST that lost its end does not prevent that.
        refused: whether its guard record, its log or its blob files prove the damage.
        manifest: result of the MANIFEST check, if requested; ``None`` also if a process is writing to it, or the
            MANIFEST is not understood.
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
        """Its state. Raises :attr:`damage` only if it does not open."""
        return self.state if self.opens else self.checked().state

    def checked(self) -> DatabaseOnDisk:
        """This database. Raises ``Corrupted`` if it is damaged, ``Invalid`` if its files are in other directories."""
        if self.damage is not None:
            raise self.damage
        return self


@dataclass(frozen=True)
class StoreOnDisk:
    """The databases of one store, segments in order of time."""

    databases: tuple[DatabaseOnDisk, ...]

    @property
    def damage(self) -> StatecoreError | None:
        """The damage of the first damaged database."""
        return next((one.damage for one in self.databases if one.damage is not None), None)

    def checked(self) -> StoreOnDisk:
        """This store. Raises what :meth:`DatabaseOnDisk.checked` raises."""
        for one in self.databases:
            one.checked()
        return self

    @cached_property
    def smallest_offsets(self) -> dict[TopicPartition, int]:
        return smallest_offsets(one.state.offsets for one in self.databases)

    @property
    def agreed_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The offsets that all databases share; ``None`` if they differ, or there is no database."""
        offsets = [dict(one.state.offsets) for one in self.databases]
        return offsets[0] if offsets and all(one == offsets[0] for one in offsets) else None

    @property
    def keeps_no_offset(self) -> bool:
        """Whether all were closed cleanly without an offset, as Kafka Streams leaves a store without changelog."""
        return bool(self.databases) and all(one.state.keeps_no_offset for one in self.databases)


def read_store(place: StoreDirectory, *, manifests: bool = False) -> StoreOnDisk:
    """Read the databases of a store; expired segments are skipped. Raises what :func:`read_database` does."""
    found = []
    for path in place.databases:
        with suppress(NotFound):
            found.append(read_database(path, manifests=manifests))
    return StoreOnDisk(tuple(found))


def read_database(
    path: Path, read: Callable[[Path], DatabaseState] = read_database_state, *, manifests: bool = False
) -> DatabaseOnDisk:
    before, guard = files_of(path), ManifestGuard(path, path)
    state, opens = _NOTHING, True
    damage: StatecoreError | None = None
    try:
        guard.check(read_only=True)
    except Corrupted as error:
        damage = error if _is_quiet(path, before) else None
    refused = damage is not None
    try:
        state = read(path)
        _ = state.position  # Kafka Streams decodes it at every start
    except Corrupted as error:
        damage, opens = damage or error, False
        if why := files_elsewhere(path):
            damage, refused = not_readable_here(f"{path} cannot be opened: {why}", path), False
    checked = None
    if manifests and _is_quiet(path, before):
        known = state if damage is None else None
        checked = check_manifest(path, known, written_here_last=guard.written_here_last)
        if checked is not None and checked.lost_end:
            damage = _lost_end(path, checked.lost_end)
        elif checked is not None and checked.foreign_log and damage is None:
            damage = _foreign_log(path, checked.foreign_log)
    return DatabaseOnDisk(path, state, guard.written_here_last, damage, opens, refused, checked)


def untrusted_in(task_directory: Path) -> Path | None:
    """The first database of a task that is not :attr:`~DatabaseOnDisk.trusted`; raises what ``checked`` raises."""
    for store in stores_in(task_directory):
        for database in store.databases:
            if not read_database(database, manifests=True).checked().trusted:
                return database
    return None


def _is_quiet(path: Path, before: frozenset[tuple[str, int]]) -> bool:
    """Whether no process wrote to it meanwhile; else its files change during the checks."""
    return writer_of(path) is None and files_of(path) == before


def _lost_end(path: Path, why: str) -> Corrupted:
    return Corrupted(
        f"The database at {path} has lost the end of its MANIFEST: {why}.",
        code="database-damaged",
        action="Rebuild the store from its changelog; without one, put a copy of its directory back.",
        store_path=str(path),
    )


def _foreign_log(path: Path, why: str) -> Corrupted:
    return Corrupted(
        f"The database at {path} has the log of another one, which RocksDB would replay: {why}.",
        code="database-damaged",
        action="Move the log away if nothing but Kafka Streams wrote to the database, which writes none; else rebuild "
        "the store from its changelog.",
        store_path=str(path),
    )
