"""What this project uses of kafka-python beyond its public names is there, in the release that is pinned."""

from __future__ import annotations

import inspect
from importlib.metadata import requires

import kafka
import pytest
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.runtime.group import GroupSettings, TaskGroup


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
    group = TaskGroup(Cluster("127.0.0.1:1"), GroupSettings("g", ("t",), "spec"), ends=dict)
    with pytest.raises(Invalid, match="Call start first"):
        group.poll(0)
    group.close()
