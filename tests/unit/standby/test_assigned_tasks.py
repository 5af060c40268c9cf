"""A process of a fleet: what one task, one topic or a lost membership does to the others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.changelog.model import TopicDescription
from statecore.errors import Corrupted, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.standby.assigned_tasks import AssignedTasks
from statecore.standby.assignment.model import Role
from statecore.standby.group_member import AssignmentResult, GroupSettings
from statecore.standby.request import StandbyRequest
from statecore.standby.task_manager import StorePosition
from statecore.statedir.database_state import create_database
from statecore.statedir.quarantine import Quarantined, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.offset_sums import read_task_sum
from statecore.tasks.startup_tasks import CorruptTask

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
            raise NotFound(
                "Topics do not exist.", code="test-error", action="Check.", topics=sorted(wanted & self.gone)
            )
        return {name: TopicDescription(name, "1" * 32, 2, {}) for name in wanted}


class Listed(StateDirectory):
    """Counts how often somebody looks which tasks there are."""

    times = 0

    def task_directories(self) -> list[str]:
        self.times += 1
        return super().task_directories()


class Fleet:
    """A process that has joined a group, which a test speaks for."""

    def __init__(self, tmp_path: Path, *gone: str, even_best: bool = False, **more: Any) -> None:
        self.said, self.taken = list[str](), list[str]()
        self.close_error: Exception | None = None
        self.dropped: dict[str, dict[TopicPartition, StorePosition]] = {}
        self.kept: Any = SimpleNamespace(
            names=(),
            add=lambda name, _role: self.taken.append(name),
            sums=lambda _: {},
            drop=self.dropped.get,
            on_state_loss=lambda _: None,
        )
        self.startup: Any = SimpleNamespace(
            close_rest=self._close_rest, start=dict, skipped={}, refused={}, corrupt=dict[str, CorruptTask]()
        )
        brokers: Any = Brokers(*gone)
        asked: dict[str, Any] = {
            "cleanup_delay": 60_000,
            "probing_interval": 500_000,
            "cleanup_even_best": even_best,
            **more,
        }
        request = StandbyRequest(spec_path="stores.yaml", state_dir=str(tmp_path), group="warm", **asked)
        self.directory = Listed(tmp_path, "app")
        self.now = 0.0
        self.fleet = AssignedTasks(
            request,
            SPEC,
            brokers,
            self.directory,
            self.kept,
            self.startup,
            self.said.append,
            clock=lambda: self.now,
            group=Group,  # type: ignore[arg-type]
            ends=self._ends,
        )
        self.asked, self.agrees, self.order = 0, True, list[str]()
        self.log_start, self.policy = 0, "compact"
        group: Any = SimpleNamespace(
            publish=self._publish, ends={"0_1": 1_000}, probe=self._probe, withdraw=self._take_back
        )
        self.fleet._group = group

    def _ends(self, _cluster: Any, _spec: Any, stores: list[Any]) -> dict[Any, Any]:
        return {
            store.changelog: SimpleNamespace(
                end=5,
                log=SimpleNamespace(log_start=self.log_start, log_end=6),
                topic=TopicDescription(store.changelog.topic, "1" * 32, 2, {"cleanup.policy": self.policy}),
            )
            for store in stores
        }

    def _publish(self, sums: dict[str, int]) -> None:
        self.published = sums
        self.order.append("publish")

    def _probe(self) -> None:
        self.asked += 1

    def _take_back(self, task: str) -> bool:
        self.order.append(f"take back {task}")
        return self.agrees

    def put(self, task: str, offset: int, store: str = "counts") -> Path:
        """A task that lies on the disk, long since."""
        path = self.directory.task_path(task)
        changelog = TopicPartition(f"app-{store}-changelog", int(task[-1]))
        create_database(path / "rocksdb" / store, StoreKind.KEY_VALUE, {changelog: offset})
        os.utime(path, (1_000, 1_000))
        return path

    def _close_rest(self) -> None:
        if self.close_error is not None:
            raise self.close_error

    def given(self, assigned: AssignmentResult) -> None:
        self.fleet._pending = assigned
        self.fleet.apply_assignment()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_task_that_others_keep_and_that_cannot_be_closed_does_not_end_the_process(fleet: Fleet) -> None:
    fleet.close_error = Corrupted(
        "The store of 0_1 could not be closed.", code="test-error", action="Look at the disk."
    )
    fleet.given(AssignmentResult(1, {"0_0": Role.STANDBY}))
    assert fleet.taken == ["0_0"]
    assert "could not be closed" in " ".join(fleet.said)


def test_who_fell_out_of_the_group_deletes_nothing_by_what_it_heard_before(fleet: Fleet) -> None:
    fleet.given(AssignmentResult(1, {}, elsewhere={"0_1": 1_000}))
    assert fleet.fleet._caught_up_elsewhere() == {"0_1": 1_000}
    fleet.given(AssignmentResult(-1, lost=True))
    assert fleet.fleet._caught_up_elsewhere() == {}


def test_a_copy_elsewhere_counts_only_when_it_has_nearly_all(fleet: Fleet) -> None:
    fleet.fleet._joined.ends["0_1"] = 20_000  # type: ignore[index]
    fleet.given(AssignmentResult(1, {}, elsewhere={"0_1": 9_999, "0_7": 1}))
    assert fleet.fleet._caught_up_elsewhere() == {}


def test_a_changelog_that_is_gone_takes_only_its_tasks_out_of_the_group(tmp_path: Path) -> None:
    whole = Fleet(tmp_path)
    assert whole.fleet._ends() == {"0_0": 5, "0_1": 5, "1_0": 10, "1_1": 10}
    fleet = Fleet(tmp_path, "app-names-changelog")
    assert fleet.fleet._ends() == {"0_0": 5, "0_1": 5}
    assert [words for words in fleet.said if "1_0" in words and "app-names-changelog" in words]
    none = Fleet(tmp_path, "app-names-changelog", "app-sums-changelog", "app-counts-changelog")
    with pytest.raises(NotFound):
        none.fleet._ends()


NEW = AssignmentResult(2, {}, elsewhere={"0_1": 1_000}, is_new=True)


def test_a_task_that_others_keep_is_asked_for_first_and_goes_by_what_they_say_then(fleet: Fleet) -> None:
    path = fleet.put("0_1", 99)
    with fleet.directory.lock():
        fleet.given(AssignmentResult(1, {}, elsewhere={"0_1": 1_000}))
        fleet.fleet.probe_for_cleanup()
        assert (fleet.asked, path.is_dir()) == (1, True)
        fleet.order.clear()
        fleet.given(NEW)
        assert not path.exists()
    assert fleet.order == ["publish", "take back 0_1", "publish"]
    assert "0_1" not in fleet.published


def test_it_is_asked_for_also_where_nobody_had_said_that_the_others_have_it(fleet: Fleet) -> None:
    """As when all members begin together: what they have is known with the next assignment only."""
    fleet.put("0_1", 99)
    fleet.given(AssignmentResult(1, {}))
    fleet.fleet.probe_for_cleanup()
    assert fleet.asked == 1


def test_it_is_asked_for_no_more_often_than_copies_are_probed(fleet: Fleet) -> None:
    fleet.put("0_1", 99)
    fleet.given(AssignmentResult(1, {}, elsewhere={"0_1": 1}))
    for now, asked in ((0.0, 1), (499.0, 1), (500.0, 2)):
        fleet.now = now
        fleet.fleet.probe_for_cleanup()
        assert fleet.asked == asked


def test_nothing_is_asked_for_a_task_that_nobody_keeps_or_that_is_this_process_s(fleet: Fleet) -> None:
    fleet.put("0_0", 99)
    fleet.put("0_1", 99)
    fleet.kept.names = ("0_1",)
    fleet.given(AssignmentResult(1, {"0_1": Role.STANDBY}, elsewhere={"0_1": 1_000}))
    fleet.fleet.probe_for_cleanup()
    assert fleet.asked == 0


@pytest.mark.parametrize(
    ("given", "agrees"),
    [
        (AssignmentResult(2, {}, elsewhere={"0_1": 1_000}), True),
        (AssignmentResult(2, {}, elsewhere={"0_1": 99}, is_new=True), True),
        (AssignmentResult(2, {}, is_new=True), True),
        (AssignmentResult(-1, lost=True), True),
        (NEW, False),
    ],
    ids=["what the broker had kept", "they have less", "nobody keeps it", "out of the group", "somebody counts on it"],
)
def test_a_task_stays_where_not_all_that_matters_is_known(fleet: Fleet, given: AssignmentResult, agrees: bool) -> None:
    path, fleet.agrees = fleet.put("0_1", 99), agrees
    with fleet.directory.lock():
        fleet.given(given)
    assert path.is_dir()


def test_the_best_copy_goes_aside_where_that_was_told(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, even_best=True)
    path = fleet.put("0_1", 99)
    with fleet.directory.lock():
        fleet.given(AssignmentResult(1, {}))
        fleet.fleet.probe_for_cleanup()
        assert fleet.asked == 1
        fleet.given(AssignmentResult(2, {}, is_new=True))
    assert not path.exists()
    (aside,) = quarantined(fleet.directory, "unowned")
    assert [words for words in fleet.said if str(aside.path) in words and "for a week" in words]


@pytest.mark.parametrize(
    ("log_start", "policy", "lasts"), [(0, "compact", False), (3, "compact", True), (3, "compact,delete", False)]
)
def test_a_copy_lies_aside_for_a_week_where_the_others_may_have_been_made_of_what_a_log_has_left(
    fleet: Fleet, log_start: int, policy: str, lasts: bool
) -> None:
    path = fleet.put("0_1", 99)
    fleet.log_start, fleet.policy = log_start, policy
    fleet.fleet._ends()
    with fleet.directory.lock():
        fleet.given(NEW)
    assert not path.exists()
    assert len(quarantined(fleet.directory, "unowned")) == lasts


def test_a_copy_on_the_disk_that_is_beyond_the_end_of_its_changelog_counts_nothing(fleet: Fleet) -> None:
    """The topic was created again, or has lost records."""
    for task, offset in (("0_0", 5), ("0_1", 6)):
        fleet.put(task, offset)
        fleet.fleet._on_disk[task] = fleet.fleet._offsets(read_task_sum(fleet.directory, task, SPEC))
    fleet.fleet.publish()
    assert fleet.published == {"0_0": 6, "0_1": 7}  # nobody has read where they end
    fleet.fleet._ends()
    fleet.fleet.publish()
    assert fleet.published == {"0_0": 6, "0_1": 0}


def test_a_copy_that_was_followed_beyond_what_was_read_of_the_end_counts_when_it_is_dropped(fleet: Fleet) -> None:
    fleet.fleet._ends()
    fleet.kept.names = ("0_0", "0_1")
    for task, is_confirmed in (("0_0", True), ("0_1", False)):
        fleet.dropped[task] = {TopicPartition("app-counts-changelog", int(task[-1])): StorePosition(30, is_confirmed)}
    fleet.given(AssignmentResult(1, {}))
    assert fleet.published == {"0_0": 31, "0_1": 0}


def test_a_second_reason_is_said_and_other_numbers_are_none(fleet: Fleet) -> None:
    reasons = ["It is at 900.", "It is at 1,900.", "It is held.", "It is held."]
    for why in reasons:
        fleet.given(AssignmentResult(1, {}, errors={"0_1": why}))
    assert fleet.said == ["Task 0_1: It is at 900.", "Task 0_1: It is held."]
    fleet.given(AssignmentResult(1, {}))
    fleet.given(AssignmentResult(1, {}, errors={"0_1": "It is held."}))
    assert fleet.said[2:] == ["Task 0_1: It is held."], "it was well meanwhile"


def test_the_disk_is_looked_at_no_more_often_than_copies_are_probed_also_where_nothing_may_go(fleet: Fleet) -> None:
    looked: list[float] = []
    fleet.given(AssignmentResult(1, {}))
    for now in (0.0, 30.0, 499.0, 500.0, 530.0):
        fleet.now, before = now, fleet.directory.times
        fleet.fleet.probe_for_cleanup()
        looked += [now] if fleet.directory.times > before else []
    assert (looked, fleet.asked) == ([0.0, 500.0], 0)


class Group:
    """In the place of the group that a fleet makes."""

    def __init__(self, _cluster: Any, settings: GroupSettings, **_: Any) -> None:
        self.settings = settings

    def start(self, sums: dict[str, int]) -> None:
        self.sums = sums


@pytest.mark.parametrize(
    ("copy", "unknown", "said"),
    [
        ("s-1", "", "snapshot s-1 has a copy: A block is damaged."),
        (None, "", "no snapshot is known to have a copy: A block is damaged."),
        (
            None,
            "The repository does not answer.",
            "whether a snapshot has a copy is unknown (The repository does not answer): A block is damaged.",
        ),
    ],
)
def test_of_a_corrupt_task_it_is_said_whether_there_is_a_copy_or_why_nobody_knows(
    fleet: Fleet, copy: str | None, unknown: str, said: str
) -> None:
    aside = Quarantined("0_1", Path("aside"), 1)
    fleet.startup.corrupt["0_1"] = CorruptTask("0_1", aside, "A block is damaged.", copy, unknown)
    fleet.fleet.start()
    (line,) = fleet.said
    assert ("0_1" in line, "moved to" in line, line.endswith(f"; {said}")) == (True, True, True)


@pytest.mark.parametrize(("session", "polled"), [(45_000, 300_000), (600_000, 600_000)])
def test_a_static_member_is_waited_for_by_the_group_as_long_as_its_session_lasts(
    tmp_path: Path, session: int, polled: int
) -> None:
    fleet = Fleet(tmp_path, session_timeout=session)
    fleet.fleet.start()
    group: Any = fleet.fleet._group
    assert (group.settings.session_timeout_ms, group.settings.max_poll_interval_ms) == (session, polled)


def test_a_task_whose_changelog_is_gone_is_not_said_to_be_kept_by_others(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.kept.names = ("0_0", "0_1")
    fleet.dropped.update({"0_0": {}, "0_1": {}})
    fleet.given(AssignmentResult(5, {}))
    (gone,) = (line for line in fleet.said if "Task 0_0 " in line)
    (others,) = (line for line in fleet.said if "Task 0_1 " in line)
    assert ("changelog was deleted" in gone, "other processes" in gone) == (True, False)
    assert ("changelog was deleted" in others, "other processes" in others) == (False, True)


def test_what_an_earlier_cleaning_had_left_says_nothing_of_the_copy_that_is_there_now(fleet: Fleet) -> None:
    with fleet.directory.lock():
        left = fleet.directory.work_path / "cleaned" / "0_1@5"
        left.mkdir(parents=True)
        os.utime(fleet.put("0_1", 900))  # too young to go
        fleet.fleet._on_disk["0_1"] = {TopicPartition("app-counts-changelog", 1): 900}
        before = fleet.fleet._sums()
        fleet.given(AssignmentResult(5, {}, is_new=True))
    assert not left.exists()
    assert fleet.published == before == {"0_1": 901}
    assert not [line for line in fleet.said if "is deleted" in line]
