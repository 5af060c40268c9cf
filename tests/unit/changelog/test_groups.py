"""What a consumer group has committed: the coordinator is found, what passes is waited for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kafka.protocol.consumer.group import OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from statecore.changelog.groups import all_committed_offsets, committed_offsets
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import NEWEST, Clock, ScriptedBrokers, offset_fetch_response, part

Start = Callable[..., ScriptedBrokers]
ORDERS, MORE, CLICKS = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)


@pytest.fixture
def two(start: Start) -> ScriptedBrokers:
    """Two brokers, of which the second coordinates the group."""
    brokers = start(2)
    brokers.add("orders", [part(), part()])
    brokers.add("clicks")
    brokers.coordinator = 1
    return brokers


def failed(**errors: int) -> Callable[[Any], Any]:
    """An answer to OffsetFetch with errors in it."""
    return lambda request: offset_fetch_response(request, {("orders", 0): 5}, **errors)


def no_coordinator(code: int, request: Any) -> Any:
    return FindCoordinatorResponse(
        throttle_time_ms=0, error_code=code, error_message=None, node_id=-1, host="", port=-1
    )


def test_offsets_come_from_the_groups_coordinator_and_only_stable_ones(two: ScriptedBrokers, connect: Connect) -> None:
    two.committed = {("orders", 0): 41, ("clicks", 0): 0}
    found = committed_offsets(connect(two), "app", [MORE, CLICKS, ORDERS])
    assert found == {ORDERS: 41, CLICKS: 0, MORE: None}
    (asked,) = two.seen(OffsetFetchRequest)
    assert (asked.node, asked.request.API_VERSION, asked.request.group_id) == (1, 7, "app")
    assert asked.request.require_stable
    assert [(one.name, one.partition_indexes) for one in asked.request.topics] == [("clicks", [0]), ("orders", [0, 1])]
    (coordinator,) = two.asked(FindCoordinatorRequest)
    assert (coordinator.key, coordinator.key_type, coordinator.API_VERSION) == ("app", 0, 3)


def test_no_partitions_send_no_request(two: ScriptedBrokers, connect: Connect) -> None:
    assert committed_offsets(connect(two), "app", []) == {}
    assert two.asked(ApiVersionsRequest) == []


def test_a_topic_that_is_not_there_is_not_one_without_offsets(
    two: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    with pytest.raises(NotFound):
        committed_offsets(connect(two), "app", [TopicPartition("gone", 0)])


def test_a_group_that_does_not_exist_has_committed_nothing(two: ScriptedBrokers, connect: Connect) -> None:
    two.next(OffsetFetchRequest, lambda request: offset_fetch_response(request, {}, error=69))
    assert committed_offsets(connect(two), "app", [ORDERS]) == {ORDERS: None}


def test_the_offsets_of_any_topic_that_a_group_has_committed(two: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(two)
    cluster.describe_topics([ORDERS.topic])
    assert all_committed_offsets(cluster, "app") == {TopicPartition("input", 0): 1}
    two.committed_elsewhere = {}
    assert all_committed_offsets(cluster, "app") == {}
    two.committed = {("orders", 0): 0}
    assert all_committed_offsets(cluster, "app") == {ORDERS: 0}


@pytest.mark.parametrize("code", [14, 15, 16, 88])
@pytest.mark.parametrize("where", ["error", "part_error"])
def test_transient_errors_are_retried_with_a_new_coordinator(
    two: ScriptedBrokers, connect: Connect, clock: Clock, code: int, where: str
) -> None:
    two.committed = {("orders", 0): 6}
    two.next(OffsetFetchRequest, failed(**{where: code}), failed(**{where: code}))
    assert committed_offsets(connect(two), "app", [ORDERS]) == {ORDERS: 6}
    assert clock.pauses == [0.05, 0.1]
    assert len(two.asked(FindCoordinatorRequest)) == 3


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    two: ScriptedBrokers, connect: Connect, clock: Clock, code: int
) -> None:
    two.committed = {("orders", 0): 6}
    two.next(FindCoordinatorRequest, partial(no_coordinator, code))
    assert committed_offsets(connect(two), "app", [ORDERS]) == {ORDERS: 6}
    assert clock.pauses == [0.05]
    assert len(two.asked(OffsetFetchRequest)) == 1


def test_a_transaction_that_stays_open_is_given_up_at_the_deadline(
    two: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    two.always(OffsetFetchRequest, failed(part_error=88))
    with raises(Retryable, "broker-error", group="app", error_code=88):
        committed_offsets(connect(two, timeout=5.5), "app", [ORDERS])
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("found", [True, False])
def test_a_group_that_may_not_be_seen_is_refused_at_once(
    two: ScriptedBrokers, connect: Connect, clock: Clock, found: bool
) -> None:
    if found:
        two.always(OffsetFetchRequest, failed(error=30))
    else:
        two.always(FindCoordinatorRequest, partial(no_coordinator, 30))
    with raises(Invalid, "group-authorization-failed", group="app"):
        committed_offsets(connect(two), "app", [ORDERS])
    assert clock.pauses == []


@pytest.mark.parametrize("where", ["error", "part_error"])
def test_an_error_that_does_not_pass_is_not_waited_for(
    two: ScriptedBrokers, connect: Connect, clock: Clock, where: str
) -> None:
    two.always(OffsetFetchRequest, failed(**{where: 42}))
    with raises(Retryable, "broker-error", error_code=42):
        committed_offsets(connect(two), "app", [ORDERS])
    assert clock.pauses == []


def test_a_broker_that_cannot_wait_for_open_transactions_is_refused(
    start: Start, connect: Connect, clock: Clock
) -> None:
    brokers = start(versions=NEWEST | {OffsetFetchRequest.API_KEY: (0, 6)})
    brokers.add("orders")
    with raises(Invalid, "broker-access-denied"):
        committed_offsets(connect(brokers), "app", [ORDERS])
