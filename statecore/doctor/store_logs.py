"""Reads the logs of single partitions, where that decides whether a store belongs to them.

- Behind an offset, where deletes may be compacted away (``stale``). A directory does not record its age; it is at least
  as old as its newest file. A store is stale if that is longer than deletes are kept, and offsets behind its own are
  missing.
- Behind that of a grace buffer, whether there is a record: Kafka Streams restores it under a wrong key
  (``grace-buffer-miskeyed``).
- Before it, whether the log is the one that the store was built from (``topic-recreated``), for closed stores only:
  rows of others may be ahead of their offset. See :mod:`statecore.doctor.changelog_comparison`. Releases before 4.3 do
  not record whether a store was closed, but flush its rows before they write its offset: its rows may be ahead and
  never behind. So a row that is missing, or is an earlier record's, was lost (``rows-differ``).
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS, current_retention_ms
from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.reader import ChangelogReader
from statecore.doctor.changelog_comparison import (
    COMPARABLE_KINDS,
    KEYS,
    MORE_KEYS,
    Comparison,
    LaterRecords,
    NewestRecords,
    ReadLimits,
    compare_rows,
    differing,
    has_rows,
    later_records,
    newest_of_segments,
    newest_records,
    proof,
    rows_without_record,
)
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding, Undecided
from statecore.doctor.logged_store_offsets import LoggedStoreOffsets
from statecore.doctor.topic_findings import BrokerAnswers, keeps_all_rows, topic_finding
from statecore.errors import Corrupted, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.units import format_duration
from statecore.words import shortened_list

_MAX_NAMED = 5
_LISTED = 16
_TIME_OVER = "the time to compare was over: --compare-time"
_KEEP_A_COPY = (
    "Keep a copy of the directory before the application starts (statecore backup --offline), and find out who deleted "
    "the records."
)
_SOME_DIFFER = "some of its rows differ from its changelog (statecore diff shows which)"


@dataclass
class StoreLogs:
    """Reads the logs of single partitions."""

    reader: ChangelogReader
    answers: BrokerAnswers
    guarantee: ProcessingGuarantee | None
    limits: ReadLimits
    now_ms: int

    def __post_init__(self) -> None:
        self._left: dict[str, list[tuple[str, str]]] = {}

    @property
    def undecided(self) -> list[Undecided]:
        """Undecided questions, with their stores."""
        found = []
        for what, stores in self._left.items():
            names = [f"{store} of {task}" for task, store in dict.fromkeys(stores)]
            found.append(Undecided(f"{what}: {shortened_list(names, _MAX_NAMED)}.", stores))
        return found

    def findings(self, store: LoggedStoreOffsets, partition: TopicPartition) -> Iterator[Finding]:
        """Findings by the log of a partition, for a store whose offset is within it."""
        log, topic = self.answers.logs[partition], self.answers.topics[partition.topic]
        yield from self._stale(store, partition, log, topic)
        if self._has_only_copy(store, log):
            what = f"{partition} is empty, and its log ends at {log.log_end}: nothing else has the rows of the store."
            yield topic_finding("changelog-incomplete", store, partition, what, log_end=log.log_end)
        elif self._lost_its_beginning(store, partition, log):
            yield from self._unrecorded(store, partition, log)
        if store.kind is StoreKind.GRACE_BUFFER and not store.in_use:
            yield from self._miskeyed(store, partition, log)
        if store.is_global or store.is_source(partition.topic):
            self._compare_with_others(store, partition, log)
        else:
            yield from self._recreated(store, partition, log, topic)

    def with_rows(self, store: LoggedStoreOffsets, found: Finding) -> Finding:
        """The finding with what the rows of the store say about its severity."""
        if found.code == "offset-missing":
            return self._without_offset(store, found)
        log = None if found.partition is None else self.answers.logs.get(found.partition)
        if found.code == "offset-before-start" and log is not None and self._has_only_copy(store, log):
            what = f"{found.what} The log is empty, so that nothing else has the rows of the store."
            return replace(found, what=what, severity=Severity.LOSS, repair=None, own_remedy=_KEEP_A_COPY)
        return found

    def _without_offset(self, store: LoggedStoreOffsets, found: Finding) -> Finding:
        """The finding of a partition of which a global store has no offset; a loss if the store has rows of it."""
        partition = found.partition
        assert partition is not None
        log = self.answers.logs[partition]
        newest = newest_records(self.reader, partition, log.log_start, log.log_end, self.limits)
        shown = {} if newest is None else _compare_store(store, newest)
        if {Comparison.EQUAL, Comparison.EXPLAINED} & set(shown.values()):
            what = "It has rows of it, which are read again over them: keys whose deletes are gone survive."
            return replace(found, what=f"{found.what} {what}", severity=Severity.LOSS)
        what = "No row of it was found, as if it were added after the application started: nothing has to be done then."
        return replace(found, what=f"{found.what} {what}")

    def _unrecorded(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> Iterator[Finding]:
        """Rows that have no record any more: the store is their only copy."""
        whole = OffsetRange(*partition, log.log_start, log.log_end)
        found = rows_without_record(self.reader, whole, store.kind, store.databases, self.limits)
        if found is None:
            self._note_limit(store, "its changelog lost its first records, and its rows were not looked up in it")
        elif found.rows:
            what = (
                f"{found.rows} of {found.looked_up} rows that were looked up have no record in {partition}, whose "
                f"records before {log.log_start} were deleted: nothing else has these rows."
            )
            yield topic_finding(
                "changelog-incomplete",
                store,
                partition,
                what,
                log_start=log.log_start,
                rows=found.rows,
                looked_up=found.looked_up,
            )

    def _lost_its_beginning(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> bool:
        """Whether the changelog of a store with rows that do not expire begins after 0, which compaction never does."""
        is_changelog = not store.is_global and not store.is_source(partition.topic) and keeps_all_rows(store.kind)
        is_comparable = store.kind in COMPARABLE_KINDS and store.readable and not store.in_use
        return is_changelog and is_comparable and 0 < log.log_start < log.log_end

    def _has_only_copy(self, store: LoggedStoreOffsets, log: LogOffsets) -> bool:
        """Whether a store of a task has rows that do not expire, and its log has no record any more."""
        is_empty = 0 < log.log_start == log.log_end
        has_to_last = not store.is_global and keeps_all_rows(store.kind)
        return is_empty and has_to_last and has_rows(store.kind, store.databases)

    def _stale(
        self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets, topic: TopicDescription
    ) -> Iterator[Finding]:
        retention_ms, age = current_retention_ms(topic), self._age_ms(store)
        if (
            retention_ms is None
            or store.known[partition] >= log.log_end
            or age is None
            or age + CLOCK_MARGIN_MS < retention_ms
        ):
            return
        if self.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 and store.closed is False:
            return  # its task is deleted at the next start, and restored
        missing = self._missing_behind(store, partition, log)
        if not missing:
            return
        running = " It is in use, so that counts if its process dies before it flushes." if store.in_use else ""
        yield topic_finding(
            "stale",
            store,
            partition,
            f"It says offset {store.offsets[partition]} of {partition}, its newest file is {age / 1000:,.0f} s old, "
            f"and offsets behind its own are gone from the log ({missing:,} seen): they may have been deletes, which "
            f"are kept for {format_duration(retention_ms)}.{running}",
            Severity.NOTE if store.in_use else None,
            offset=store.offsets[partition],
            log_end=log.log_end,
            missing=missing,
            age_ms=age,
            delete_retention_ms=retention_ms,
        )

    def _miskeyed(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> Iterator[Finding]:
        """A grace buffer with records behind its offset, which the next start restores under wrong keys."""
        following = store.known[partition]
        if following >= log.log_end:
            return
        tail = newest_records(self.reader, partition, following, log.log_end, self.limits)
        if tail is None:
            self._note_limit(store, "whether its changelog has records behind its offset was not seen")
        elif tail.records:
            yield topic_finding(
                "grace-buffer-miskeyed",
                store,
                partition,
                f"It says offset {store.offsets[partition]} of {partition}, which has records up to "
                f"{tail.records[0].offset}: Kafka Streams restores these under wrong keys at the next start, and the "
                "join finds none of them.",
                offset=store.offsets[partition],
                log_end=log.log_end,
            )

    def _age_ms(self, store: LoggedStoreOffsets) -> int | None:
        """Minimum age of a store in ms; ``None`` if it has no file any more."""
        newest = max((time for place in store.databases for time in _times(place.path)), default=None)
        return None if newest is None else self.now_ms - int(newest * 1000)

    def _missing_behind(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> int:
        """A lower bound of the offsets missing behind a store's offset; 0 only if none was seen."""
        following = store.known[partition]
        missing = self._missing(store, partition, following, log.log_end)
        if missing != 1 or self.guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            return missing
        # The last record of a transaction is followed by its marker, which compaction removes too.
        if not self._missing(store, partition, following, following + 1):
            return missing
        self._note_undecided(store, "the offset behind its own is gone: either a delete or the marker of a transaction")
        return 0

    def _missing(self, store: LoggedStoreOffsets, partition: TopicPartition, start: int, end: int) -> int:
        reader = self.reader
        for _ in reader.read(OffsetRange(*partition, start, end), IsolationLevel.READ_UNCOMMITTED):
            if reader.statistics.removed > 1:
                break
            if self.limits.are_reached(reader.statistics):
                self._note_limit(store, "offsets missing behind the store's offset were not looked for to the end")
                break
        return reader.statistics.removed

    def _recreated(
        self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets, topic: TopicDescription
    ) -> Iterator[Finding]:
        following, start = store.known[partition], log.log_start
        if following <= start:
            return
        why = self._why_not(store, following, log)
        newest, shown = (None, {}) if why else self._compared(store, OffsetRange(*partition, start, following))
        if newest is None or not shown:
            because = why or (_TIME_OVER if self.limits.is_expired else "no row could be compared")
            self._note_undecided(
                store, f"whether its changelog is the one that it was built from is not known ({because})"
            )
            return
        different = differing(shown)
        later = self._later(partition, following, log, different) if different else None
        proven = [] if later is None or store.may_be_ahead else proof(newest, shown, later)
        if not proven or not has_rows(store.kind, store.databases):
            if unexplained := _unexplained(different, later):
                yield from self._lost_rows(store, partition, newest, shown, unexplained, later)
            else:
                yield from self._segments(store, partition, log)
            return
        offsets = sorted(one.offset for one in proven)
        yield topic_finding(
            "topic-recreated",
            store,
            partition,
            f"It says offset {store.offsets[partition]} of {partition}, and none of its rows match the log "
            f"before it: {len(offsets)} of the {len(shown)} newest keys have another value or none (offsets "
            f"{', '.join(map(str, offsets[-_MAX_NAMED:]))}), and no key matches.",
            offset=store.offsets[partition],
            log_start=log.log_start,
            log_end=log.log_end,
            topic_id=topic.topic_id,
            looked_up=len(shown),
            differing=len(offsets),
            differing_offsets=offsets[-_LISTED:],
        )

    def _compared(
        self, store: LoggedStoreOffsets, span: OffsetRange, *, more: bool = True
    ) -> tuple[NewestRecords | None, Mapping[bytes, Comparison]]:
        """Compare rows with the newest records before an offset, and, if ``more``, with older ones if that may tell.

        It may where no key matches, which another log explains and lost updates too; and where a row that has to be of
        an earlier record to prove anything is of none that was read.
        """
        partition = TopicPartition(span.topic, span.partition)
        newest = newest_records(self.reader, partition, span.start, span.end, self.limits)
        shown = {} if newest is None else _compare_store(store, newest)
        if newest is None or len(newest.records) < KEYS or not more or not differing(shown):
            return newest, shown
        found = set(shown.values())
        if (store.may_be_ahead and Comparison.FOREIGN in found) or not {Comparison.EQUAL, Comparison.EXPLAINED} & found:
            many = newest_records(self.reader, partition, span.start, span.end, self.limits, MORE_KEYS)
            if many is not None and (seen := _compare_store(store, many)):
                return many, seen
        return newest, shown

    def _compare_with_others(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> None:
        """Compare some rows with a topic that others write.

        A row need not have the bytes of its record: the application may serialize otherwise, or process the records. So
        differences are no finding, and are told only if some rows have values of records, or if there is no row at all.
        """
        following, start = store.known[partition], log.log_start
        if following <= start:
            return
        if self._why_not(store, following, log):
            if self.limits.is_expired:
                self._note_limit(store, "its rows were not compared")
            return
        span = OffsetRange(*partition, start, following)
        newest, shown = self._compared(store, span, more=store.may_be_ahead)
        live = [] if newest is None else [one for one in newest.records if one.value is not None]
        if live and all(shown.get(one.key) is Comparison.MISSING for one in live):
            self._note_undecided(
                store,
                "it has no row of the keys that were compared: it may be of another topic than there is now, which "
                "others write (statecore diff shows the rows)",
            )
            return
        is_empty = bool(live) and not has_rows(store.kind, store.databases)
        has_values_of_records = bool({Comparison.EQUAL, Comparison.EXPLAINED} & set(shown.values()))
        different = differing(shown) if is_empty or has_values_of_records else []
        later = self._later(partition, following, log, different) if different else None
        if _unexplained(different, later):
            self._note_undecided(
                store, "some of its rows differ from its topic, which others write (statecore diff shows which)"
            )

    def _segments(self, store: LoggedStoreOffsets, partition: TopicPartition, log: LogOffsets) -> Iterator[Finding]:
        """Compare some rows of each segment, also of one that does not exist; the newest keys are all of the newest."""
        if store.segmentation is None:
            return
        following, newest_start = store.known[partition], max((one.start or 0 for one in store.databases), default=0)
        span = OffsetRange(*partition, log.log_start, following)
        stream_time = newest_start + store.segmentation.interval_ms - 1  # at most, lest an expired segment is missed
        newest = newest_of_segments(self.reader, span, store.kind, store.segmentation, stream_time, self.limits)
        if newest is None:
            self._note_limit(store, "rows of each of its segments were not compared")
            return
        shown = _compare_store(store, newest, live=True)
        different = differing(shown)
        later = self._later(partition, following, log, different) if different else None
        if unexplained := _unexplained(different, later):
            yield from self._lost_rows(store, partition, newest, shown, unexplained, later)

    def _lost_rows(
        self,
        store: LoggedStoreOffsets,
        partition: TopicPartition,
        newest: NewestRecords,
        shown: Mapping[bytes, Comparison],
        unexplained: Sequence[bytes],
        later: LaterRecords | None,
    ) -> Iterator[Finding]:
        """The finding of rows that no record explains, or a note where they prove no loss."""
        lost = _proving_loss(store, unexplained, shown)
        if later is None or later.has_gaps or not lost:
            self._note_undecided(store, _SOME_DIFFER)
        else:
            yield _rows_differ(store, partition, newest, lost, len(shown))

    def _why_not(self, store: LoggedStoreOffsets, following: int, log: LogOffsets) -> str:
        """Why the rows of a store are not compared with its log; empty if they are."""
        if store.in_use:
            return "it is in use"
        if not store.databases:
            return "it has no database"
        if not store.readable:
            return "it cannot be read"
        if not store.segments_agree:
            return "its segments, or a file, say other offsets"
        if store.closed is False and not store.transactional:
            return "it was not closed, and rows may be ahead of its offset"
        if store.kind is StoreKind.UNKNOWN:
            return "its kind is not known"
        if store.kind not in COMPARABLE_KINDS:
            return f"rows of a store of kind {store.kind} are built from many records"
        if log.last_stable < following:
            return "a transaction is open before its offset"
        return _TIME_OVER if self.limits.is_expired else ""

    def _later(
        self, partition: TopicPartition, following: int, log: LogOffsets, keys: Sequence[bytes]
    ) -> LaterRecords | None:
        """Records of some keys behind an offset; ``None`` if that exceeds the limits."""
        if following == log.log_end:
            return LaterRecords(frozenset(), False)
        return later_records(self.reader, OffsetRange(*partition, following, log.log_end), keys, self.limits)

    def _note_undecided(self, store: LoggedStoreOffsets, what: str) -> None:
        self._left.setdefault(what, []).append((store.task, store.store))

    def _note_limit(self, store: LoggedStoreOffsets, what: str) -> None:
        self._note_undecided(store, f"{what} ({_TIME_OVER if self.limits.is_expired else 'its log is too long'})")


def _unexplained(different: Iterable[bytes], later: LaterRecords | None) -> list[bytes]:
    """The keys whose difference no later record explains; all if later records are not known."""
    return [key for key in different if later is None or key not in later.keys]


def _proving_loss(store: LoggedStoreOffsets, keys: Iterable[bytes], shown: Mapping[bytes, Comparison]) -> list[bytes]:
    """The keys whose rows are not only ahead of the offset.

    A row of no record that was seen may be of one that was never sent, because the process died before. The same is
    possible for any row if rows were flushed after the offset was written.
    """
    if not store.may_be_ahead:
        return [*keys]
    behind = () if store.flushed_later else (Comparison.MISSING, Comparison.EXPLAINED)
    return [key for key in keys if shown[key] in behind]


def _rows_differ(
    store: LoggedStoreOffsets,
    partition: TopicPartition,
    newest: NewestRecords,
    keys: Collection[bytes],
    looked_up: int,
) -> Finding:
    offsets = sorted(one.offset for one in newest.records if one.key in keys)
    return topic_finding(
        "rows-differ",
        store,
        partition,
        f"{len(offsets)} of {looked_up} rows that were compared have another value than {partition} at the store's "
        f"offset, or are missing (records {', '.join(map(str, offsets[-_MAX_NAMED:]))}).",
        looked_up=looked_up,
        differing=len(offsets),
        differing_offsets=offsets[-_LISTED:],
    )


def _compare_store(store: LoggedStoreOffsets, newest: NewestRecords, *, live: bool = False) -> dict[bytes, Comparison]:
    retention_ms = None if store.segmentation is None else store.segmentation.retention_ms
    try:
        return compare_rows(store.kind, store.databases, newest, retention_ms, live=live)
    except (NotFound, Corrupted):
        return {}


def _times(path: Path) -> list[float]:
    """Modification times of a database's SST files, in seconds; of all its files if it has none."""
    try:
        files = [file for file in path.iterdir() if file.is_file()]
        return [file.stat().st_mtime for file in files if file.suffix in DATA_SUFFIXES] or [
            file.stat().st_mtime for file in files
        ]
    except OSError:
        return []
