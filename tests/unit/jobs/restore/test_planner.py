"""Plans of a restore: from the stores of a state directory, and the command that resumes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.context import JobContext
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.restore.planned_restore import PlannedRestore, refuse_preview
from statecore.jobs.restore.planner import RestorePlanner
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.writer import spec_to_mapping
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.jobs.planning.plans import FakeCluster, request, spec
from tests.unit.statedir.support import make_live

GUARANTEES = ["at_least_once", "exactly_once_v2"]


class EndedCluster(FakeCluster):
    """One whose logs end at offset 6, and which knows no leader epochs."""

    def __init__(self) -> None:
        super().__init__(seen=LogOffsets(0, 6, 6))

    def epoch_ends(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, None]:
        return dict.fromkeys(wanted)


def planned(state_dir: Path, guarantee: str, b: dict[str, str] | None = None, **fields: Any) -> PlannedRestore:
    """An advance of the stores ``a`` and ``b`` of an application."""
    declared = spec(guarantee, a={"kind": "key-value"}, b=b or {"kind": "key-value"})
    asked = request(state_dir=str(state_dir), start_from="directory", **fields)
    planner = RestorePlanner(JobContext.open(asked, spec=declared), (), None)
    cluster: Any = EndedCluster()
    return planner.new(cluster, lambda: 1)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_at_the_end_of_its_changelogs_is_not_planned(tmp_path: Path, guarantee: str) -> None:
    for store in "ab":
        make_live(StateDirectory(tmp_path, "app"), "0_0", store)
    found = planned(tmp_path, guarantee)
    assert found.plan.tasks == set()
    assert not any("missing" in note for note in found.notes)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_store_that_such_a_task_lacks_is_noted_and_created_where_the_task_would_be_wiped_without_it(
    tmp_path: Path, guarantee: str
) -> None:
    make_live(StateDirectory(tmp_path, "app"), "0_0", "a")
    found = planned(tmp_path, guarantee)
    assert found.plan.tasks == (set() if guarantee == "at_least_once" else {"0_0"})
    (note,) = (note for note in found.notes if "missing" in note)
    assert "b in 0_0." in note


def test_a_store_that_was_not_asked_for_is_created_too_where_the_task_would_be_wiped_without_it(tmp_path: Path) -> None:
    make_live(StateDirectory(tmp_path, "app"), "0_0", "a")
    found = planned(tmp_path, "exactly_once_v2", stores=("a",))
    assert found.plan.stores.keys() == {("0_0", "a")}


@pytest.mark.parametrize("plan_only", [False, True])
@pytest.mark.parametrize("b", [{"kind": "key-value"}, {"kind": "versioned-key-value", "retention": "1h"}])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_store_that_lost_its_current_refuses_an_advance(
    tmp_path: Path, guarantee: str, b: dict[str, str], *, plan_only: bool
) -> None:
    directory = StateDirectory(tmp_path, "app")
    make_live(directory, "0_0", "a")
    lost = directory.store_path("0_0", "b", StoreKind(b["kind"]))
    lost.mkdir(parents=True)
    (lost / "000007.log").write_bytes(b"rows")
    with raises(Invalid, "advance-refused") as caught:
        found = planned(tmp_path, guarantee, b, plan_only=plan_only)
        refuse_preview(found, request(state_dir=str(tmp_path), start_from="directory"), directory)
    (problem,) = caught.value.context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == ("store-incomplete", "0_0", "b")
    assert (lost / "000007.log").read_bytes() == b"rows"


@pytest.mark.parametrize(
    ("engine", "options"),
    [(InProcessEngine(), ()), (ProcessEngine(3), ("--engine", "processes", "--processes", "3"))],
)
def test_a_frozen_plan_has_the_command_that_resumes_it_on_its_engine(
    engine: Engine, options: tuple[str, ...], tmp_path: Path
) -> None:
    asked = RestoreRequest(spec=spec_to_mapping(spec()), state_dir=str(tmp_path), request_id="one", replace=True)
    planner = RestorePlanner(JobContext.open(asked), engine.options, None)
    planned = planner.new(cast(Cluster, FakeCluster()), lambda: 1)
    assert planned.frozen.command == ("restore", "--replace", *options)


def test_the_command_that_resumes_a_plan_names_the_file_of_the_spec(tmp_path: Path) -> None:
    asked = RestoreRequest(spec_path="/srv/stores.yaml", state_dir=str(tmp_path), request_id="one", replace=True)
    planner = RestorePlanner(JobContext.open(asked, spec=spec()), (), None)
    planned = planner.new(cast(Cluster, FakeCluster()), lambda: 1)
    assert planned.frozen.command == ("restore", "--spec", "/srv/stores.yaml", "--replace")
