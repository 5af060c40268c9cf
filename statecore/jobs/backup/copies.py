"""The databases of a snapshot, each as it was at one moment, closed, and at an offset that is right for its rows.

Files get a second name in a scratch directory of the application's; nothing in the task directories is changed. A copy
is written to where the original cannot be published as it lies: its status says open, or the segments of a store say
different offsets. That adds small files above the linked ones, which stay as they are.

**Which offset is right.** What is on the disk of a database is of its last flush, rows and offset together. After a
kill, or while the application runs, the segments of a store have been flushed at different times. Under at-least-once
rows may be ahead of their offset, never behind, and records that are applied again change nothing. So the smallest
offset of all segments is right for each of them. (Kafka Streams itself takes that of the newest segment, and loses what
the others lack.) Under exactly-once rows that are ahead of their offset may be of a transaction that was aborted: such
a store is refused, unless it is transactional.

**Transactional stores** (``enable.transactional.statestores``, Kafka Streams 4.4) write rows, offset and position of a
commit in one batch, after the transaction was committed. What is on the disk of a database is one of its commits, so a
running exactly-once application may be copied. Restoring bypasses that: its rows may be ahead of their offset, but they
are of committed records, as are those of segments that were flushed later than others. Such a store writes no status:
where all databases of a store have none, it is transactional, whatever the spec says. A status that says open is of a
life without transactional stores, and refused as before. One that says closed may be, too; while the application has
the store open and has flushed it, it is transactional all the same.

**A segment of which nothing was flushed** has no offset to be counted. Its rows are newer than the moment when it was
made, so an offset that was flushed before that moment is right for it, too; where there is none, the store is refused.

**Versioned stores** do not take records again, so they are refused where rows may be ahead of their offset. Of a
transactional one no status tells that: it is taken where nothing lies behind its offset in the changelog
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
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import segment_order
from statecore.jobs.backup.problems import Refuse
from statecore.jobs.backup.stores import TakenStore
from statecore.spec.derived import segment_interval_of
from statecore.statedir.database_state import read_database_state, smallest_offsets
from statecore.statedir.store_on_disk import read_database
from statecore.stores.rocksdb.checkpoint import DatabaseCheckpoint, take_checkpoint
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from statecore.tasks.partial_stores import half_deleted, segmentation_of

_LOOKS = 5
_WRITTEN = replace(KEEP_FILES, witnessed=False)


@dataclass(frozen=True)
class StoreCopy:
    """A store as it is published.

    Attributes:
        taken: the store.
        databases: its databases by segment, ``None`` where it has none; closed, and nobody else's.
        offsets: what each of them says.
        written: whether one of them was written to.
        linked: names of the SST files and blob files of the originals, by segment.
        may_be_ahead: whether its rows may be ahead of its offsets, while records must not be applied to it again.
    """

    taken: TakenStore
    databases: Mapping[int | None, Path]
    offsets: Mapping[TopicPartition, int]
    written: bool = False
    linked: Mapping[int | None, frozenset[str]] = field(default_factory=dict)
    may_be_ahead: bool = False

    @property
    def left_to_restore(self) -> bool:
        """Whether it is empty: Kafka Streams restores it from the start."""
        return not self.databases


class Copier:
    """Takes stores of one application.

    Args:
        where: the scratch directory.
        exactly_once: the application's guarantee.
        transactional: whether its stores are transactional, as the spec says.
        running: whether the application is at work there.
        refuse: told every reason why a store cannot be taken.
        note: told what an operator should know of one that is taken.
    """

    def __init__(
        self,
        where: Path,
        *,
        exactly_once: bool,
        transactional: bool,
        running: bool,
        refuse: Refuse,
        note: Callable[[str], None],
    ) -> None:
        self.where, self.exactly_once, self.running = where, exactly_once, running
        self.transactional = transactional
        self.refuse, self.note = refuse, note

    def copy(self, store: TakenStore) -> StoreCopy | None:
        """A store, or nothing where it was refused.

        Raises:
            Corrupted: a database is damaged.
            Fenced, Retryable, Capacity: a database cannot be looked at now.
        """
        try:
            return self._copy(store)
        except Invalid as error:
            self.refuse(Reason(f"{store.name}: {error}", error.code, task=store.task, store=store.spec.name))
            return None

    def _copy(self, store: TakenStore) -> StoreCopy | None:
        if not self.running:
            _refuse_half_deleted(store)
        held = self.running and any(writer_of(database) for database in store.directory.databases)
        moments = self._moments(store)
        if not moments and store.spec.kind.is_segmented and store.changelog is not None:
            self.note(
                f"{store.name} has no segment, and so no offset: Kafka Streams restores it from the start of its "
                "changelog, as it would here."
            )
            return StoreCopy(store, {}, {store.changelog: OFFSET_UNKNOWN})
        empty = {segment: moment for segment, moment in moments.items() if moment.is_empty}
        full = {segment: moment for segment, moment in moments.items() if segment not in empty}
        if not full:
            _refuse_half_deleted(store)
            raise _unfit(
                "store-not-flushed",
                "nothing of it is on the disk",
                "It gets there when the application is closed" + (", or flushes it." if self.running else "."),
            )
        looks = {segment: self._look(moment, store) for segment, moment in full.items()}
        is_open = any(status not in (None, STATUS_CLOSED) for status, _ in looks.values())
        offsets = self._offsets(store, {segment: said for segment, (_, said) in looks.items()})
        self._check(store, is_open)
        transactional = self.transactional or all(status is None for status, _ in looks.values())
        # Without transactions an open store says so as soon as anything of it is flushed.
        transactional |= held and not is_open and any(_is_flushed(moment) for moment in full.values())
        if len({tuple(sorted(said.items())) for _, said in looks.values()}) > 1:
            self._lowered(store, looks, offsets, transactional)
        self._check_empty(empty, full, offsets)
        written = {
            segment
            for segment, (status, said) in looks.items()
            if status not in (None, STATUS_CLOSED) or said != offsets
        }
        for segment in written:
            with _of_source(full[segment]):
                _write(full[segment].path, store, looks[segment][1], offsets)
        if is_open:
            self.note(f"{store.name} was not closed: it is taken as it was flushed last, at {_words(offsets)}.")
        return StoreCopy(
            store,
            {segment: moment.path for segment, moment in full.items()},
            offsets,
            bool(written),
            {segment: frozenset(file.name for file in moment.data_files) for segment, moment in full.items()},
            may_be_ahead=transactional and store.spec.kind.is_versioned,
        )

    def _moments(self, store: TakenStore) -> dict[int | None, DatabaseCheckpoint]:
        """The databases of a store, with those that were made while the others were copied.

        Such a one may have rows older than an offset that was copied after it was made.
        """
        found: dict[int | None, DatabaseCheckpoint] = {}
        for _ in range(_LOOKS):
            there = self._databases(store)
            found = {segment: moment for segment, moment in found.items() if segment in there}
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
            f"{store.name} gets new segments faster than they can be copied.",
            code="segments-changing",
            action="Run this again, or close the application.",
            task=store.task,
            store=store.spec.name,
        )

    def _databases(self, store: TakenStore) -> dict[int | None, Path]:
        interval = segment_interval_of(store.spec)
        if not store.spec.kind.is_segmented:
            return dict.fromkeys((None,), store.directory.path) if store.directory.databases else {}
        if interval is None:
            raise _unfit("segment-interval-unknown", "its segments have no interval", "Declare its retention.")
        found: dict[int | None, Path] = {}
        for segment in store.directory.segments:
            if segment.start is None or segment.start % interval:
                raise _unfit(
                    "segment-interval-mismatch",
                    f"{segment.path} is no segment of an interval of {interval} ms",
                    "Correct retention or segment_interval in the spec, or move away what is no segment.",
                )
            found[segment.start // interval] = segment.path
        return found

    def _look(self, moment: DatabaseCheckpoint, store: TakenStore) -> tuple[int | None, dict[TopicPartition, int]]:
        """Status and offsets of a database of the right kind, without rows of an older format."""
        with (
            _of_source(moment),
            RocksDBStore(moment.path, store.spec.kind, read_only=True, settings=KEEP_FILES) as opened,
        ):
            status, said = opened.status, opened.committed_offsets()
        if said:
            return status, said
        if OFFSETS_COLUMN_FAMILY not in read_database_state(moment.path).column_families:
            raise _unfit(
                "database-of-older-release",
                f"{moment.source} was written by an older release of Kafka Streams",
                f"Start the application on {CURRENT.name} once, and close it.",
            )
        raise _unfit(
            "offset-missing",
            f"{moment.source} has no offset",
            "Close the application, or try again later: the next flush brings one."
            if self.running
            else "Start the application and close it, or declare 'changelog: none' if it does not log the store.",
        )

    def _offsets(
        self, store: TakenStore, said: Mapping[int | None, Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        """The smallest offset of each partition."""
        partitions = {partition for offsets in said.values() for partition in offsets}
        wrong = sorted(
            str(partition)
            for partition in partitions
            if (partition.topic != store.spec.changelog if store.changelog is None else partition != store.changelog)
        )
        if wrong:
            raise _unfit(
                "changelog-mismatch",
                f"it has an offset of {', '.join(wrong)}, and the spec says that its "
                f"{'topic' if store.changelog is None else 'changelog'} is {store.changelog or store.spec.changelog}",
                "Correct the spec.",
            )
        if any(partitions != offsets.keys() for offsets in said.values()):
            raise _unfit("segment-offsets-differ", "its segments have offsets of different partitions", _RECOVER)
        offsets = dict(sorted(smallest_offsets(said.values()).items()))
        if store.changelog is None and min(offsets.values()) < 0:
            raise _unfit(
                "global-offset-unknown",
                f"it says {_words(offsets)}, with which Kafka Streams fails at every start",
                _RECOVER,
            )
        return offsets

    def _check(self, store: TakenStore, is_open: bool) -> None:
        if is_open and self.exactly_once:
            if self.transactional:
                raise _unfit(
                    "transactional-store-open",
                    "its status says open, which transactional stores do not write: it was open without them, and its "
                    "rows may be of a transaction that was not committed",
                    "Close the application, and correct transactional_state_stores in the spec: it runs without them."
                    if self.running
                    else _RESTORE,
                )
            if self.running:
                raise _unfit(
                    "uncommitted-rows",
                    "the application has flushed it since it opened it, and what was flushed may be of a transaction "
                    "that is not committed",
                    "Close the application: it is exactly-once, and its stores are not transactional.",
                )
            raise _unfit(
                "not-closed-cleanly",
                "it was not closed cleanly, and under exactly-once its rows may be of a transaction that was aborted",
                "Start the application, which restores it, and close it; or restore it (statecore restore --replace).",
            )
        if is_open and store.spec.kind.is_versioned:
            raise _unfit(
                "versioned-store-open",
                "it is versioned and was not closed, so its rows may be ahead of its offset, and versions must not be "
                "applied again",
                "Close the application; or name the stores that are wanted (--store).",
            )

    def _lowered(
        self,
        store: TakenStore,
        looks: Mapping[int | None, tuple[int | None, Mapping[TopicPartition, int]]],
        offsets: Mapping[TopicPartition, int],
        transactional: bool,
    ) -> None:
        greatest = {partition: max(said[partition] for _, said in looks.values()) for partition in offsets}
        if self.exactly_once and not transactional:
            raise _unfit(
                "segment-offsets-differ",
                f"its segments disagree: one says {_words(offsets)}, another {_words(greatest)}",
                "Restore it (statecore restore --replace). Where the application enables transactional state stores, "
                "declare transactional_state_stores: true in the spec instead: then all are right.",
            )
        self.note(
            f"{store.name}: its segments were flushed at different times, up to {_words(greatest)}; all of them are "
            f"lowered to the smallest, {_words(offsets)}, and the application restores what follows."
        )

    def _check_empty(
        self,
        empty: Mapping[int | None, DatabaseCheckpoint],
        full: Mapping[int | None, DatabaseCheckpoint],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Make sure that the offset is older than segments of which nothing is there: it must be right for these too.

        Offsets that a compaction has rewritten look newer than they are, which refuses more than it had to.
        """
        flushed = [moment.flushed for moment in full.values() if moment.flushed is not None]
        for moment in empty.values():
            if moment.begun is None or not flushed or min(flushed) >= moment.begun:
                raise _unfit(
                    "segment-not-flushed",
                    f"nothing of {moment.source} is on the disk, and {_words(offsets)} may be newer than its rows",
                    "Close the application, or run this again later." if self.running else _RESTORE,
                )


