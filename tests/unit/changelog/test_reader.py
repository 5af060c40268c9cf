"""A range is read exactly to its end, or an error says what is missing."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from statecore.changelog.cluster import Cluster
from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.errors import Invalid, Retryable
from statecore.stopwatch import Stopwatch
from tests.harness.raising import raises
from tests.unit.changelog.build import Record, batch, header_bytes, marker
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import SILENT, Clock, Part, ScriptedBrokers, fetch_error, fetch_response, part

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
RECORDS = [Record(offset, 1000 + offset, b"k%d" % offset, b"v", [(b"h", b"%d" % offset)]) for offset in range(20)]
BATCHES = [batch(RECORDS[start : start + 5]) for start in range(0, 20, 5)]
ONE_BATCH = len(BATCHES[0])


@pytest.fixture
def orders(brokers: ScriptedBrokers) -> ScriptedBrokers:
    """One broker with twenty records in four batches."""
    brokers.add("orders", [part(BATCHES)])
    return brokers


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange("orders", 0, start, end)


def read(
    reader: ChangelogReader, start: int, end: int, isolation: IsolationLevel = COMMITTED, **values: Any
) -> list[int]:
    """The offsets that come."""
    batches = list(reader.read(span(start, end), isolation, **values))
    assert all(one.num_rows for one in batches)
    return [offset for one in batches for offset in one["offset"].to_pylist()]


def small(cluster: Cluster, **values: Any) -> ChangelogReader:
    """A reader that gets one batch at a time."""
    return ChangelogReader(cluster, ReaderOptions(**{"fetch_bytes": ONE_BATCH, **values}))


def asked(brokers: ScriptedBrokers) -> list[int]:
    """The offsets that were asked for."""
    return [request.topics[0].partitions[0].fetch_offset for request in brokers.asked(FetchRequest)]


def test_a_range_is_read_to_its_end_and_no_further(orders: ScriptedBrokers, connect: Connect) -> None:
    reader = small(connect(orders))
    assert reader.statistics.records == 0
    assert read(reader, 3, 12) == list(range(3, 12))
    seen = reader.statistics
    assert (seen.records, seen.position, seen.fetches, seen.batches) == (9, 12, 3, 3)
    assert (seen.max_timestamp, seen.log_start_moved_to) == (1011, None)
    assert asked(orders) == [3, 5, 10]


def test_the_next_request_is_on_its_way_while_the_records_are_used(orders: ScriptedBrokers, connect: Connect) -> None:
    batches = small(connect(orders)).read(span(0, 10), COMMITTED)
    assert next(batches)["offset"].to_pylist() == [0, 1, 2, 3, 4]
    orders.wait(lambda: asked(orders) == [0, 5])
    assert next(batches)["offset"].to_pylist() == [5, 6, 7, 8, 9]
    assert list(batches) == []
    assert asked(orders) == [0, 5]


def test_an_abandoned_reader_closes_its_requests(orders: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(orders)
    batches = small(cluster).read(span(0, 20), COMMITTED)
    orders.next(FetchRequest, orders.respond, SILENT)
    next(batches)
    orders.wait(lambda: len(asked(orders)) == 2)
    batches.close()  # type: ignore[attr-defined]
    orders.wait(lambda: orders.open_connections() == 1)
    assert cluster.idle == {}


def test_a_range_that_was_read_gives_its_connection_to_the_next(orders: ScriptedBrokers, connect: Connect) -> None:
    reader = small(connect(orders))
    assert read(reader, 0, 5) + read(reader, 5, 10) == list(range(10))
    assert {one.connection for one in orders.seen(FetchRequest)} == {2}
    assert reader.statistics.records == 5


@pytest.mark.parametrize("begin", [7, 9])
def test_an_empty_range_sends_no_request(brokers: ScriptedBrokers, connect: Connect, begin: int) -> None:
    reader = ChangelogReader(connect(brokers))
    assert read(reader, begin, 7) == []
    assert reader.statistics.position == begin
    assert brokers.asked(ApiVersionsRequest) == []


def test_the_progress_of_a_range_begins_when_it_is_read(orders: ScriptedBrokers, connect: Connect) -> None:
    reader = small(connect(orders))
    read(reader, 0, 5)
    batches = reader.read(span(5, 15), COMMITTED)
    assert reader.statistics.position == 5
    next(batches)
    assert reader.statistics.position == 5  # what was handed out may not have been used yet
    next(batches)
    assert reader.statistics.position == 10


def test_options_are_what_the_broker_is_asked(orders: ScriptedBrokers, connect: Connect) -> None:
    read(ChangelogReader(connect(orders), ReaderOptions(fetch_bytes=4321, max_wait=0.125)), 0, 20, UNCOMMITTED)
    (request,) = orders.asked(FetchRequest)
    assert (request.max_bytes, request.max_wait_ms, request.isolation_level) == (4321, 125, 0)
    read(ChangelogReader(connect(orders)), 0, 20)
    request = orders.asked(FetchRequest)[-1]
    assert (request.max_bytes, request.max_wait_ms, request.isolation_level) == (8 << 20, 500, 1)


def test_defaults_are_as_documented() -> None:
    assert ReaderOptions() == ReaderOptions(8 << 20, 0.5, 60.0, 64 << 20)


def test_decoded_bytes_bound_what_is_handed_out_at_once(orders: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(orders)
    assert len(list(ChangelogReader(cluster).read(span(0, 20), COMMITTED))) == 1
    bounded = ChangelogReader(cluster, ReaderOptions(decoded_bytes=1))
    assert [one.num_rows for one in bounded.read(span(0, 20), COMMITTED)] == [5, 5, 5, 5]


def test_headers_come_when_they_are_asked_for(orders: ScriptedBrokers, connect: Connect) -> None:
    reader = ChangelogReader(connect(orders))
    (plain,) = reader.read(span(0, 20), COMMITTED)
    assert plain.schema == CHANGELOG_SCHEMA
    (full,) = reader.read(span(0, 20), COMMITTED, headers=True)
    assert full.schema == CHANGELOG_SCHEMA.append(HEADERS_FIELD)
    assert full["headers"].to_pylist() == [header_bytes(record.headers) for record in RECORDS]


def test_a_topic_of_another_id_than_planned_is_refused(orders: ScriptedBrokers, connect: Connect) -> None:
    reader = ChangelogReader(connect(orders))
    assert len(read(reader, 0, 20, topic_id=orders.topics["orders"].topic_id.hex)) == 20
    with raises(Invalid, "topic-recreated", topic="orders"):
        read(reader, 0, 20, topic_id=uuid.uuid4().hex)


def test_a_fetch_sends_the_epoch_of_the_last_batch(orders: ScriptedBrokers, connect: Connect) -> None:
    read(small(connect(orders)), 0, 15)
    epochs = [request.topics[0].partitions[0].last_fetched_epoch for request in orders.asked(FetchRequest)]
    assert epochs == [-1, 7, 7]


def test_aborted_transactions_are_left_out_under_read_committed_only(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    batches = [
        batch(RECORDS[:3], producer=7, transactional=True),
        marker(3, 7, commit=False),
        batch(RECORDS[4:6], producer=7, transactional=True),
        marker(6, 7, commit=True),
    ]
    brokers.add("orders", [part(batches, aborted=[(7, 0)])])
    reader = ChangelogReader(connect(brokers))
    assert read(reader, 0, 7) == [4, 5]
    assert (reader.statistics.aborted, reader.statistics.position) == (3, 7)
    assert read(reader, 0, 7, UNCOMMITTED) == [0, 1, 2, 4, 5]


def test_reading_resumes_at_a_moved_log_start(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders", [part(BATCHES[2:], log_start=10)])
    reader = ChangelogReader(connect(brokers))
    assert read(reader, 2, 20) == list(range(10, 20))
    assert (reader.statistics.log_start_moved_to, reader.statistics.position) == (10, 20)
    assert reader.statistics.removed == 8
    assert read(reader, 2, 8) == []
    assert (reader.statistics.log_start_moved_to, reader.statistics.position) == (10, 8)


def test_a_log_start_that_moves_while_one_reads_is_no_lack_of_progress(
    orders: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    topic = orders.topics["orders"]

    def shorten(request: Any) -> Any:
        topic.parts[0] = part(BATCHES[3:], log_start=15)
        clock.now += 9.5
        return orders.respond(request)

    def busy(request: Any) -> Any:
        return fetch_response(request, error=7)

    orders.next(FetchRequest, orders.respond, shorten, busy, busy, busy, busy, busy, busy)
    assert read(small(connect(orders), stall_timeout=10.0), 0, 20) == [*range(5), *range(15, 20)]
    epochs = [request.topics[0].partitions[0].last_fetched_epoch for request in orders.asked(FetchRequest)]
    assert epochs[:2] == [-1, 7]
    assert set(epochs[2:]) == {-1}  # of what lies before the new start nothing was read


def test_a_log_that_ends_before_the_position_is_refused(orders: ScriptedBrokers, connect: Connect) -> None:
    with raises(Invalid, "log-truncated", topic="orders", partition=0, offset=25, end=40, log_end=20):
        read(ChangelogReader(connect(orders)), 25, 40)


def test_an_offset_within_the_log_is_requested_again(orders: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    orders.next(FetchRequest, fetch_error(1), fetch_error(1))
    reader = ChangelogReader(connect(orders), ReaderOptions(stall_timeout=10.0))
    assert read(reader, 0, 20) == list(range(20))
    assert clock.pauses == [0.02, 0.04]
    orders.always(FetchRequest, fetch_error(1))
    with raises(Retryable, "fetch-stalled", reason="offset-out-of-range"):
        read(reader, 0, 20)


@pytest.mark.parametrize("position", [0, 20])
def test_both_ends_of_the_log_lie_in_it(orders: ScriptedBrokers, connect: Connect, clock: Clock, position: int) -> None:
    orders.always(FetchRequest, fetch_error(1))
    with raises(Retryable, "fetch-stalled", reason="offset-out-of-range"):
        read(ChangelogReader(connect(orders), ReaderOptions(stall_timeout=10.0)), position, 21)


def test_an_open_transaction_is_waited_for_and_named_at_the_deadline(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    topic = brokers.add("orders", [part(BATCHES, last_stable=10)])
    reader = ChangelogReader(connect(brokers), ReaderOptions(stall_timeout=30.0))
    assert read(reader, 0, 10) == list(range(10))
    why = {"reason": "log-transaction-open", "end": 20, "last_stable": 10, "log_end": 20}
    with raises(Retryable, "fetch-stalled", offset=10, **why):
        read(reader, 0, 20)
    assert read(reader, 0, 20, UNCOMMITTED) == list(range(20))

    def end(request: Any) -> Any:
        answer = brokers.respond(request)
        topic.parts[0].last_stable = 20
        return answer

    brokers.next(FetchRequest, end)
    assert read(reader, 10, 20) == list(range(10, 20))


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_a_broker_without_data_below_the_end_is_waited_for(
    orders: ScriptedBrokers, connect: Connect, clock: Clock, isolation: IsolationLevel
) -> None:
    orders.next(FetchRequest, lambda request: fetch_response(request, Part(log_end=20)))
    reader = ChangelogReader(connect(orders), ReaderOptions(stall_timeout=30.0))
    assert read(reader, 0, 20, isolation) == list(range(20))
    assert {request.max_bytes for request in orders.asked(FetchRequest)} == {8 << 20}  # room is not what was missing
    orders.always(FetchRequest, lambda request: fetch_response(request, Part(log_end=20)))
    with raises(Retryable, "fetch-stalled", reason="no-data-returned", end=20, log_end=20):
        read(reader, 0, 20, isolation)


def test_under_read_uncommitted_an_open_transaction_is_no_reason(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders", [part(BATCHES, last_stable=0)])
    brokers.always(FetchRequest, lambda request: fetch_response(request, Part(log_end=20, last_stable=0)))
    with raises(Retryable, "fetch-stalled", reason="no-data-returned", end=20, log_end=20):
        read(ChangelogReader(connect(brokers), ReaderOptions(stall_timeout=10.0)), 0, 20, UNCOMMITTED)


@pytest.mark.parametrize("late", [True, False])
def test_a_high_watermark_below_the_end_is_a_loss_only_when_it_stays(
    orders: ScriptedBrokers, connect: Connect, clock: Clock, late: bool
) -> None:
    lagging = [lambda request: fetch_response(request, Part(log_end=20), high_watermark=12)]
    reader = ChangelogReader(connect(orders), ReaderOptions(stall_timeout=5.0, max_wait=0.5))
    if late:
        orders.next(FetchRequest, *lagging * 7)
        assert read(reader, 0, 20) == list(range(20))
        assert clock.pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0]
        return
    orders.always(FetchRequest, *lagging)
    with raises(Invalid, "log-truncated", offset=0, end=20, log_end=12):
        read(reader, 0, 20)
    assert clock.pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]  # 4.26 of 5 s, a last look included


def test_a_high_watermark_at_the_end_is_no_loss(orders: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    orders.always(FetchRequest, lambda request: fetch_response(request, Part(log_end=20), high_watermark=20))
    with raises(Retryable, "fetch-stalled", reason="no-data-returned"):
        read(ChangelogReader(connect(orders)), 0, 20)


def test_a_broker_that_throttles_is_waited_for_and_nothing_is_lost(
    orders: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    """Without data its response has no offsets, which is not a log that ended."""
    held_back = [lambda request: fetch_response(request, high_watermark=-1, throttle=2.0)]
    orders.next(FetchRequest, *held_back * 3)
    reader = ChangelogReader(connect(orders), ReaderOptions(stall_timeout=10.0))
    assert read(reader, 0, 20) == list(range(20))
    assert sum(clock.pauses) == pytest.approx(6.0)
    assert clock.pauses[::2] == [0.02, 0.04, 0.08]  # and in between the rest of what the broker asked for
    orders.always(FetchRequest, lambda request: fetch_response(request, high_watermark=-1, throttle=0.001))
    with raises(Retryable, "fetch-stalled", reason="client-throttled"):
        read(reader, 0, 20)


def test_a_batch_that_does_not_come_whole_is_asked_for_with_more_room(
    orders: ScriptedBrokers, connect: Connect
) -> None:
    def cut(request: Any) -> Any:
        wanted = request.topics[0].partitions[0]
        records = b"".join(BATCHES[wanted.fetch_offset // 5 :])[: wanted.partition_max_bytes]
        return fetch_response(request, orders.topics["orders"].parts[0], records=records)

    orders.always(FetchRequest, cut)
    reader = small(connect(orders), fetch_bytes=ONE_BATCH // 3)
    assert read(reader, 0, 10) == list(range(10))
    rooms = [request.topics[0].partitions[0].partition_max_bytes for request in orders.asked(FetchRequest)]
    first = ONE_BATCH // 3
    assert rooms == [first, 2 * first, 4 * first, 4 * first]
    assert reader.statistics.fetches == 2  # those that brought nothing do not count
    assert len(orders.asked(MetadataRequest)) == 1


def test_time_waiting_for_brokers_is_measured_apart_from_processing(
    orders: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    orders.next(FetchRequest, *[lambda request: fetch_response(request, high_watermark=-1, throttle=2.0)] * 3)
    watch = Stopwatch("decode", clock=clock.monotonic)
    for _ in ChangelogReader(connect(orders), ReaderOptions(fetch_bytes=ONE_BATCH), watch).read(span(0, 20), COMMITTED):
        clock.now += 1
    assert watch.wall == {"fetch": pytest.approx(6.0), "decode": 4.0}
