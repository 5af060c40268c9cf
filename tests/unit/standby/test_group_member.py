"""What this project uses of kafka-python beyond its public names is there, in the release that is pinned."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib.metadata import requires
from typing import Any

import kafka
import pytest
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Retryable
from statecore.standby import group_member as group_module
from statecore.standby.assignment.leader import Decision
from statecore.standby.assignment.model import Role
from statecore.standby.assignment.protocol import KEEP, MemberAssignment, encode_assignment
from statecore.standby.group_member import GroupMember, GroupSettings


def test_the_private_parts_of_kafka_python_are_those_of_the_pinned_release() -> None:
    assert f"kafka-python=={kafka.__version__}" in (requires("statecore") or [f"kafka-python=={kafka.__version__}"])
    assert "self.rejoin_needed = True" in inspect.getsource(BaseCoordinator.request_rejoin)
    assert "self._heartbeat_enabled = False" in inspect.getsource(BaseCoordinator._disable_heartbeat)
    assert "_disable_heartbeat" in inspect.getsource(BaseCoordinator._do_heartbeat)
    joining = inspect.getsource(BaseCoordinator.join_group_async)
    assert "if self._join_task is None or self._join_task.is_done:" in joining
    assert "self._manager.wait_for(\n                    self._join_task, timer.timeout_ms)" in joining
    assert "assignor.on_assignment(assignment, generation)" in inspect.getsource(
        ConsumerCoordinator._on_join_complete_async
    )


def test_a_group_that_was_not_started_says_so() -> None:
    group = GroupMember(Cluster("127.0.0.1:1"), GroupSettings("g", ("t",), "spec"), ends=dict)
    with pytest.raises(Invalid, match="Call start first"):
        group.poll(0)
    group.close()


def test_a_leader_decides_for_a_third_of_its_session_at_most() -> None:
    """The broker hears nothing of it meanwhile, and makes another member the leader after a session."""
    now, late = [100.0], list[bool]()

    def decide(*_: Any, is_late: Callable[[], bool]) -> Decision:
        for later in (0.0, 1.9, 0.2):
            now[0] += later
            late.append(is_late())
        return Decision({}, None)

    settings = GroupSettings("g", ("t",), "spec", session_timeout_ms=6_000)
    with GroupMember(Cluster("127.0.0.1:1"), settings, ends=dict, clock=lambda: now[0], decide=decide) as group:
        group.lead(1, "m", {})
    assert late == [False, False, True]


@pytest.mark.parametrize(
    ("process", "held", "end", "goes_on"),
    [(6, 0, 10, False), (6, 3, 10, True), (6, 0, 0, True), (7, 0, 10, True)],
    ids=["an emptied disk", "something is there", "there is nothing to have", "decided by what it said"],
)
def test_a_member_that_comes_back_with_nothing_asks_again_also_where_it_was_believed_to_have_nothing(
    process: int, held: int, end: int, *, goes_on: bool
) -> None:
    """It had read all of it since the assignment was made, of which the broker knows nothing."""
    settings = GroupSettings("g", ("t",), "spec", instance_id="a", process=7)
    group = GroupMember(Cluster("127.0.0.1:1"), settings, ends=lambda: {"0_0": end})
    group._ends, group._sums = {"0_0": end}, {"0_0": held}
    said = group._published_version
    given = MemberAssignment({"0_0": Role.STANDBY}, {"0_0": 0}, process=process)
    group.receive_assignment(2, encode_assignment(given), partitions=False)
    assert (group._next() is not None) is goes_on
    assert group._published_version == said + (not goes_on)


@pytest.mark.parametrize("kept", [b"SCTA\0\1of the release before", KEEP], ids=["another version", "no decision"])
def test_a_static_member_asks_once_for_another_assignment_where_it_is_handed_none_that_it_can_read(kept: bytes) -> None:
    """As after a new release was installed at all members: the broker hands each what it had kept for it."""
    group = GroupMember(Cluster("127.0.0.1:1"), GroupSettings("g", ("t",), "spec", instance_id="a"), ends=dict)
    said = group._published_version
    group.receive_assignment(2, kept, partitions=False)
    assert group._next() is None
    assert group._published_version == said + 1
    group.receive_assignment(3, kept, partitions=False)
    if kept == KEEP:
        assert group._next() is None
    else:
        with pytest.raises(Invalid, match="version 1 of the group"):
            group._next()
    assert group._published_version == said + 1


def test_ends_that_cannot_be_read_are_said_once_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    now, is_away = [100.0], [True]

    def ends() -> dict[str, int]:
        if is_away[0]:
            raise Retryable("No broker answered.", code="test-error", action="Check the brokers.")
        return {}

    caplog.set_level(logging.INFO, group_module.LOG.name)
    group = GroupMember(Cluster("127.0.0.1:1"), GroupSettings("g", ("t",), "spec"), ends=ends, clock=lambda: now[0])
    for away in (True, True, True, False, False, True):
        is_away[0] = away
        now[0] += group.settings.ends_age_ms / 1000
        group._refresh_ends()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
