"""Of a piece of a log it is only said that it is of markers where every offset of it was seen to be one."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from statecore.changelog import peeks
from statecore.changelog.model import OffsetRange
from statecore.changelog.peeks import MOST_OFFSETS, ranges_of_markers
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import SILENT, ScriptedBrokers, fetch_error, part

DATA = [batch([Record(n, 1, b"k", b"v") for n in range(3)], producer=7, transactional=True)]
COMMIT, ABORT = marker(3, 7, commit=True), marker(4, 8, commit=False)


def piece(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("orders", partition, start, end)


def test_markers_of_any_kind_are_markers_and_records_are_not(brokers: ScriptedBrokers, connect: Connect) -> None:
    late = batch([Record(5, 1, b"k", None)], producer=9, transactional=True)
    brokers.add("orders", [part([*DATA, COMMIT, ABORT, late])])
    cluster = connect(brokers)
    pieces = [piece(start, end) for start in range(6) for end in range(start + 1, 7)]
    assert ranges_of_markers(cluster, pieces) == {piece(3, 4), piece(3, 5), piece(4, 5)}


def test_an_offset_that_compaction_has_removed_is_no_marker(brokers: ScriptedBrokers, connect: Connect) -> None:
    empty = batch([], base_offset=6, last_offset=6, producer=7, transactional=True, control=True)
    brokers.add("orders", [part([*DATA, COMMIT, marker(5, 8, commit=True), empty], log_end=8)])
    cluster = connect(brokers)
    pieces = [piece(3, 4), piece(3, 6), piece(4, 6), piece(5, 6), piece(5, 7), piece(6, 7), piece(5, 8)]
    assert ranges_of_markers(cluster, pieces) == {piece(3, 4), piece(5, 6)}


def test_a_marker_with_a_wrong_checksum_proves_nothing(brokers: ScriptedBrokers, connect: Connect) -> None:
    flipped = bytearray(batch([Record(3, 1, b"k", None)], producer=7, transactional=True))
    flipped[22] |= 32  # a record that looks like a marker
    brokers.add("orders", [part([*DATA, bytes(flipped)])])
    assert ranges_of_markers(connect(brokers), [piece(3, 4)]) == set()


def test_many_markers_are_read_with_one_request_up_to_a_limit(brokers: ScriptedBrokers, connect: Connect) -> None:
    markers = [marker(n, n, commit=True) for n in range(MOST_OFFSETS + 1)]
    assert len(b"".join(markers)) < peeks.PEEK_BYTES
    brokers.add("orders", [part(markers)])
    cluster = connect(brokers)
    assert ranges_of_markers(cluster, [piece(0, MOST_OFFSETS + 1)]) == set()
    assert brokers.asked(FetchRequest) == []
    assert ranges_of_markers(cluster, [piece(0, MOST_OFFSETS)]) == {piece(0, MOST_OFFSETS)}
    assert len(brokers.asked(FetchRequest)) == 1


@pytest.mark.parametrize("answer", [SILENT, fetch_error(1), fetch_error(6)])
def test_a_log_that_cannot_be_read_now_proves_nothing_and_others_do(
    brokers: ScriptedBrokers, connect: Connect, answer: object
) -> None:
    brokers.add("orders", [part([*DATA, COMMIT]), part([*DATA, COMMIT])])
    brokers.always(FetchRequest, answer)
    assert ranges_of_markers(connect(brokers, timeout=1.0), [piece(3, 4)]) == set()
    brokers.honest(FetchRequest)
    assert ranges_of_markers(connect(brokers), [piece(3, 4, 1), OffsetRange("absent", 0, 3, 4)]) == {piece(3, 4, 1)}


def test_nothing_asked_is_nothing_found(brokers: ScriptedBrokers, connect: Connect) -> None:
    assert ranges_of_markers(connect(brokers), []) == set()
    assert brokers.asked(FetchRequest) == []
