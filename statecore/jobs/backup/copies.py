"""Copies databases for a backup: each consistent, closed, and with an offset that is right for its rows.

Files are hard-linked into a scratch directory of the application; the task directories are not changed. A copy is
written to if the original cannot be published unchanged: its status is open, or the segments of a store have different
offsets. That adds small files to the linked ones, which stay unchanged.

**Which offset is right.** On disk a database is as of its last flush, rows and offset together. After a kill, or while
the application runs, the segments of a store were flushed at different times. Under at-least-once rows may be ahead of
their offset, never behind, and reapplying records changes nothing. So the smallest offset of all segments is right for
each of them. (Kafka Streams itself uses that of the newest segment, and loses what the others lack.) Under exactly-once
rows ahead of their offset may belong to an aborted transaction: such a store is refused, unless it is transactional.

**Transactional stores** (``enable.transactional.statestores``, Kafka Streams 4.4) write rows, offset and position of a
commit in one batch, after the transaction was committed. So on disk a database is as of one of its commits, and a
running exactly-once application may be copied. Restoring bypasses that: rows may be ahead of their offset, but they are
of committed records, as are those of segments that were flushed later than others. Such a store writes no status: if
all its databases have none, it is transactional, whatever the spec declares. An open status was written without
transactional stores, and is refused. A closed one may be from that time too; if the application has the store open and
has flushed it, it is transactional all the same.

**A segment without a flush** has no offset to be counted. Its rows are newer than its creation, so an offset that was
flushed before the creation is right for it too; if there is none, the store is refused.

**Versioned stores** cannot apply records again, so they are refused if rows may be ahead of their offset. A
transactional one has no status that shows this: it is accepted if its changelog has no tail
(:mod:`statecore.jobs.backup.changelog_check`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from statecore.errors import Corrupted, Invalid, NotFound, Reason, Retryable, StatecoreError
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_CLOSED
from statecore.formats.releases import CURRENT, OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition, offsets_in_words
from statecore.images.model import segment_order
from statecore.jobs.backup.stores import Refuse, SelectedStore, StoreKey
from statecore.spec.model import ApplicationSpec, segment_interval_of, segmentation_of
from statecore.statedir.database_state import read_database_state, smallest_offsets
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.task_layout import why_partially_deleted
from statecore.stores.rocksdb.checkpoint import DatabaseCheckpoint, take_checkpoint
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES

_ROUNDS = 5
_WRITTEN = replace(KEEP_FILES, guards_manifest=False)


@dataclass(frozen=True)
class StoreCopy:
    """A store to publish.

    Attributes:
        databases: its closed, private databases by segment; ``None`` as key if it has no segments.
        linked: names of the SST and blob files of the originals, by segment.
        may_be_ahead: whether its rows may be ahead of its offsets, and records must not be applied again.
    """

    selected: SelectedStore
    databases: Mapping[int | None, Path]
    offsets: Mapping[TopicPartition, int]
    written: bool = False
    linked: Mapping[int | None, frozenset[str]] = field(default_factory=dict)
    may_be_ahead: bool = False

    @property
    def key(self) -> StoreKey:
        return self.selected.key

    @property
    def restored_by_kafka_streams(self) -> bool:
        """Whether it is empty, so that Kafka Streams restores it from the start."""
        return not self.databases


class Copier:
    """Copies the stores of one application."""

    def __init__(
        self, where: Path, spec: ApplicationSpec, *, running: bool, refuse: Refuse, note: Callable[[str], None]
    ) -> None:
        self.where, self.running = where, running
        self.exactly_once = spec.processing_guarantee.is_exactly_once
        self.transactional = spec.transactional_state_stores
        self.refuse, self.note = refuse, note

    def copy(self, store: SelectedStore) -> StoreCopy | None:
        """Copy a store; ``None`` if it was refused."""
        try:
            return self._copy(store)
        except Invalid as error:
            self.refuse(Reason(f"{store.name}: {error}", error.code, task=store.task, store=store.spec.name))
            return None

    def _copy(self, store: SelectedStore) -> StoreCopy | None:
        if not self.running:
            _refuse_half_deleted(store)
        is_held = self.running and any(writer_of(database) for database in store.directory.databases)
        checkpoints = self._checkpoints(store)
        if not checkpoints and store.spec.kind.is_segmented and store.changelog is not None:
            self.note(
                f"{store.name} has no segment, and so no offset: Kafka Streams restores it from the start of its "
                "changelog, as it would in this directory."
            )
            return StoreCopy(store, {}, {store.changelog: OFFSET_UNKNOWN})
        empty = {segment: checkpoint for segment, checkpoint in checkpoints.items() if checkpoint.is_empty}
        full = {segment: checkpoint for segment, checkpoint in checkpoints.items() if segment not in empty}
        if not full:
            _refuse_half_deleted(store)
            raise _unfit(
                "store-not-flushed",
                "nothing of it has been flushed to disk",
                "That happens when the application is closed" + (", or flushes it." if self.running else "."),
            )
        states = {segment: self._read_state(checkpoint, store) for segment, checkpoint in full.items()}
        is_open = any(status not in (None, STATUS_CLOSED) for status, _ in states.values())
        offsets = self._offsets(store, {segment: recorded for segment, (_, recorded) in states.items()})
        self._check(store, is_open)
        transactional = self.transactional or all(status is None for status, _ in states.values())
        # Without transactions an open store has status open as soon as anything is flushed.
        transactional |= is_held and not is_open and any(_is_flushed(checkpoint) for checkpoint in full.values())
        if len({tuple(sorted(recorded.items())) for _, recorded in states.values()}) > 1:
            self._note_lowered(store, states, offsets, transactional)
        self._check_empty(empty, full, offsets)
        written = {
            segment
            for segment, (status, recorded) in states.items()
            if status not in (None, STATUS_CLOSED) or recorded != offsets
        }
        for segment in written:
            with _of_source(full[segment]):
                _write(full[segment].path, store, states[segment][1], offsets)
        if is_open:
            at = offsets_in_words(offsets)
            self.note(f"{store.name} was not closed: it is copied as of its last flush, at {at}.")
        return StoreCopy(
            store,
            {segment: checkpoint.path for segment, checkpoint in full.items()},
            offsets,
            bool(written),
            {segment: frozenset(file.name for file in checkpoint.data_files) for segment, checkpoint in full.items()},
            may_be_ahead=transactional and store.spec.kind.is_versioned,
        )

    def _checkpoints(self, store: SelectedStore) -> dict[int | None, DatabaseCheckpoint]:
        """RocksDB checkpoints of a store's databases, including those created while others were copied."""
        found: dict[int | None, DatabaseCheckpoint] = {}
        for _ in range(_ROUNDS):
            there = self._databases(store)
            found = {segment: checkpoint for segment, checkpoint in found.items() if segment in there}
            new = {segment: path for segment, path in there.items() if segment not in found}
            if not new:
                return dict(sorted(found.items(), key=lambda item: segment_order(item[0])))
            for segment, path in sorted(new.items(), key=lambda item: segment_order(item[0])):
                target = self.where / store.task / store.spec.name / ("" if segment is None else str(segment))
                shutil.rmtree(target, ignore_errors=True)
                try:
                    if not self.running:
                        _refuse_damaged(store, path)
                    found[segment] = take_checkpoint(path, target)
                except NotFound:
                    if not self.running or segment is None:
                        raise
        raise Retryable(
            f"New segments of {store.name} are created faster than they can be copied.",
            code="segments-changing",
            action="Run this again, or close the application.",
            task=store.task,
            store=store.spec.name,
        )

    def _databases(self, store: SelectedStore) -> dict[int | None, Path]:
        interval = segment_interval_of(store.spec)
        if not store.spec.kind.is_segmented:
            return dict.fromkeys((None,), store.directory.path) if store.directory.databases else {}
        if interval is None:
            raise _unfit("segment-interval-unknown", "its segment interval is unknown", "Declare its retention.")
        found: dict[int | None, Path] = {}
        for segment in store.directory.segments:
            if segment.start is None or segment.start % interval:
                raise _unfit(
                    "segment-interval-mismatch",
                    f"{segment.path} is no segment of an interval of {interval // 1000} s",
                    "Correct retention or segment_interval in the spec, or move the directory away.",
                )
            found[segment.start // interval] = segment.path
        return found

    def _read_state(
        self, checkpoint: DatabaseCheckpoint, store: SelectedStore
    ) -> tuple[int | None, dict[TopicPartition, int]]:
        """Status and offsets of a database; checks its kind and row format."""
        with (
            _of_source(checkpoint),
            RocksDBStore(checkpoint.path, store.spec.kind, read_only=True, settings=KEEP_FILES) as opened,
        ):
            status, recorded = opened.status, opened.committed_offsets()
        if recorded:
            return status, recorded
        if OFFSETS_COLUMN_FAMILY not in read_database_state(checkpoint.path).column_families:
            raise _unfit(
                "database-of-older-release",
                f"{checkpoint.source} was written by an older release of Kafka Streams",
                f"Start the application on {CURRENT.name} once, and close it.",
            )
        raise _unfit(
            "offset-missing",
            f"{checkpoint.source} has no offset",
            "Close the application, or try again later: the next flush writes one."
            if self.running
            else "Start the application and close it, or declare 'changelog: none' if it does not log the store.",
        )

    def _offsets(
        self, store: SelectedStore, recorded: Mapping[int | None, Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        partitions = {partition for offsets in recorded.values() for partition in offsets}
        wrong = sorted(
            str(partition)
            for partition in partitions
            if (partition.topic != store.spec.changelog if store.changelog is None else partition != store.changelog)
        )
        if wrong:
            raise _unfit(
                "changelog-mismatch",
                f"it has an offset of {', '.join(wrong)}, and the spec declares its "
                f"{'topic' if store.changelog is None else 'changelog'} as {store.changelog or store.spec.changelog}",
                "Correct the spec.",
            )
        if any(partitions != offsets.keys() for offsets in recorded.values()):
            raise _unfit("segment-offsets-differ", "its segments have offsets of different partitions", _RECOVER)
        offsets = dict(sorted(smallest_offsets(recorded.values()).items()))
        if store.changelog is None and min(offsets.values()) < 0:
            raise _unfit(
                "global-offset-unknown",
                f"it has {offsets_in_words(offsets)}, with which Kafka Streams fails at every start",
                _RECOVER,
            )
        return offsets

    def _check(self, store: SelectedStore, is_open: bool) -> None:
        if is_open and self.exactly_once:
            if self.transactional:
                raise _unfit(
                    "transactional-store-open",
                    "its status is open, which transactional stores do not write: it was opened as another kind, and "
                    "its rows may be of a transaction that was not committed",
                    "Close the application, and correct transactional_state_stores in the spec: it runs without them."
                    if self.running
                    else _RESTORE,
                )
            if self.running:
                raise _unfit(
                    "uncommitted-rows",
                    "the application has flushed it since opening it, and the flushed rows may be of a transaction "
                    "that is not committed",
                    "Close the application: it is exactly-once, and its stores are not transactional.",
                )
            raise _unfit(
                "not-closed-cleanly",
                "it was not closed cleanly, and under exactly-once its rows may be of an aborted transaction",
                "Start the application, which restores it, and close it; or restore it (statecore restore --replace).",
            )
        if is_open and store.spec.kind.is_versioned:
            raise _unfit(
                "versioned-store-open",
                "it is versioned and was not closed, so its rows may be ahead of its offset, and versions must not be "
                "applied again",
                "Close the application; or name other stores (--store).",
            )

    def _note_lowered(
        self,
        store: SelectedStore,
        states: Mapping[int | None, tuple[int | None, Mapping[TopicPartition, int]]],
        offsets: Mapping[TopicPartition, int],
        transactional: bool,
    ) -> None:
        greatest = {partition: max(recorded[partition] for _, recorded in states.values()) for partition in offsets}
        if self.exactly_once and not transactional:
            raise _unfit(
                "segment-offsets-differ",
                f"its segments disagree: one has {offsets_in_words(offsets)}, another {offsets_in_words(greatest)}",
                "Restore it (statecore restore --replace). If the application enables transactional state stores, "
                "declare transactional_state_stores: true in the spec instead: then all are right.",
            )
        self.note(
            f"{store.name}: its segments were flushed at different times, up to {offsets_in_words(greatest)}; all get "
            f"the smallest, {offsets_in_words(offsets)}, and the application restores the rest."
        )

    def _check_empty(
        self,
        empty: Mapping[int | None, DatabaseCheckpoint],
        full: Mapping[int | None, DatabaseCheckpoint],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Check that the offset is older than unflushed segments, so that it is right for these too."""
        flushed = [checkpoint.flushed_at for checkpoint in full.values() if checkpoint.flushed_at is not None]
        for checkpoint in empty.values():
            if checkpoint.created_at is None or not flushed or min(flushed) >= checkpoint.created_at:
                raise _unfit(
                    "segment-not-flushed",
                    f"nothing of {checkpoint.source} has been flushed to disk, and {offsets_in_words(offsets)} may be "
                    "newer than its rows",
                    "Close the application, or run this again later." if self.running else _RESTORE,
                )


_RESTORE = "Restore it (statecore restore --replace)."
_RECOVER = "Restore it (statecore restore --replace), or let the application recover it."


def _refuse_half_deleted(store: SelectedStore) -> None:
    if lost := why_partially_deleted(store.directory, segmentation_of(store.spec)):
        raise Corrupted(
            f"{store.name}: {lost}", code="store-incomplete", action=_RESTORE, task=store.task, store=store.spec.name
        )


def _refuse_damaged(store: SelectedStore, database: Path) -> None:
    try:
        read_database(database, manifests=True).checked()
    except Corrupted as error:
        raise error.restated(f"{store.name}: {error.what}", task=store.task, store=store.spec.name) from error


def _is_flushed(checkpoint: DatabaseCheckpoint) -> bool:
    """Whether offsets were flushed since the database was last opened."""
    name, _ = current_manifest(checkpoint.path)
    return checkpoint.manifest.flushed_since(name, OFFSETS_COLUMN_FAMILY)


def _write(
    path: Path, store: SelectedStore, recorded: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> None:
    with RocksDBStore(path, store.spec.kind, settings=_WRITTEN) as opened:
        if recorded != offsets:
            opened.commit(dict(offsets))


@contextmanager
def _of_source(checkpoint: DatabaseCheckpoint) -> Iterator[None]:
    """Report errors about a copy as errors about its database."""
    try:
        yield
    except StatecoreError as error:
        copy, source = str(checkpoint.path), str(checkpoint.source)
        context = {
            name: value.replace(copy, source) if isinstance(value, str) else value
            for name, value in error.context.items()
        }
        raise error.restated(error.what.replace(copy, source), **context) from error


def _unfit(code: str, why: str, action: str) -> Invalid:
    return Invalid(f"{why}.", code=code, action=action)
