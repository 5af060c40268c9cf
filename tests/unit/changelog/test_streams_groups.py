"""What a coordinator tells of a streams group: decoded from what brokers sent, and what is refused or waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from statecore.changelog.protocol import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from statecore.changelog.streams_groups import (
    NO_STREAMS_GROUP,
    ConfiguredSubtopology,
    DescriptionStatus,
    Node,
    NodeType,
    streams_group,
)
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from tests.harness.raising import raises
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.recorded import streams_group_bytes, streams_group_response
from tests.unit.changelog.scripted import NEWEST, Clock, ScriptedBrokers

Start = Callable[..., ScriptedBrokers]


@pytest.fixture
def two(start: Start) -> ScriptedBrokers:
    """Two brokers, of which the second coordinates the group."""
    brokers = start(2)
    brokers.coordinator = 1
    return brokers


def recorded(request: Any) -> Any:
    return streams_group_response(request.API_VERSION)


def failed(code: int, message: str | None = None) -> Callable[[Any], Any]:
    """An answer with an error in it."""

    def answer(request: Any) -> Any:
        group = StreamsGroupDescribeResponse.DescribedGroup(
            error_code=code, error_message=message, group_id="shop", group_state="", members=[]
        )
        return StreamsGroupDescribeResponse(throttle_time_ms=0, groups=[group])

    return answer


@pytest.mark.parametrize("version", [0, 1])
def test_the_messages_are_those_of_the_brokers(version: int) -> None:
    response = streams_group_response(version)
    assert bytes(response.encode(version=version)) == streams_group_bytes(version)


def test_subtopologies_and_description_come_from_the_groups_coordinator(two: ScriptedBrokers, connect: Connect) -> None:
    two.next(StreamsGroupDescribeRequest, recorded)
    group = streams_group(connect(two), "shop")
    (asked,) = two.seen(StreamsGroupDescribeRequest)
    assert (asked.node, asked.request.API_VERSION, asked.request.group_ids) == (1, 1, ["shop"])
    assert asked.request.include_topology_description
    assert (group.group_id, group.state, group.topology_epoch) == ("shop", "Stable", 0)
    assert group.subtopologies == (
        ConfiguredSubtopology(0, ("in-stream",), ()),
        ConfiguredSubtopology(1, (), ("shop-counts-changelog",)),
        ConfiguredSubtopology(2, ("in-table",), ("in-table",)),
    )
    assert group.description_status is DescriptionStatus.AVAILABLE
    assert group.description is not None
    assert list(group.description.subtopologies) == [0, 1, 2]
    source, processor = NodeType.SOURCE, NodeType.PROCESSOR
    assert group.description.subtopologies[1] == (
        Node("KSTREAM-AGGREGATE-0000000005", processor, (), ("counts",), ()),
        Node("apart-repartition-source", source, ("shop-apart-repartition",), (),
             ("KSTREAM-AGGREGATE-0000000005",)),
    )  # fmt: skip
    assert group.description.global_stores == (
        (
            Node("KSTREAM-SOURCE-0000000008", source, ("in-global",), (), ("KTABLE-SOURCE-0000000009",)),
            Node("KTABLE-SOURCE-0000000009", processor, (), ("products",), ()),
        ),
    )


def test_a_broker_before_4_4_returns_all_but_the_description(start: Start, connect: Connect) -> None:
    brokers = start(versions=NEWEST | {StreamsGroupDescribeRequest.API_KEY: (0, 0)})
    brokers.always(StreamsGroupDescribeRequest, recorded)
    old = streams_group(connect(brokers), "shop")
    assert brokers.asked(StreamsGroupDescribeRequest)[0].API_VERSION == 0
    assert (old.description_status, old.description) == (DescriptionStatus.NOT_REQUESTED, None)
    assert old.subtopologies is not None
    assert [(part.number, [*part.changelogs]) for part in old.subtopologies] == [
        (0, []),
        (1, ["shop-counts-changelog"]),
        (2, ["in-table"]),
    ]


@pytest.mark.parametrize("code", [14, 15, 16])
def test_transient_errors_are_retried_with_a_new_coordinator(
    two: ScriptedBrokers, connect: Connect, clock: Clock, code: int
) -> None:
    two.next(StreamsGroupDescribeRequest, failed(code), failed(code), recorded)
    assert streams_group(connect(two), "shop").state == "Stable"
    assert clock.pauses == [0.05, 0.1]
    assert len(two.asked(FindCoordinatorRequest)) == 3


def test_a_coordinator_that_stays_away_is_given_up_at_the_deadline(
    two: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    two.always(StreamsGroupDescribeRequest, failed(14))
    with raises(Retryable, "broker-error", group="shop", error_code=14):
        streams_group(connect(two, timeout=1.0), "shop")


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (29, Invalid, "topic-authorization-failed"),
        (30, Invalid, "group-authorization-failed"),
        (35, NotFound, NO_STREAMS_GROUP),
        (69, NotFound, NO_STREAMS_GROUP),
        (-1, Retryable, "broker-error"),
    ],
)
def test_a_permanent_error_is_raised_at_once(
    two: ScriptedBrokers, connect: Connect, clock: Clock, code: int, kind: type[StatecoreError], said: str
) -> None:
    two.always(StreamsGroupDescribeRequest, failed(code, "Group shop is not a streams group."))
    with raises(kind, said, group="shop"):
        streams_group(connect(two), "shop")
    assert clock.pauses == []


@pytest.mark.parametrize("strange", ["status", "subtopology", "node"])
def test_an_answer_that_is_not_understood_is_refused(two: ScriptedBrokers, connect: Connect, strange: str) -> None:
    def answer(request: Any) -> Any:
        response = recorded(request)
        group = response.groups[0]
        if strange == "status":
            group.topology_description_status = 7
        elif strange == "subtopology":
            group.topology.subtopologies[0].subtopology_id = "orders"
        else:
            group.topology_description.subtopologies[0].nodes[0].node_type = 9
        return response

    two.always(StreamsGroupDescribeRequest, answer)
    with pytest.raises(Invalid) as caught:
        streams_group(connect(two), "shop")
    assert caught.value.context["group"] == "shop"


def test_a_group_that_may_not_be_seen_is_refused_by_the_search_for_its_coordinator(
    two: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    denied = FindCoordinatorResponse(
        throttle_time_ms=0, error_code=30, error_message=None, node_id=-1, host="", port=-1
    )
    two.always(FindCoordinatorRequest, lambda request: denied)
    with pytest.raises(Invalid):
        streams_group(connect(two), "shop")
    assert two.asked(StreamsGroupDescribeRequest) == []


def test_brokers_without_streams_groups_have_their_own_error(start: Start, connect: Connect) -> None:
    versions = {key: known for key, known in NEWEST.items() if key != StreamsGroupDescribeRequest.API_KEY}
    with raises(NotFound, NO_STREAMS_GROUP):
        streams_group(connect(start(versions=versions)), "shop")
