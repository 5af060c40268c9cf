"""Kinds that a bounded sample of a changelog's records leaves possible.

A record can rule kinds out, but never prove one: the row format of every kind checks each record
(:meth:`statecore.formats.row_format.RowFormat.check`). A window's key is no session's, because its times, read as a
session's, are negative, too large or in the wrong order; a key-value store accepts any record. In addition:

- A record with headers was written by a store that keeps headers (``ProcessorContextImpl.logChange``), or with the
  consistency vector on, whose two headers are ``v`` and ``c``.
- A header ``v`` = 03 alone is written by ``suppress`` (``InMemoryTimeOrderedKeyValueChangeBuffer``), in memory.

Records do not show whether a store is plain or timestamped, keeps headers if there are none, or emits at each update or
at the window's close. Those changelogs are equal byte by byte.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.discover.kind_evidence import BUILT, Evidence
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records
from statecore.formats.topic_partition import TopicPartition

_PARTITIONS = 4
_OFFSETS = 500
_BYTES = 4 << 20
_NONE = b"\x00"
_SUPPRESSED = b"\x02\x02v\x02\x03"
_CONSISTENCY = b"\x04\x02v\x02\x00\x02c"
_KEEPS_HEADERS = frozenset(kind for kind in BUILT if kind.value.startswith("headers-"))


class Sample(NamedTuple):
    """Result of sampling a changelog.

    Attributes:
        kinds: kinds that all of them allow.
        suppressed: whether they belong to the buffer of a suppression.
    """

    records: int
    kinds: frozenset[StoreKind]
    suppressed: bool

    @property
    def evidence(self) -> Evidence:
        """The sample as evidence for the kind."""
        return Evidence(self.kinds, f"{self.records:,} of its changelog's records")


def sample_changelog(cluster: Cluster, topic: TopicDescription, reader: ChangelogReader | None = None) -> Sample:
    """Sample the newest and oldest records of some partitions of a changelog."""
    left, suppressed, count = BUILT, False, 0
    reader = reader or ChangelogReader(cluster, ReaderOptions(fetch_bytes=_BYTES, decoded_bytes=_BYTES))
    for batch in _batches(cluster, topic, reader):
        count += len(batch)
        left = _kinds_fitting(batch, left)
        headers = {value.as_py() for value in batch.column("headers").unique()}
        suppressed |= _SUPPRESSED in headers and headers <= {_SUPPRESSED, _NONE}
        if any(one not in (_NONE, _SUPPRESSED) and not one.startswith(_CONSISTENCY) for one in headers):
            left &= _KEEPS_HEADERS
    return Sample(count, left, suppressed)


def _kinds_fitting(batch: pa.RecordBatch, among: frozenset[StoreKind]) -> frozenset[StoreKind]:
    records = Records(batch.column("key"), batch.column("value"), batch.column("timestamp"), batch.column("headers"))
    return frozenset(kind for kind in among if row_format(kind).check(records) is None)


def _batches(cluster: Cluster, topic: TopicDescription, reader: ChangelogReader) -> Iterator[pa.RecordBatch]:
    offsets = cluster.log_offsets([TopicPartition(topic.name, number) for number in range(topic.partitions)])
    filled = sorted(part for part, seen in offsets.items() if seen.log_end > seen.log_start)[:_PARTITIONS]
    for part in filled:
        for span in _spans(part, offsets[part]):
            seen = 0
            # The store has written records of aborted transactions, too.
            for batch in reader.read(span, IsolationLevel.READ_UNCOMMITTED, headers=True):
                yield batch
                seen += batch.nbytes
                if seen >= _BYTES:
                    break


def _spans(part: TopicPartition, seen: LogOffsets) -> list[OffsetRange]:
    newest = max(seen.log_start, seen.log_end - _OFFSETS)
    oldest = min(newest, seen.log_start + _OFFSETS)
    spans = [(newest, seen.log_end), (seen.log_start, oldest)]
    return [OffsetRange(part.topic, part.partition, start, end) for start, end in spans if start < end]
