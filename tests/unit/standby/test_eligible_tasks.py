"""Which tasks can be followed, as the changelogs say that there are and the spec that declares them."""

from __future__ import annotations

from typing import Any

import pytest

from statecore.errors import Invalid, NotFound
from statecore.spec.model import ApplicationSpec
from statecore.standby.eligible_tasks import EligibleTasks, find_eligible_tasks, is_subtopology_entry
from tests.unit.jobs.topics_gone import KEY_VALUE, Brokers, spec


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


def test_where_no_changelog_tells_the_tasks_of_a_subtopology_one_entry_stands_for_all_of_them() -> None:
    untold = found(spec(), "names", "sums")
    assert (untold.names, list(untold.refused)) == (["0_0", "0_1"], ["1_?"])
    assert isinstance(untold.refused["1_?"], NotFound)
    assert (untold.subtopology_entry("1_7"), untold.subtopology_entry("0_7")) == ("1_?", None)
    assert (is_subtopology_entry("1_?"), is_subtopology_entry("1_0")) == (True, False)


def test_where_no_changelog_is_there_at_all_that_is_what_is_said() -> None:
    with pytest.raises(NotFound, match="Topics do not exist"):
        found(spec(), "names", "sums", "counts")


@pytest.mark.parametrize(
    ("store", "refused"),
    [
        ({"kind": "?", "changelog": "app-names-changelog"}, ["1_0", "1_1"]),
        ({"kind": "key-value", "changelog": "?"}, ["1_?"]),
    ],
)
def test_what_nobody_has_decided_refuses_its_tasks_alone(store: dict[str, str], refused: list[str]) -> None:
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
