"""``RocksDBVersionedStore.put`` of Kafka Streams 4.3.1 in plain Python over dicts, branch by branch from its source.

What the columnar replay is compared with. Rows are kept as objects and become bytes in ``rows``; every branch of the
source is here, also those that a live store does not reach: they raise ``Unreached``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

Version = tuple[int, bytes | None]


class Unreached(AssertionError):
    """A branch of the source that only a failed write, or a restore, can reach."""


def segment_row(next_timestamp: int, versions: list[Version]) -> bytes:
    """The bytes of a segment's row; versions newest first."""
    head = struct.pack(">qq", next_timestamp, versions[-1][0])
    sizes = [struct.pack(">qi", time, -1 if value is None else len(value)) for time, value in versions]
    return head + b"".join(sizes) + b"".join(value or b"" for _, value in reversed(versions))


def row_key(segment_id: int, key: bytes) -> bytes:
    return struct.pack(">q", segment_id) + key


@dataclass
class SegmentValue:
    """``RocksDBVersionedStoreSegmentValueFormatter.SegmentValue``."""

    next_timestamp: int
    versions: list[Version]

    @property
    def min_timestamp(self) -> int:
        return self.versions[-1][0]

    @property
    def is_degenerate(self) -> bool:
        return self.next_timestamp == self.min_timestamp

    def find(self, timestamp: int) -> tuple[int, int, int, bytes | None]:
        """Index, validFrom, validTo, value."""
        assert self.min_timestamp <= timestamp < self.next_timestamp
        valid_to = self.next_timestamp
        for index, (valid_from, value) in enumerate(self.versions):
            if valid_from <= timestamp:
                return index, valid_from, valid_to, value
            valid_to = valid_from
        raise AssertionError

    def insert_as_latest(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        if valid_from < self.next_timestamp:
            raise Unreached("a row that overlaps the version to be put on top of it")
        if self.next_timestamp == valid_from:
            if self.is_degenerate:
                self.versions = [(valid_from, value)]
            else:
                self.versions.insert(0, (valid_from, value))
        else:
            if self.is_degenerate:
                self.versions = [(self.next_timestamp, None)]
            else:
                self.versions.insert(0, (self.next_timestamp, None))
            self.versions.insert(0, (valid_from, value))
        self.next_timestamp = valid_to

    def insert_as_earliest(self, timestamp: int, value: bytes | None) -> None:
        if self.is_degenerate:
            self.versions = [(timestamp, value)]
        else:
            self.versions.append((timestamp, value))


@dataclass
class VersionedStore:
    """One store of one task that lives through all its records."""

    history_retention: int
    segment_interval: int
    observed_stream_time: int = -1
    expired: int = 0
    latest: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    segments: dict[int, dict[bytes, SegmentValue]] = field(default_factory=dict)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        if timestamp < self.observed_stream_time - self.history_retention:
            self.expired += 1
            return
        self.observed_stream_time = max(self.observed_stream_time, timestamp)
        self._do_put(key, value, timestamp)

    def rows(self) -> dict[bytes, bytes]:
        """The rows of the database."""
        found = {row_key(-1, key): struct.pack(">q", time) + value for key, (time, value) in self.latest.items()}
        for number, segment in self.segments.items():
            for key, row in segment.items():
                found[row_key(number, key)] = segment_row(row.next_timestamp, row.versions)
        return found

    def _segment_id(self, timestamp: int) -> int:
        # Java's division rounds towards zero.
        return abs(timestamp) // self.segment_interval * (-1 if timestamp < 0 else 1)

    def _segment_if_live(self, segment_id: int) -> dict[bytes, SegmentValue] | None:
        if segment_id >= self._segment_id(self.observed_stream_time - self.history_retention):
            segment = self.segments.setdefault(segment_id, {})
            self._clean_up()
            return segment
        return None

    def _clean_up(self) -> None:
        first = self._segment_id(self.observed_stream_time - self.history_retention)
        for number in [number for number in self.segments if number < first]:
            del self.segments[number]

    def _live(self, segment_id: int) -> dict[bytes, SegmentValue]:
        segment = self._segment_if_live(segment_id)
        if segment is None:
            raise Unreached("a segment that is not live")
        return segment

    def _do_put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._clean_up()
        found: int | None = None
        # maybePutToLatestValueStore
        if key in self.latest:
            latest_timestamp, latest_value = self.latest[key]
            if timestamp >= latest_timestamp:
                if timestamp > latest_timestamp:
                    segment = self._live(self._segment_id(timestamp))
                    if key not in segment:
                        segment[key] = SegmentValue(timestamp, [(latest_timestamp, latest_value)])
                    else:
                        segment[key].insert_as_latest(latest_timestamp, timestamp, latest_value)
                if value is not None:
                    self.latest[key] = (timestamp, value)
                else:
                    del self.latest[key]
                return
            found = latest_timestamp
        # maybePutToSegments
        for number in sorted(self.segments, reverse=True):
            if number < self._segment_id(timestamp):
                break
            row = self.segments[number].get(key)
            if row is None:
                continue
            if row.next_timestamp <= timestamp:
                break
            if row.min_timestamp <= timestamp:
                self._put_to_segment(number, row, key, value, timestamp)
                return
            if row.min_timestamp < self.observed_stream_time - self.history_retention:
                raise Unreached("a version outside the history that is newer than the record")
            found = row.min_timestamp
        self._finish_put(key, value, timestamp, found)

    def _put_to_segment(self, number: int, row: SegmentValue, key: bytes, value: bytes | None, timestamp: int) -> None:
        older_id = self._segment_id(timestamp)
        index, valid_from, _, found_value = row.find(timestamp)
        if valid_from == timestamp:
            row.versions[index] = (timestamp, value)
            return
        if older_id != number:
            older = self._live(older_id)
            if key not in older:
                older[key] = SegmentValue(timestamp, [(valid_from, found_value)])
            else:
                older[key].insert_as_latest(valid_from, timestamp, found_value)
            row.versions[index] = (timestamp, value)
            return
        row.versions.insert(index, (timestamp, value))

    def _finish_put(self, key: bytes, value: bytes | None, timestamp: int, found: int | None) -> None:
        if found is None:
            if value is not None:
                self.latest[key] = (timestamp, value)
                return
            segment = self._live(self._segment_id(timestamp))
            row = segment.get(key)
            if row is None:
                segment[key] = SegmentValue(timestamp, [(timestamp, None)])
            elif row.next_timestamp != timestamp:
                row.insert_as_latest(row.next_timestamp, timestamp, None)
            return
        segment = self._live(self._segment_id(found))
        row = segment.get(key)
        if row is None:
            segment[key] = SegmentValue(found, [(timestamp, value)])
        elif row.next_timestamp <= timestamp:
            row.insert_as_latest(timestamp, found, value)
        else:
            row.insert_as_earliest(timestamp, value)
