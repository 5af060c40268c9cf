"""Fetching one partition: what passes is waited out up to a deadline, what does not is raised at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from statecore.changelog.cluster import Cluster
from statecore.changelog.fetch import OFFSET_OUT_OF_RANGE, PartitionFetcher
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import (
    CLOSE,
    NEWEST,
    SILENT,
    Clock,
    ScriptedBrokers,
    fetch_error,
    fetch_response,
    part,
)

Start = Callable[..., ScriptedBrokers]
ORDERS = TopicPartition("orders", 0)
RECORDS = [Record(offset, 1000 + offset, b"k", b"v") for offset in range(10)]
BATCHES = [batch(RECORDS[:5]), batch(RECORDS[5:])]

LEADER_ERRORS = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE",
    56: "KAFKA_STORAGE_ERROR",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
PASSING_ERRORS = {
    -1: "UNKNOWN_SERVER_ERROR",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    89: "THROTTLING_QUOTA_EXCEEDED",
}

Fetch = Callable[..., PartitionFetcher]


@pytest.fixture
def fetcher(opened: ExitStack) -> Iterator[Fetch]:
    """Makes fetchers of the first partition of the topic orders."""

    def made(cluster: Cluster, **values: Any) -> PartitionFetcher:
        settings = {"committed": True, "fetch_bytes": 1 << 20, "max_wait": 9.0, "stall_timeout": 60.0, **values}
        one = PartitionFetcher(cluster, ORDERS, **settings)
        opened.callback(one.close)
        return one

    return made


@pytest.fixture
def orders(brokers: ScriptedBrokers) -> ScriptedBrokers:
    """One broker with ten records in two batches."""
    brokers.add("orders", [part(BATCHES)])
    return brokers


def data(fetched: Any) -> bytes:
    found: bytes = fetched.records.tobytes()
    return found


@pytest.mark.parametrize("committed", [True, False])
def test_a_fetch_requests_the_given_sizes(
    brokers: ScriptedBrokers, connect: Connect, fetcher: Fetch, committed: bool
) -> None:
    topic = brokers.add("orders", [part(BATCHES, log_start=2, last_stable=5, epoch=9, aborted=[(77, 3)])])
    one = fetcher(connect(brokers), committed=committed, fetch_bytes=1234, max_wait=0.25)
    got = one.fetch(2)
    assert data(got) == (BATCHES[0] if committed else b"".join(BATCHES))
    assert (got.error, got.high_watermark, got.last_stable, got.diverges) == (0, 10, 5, None)
    assert got.aborted.tolist() == [[77, 3]]
    (request,) = brokers.asked(FetchRequest)
    assert (request.isolation_level, request.max_bytes, request.max_wait_ms) == (int(committed), 1234, 250)
    assert (request.min_bytes, request.session_id, request.session_epoch) == (1, 0, -1)
    assert (request.header.client_id, request.API_VERSION) == ("statecore", FetchRequest.max_version)
    (asked,) = request.topics
    assert asked.topic_id == topic.topic_id
    (wanted,) = asked.partitions
    assert (wanted.partition, wanted.fetch_offset, wanted.partition_max_bytes) == (0, 2, 1234)
    assert (wanted.current_leader_epoch, wanted.last_fetched_epoch, wanted.log_start_offset) == (9, -1, -1)


def test_the_epoch_of_what_was_read_goes_with_the_next_request(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    one = fetcher(connect(orders))
    one.fetch(0)
    one.progress(7)
    one.fetch(5)
    one.progress()
    one.fetch(6)
    epochs = [request.topics[0].partitions[0].last_fetched_epoch for request in orders.asked(FetchRequest)]
    assert epochs == [-1, 7, -1]


def test_an_old_broker_is_asked_by_name(start: Start, connect: Connect, fetcher: Fetch) -> None:
    brokers = start(versions=NEWEST | {FetchRequest.API_KEY: (0, 11), MetadataRequest.API_KEY: (0, 8)})
    brokers.add("orders", [part(BATCHES)])
    assert data(fetcher(connect(brokers), topic_id=uuid.uuid4().hex).fetch(0)) == b"".join(BATCHES)
    (request,) = brokers.asked(FetchRequest)
    assert (request.API_VERSION, request.topics[0].topic) == (11, "orders")
    assert request.topics[0].partitions[0].current_leader_epoch == -1


def test_what_was_asked_for_ahead_is_not_asked_for_again(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    one = fetcher(connect(orders))
    one.prefetch(0)  # not connected yet
    assert orders.asked(FetchRequest) == []
    one.fetch(0)
    one.prefetch(5)
    one.prefetch(7)  # another one is on its way
    orders.wait(lambda: len(orders.seen(FetchRequest)) == 2)
    assert data(one.fetch(5)) == BATCHES[1]
    assert [request.topics[0].partitions[0].fetch_offset for request in orders.asked(FetchRequest)] == [0, 5]
    assert {asked.connection for asked in orders.seen(FetchRequest)} == {2}


def test_an_answer_to_another_question_is_thrown_away_with_its_connection(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders))
    one.fetch(0)
    one.prefetch(5)
    got = one.fetch(0)
    assert data(got) == b"".join(BATCHES)
    orders.wait(lambda: len(orders.seen(FetchRequest)) == 3)
    assert [asked.connection for asked in orders.seen(FetchRequest)] == [2, 2, 3]
    assert clock.pauses == [0.02]


@pytest.mark.parametrize("code", LEADER_ERRORS)
def test_a_leader_that_may_be_another_is_asked_for(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock, code: int
) -> None:
    orders.next(FetchRequest, fetch_error(code), fetch_error(code))
    assert len(data(fetcher(connect(orders)).fetch(0)))
    assert clock.pauses == [0.02, 0.04]
    assert len(orders.asked(MetadataRequest)) == 3
    assert {asked.connection for asked in orders.seen(FetchRequest)} == {2}  # it is still the same one


@pytest.mark.parametrize("code", PASSING_ERRORS)
def test_a_trouble_that_passes_is_waited_out_without_asking_who_leads(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock, code: int
) -> None:
    orders.next(FetchRequest, fetch_error(code), fetch_error(code))
    assert len(data(fetcher(connect(orders)).fetch(0)))
    assert clock.pauses == [0.02, 0.04]
    assert len(orders.asked(MetadataRequest)) == 1


@pytest.mark.parametrize(("code", "name"), [*LEADER_ERRORS.items(), *PASSING_ERRORS.items()])
def test_a_trouble_that_stays_is_named_at_the_deadline(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock, code: int, name: str
) -> None:
    orders.always(FetchRequest, fetch_error(code))
    stalled = {"offset": 3, "broker": orders.address, "reason": "broker-error", "error_code": code}
    expected: tuple[type[StatecoreError], str, dict[str, Any]] = (Retryable, "fetch-stalled", stalled)
    if code == 3:
        expected = (NotFound, "partition-not-found", {})
    with raises(expected[0], expected[1], topic="orders", partition=0, **expected[2]) as caught:
        fetcher(connect(orders), stall_timeout=2.0).fetch(3)
    assert code == 3 or name in caught.value.what
    assert clock.pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64]


def test_pauses_grow_to_a_second_and_begin_small_again_after_progress(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders))
    orders.next(FetchRequest, *[fetch_error(7)] * 9)
    one.fetch(0)
    assert clock.pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
    clock.pauses.clear()
    one.progress()
    orders.next(FetchRequest, fetch_error(7))
    one.fetch(5)
    assert clock.pauses == [0.02]


def test_patience_counts_from_the_last_progress(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders), stall_timeout=10.0)
    assert not one.overdue(1000.0)  # nothing is being waited for
    one.fetch(0)
    clock.now += 9
    assert not one.overdue()
    assert one.overdue(1.5)
    assert one.overdue(1.0)  # that is the moment
    clock.now += 2
    assert one.overdue()
    one.fetch(0)  # without progress the deadline stays
    assert one.overdue()
    one.progress()
    assert not one.overdue(1000.0)
    one.fetch(5)
    assert not one.overdue(9.5)
    assert one.overdue(10.5)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (29, Invalid, "topic-authorization-failed"),
        (2, Corrupted, "record-batch-corrupted"),
        (76, Invalid, "record-batch-unsupported"),
        (35, Invalid, "record-batch-unsupported"),
        (87, Retryable, "broker-error"),
    ],
)
def test_what_does_not_pass_is_raised_at_once(
    orders: ScriptedBrokers,
    connect: Connect,
    fetcher: Fetch,
    clock: Clock,
    code: int,
    kind: type[StatecoreError],
    said: str,
) -> None:
    orders.next(FetchRequest, fetch_error(code))
    with raises(kind, said, topic="orders", partition=0, offset=4) as caught:
        fetcher(connect(orders)).fetch(4)
    assert type(caught.value) is kind
    assert caught.value.context.get("error_code", code) == code
    assert clock.pauses == []


def test_an_offset_out_of_range_is_an_answer(orders: ScriptedBrokers, connect: Connect, fetcher: Fetch) -> None:
    assert fetcher(connect(orders)).fetch(11).error == OFFSET_OUT_OF_RANGE


def test_a_log_that_was_truncated_below_what_was_read_is_refused(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    orders.next(FetchRequest, lambda request: fetch_response(request, diverges=0))
    with raises(Invalid, "log-truncated", topic="orders", partition=0, offset=0, position=5) as caught:
        fetcher(connect(orders)).fetch(5)
    assert orders.address in caught.value.what


def test_a_broker_that_throttles_is_not_asked_before_its_time_and_is_not_stuck(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders), stall_timeout=10.0)
    orders.next(FetchRequest, lambda request: fetch_response(request, records=BATCHES[0], throttle=30.0))
    assert one.fetch(0).throttle == 30
    assert not one.overdue(39.0)
    assert one.overdue(41.0)
    one.prefetch(5)
    assert len(orders.asked(FetchRequest)) == 1
    clock.now += 10
    one.fetch(5)
    assert clock.pauses == [pytest.approx(20.0)]
    one.prefetch(6)
    orders.wait(lambda: len(orders.seen(FetchRequest)) == 3)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CLOSE, "closed the connection"),
        (b"\0\0\0\4abcd", "announces a response of 4 bytes"),
        (b"\xff\0\0\0", "announces a response of -16777216 bytes"),
        (b"\0\0\0\x20" + b"x" * 32, "sent a malformed response"),
    ],
)
def test_a_failed_connection_is_reopened_after_a_metadata_request(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock, answer: Any, words: str
) -> None:
    orders.next(FetchRequest, answer)
    one = fetcher(connect(orders), stall_timeout=1.0)
    assert len(data(one.fetch(0)))
    assert clock.pauses == [0.02]
    assert len(orders.asked(MetadataRequest)) == 2
    assert [asked.connection for asked in orders.seen(FetchRequest)] == [2, 3]
    orders.wait(lambda: orders.open_connections() == 2)  # one for metadata, one for Fetch
    orders.always(FetchRequest, answer)
    with raises(Retryable, "fetch-stalled", offset=0, broker=orders.address, reason="connection-failed") as caught:
        one.fetch(0)
    assert words in caught.value.what


def test_a_broker_that_hangs_is_left_in_time(orders: ScriptedBrokers, connect: Connect, fetcher: Fetch) -> None:
    orders.next(FetchRequest, SILENT)
    cluster = connect(orders)
    one = fetcher(cluster, max_wait=0.01, stall_timeout=3.0)
    assert len(data(one.fetch(0)))  # on another connection, a third of the time later
    assert len(orders.asked(FetchRequest)) == 2
    one.close()
    orders.always(FetchRequest, SILENT)
    with raises(Retryable, "fetch-stalled", broker=orders.address, reason="connection-failed") as caught:
        fetcher(cluster, max_wait=0.01, stall_timeout=0.01).fetch(0)
    assert "sent nothing" in caught.value.what


def test_a_request_that_cannot_be_sent_ahead_is_sent_when_it_is_wanted(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders))
    one.fetch(0)
    orders.hang_up(0)
    orders.wait(lambda: orders.open_connections() == 0)
    one.prefetch(5)
    assert data(one.fetch(5)) == BATCHES[1]
    assert len(orders.asked(MetadataRequest)) == 2  # the leader may be another one by now
    assert 0.02 not in clock.pauses  # the fetch itself has not failed


def test_a_topic_of_another_id_than_planned_is_refused(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    found, planned = orders.topics["orders"].topic_id, uuid.uuid4()
    recreated = {"topic": "orders", "partition": 0, "found": found.hex, "expected": planned.hex}
    with raises(Invalid, "topic-recreated", **recreated):
        fetcher(connect(orders), topic_id=planned.hex).fetch(0)
    assert orders.asked(FetchRequest) == []
    for same in (found.hex, "0" * 32):  # planned by a broker that was too old to have ids
        assert len(data(fetcher(connect(orders), topic_id=same).fetch(0)))


def test_a_topic_that_is_created_again_meanwhile_is_refused(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders))
    one.fetch(0)
    before = orders.topics["orders"].topic_id
    after = orders.add("orders", [part(BATCHES)]).topic_id
    with raises(Invalid, "topic-recreated", found=after.hex, expected=before.hex):
        one.fetch(5)


def test_more_is_asked_for_at_once_until_no_batch_can_be_so_large(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    one = fetcher(connect(orders), fetch_bytes=3 << 27)
    one.enlarge(4)
    one.enlarge(4)
    one.fetch(0)
    assert orders.asked(FetchRequest)[-1].topics[0].partitions[0].partition_max_bytes == 3 << 29
    unending = {"topic": "orders", "partition": 0, "offset": 4}
    with raises(Corrupted, "record-batch-corrupted", **unending, fetch_bytes=3 << 29):
        one.enlarge(4)
    limit = fetcher(connect(orders), fetch_bytes=1 << 30)
    with raises(Corrupted, "record-batch-corrupted", fetch_bytes=1 << 30):
        limit.enlarge(4)
    fetcher(connect(orders), fetch_bytes=(1 << 30) - 1).enlarge(4)


def test_a_connection_is_used_by_the_next_range(orders: ScriptedBrokers, connect: Connect, fetcher: Fetch) -> None:
    cluster = connect(orders)
    for _ in range(2):
        one = fetcher(cluster)
        one.fetch(0)
        one.close()
        one.close()
    assert {asked.connection for asked in orders.seen(FetchRequest)} == {2}
    assert len(orders.asked(ApiVersionsRequest)) == 2
    first, second = fetcher(cluster), fetcher(cluster)
    first.fetch(0)
    second.fetch(0)
    assert {asked.connection for asked in orders.seen(FetchRequest)} == {2, 3}
    first.close()
    second.close()
    assert len(cluster.idle[0]) == 2
    cluster.close()
    orders.wait(lambda: orders.open_connections() == 0)
    assert cluster.idle == {}


def test_a_connection_on_which_an_answer_is_to_come_is_not_used_again(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch
) -> None:
    cluster = connect(orders)
    one = fetcher(cluster)
    one.fetch(0)
    orders.next(FetchRequest, SILENT)
    one.prefetch(5)
    one.close()
    orders.wait(lambda: orders.open_connections() == 1)
    assert cluster.idle == {}
    assert data(one.fetch(5)) == BATCHES[1]  # a fetcher that was closed connects anew


def test_a_read_follows_its_leader_to_another_broker(
    start: Start, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    brokers = start(2)
    brokers.add("orders", [part(BATCHES)])
    one = fetcher(connect(brokers))
    one.fetch(0)

    def move(request: Any) -> Any:
        brokers.topics["orders"].parts[0].leader = 1
        return fetch_response(request, error=6)

    brokers.next(FetchRequest, move)
    assert data(one.fetch(5)) == BATCHES[1]
    assert [asked.node for asked in brokers.seen(FetchRequest)] == [0, 0, 1]
    brokers.wait(lambda: brokers.open_connections(0) == 1)


def test_a_partition_that_has_no_leader_any_more_is_given_up_by_its_last_one(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    one = fetcher(connect(orders), stall_timeout=5.0)
    one.fetch(0)
    orders.topics["orders"].parts[0].leader = -1
    orders.always(FetchRequest, fetch_error(6))
    with raises(Retryable, "fetch-stalled", offset=5, broker=orders.address, reason="leader-not-available"):
        one.fetch(5)
    assert 4 < sum(clock.pauses) <= 5


def test_a_partition_without_a_leader_is_given_up_by_the_cluster(
    brokers: ScriptedBrokers, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    brokers.add("orders", [part(leader=-1)])
    with raises(Retryable, "fetch-stalled", broker=brokers.address, reason="leader-not-available"):
        fetcher(connect(brokers), stall_timeout=5.0).fetch(0)
    assert 3 < sum(clock.pauses) <= 5  # not the client's timeout


def test_what_the_cluster_refuses_without_waiting_keeps_its_code(
    orders: ScriptedBrokers, connect: Connect, fetcher: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected token is no partition that made no progress for so many seconds."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise Retryable("Two tokens were rejected.", code="broker-token-rejected", action="Check the tokens.")

    cluster = connect(orders)
    monkeypatch.setattr(cluster, "leader", refuse)
    with raises(Retryable, "broker-token-rejected", topic="orders", partition=0, offset=5) as caught:
        fetcher(cluster, stall_timeout=5.0).fetch(5)
    assert caught.value.action == "Check the tokens."


def test_a_leader_that_cannot_be_connected_to_is_tried_until_the_deadline(
    start: Start, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    brokers = start(2)
    brokers.add("orders", [part(BATCHES, leader=1)])
    cluster = connect(brokers)
    one = fetcher(cluster, stall_timeout=1.0)
    brokers.stop(1)
    with raises(Retryable, "fetch-stalled", broker=brokers.where(1), reason="connection-failed") as caught:
        one.fetch(0)
    assert "ECONNREFUSED" in caught.value.what
    assert clock.pauses == [0.02, 0.04, 0.08, 0.16, 0.32]


def test_a_leader_that_hangs_while_it_is_connected_to_is_left_in_time(
    start: Start, connect: Connect, fetcher: Fetch
) -> None:
    brokers = start(2)
    brokers.add("orders", [part(BATCHES, leader=1)])
    brokers.always(ApiVersionsRequest, SILENT, node=1)
    cluster = connect(brokers)
    cluster.leader(ORDERS)
    with raises(Retryable, "fetch-stalled", broker=brokers.where(1), reason="connection-failed"):
        fetcher(cluster, stall_timeout=0.2).fetch(0)


def test_a_leader_that_does_not_let_in_is_an_error_at_once(
    start: Start, connect: Connect, fetcher: Fetch, clock: Clock
) -> None:
    brokers = start(2)
    brokers.add("orders", [part(BATCHES, leader=1)])
    brokers.always(ApiVersionsRequest, b"\x15\x03\x03\x00\x02\x02\x0a", node=1)
    with raises(Invalid, "tls-failed", broker=brokers.where(1)):
        fetcher(connect(brokers)).fetch(0)
    assert clock.pauses == []
