"""Which standby tasks there are without a group, and what becomes of those that cannot be followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid, NotFound, Retryable
from statecore.spec.model import ApplicationSpec
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import FIRST_RETRY
from statecore.standby.task_selection import EligibleTasks, TaskSelection, find_eligible_tasks, is_subtopology_entry
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.jobs.topics_gone import KEY_VALUE, Brokers, spec


class World:
    """A request without a group, a clock, and a directory."""

    def __init__(self, directory: StateDirectory, brokers: Brokers, **request: Any) -> None:
        self.now, self.brokers = 0.0, brokers
        asked = StandbyRequest(spec_path="stores.yaml", state_dir=str(directory.path.parent), **request)
        cluster: Any = brokers
        self.wanted = TaskSelection(asked, spec(), cluster, directory, clock=lambda: self.now)


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path, "app")


def test_a_task_whose_changelog_is_gone_is_refused_until_it_is_back(directory: StateDirectory) -> None:
    world = World(directory, Brokers("names"))
    assert list(world.wanted.names) == ["0_0", "0_1", "1_0", "1_1"]
    world.wanted.check("0_0")
    for _ in range(3):
        with pytest.raises(NotFound, match="app-names-changelog"):
            world.wanted.check("1_0")
    assert world.brokers.asked == 2, "one more for those that are there"
    world.now += FIRST_RETRY
    world.brokers.away = True
    with pytest.raises(Retryable):
        world.wanted.check("1_0")
    world.now += FIRST_RETRY
    world.brokers.away, world.brokers.gone = False, set()
    world.wanted.check("1_0")
    world.wanted.check("1_1")


def test_copies_on_disk_supply_tasks_without_changelogs(directory: StateDirectory) -> None:
    directory.task_path("1_3").mkdir(parents=True)
    world = World(directory, Brokers("names", "sums"))
    assert (list(world.wanted.names), world.wanted.left_out) == (["0_0", "0_1", "1_3"], {})
    with pytest.raises(NotFound, match="app-names-changelog"):
        world.wanted.check("1_3")
    world.now, world.brokers.gone = FIRST_RETRY, set()
    world.wanted.check("1_3")


def test_a_subtopology_of_unknown_tasks_is_left_out_with_a_message(directory: StateDirectory) -> None:
    world = World(directory, Brokers("names", "sums"))
    assert list(world.wanted.names) == ["0_0", "0_1"]
    assert list(world.wanted.left_out) == ["1_?"]


def test_a_task_that_was_named_is_refused_where_there_cannot_be_one(directory: StateDirectory) -> None:
    with raises(NotFound, "task-not-found", tasks=["0_7"]):
        World(directory, Brokers("names", "sums"), tasks=("0_7", "1_7"))
    assert list(World(directory, Brokers("names", "sums"), tasks=("1_7",)).wanted.names) == ["1_7"]


@pytest.mark.parametrize("away", [True, False])
def test_a_named_task_is_refused_until_its_changelog_is_known(directory: StateDirectory, away: bool) -> None:
    brokers = Brokers("names", "sums", "counts")
    brokers.away = away
    error = Retryable if away else NotFound
    world = World(directory, brokers, tasks=("0_1", "0_7"))
    assert list(world.wanted.names) == ["0_1", "0_7"]
    for _ in range(2):
        for task in ("0_1", "0_7"):
            with pytest.raises(error):
                world.wanted.check(task)
        world.now += FIRST_RETRY
    with pytest.raises(error):
        World(directory, brokers)
    brokers.away, brokers.gone = False, set()
    world.wanted.check("0_1")
    with pytest.raises(NotFound, match="has no task 0_7"):
        world.wanted.check("0_7")


def test_a_copy_that_is_there_is_opened_also_while_no_broker_answers(directory: StateDirectory) -> None:
    directory.task_path("0_1").mkdir(parents=True)
    brokers = Brokers()
    brokers.away = True
    world = World(directory, brokers, tasks=("0_0", "0_1"))
    world.wanted.check("0_1")
    with pytest.raises(Retryable):
        world.wanted.check("0_0")


def found(declared: ApplicationSpec, *gone: str) -> EligibleTasks:
    brokers: Any = Brokers(*gone)
    return find_eligible_tasks(declared, brokers)


def test_a_changelog_that_is_gone_refuses_the_tasks_that_follow_it_and_no_others() -> None:
    assert list(found(spec()).stores) == ["0_0", "0_1", "1_0", "1_1"]
    partly = found(spec(), "names")
    assert list(partly.stores) == ["0_0", "0_1"]
    assert {task: type(error) for task, error in partly.refused.items()} == {"1_0": NotFound, "1_1": NotFound}
    assert (partly.refused["1_0"].code, partly.refused["1_0"].context) == (
        "changelog-not-found",
        {"task": "1_0", "topics": ["app-names-changelog"]},
    )
    assert partly.names == ["0_0", "0_1", "1_0", "1_1"]
    assert partly.subtopology_entry("1_0") is None


def test_a_subtopology_without_changelogs_has_one_entry() -> None:
    untold = found(spec(), "names", "sums")
    assert (untold.names, list(untold.refused)) == (["0_0", "0_1"], ["1_?"])
    assert isinstance(untold.refused["1_?"], NotFound)
    assert (untold.subtopology_entry("1_7"), untold.subtopology_entry("0_7")) == ("1_?", None)
    assert (is_subtopology_entry("1_?"), is_subtopology_entry("1_0")) == (True, False)


def test_an_application_without_any_changelog_is_reported() -> None:
    with pytest.raises(NotFound, match="Topics do not exist"):
        found(spec(), "names", "sums", "counts")


@pytest.mark.parametrize(
    ("store", "refused"),
    [
        ({"kind": "?", "changelog": "app-names-changelog"}, ["1_0", "1_1"]),
        ({"kind": "key-value", "changelog": "?"}, ["1_?"]),
    ],
)
def test_an_undecided_store_refuses_its_tasks_alone(store: dict[str, str], refused: list[str]) -> None:
    undecided = found(spec(names=store))
    assert list(undecided.stores) == ["0_0", "0_1"]
    assert {task: type(error) for task, error in undecided.refused.items()} == dict.fromkeys(refused, Invalid)


def test_stores_that_kafka_streams_restores_itself_need_no_changelog_to_be_followed() -> None:
    beside = {
        "sums": KEY_VALUE,
        "names": {"kind": "versioned-key-value", "retention": "1h"},
        "held": {"kind": "in-memory"},
        "mine": {"kind": "custom"},
    }
    assert list(found(spec(**beside), "names", "held").stores) == ["0_0", "0_1", "1_0", "1_1"]
    assert list(found(spec(held={"kind": "in-memory"}), "held").refused) == []
