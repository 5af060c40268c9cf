"""The plan of a restore, with the command that resumes it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.jobs.context import JobContext
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.restore.planner import RestorePlanner
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.writer import spec_to_mapping
from tests.unit.jobs.planning.plans import FakeCluster, spec


@pytest.mark.parametrize(
    ("engine", "options"),
    [(InProcessEngine(), ()), (ProcessEngine(3), ("--engine", "processes", "--processes", "3"))],
)
def test_a_frozen_plan_has_the_command_that_resumes_it_on_its_engine(
    engine: Engine, options: tuple[str, ...], tmp_path: Any
) -> None:
    request = RestoreRequest(spec=spec_to_mapping(spec()), state_dir=str(tmp_path), request_id="one", replace=True)
    planner = RestorePlanner(JobContext.open(request), engine.options, None)
    planned = planner.new(cast(Cluster, FakeCluster()), lambda: 1)
    assert planned.frozen.command == ("restore", "--replace", *options)
