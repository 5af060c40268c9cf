"""What a cluster says of its topics: not found and could not look are told apart, what passes is waited for."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest, DescribeQuorumRequest, DescribeQuorumResponse
from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from statecore.changelog.cluster import Leader
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition
from tests.harness.raising import raises
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import CLOSE, NEWEST, SILENT, Clock, Part, ScriptedBrokers, Topic, part

Start = Callable[..., ScriptedBrokers]
ORDERS = TopicPartition("orders", 0)


def without(brokers: ScriptedBrokers, *names: str) -> Callable[[Any], Any]:
    """An answer to a Metadata request of a broker that has not heard of some topics yet."""

    def answer(request: Any) -> Any:
        kept = {name: brokers.topics.pop(name) for name in names}
        try:
            return brokers.respond(request)
        finally:
            brokers.topics.update(kept)

    return answer


def offsets_error(code: int) -> Callable[[Any], Any]:
    """An answer to ListOffsets that has an error for each partition."""
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    one = topic.ListOffsetsPartitionResponse

    def answer(request: Any) -> Any:
        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                topic(
                    name=asked.name,
                    partitions=[
                        one(
                            partition_index=p.partition_index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
                        )
                        for p in asked.partitions
                    ],
                )
                for asked in request.topics
            ],
        )

    return answer


def epochs_error(code: int, number: int) -> Callable[[Any], Any]:
    """An answer to OffsetForLeaderEpoch that has an error for one of the partitions, made without the brokers' help."""
    topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

    def answer(request: Any) -> Any:
        (asked,) = request.topics
        parts = [
            topic.EpochEndOffset(
                error_code=code if one.partition == number else 0,
                partition=one.partition,
                leader_epoch=-1 if one.partition == number else 7,
                end_offset=-1 if one.partition == number else 5,
            )
            for one in asked.partitions
        ]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[topic(topic=asked.topic, partitions=parts)])

    return answer


def test_topics_are_described_by_id_partitions_and_configuration(brokers: ScriptedBrokers, connect: Connect) -> None:
    orders = brokers.add("orders", [part(), part()], configs={"cleanup.policy": "delete", "password": None})
    clicks = brokers.add("clicks")
    brokers.add("others")
    found = connect(brokers).describe_topics(iter(["orders", "clicks", "orders"]))
    assert found == {
        "clicks": TopicDescription("clicks", clicks.topic_id.hex, 1, {"cleanup.policy": "compact"}),
        "orders": TopicDescription("orders", orders.topic_id.hex, 2, {"cleanup.policy": "delete"}),
    }
    (asked,) = brokers.asked(MetadataRequest)
    assert [topic.name for topic in asked.topics] == ["clicks", "orders"]
    assert not asked.allow_auto_topic_creation
    assert not asked.include_topic_authorized_operations
    (configs,) = brokers.asked(DescribeConfigsRequest)
    assert [(one.resource_type, one.resource_name) for one in configs.resources] == [(2, "clicks"), (2, "orders")]
    assert [one.configuration_keys for one in configs.resources] == [None, None]
    assert not configs.include_synonyms
    assert not configs.include_documentation


