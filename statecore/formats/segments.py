"""Segments of windowed stores: which database holds a row, and when segments expire.

A windowed store is a directory of databases, each for one interval of time (``AbstractSegments``, Kafka Streams
4.3.1). The time of a row is its window's start, or its session's end::

    segment id     = time / interval
    directory      = <store>/<store>.<segment id * interval>
    interval       = max(retention / 2, 60 000 ms)              windows and sessions (Stores.persistentWindowStore)
    first live id  = (stream time - retention) / interval       older segments are dropped

The grace-period buffer has one segment of endless interval, ``<store>.0``. The segments of a versioned store are
logical, a prefix of its keys (:mod:`statecore.formats.versioned`); their interval depends on the history retention
``h`` (``RocksDbVersionedKeyValueBytesStoreSupplier.defaultSegmentInterval``)::

    h <= 1 min: max(h/3, 2 s)    <= 5 min: max(h/5, 20 s)    <= 1 h: max(h/12, 1 min)    else: max(h/24, 5 min)
"""

from __future__ import annotations

from dataclasses import dataclass

from statecore.formats.kinds import WINDOWED_KINDS, StoreKind

SHORTEST_INTERVAL_MS = 60_000
ENDLESS_INTERVAL_MS = (1 << 63) - 1

_VERSIONED = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))


def default_segment_interval(kind: StoreKind, retention_ms: int) -> int:
    """Segment interval in ms that Kafka Streams derives from a retention; ``ValueError`` without segments."""
    if kind in WINDOWED_KINDS:
        return max(retention_ms // 2, SHORTEST_INTERVAL_MS)
    if kind is StoreKind.GRACE_BUFFER:
        return ENDLESS_INTERVAL_MS
    if kind.is_versioned:
        for longest, parts, shortest in _VERSIONED:
            if retention_ms <= longest:
                return max(retention_ms // parts, shortest)
        return max(retention_ms // 24, 300_000)
    raise ValueError(f"stores of kind {kind.value} have no segments")


def first_live_segment(stream_time: int, retention_ms: int, interval_ms: int) -> int:
    """Id of the oldest segment that is kept at a stream time (ms; -1 without records)."""
    return max(0, stream_time - retention_ms) // interval_ms


@dataclass(frozen=True)
class Segmentation:
    """How the rows of a store are divided by time."""

    retention_ms: int  # retention of rows
    interval_ms: int  # time span of one segment

    @staticmethod
    def of(retention_ms: int | None, interval_ms: int | None) -> Segmentation | None:
        """The division; ``None`` where a store's rows are not divided, and have no retention or no interval."""
        return Segmentation(retention_ms, interval_ms) if retention_ms is not None and interval_ms else None

    def first_live(self, stream_time: int) -> int:
        """Id of the oldest segment that is kept at a stream time (ms; -1 without records)."""
        return first_live_segment(stream_time, self.retention_ms, self.interval_ms)


def segment_name(store: str, segment_id: int, interval_ms: int) -> str:
    """Directory name of a segment: ``clicks.1795251600000``."""
    return f"{store}.{segment_id * interval_ms}"
