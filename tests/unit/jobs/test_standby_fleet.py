"""A process of a fleet: what one task, one topic or a lost membership does to the others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.changelog.model import TopicDescription
from statecore.errors import Corrupted, NotFound
from statecore.jobs import standby_fleet
from statecore.jobs.standby_fleet import StandbyFleet
from statecore.jobs.standby_request import StandbyRequest
from statecore.placement.state_directory import StateDirectory
from statecore.runtime.assignment.model import Role
from statecore.runtime.group import Assigned
from statecore.spec.reader import parse_spec

SPEC = parse_spec(
    {
        "application_id": "app",
        "bootstrap_servers": "127.0.0.1:1",
        "processing_guarantee": "at_least_once",
        "subtopologies": {
            "0": {"stores": {"counts": {"kind": "key-value"}}},
            "1": {"stores": {"sums": {"kind": "key-value"}, "names": {"kind": "key-value"}}},
        },
    }
)


class Brokers:
    """Changelogs of two partitions each, of which some are gone."""

    def __init__(self, *gone: str) -> None:
        self.gone = set(gone)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        wanted = set(names)
        if wanted & self.gone:
            raise NotFound("Topics do not exist.", action="Check.", topics=sorted(wanted & self.gone))
        return {name: TopicDescription(name, "1" * 32, 2, {}) for name in wanted}


class Fleet:
    """A process that has joined a group, which a test speaks for."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *gone: str) -> None:
        self.said, self.taken = list[str](), list[str]()
        self.close_error: Exception | None = None
        kept: Any = SimpleNamespace(names=(), take_up=lambda name, _role: self.taken.append(name), sums=dict)
        startup: Any = SimpleNamespace(close_rest=self._close_rest)
        brokers: Any = Brokers(*gone)
        request = StandbyRequest(spec_path="stores.yaml", state_dir=str(tmp_path), group="warm")
        directory = StateDirectory(tmp_path, "app")
        self.fleet = StandbyFleet(request, SPEC, brokers, directory, kept, startup, self.said.append)
        group: Any = SimpleNamespace(publish=lambda sums: None, ends={"0_1": 1_000})
        self.fleet._group = group

        def ends(_cluster: Any, _spec: Any, stores: list[Any]) -> dict[Any, Any]:
            return {store.changelog: SimpleNamespace(end=5) for store in stores}

        monkeypatch.setattr(standby_fleet, "changelog_ends", ends)

    def _close_rest(self) -> None:
        if self.close_error is not None:
            raise self.close_error

    def given(self, assigned: Assigned) -> None:
        self.fleet._pending = assigned
        self.fleet.take_up()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(tmp_path, monkeypatch)


def test_a_task_that_others_keep_and_that_cannot_be_closed_does_not_end_the_process(fleet: Fleet) -> None:
    fleet.close_error = Corrupted("The store of 0_1 could not be closed.", action="Look at the disk.")
    fleet.given(Assigned(1, "m", {"0_0": Role.STANDBY}))
    assert fleet.taken == ["0_0"]
    assert "could not be closed" in " ".join(fleet.said)


def test_who_fell_out_of_the_group_deletes_nothing_by_what_it_heard_before(fleet: Fleet) -> None:
    fleet.given(Assigned(1, "m", {}, elsewhere={"0_1": 1_000}))
    assert fleet.fleet._caught_up_elsewhere() == {"0_1": 1_000}
    fleet.given(Assigned(-1, "", lost=True))
    assert fleet.fleet._caught_up_elsewhere() == {}


def test_a_copy_elsewhere_counts_only_when_it_has_nearly_all(fleet: Fleet) -> None:
    fleet.fleet._joined.ends["0_1"] = 20_000  # type: ignore[index]
    fleet.given(Assigned(1, "m", {}, elsewhere={"0_1": 9_999, "0_7": 1}))
    assert fleet.fleet._caught_up_elsewhere() == {}


def test_a_changelog_that_is_gone_takes_only_its_tasks_out_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Fleet(tmp_path, monkeypatch)
    assert whole.fleet._ends() == {"0_0": 5, "0_1": 5, "1_0": 10, "1_1": 10}
    fleet = Fleet(tmp_path, monkeypatch, "app-names-changelog")
    assert fleet.fleet._ends() == {"0_0": 5, "0_1": 5}
    assert [words for words in fleet.said if "1_0" in words and "app-names-changelog" in words]
    none = Fleet(tmp_path, monkeypatch, "app-names-changelog", "app-sums-changelog", "app-counts-changelog")
    with pytest.raises(NotFound):
        none.fleet._ends()