_RESTORE = "Restore it (statecore restore --replace)."
_RECOVER = "Restore it (statecore restore --replace), or let the application recover it."


def _refuse_half_deleted(store: TakenStore) -> None:
    if lost := half_deleted(store.directory, segmentation_of(store.spec)):
        raise Corrupted(
            f"{store.name}: {lost}",
            code="store-incomplete",
            action=_RESTORE,
            task=store.task,
            store=store.spec.name,
        )


def _refuse_damaged(store: TakenStore, database: Path) -> None:
    try:
        read_database(database, manifests=True).checked()
    except Corrupted as error:
        raise error.restated(f"{store.name}: {error.what}", task=store.task, store=store.spec.name) from error


def _is_flushed(moment: DatabaseCheckpoint) -> bool:
    """Whether offsets were flushed since the database was opened last."""
    name, _ = current_manifest(moment.path)
    return moment.manifest.flushed_since(name, OFFSETS_COLUMN_FAMILY)


def _write(
    path: Path, store: TakenStore, said: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> None:
    with RocksDBStore(path, store.spec.kind, settings=_WRITTEN) as opened:
        if said != offsets:
            opened.commit(dict(offsets))


@contextmanager
def _of_source(moment: DatabaseCheckpoint) -> Iterator[None]:
    """Errors about a copy, as errors about the database."""
    try:
        yield
    except StatecoreError as error:
        copy, source = str(moment.path), str(moment.source)
        context = {
            name: value.replace(copy, source) if isinstance(value, str) else value
            for name, value in error.context.items()
        }
        raise error.restated(error.what.replace(copy, source), **context) from error


def _unfit(code: str, why: str, action: str) -> Invalid:
    return Invalid(f"{why}.", code=code, action=action)


def _words(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"offset {offset} of {partition}" for partition, offset in sorted(offsets.items()))