def test_every_answer_with_metadata_tells_the_id_of_the_cluster(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders")
    cluster = connect(brokers)
    cluster.describe_topics(["orders"])
    assert cluster.cluster_id() == "scripted"
    assert len(brokers.asked(MetadataRequest)) == 1
    assert connect(brokers).cluster_id() == "scripted"
    assert [topic.name for topic in brokers.asked(MetadataRequest)[-1].topics] == []


def test_brokers_before_kafka_0_10_1_have_no_id_of_their_cluster(start: Start, connect: Connect) -> None:
    brokers = start(versions=NEWEST | {MetadataRequest.API_KEY: (0, 1)})
    assert connect(brokers).cluster_id() == ""


def test_rights_on_the_cluster_are_not_asked_for(start: Start, connect: Connect) -> None:
    brokers = start(versions=NEWEST | {MetadataRequest.API_KEY: (0, 8)})
    connect(brokers).list_topics()
    (asked,) = brokers.asked(MetadataRequest)
    assert not asked.include_cluster_authorized_operations
    assert not asked.include_topic_authorized_operations


def test_an_empty_question_sends_no_request(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    assert (cluster.describe_topics([]), cluster.log_offsets([])) == ({}, {})
    assert brokers.asked(ApiVersionsRequest) == []


def test_topics_of_the_cluster_itself_and_those_one_may_not_see_are_not_listed(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    for name in ("orders", "clicks"):
        brokers.add(name)
    brokers.add("__consumer_offsets", internal=True)
    brokers.add("secret", error=29)
    assert connect(brokers).list_topics() == ["clicks", "orders"]
    (asked,) = brokers.asked(MetadataRequest)
    assert asked.topics is None


def test_brokers_are_named_as_they_name_themselves(start: Start, connect: Connect) -> None:
    brokers = start(3)
    assert connect(brokers).brokers() == sorted(brokers.where(node) for node in range(3))
    (asked,) = brokers.asked(MetadataRequest)
    assert asked.topics == []


def test_a_topic_is_missing_after_two_answers(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    brokers.add("orders")
    brokers.add("b\0d", error=17)
    with raises(NotFound, "topic-not-found", topics=["away", "b\0d", "gone"]):
        connect(brokers).describe_topics(["orders", "gone", "b\0d", "away"])
    assert len(brokers.asked(MetadataRequest)) == 2
    assert clock.pauses == [0.1]


def test_a_topic_that_a_broker_has_not_heard_of_yet_is_waited_for(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders")
    brokers.add("clicks")
    brokers.next(MetadataRequest, without(brokers, "orders", "clicks"), without(brokers, "orders"))
    assert set(connect(brokers).describe_topics(["orders", "clicks"])) == {"orders", "clicks"}
    assert clock.pauses == [0.1, 0.2]


def test_a_topic_that_may_not_be_described_is_refused_at_once(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    for name in ("secret", "hidden"):
        brokers.add(name, error=29)
    with raises(Invalid, "topic-authorization-failed", topics=["hidden", "secret"], right="Describe"):
        connect(brokers).describe_topics(["secret", "hidden", "gone"])
    assert clock.pauses == []


def test_partitions_without_a_leader_are_waited_for_and_named_in_the_end(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders", [part(leader=-1), part(), part(leader=-1)])
    with raises(Retryable, "leader-not-available", topics=["orders"], partitions=["orders-0", "orders-2"]):
        connect(brokers, timeout=6.0).describe_topics(["orders"])
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def test_a_topic_without_a_leader_is_waited_for_and_named_in_the_end(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders", error=5)
    brokers.add("clicks", error=5)
    with raises(Retryable, "leader-not-available", topics=["clicks", "orders"], partitions=[]):
        connect(brokers, timeout=0.25).describe_topics(["orders", "clicks"])
    assert clock.pauses == [0.1]


def test_a_partition_that_gets_a_leader_is_found(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    topic = brokers.add("orders", [part(leader=-1)])

    def elect(request: Any) -> Any:
        answer = brokers.respond(request)
        topic.parts[0].leader = 0
        return answer

    brokers.next(MetadataRequest, elect)
    assert connect(brokers).leader(ORDERS).node == 0
    assert clock.pauses == [0.1]


def test_a_leader_is_cached_until_metadata_is_refreshed(brokers: ScriptedBrokers, connect: Connect) -> None:
    topic = brokers.add("orders", [part(epoch=7)])
    cluster = connect(brokers)
    known = Leader(0, brokers.address, 7, topic.topic_id)
    assert cluster.leader(ORDERS) == known
    topic.parts[0].epoch = 8
    assert cluster.leader(ORDERS) == known
    assert cluster.leader(ORDERS, refresh=True).epoch == 8
    assert len(brokers.asked(MetadataRequest)) == 2


def test_a_leader_is_asked_for_until_the_deadline_that_is_given(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders", [part(leader=-1)])
    cluster = connect(brokers, timeout=1.0)
    with pytest.raises(Retryable):
        cluster.leader(ORDERS, deadline=clock.now + 3.5)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
    clock.pauses.clear()
    with pytest.raises(Retryable):
        cluster.leader(ORDERS)
    assert clock.pauses == [0.1, 0.2, 0.4]


def test_a_partition_beyond_the_topic_is_not_found(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders", [part(), part()])
    with raises(NotFound, "partition-not-found", topic="orders", partition=2, partitions=2):
        connect(brokers).leader(TopicPartition("orders", 2))


@pytest.mark.parametrize(("newest", "epoch", "known"), [(8, -1, False), (9, 7, False), (10, 7, True)])
def test_epochs_of_old_brokers_are_ignored_and_they_have_no_topic_ids(
    start: Start, connect: Connect, newest: int, epoch: int, known: bool
) -> None:
    brokers = start(versions=NEWEST | {MetadataRequest.API_KEY: (0, newest)})
    topic = brokers.add("orders", [part(epoch=7)])
    expected = topic.topic_id if known else uuid.UUID(int=0)
    assert connect(brokers).leader(ORDERS) == Leader(0, brokers.address, epoch, expected)


def test_a_configuration_that_cannot_be_read_is_tried_again_by_who_asked(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    brokers.add("orders", config_error=41)
    with raises(Retryable, "broker-error", topic="orders", error_code=41) as caught:
        connect(brokers).describe_topics(["orders"])
    assert "no reason" in caught.value.what  # the broker's own words
    brokers.topics["orders"].config_error = 29
    with raises(Invalid, "topic-authorization-failed", topics=["orders"], right="DescribeConfigs"):
        connect(brokers).describe_topics(["orders"])


def spread(brokers: ScriptedBrokers) -> dict[TopicPartition, LogOffsets]:
    """Topics over two brokers; what their partitions' offsets are."""
    brokers.add("orders", [Part(log_start=3, last_stable=8, log_end=9, leader=0), Part(log_end=20, leader=1)])
    brokers.add("clicks", [Part(log_end=0, leader=0)])
    return {
        ORDERS: LogOffsets(3, 8, 9, 7),
        TopicPartition("orders", 1): LogOffsets(0, 20, 20, 7),
        TopicPartition("clicks", 0): LogOffsets(0, 0, 0, 7),
    }


def test_offsets_are_asked_of_each_leader_for_all_its_partitions_at_once(start: Start, connect: Connect) -> None:
    brokers = start(2)
    expected = spread(brokers)
    assert connect(brokers, timeout=7.0).log_offsets([*expected, *expected]) == expected
    asked = brokers.seen(ListOffsetsRequest)
    kinds = []
    for one in asked:
        parts = [
            (topic.name, p.partition_index, p.current_leader_epoch)
            for topic in one.request.topics
            for p in topic.partitions
        ]
        assert sorted(parts) == ([("orders", 1, 7)] if one.node else [("clicks", 0, 7), ("orders", 0, 7)])
        (timestamp,) = {p.timestamp for topic in one.request.topics for p in topic.partitions}
        kinds.append((one.node, timestamp, one.request.isolation_level))
        assert (one.request.replica_id, one.request.timeout_ms) == (-1, 7000)
    assert sorted(kinds) == sorted((node, *kind) for node in (0, 1) for kind in ((-2, 0), (-1, 0), (-1, 1)))
    assert len(brokers.asked(MetadataRequest)) == 1


def test_partitions_of_a_topic_are_asked_for_together(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders", [part(), part()])
    connect(brokers).log_offsets([ORDERS, TopicPartition("orders", 1)])
    for asked in brokers.asked(ListOffsetsRequest):
        (topic,) = asked.topics
        assert [one.partition_index for one in topic.partitions] == [0, 1]


def test_metadata_that_are_known_are_asked_for_again_before_offsets(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders")
    brokers.add("clicks")
    cluster = connect(brokers)
    cluster.log_offsets([ORDERS])
    cluster.log_offsets([ORDERS, TopicPartition("clicks", 0)])
    cluster.log_offsets([ORDERS, TopicPartition("clicks", 0)])
    asked = [[topic.name for topic in one.topics] for one in brokers.asked(MetadataRequest)]
    assert asked == [["orders"], ["clicks"], ["clicks"]]


def test_a_leader_that_has_moved_is_found_and_only_what_is_missing_is_asked_again(
    start: Start, connect: Connect, clock: Clock
) -> None:
    brokers = start(2)
    expected = spread(brokers)
    brokers.next(ListOffsetsRequest, *[offsets_error(6)] * 3, node=1)
    assert connect(brokers).log_offsets(expected) == expected
    assert [one.node for one in brokers.seen(ListOffsetsRequest)].count(0) == 3
    assert [one.node for one in brokers.seen(ListOffsetsRequest)].count(1) == 6
    assert [[topic.name for topic in one.topics] for one in brokers.asked(MetadataRequest)][1:] == [
        ["clicks", "orders"]
    ]
    assert clock.pauses == [0.05]


def test_one_answer_of_three_is_missing_and_only_the_partition_is_asked_again(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders", [Part(log_start=1, last_stable=2, log_end=3)])
    brokers.next(ListOffsetsRequest, offsets_error(6))
    assert connect(brokers).log_offsets([ORDERS]) == {ORDERS: LogOffsets(1, 2, 3, 7)}
    assert clock.pauses == [0.05]


def test_offsets_that_are_not_to_be_had_are_named(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    brokers.add("orders")
    brokers.always(ListOffsetsRequest, offsets_error(6))
    with raises(Retryable, "offsets-unavailable", problem="orders-0 (error 6)"):
        connect(brokers, timeout=5.5).log_offsets([ORDERS])
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_offsets_that_may_not_be_seen_are_refused_at_once(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders")
    brokers.always(ListOffsetsRequest, offsets_error(29))
    with raises(Invalid, "topic-authorization-failed", topics=["orders"], right="Describe"):
        connect(brokers).log_offsets([ORDERS])
    assert clock.pauses == []


def test_a_leader_that_died_is_found_out_by_asking_the_others(start: Start, connect: Connect, clock: Clock) -> None:
    brokers = start(2)
    expected = spread(brokers)
    cluster = connect(brokers, timeout=60.0)
    brokers.next(ListOffsetsRequest, *[CLOSE] * 100_000, node=1)
    moved: Topic = brokers.topics["orders"]

    def elect(request: Any) -> Any:
        if len(brokers.asked(MetadataRequest)) > 1:
            moved.parts[1].leader = 0
        return brokers.respond(request)

    brokers.always(MetadataRequest, elect)
    assert cluster.log_offsets(expected) == expected
    assert len(brokers.asked(MetadataRequest)) == 2
    assert 14 <= sum(clock.pauses) <= 16  # a quarter of the time that there is was for the one that is dead


def test_a_leader_that_hangs_is_left_in_time_to_find_the_next(start: Start, connect: Connect) -> None:
    brokers = start(2)
    brokers.add("orders", [part(leader=1)])
    brokers.always(ListOffsetsRequest, SILENT, node=1)

    def elect(request: Any) -> Any:
        if brokers.seen(ListOffsetsRequest):
            brokers.topics["orders"].parts[0].leader = 0
        return brokers.respond(request)

    brokers.always(MetadataRequest, elect)
    assert connect(brokers, timeout=3.0).log_offsets([ORDERS]) == {ORDERS: LogOffsets(0, 0, 0, 7)}


def test_ends_of_two_leaders_count_as_those_of_the_earlier_one(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    topic = brokers.add("orders", [part(log_end=5)])

    def elect(request: Any) -> Any:
        topic.parts[0].epoch = 8
        return brokers.respond(request)

    fenced = offsets_error(74)
    # In the order of the requests: log start, last stable offset, log end.
    brokers.next(ListOffsetsRequest, brokers.respond, brokers.respond, fenced, brokers.respond, fenced)
    brokers.next(MetadataRequest, brokers.respond, elect)
    cluster = connect(brokers)
    assert cluster.log_offsets([ORDERS]) == {ORDERS: LogOffsets(0, 5, 5, 7)}
    assert cluster.log_offsets([ORDERS]) == {ORDERS: LogOffsets(0, 5, 5, 8)}


def test_old_brokers_return_no_epoch_with_offsets(start: Start, connect: Connect) -> None:
    brokers = start(versions=NEWEST | {ListOffsetsRequest.API_KEY: (0, 3)})
    brokers.add("orders", [part(log_end=5)])
    assert connect(brokers).log_offsets([ORDERS]) == {ORDERS: LogOffsets(0, 5, 5, -1)}


def test_the_ends_of_epochs_are_asked_of_each_leader_for_all_its_partitions_at_once(
    start: Start, connect: Connect
) -> None:
    brokers = start(2)
    brokers.add("orders", [part(log_end=9, epoch_starts={6: 4, 7: 8}), part(log_end=20, leader=1)])
    brokers.add("clicks", [part(log_end=3)])
    other, clicks = TopicPartition("orders", 1), TopicPartition("clicks", 0)
    wanted = {other: 7, ORDERS: 5, clicks: 6}
    assert connect(brokers).epoch_ends(wanted) == {ORDERS: 4, other: 20, clicks: 3}
    asked = brokers.seen(OffsetForLeaderEpochRequest)
    assert sorted(
        (one.node, topic.topic, p.partition, p.leader_epoch, p.current_leader_epoch)
        for one in asked
        for topic in one.request.topics
        for p in topic.partitions
    ) == [(0, "clicks", 0, 6, 7), (0, "orders", 0, 5, 7), (1, "orders", 1, 7, 7)]
    assert {one.request.replica_id for one in asked} == {-1}
    assert len(asked) == 2
    assert len(brokers.asked(MetadataRequest)) == 1


def test_an_unknown_epoch_has_no_end_and_sends_no_request(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    assert cluster.epoch_ends({}) == {}
    assert cluster.epoch_ends({ORDERS: -1}) == {ORDERS: None}
    assert brokers.asked(MetadataRequest) == []


def test_an_epoch_later_than_all_of_the_log_has_no_end(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.add("orders", [part(log_end=9)])
    assert connect(brokers).epoch_ends({ORDERS: 8}) == {ORDERS: None}


@pytest.mark.parametrize("versions", [(0, 2), None])
def test_brokers_that_do_not_speak_of_epochs_to_clients_tell_no_end(
    start: Start, connect: Connect, versions: tuple[int, int] | None, clock: Clock
) -> None:
    known = {key: value for key, value in NEWEST.items() if key != OffsetForLeaderEpochRequest.API_KEY}
    brokers = start(versions=known if versions is None else {**known, OffsetForLeaderEpochRequest.API_KEY: versions})
    brokers.add("orders", [part(log_end=9)])
    assert connect(brokers).epoch_ends({ORDERS: 7}) == {ORDERS: None}
    assert clock.pauses == []


def test_the_end_of_an_epoch_is_asked_again_where_the_leader_has_moved(
    start: Start, connect: Connect, clock: Clock
) -> None:
    brokers = start(2)
    topic = brokers.add("orders", [part(log_end=9), part(log_end=5)])
    other = TopicPartition("orders", 1)
    cluster = connect(brokers)
    cluster.leader(ORDERS)
    topic.parts[0].leader, topic.parts[0].epoch, topic.parts[0].epoch_starts = 1, 8, {8: 6}
    brokers.next(OffsetForLeaderEpochRequest, epochs_error(6, 0))
    assert cluster.epoch_ends({ORDERS: 7, other: 7}) == {ORDERS: 6, other: 5}
    asked = brokers.seen(OffsetForLeaderEpochRequest)
    assert [one.node for one in asked] == [0, 1]
    assert [p.partition for p in asked[1].request.topics[0].partitions] == [0]
    assert clock.pauses == [0.05]


def test_ends_of_epochs_that_may_not_be_seen_are_refused_at_once(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders")
    brokers.next(OffsetForLeaderEpochRequest, epochs_error(29, 0))
    with raises(Invalid, "topic-authorization-failed", topics=["orders"], right="Describe"):
        connect(brokers).epoch_ends({ORDERS: 7})
    assert clock.pauses == []


def test_ends_of_epochs_of_a_topic_that_is_gone_are_not_found(brokers: ScriptedBrokers, connect: Connect) -> None:
    with pytest.raises(NotFound, match="orders"):
        connect(brokers).epoch_ends({ORDERS: 7})


def quorum_error(code: int) -> Callable[[Any], Any]:
    """An answer to DescribeQuorum that has an error."""
    return lambda _: DescribeQuorumResponse(error_code=code, error_message="no", topics=[], nodes=[])


def test_the_time_is_what_the_controller_says_of_itself(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    assert cluster.time_ms() == brokers.time_ms
    brokers.time_ms += 77
    assert cluster.time_ms() == brokers.time_ms
    assert {one.topic_name for asked in brokers.asked(DescribeQuorumRequest) for one in asked.topics} == {
        "__cluster_metadata"
    }


@pytest.mark.parametrize("versions", [{}, {DescribeQuorumRequest.API_KEY: (0, 0)}], ids=["ZooKeeper", "Kafka 3.2"])
def test_brokers_without_a_quorum_or_too_old_for_its_times_tell_none(
    start: Start, connect: Connect, versions: dict[int, tuple[int, int]]
) -> None:
    known = {key: of for key, of in NEWEST.items() if key != DescribeQuorumRequest.API_KEY}
    assert connect(start(versions=known | versions)).time_ms() is None


def test_without_permission_to_describe_the_cluster_its_time_is_unknown(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    brokers.next(DescribeQuorumRequest, quorum_error(31))
    assert connect(brokers).time_ms() is None
    assert len(brokers.asked(DescribeQuorumRequest)) == 1


def test_a_controller_that_is_being_elected_is_asked_again(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.next(DescribeQuorumRequest, quorum_error(6))
    assert connect(brokers).time_ms() == brokers.time_ms
