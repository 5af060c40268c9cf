"""What a sample of a changelog's records rules out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.discover.changelog_sample import sample_changelog
from statecore.discover.kind_evidence import BUILT
from statecore.formats.kinds import StoreKind

SCHEMA = CHANGELOG_SCHEMA.append(HEADERS_FIELD)
NOW = 1_795_304_392_898
NONE, SUPPRESSED, TRACE = b"\x00", b"\x02\x02v\x02\x03", b"\x02\x0atrace\x02x"
CONSISTENCY = b"\x04\x02v\x02\x00\x02c\x02p"
WINDOWS = {
    StoreKind.WINDOW,
    StoreKind.TIMESTAMPED_WINDOW,
    StoreKind.HEADERS_WINDOW,
    StoreKind.EMIT_FINAL_WINDOW,
    StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW,
}
SESSIONS = {StoreKind.SESSION, StoreKind.HEADERS_SESSION, StoreKind.EMIT_FINAL_SESSION}


def window_key(start: int) -> bytes:
    return b"some key" + start.to_bytes(8) + bytes(4)


def session_key(start: int, end: int) -> bytes:
    return b"some key" + end.to_bytes(8) + start.to_bytes(8)


def look(*records, partitions=1, ends=(0, 2_000)):
    """The sample of a changelog in which every read finds these records: key, value, headers."""
    spans = []

    class Reader:
        def read(self, span, isolation, *, headers):
            spans.append((span.partition, span.start, span.end))
            keys, values, wire = zip(*records, strict=True) if records else ((), (), ())
            columns = [keys, values, range(len(keys)), [NOW] * len(keys), wire]
            if records:
                arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    class Cluster:
        def log_offsets(self, parts):
            return {part: LogOffsets(ends[0], ends[1], ends[1]) for part in parts}

    found = sample_changelog(Cluster(), TopicDescription("app-s-changelog", "0" * 32, partitions, {}), Reader())
    return found, spans


def test_the_keys_of_windows_are_no_sessions_and_the_other_way_round():
    found, _ = look((window_key(NOW), b"v", NONE), (window_key(NOW + 60_000), None, NONE))
    assert found.kinds >= WINDOWS
    assert not found.kinds & SESSIONS
    found, _ = look((session_key(NOW, NOW + 5), b"v", NONE))
    assert found.kinds >= SESSIONS
    assert not found.kinds & WINDOWS


def test_plain_and_timestamped_stay_alike():
    found, _ = look((b"k", b"v", NONE), (b"k", None, NONE))
    assert found.kinds >= {
        StoreKind.KEY_VALUE,
        StoreKind.TIMESTAMPED_KEY_VALUE,
        StoreKind.HEADERS_KEY_VALUE,
        StoreKind.VERSIONED_KEY_VALUE,
    }
    assert not found.kinds & (WINDOWS | SESSIONS | {StoreKind.LIST, StoreKind.GRACE_BUFFER})
    assert not found.suppressed


@pytest.mark.parametrize(
    ("headers", "keeps", "suppressed"),
    [(TRACE, True, False), (CONSISTENCY, False, False), (SUPPRESSED, False, True), (NONE, False, False)],
)
def test_headers_are_written_by_stores_that_keep_them_and_by_suppressions(headers, keeps, suppressed):
    found, _ = look((b"k", b"v", headers), (b"l", None, NONE))
    assert (StoreKind.TIMESTAMPED_KEY_VALUE not in found.kinds) is keeps
    assert StoreKind.HEADERS_KEY_VALUE in found.kinds
    assert found.suppressed is suppressed


def test_a_few_hundred_records_at_both_ends_of_a_few_partitions_are_read():
    found, spans = look((b"k", b"v", NONE), partitions=9, ends=(7, 2_000_000))
    assert found.records == len(spans) == 8
    assert spans[:2] == [(0, 1_999_500, 2_000_000), (0, 7, 507)]
    _, spans = look((b"k", b"v", NONE), ends=(7, 100))
    assert spans == [(0, 7, 100)]


def test_nothing_is_ruled_out_by_a_changelog_without_records():
    found, spans = look(ends=(5, 5))
    assert (found.records, spans) == (0, [])
    assert found.kinds == BUILT
