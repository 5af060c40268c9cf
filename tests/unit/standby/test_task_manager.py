"""Tasks that a process keeps warm: each stands for itself, and one that fails is tried again."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from statecore.errors import Capacity, Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import RESTORE_REMAINING, STANDBY_FAILED, STANDBY_TASKS, UPDATED, Instrument, Metrics, Tags
from statecore.spec.reader import parse_spec
from statecore.standby.assignment.model import Role
from statecore.standby.task_manager import FIRST_RETRY, LAST_RETRY, StorePosition, TaskManager
from statecore.tasks.standby_task import FollowResult, RoundResult
from tests.harness.raising import raises

SPEC = parse_spec(
    {
        "application_id": "app",
        "bootstrap_servers": "127.0.0.1:1",
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}}}},
    }
)


class Told(Metrics):
    """What was measured."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, str], int] = {}
        self.gauges: dict[tuple[str, str], Callable[[], float | None]] = {}

    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        key = instrument.name, str(dict(tags))
        self.counters[key] = self.counters.get(key, 0) + amount

    def record(self, instrument: Instrument, value: float, tags: Tags) -> None:
        raise AssertionError((instrument, value, tags))

    def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
        key = instrument.name, str(dict(tags))
        self.gauges[key] = read
        return lambda: self.gauges.pop(key, None) and None

    def now(self, instrument: Instrument, task: str | None = None) -> float | None:
        tags = {"application-id": "app"} | ({} if task is None else {"task-id": task})
        return self.gauges[instrument.name, str(tags)]()


class Task:
    """A task of one store; what it does in its next rounds is said by the test."""

    def __init__(self, name: str) -> None:
        self.name, self.closed, self.rebuilt = name, False, 0
        self.changelog = TopicPartition("app-counts-changelog", int(name[-1]))
        store = SimpleNamespace(name="counts", changelog=self.changelog, offset=9, spec=None)
        self.stores = SimpleNamespace(stores=(store,))
        self.lag = {self.changelog: 3}
        self.rounds: list[RoundResult | Exception] = []

    def epochs(self) -> dict[TopicPartition, int]:
        return {}

    def follow(self, ends: Any, stopped: Any) -> RoundResult:
        done = self.rounds.pop(0) if self.rounds else RoundResult()
        if isinstance(done, Exception):
            raise done
        return done

    def rebuild(self, store: str) -> None:
        assert store == "counts"
        self.rebuilt += 1

    def close(self) -> None:
        self.closed = True


class World:
    """Tasks that open, or do not, and a clock."""

    def __init__(self) -> None:
        self.now, self.said, self.told = 0.0, list[str](), Told()
        self.opened: dict[str, Task] = {}
        self.refused: dict[str, Exception] = {}
        self.ends: Callable[[set[str]], dict[TopicPartition, int]] = lambda _: {}
        self.asked: list[int] = []
        cluster: Any = None
        self.kept = TaskManager(
            SPEC,
            cluster,
            self.open,
            self.said.append,
            metrics=self.told,
            clock=lambda: self.now,
            ends=lambda *asked: self.ask(*asked),
        )

    def open(self, name: str) -> Any:
        if name in self.refused:
            raise self.refused[name]
        self.opened[name] = Task(name)
        return self.opened[name]

    def ask(self, _cluster: Any, _spec: Any, stores: list[Any], _epochs: Any) -> Any:
        self.asked.append(len(stores))
        return self.ends({str(len(stores))})

    def round(self) -> None:
        self.kept.round(lambda: False)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Corrupted("Rows are damaged.", code="test-error", action="Repair."), Corrupted),
        (OSError(errno.ENOSPC, "No space left on device", "/d"), Capacity),
        (OSError(errno.EIO, "Input/output error", "/d"), Retryable),
        (ZeroDivisionError(), StatecoreError),
    ],
)
def test_a_failed_task_is_closed_and_reported_and_the_others_continue(
    world: World, failure: Exception, kind: type[StatecoreError]
) -> None:
    world.kept.add("0_0")
    world.kept.add("0_1")
    first, second = world.opened.values()
    first.rounds = [failure]
    second.rounds = [RoundResult({second.changelog: FollowResult(0, 7, 7)})]
    world.round()
    assert first.closed
    assert not second.closed
    bad, good = world.kept.report()
    assert (bad.exit_code, bad.stores) == (kind.exit_code, ())
    assert (good.exit_code, good.stores[0].records) == (0, 7)
    (said,) = world.said
    assert ("0_0" in said, "0_1" in said) == (True, False)
    assert str(world.kept.report()[0].error) in said
    assert world.kept.sums() == {"0_0": 0, "0_1": 10}


def test_a_task_that_cannot_be_opened_is_retried_with_backoff_and_reported_once(world: World) -> None:
    world.refused["0_0"] = Capacity("No room.", code="test-error", action="Make room.")
    world.kept.add("0_0")
    tried: list[float] = []

    def refuse(name: str) -> Any:
        tried.append(world.now)
        raise world.refused[name]

    world.kept._open_task = refuse
    for second in range(0, 1_500):
        world.now = float(second)
        world.round()
    pauses = [after - before for before, after in itertools.pairwise(tried)]
    assert tried[0] == FIRST_RETRY
    assert pauses[:4] == [10, 20, 40, 80]
    assert max(pauses) == LAST_RETRY
    assert len(world.said) == 1
    world.kept._open_task = world.open
    del world.refused["0_0"]
    world.now += LAST_RETRY
    world.round()
    assert world.kept.report()[0].exit_code == 0


def test_a_long_read_of_one_task_gives_the_others_their_turn(world: World) -> None:
    """The first task has twelve pieces of two seconds each to read; the second one nothing."""
    world.kept.add("0_0")
    world.kept.add("0_1")
    long, short = world.opened["0_0"], world.opened["0_1"]
    left, turns = [12], list[str]()

    def read_pieces(ends: Any, stopped: Any) -> RoundResult:
        turns.append("0_0")
        while left[0]:
            left[0] -= 1
            world.now += 2
            if stopped():
                break
        return RoundResult({long.changelog: FollowResult(0, 1, 1)})

    def read_nothing(ends: Any, stopped: Any) -> RoundResult:
        turns.append("0_1")
        assert not stopped()
        return RoundResult()

    long.follow, short.follow = read_pieces, read_nothing  # type: ignore[method-assign]
    world.round()
    assert world.kept.is_behind
    for _ in range(10):
        if not world.kept.is_behind:
            break
        world.round()
    assert left == [0]
    assert turns[:8] == ["0_0", "0_1"] * 4
    world.round()
    assert not world.kept.is_behind


def test_a_task_that_fails_slowly_is_not_begun_again_at_once(world: World) -> None:
    world.kept.add("0_0")

    def stall(ends: Any, stopped: Any) -> RoundResult:
        world.now += 30
        assert stopped()
        return RoundResult(failed={"counts": Retryable("No progress.", code="test-error", action="Look.")})

    world.opened["0_0"].follow = stall  # type: ignore[method-assign]
    world.round()
    assert not world.kept.is_behind


def test_brokers_that_are_away_are_asked_once_a_round_and_no_task_is_closed(world: World) -> None:
    for name in ("0_0", "0_1", "0_2"):
        world.kept.add(name)

    def away(_: Any) -> Any:
        raise Retryable("No broker answered.", code="test-error", action="Check the brokers.")

    world.ends = away
    world.round()
    assert world.asked == [3]
    assert [task.exit_code for task in world.kept.report()] == [Retryable.exit_code] * 3
    assert not any(task.closed for task in world.opened.values())


def test_a_topic_that_is_gone_stops_only_the_tasks_that_follow_it(world: World) -> None:
    world.kept.add("0_0")
    world.kept.add("0_1")

    def gone(_: Any) -> Any:
        if len(world.asked) < 3:
            raise NotFound("There is no topic app-counts-changelog.", code="test-error", action="Look.")
        return {}

    world.ends = gone
    world.round()
    assert world.asked == [2, 1, 1]
    assert [task.exit_code for task in world.kept.report()] == [NotFound.exit_code, 0]


def test_a_store_that_cannot_be_continued_is_rebuilt_and_followed_at_once(world: World) -> None:
    world.kept.add("0_0")
    task = world.opened["0_0"]
    task.rounds = [
        RoundResult(stale={"counts": "records are gone"}),
        RoundResult({task.changelog: FollowResult(0, 5, 5)}),
    ]
    world.round()
    (report,) = world.kept.report()
    assert (task.rebuilt, report.stores[0].rebuilt, report.stores[0].records) == (1, 1, 5)
    (said,) = world.said
    assert {one for one in ("counts", "0_0", "records are gone") if one in said} == {
        "counts",
        "0_0",
        "records are gone",
    }


def test_a_rebuilt_store_that_is_stale_again_is_reported_and_not_counted(world: World) -> None:
    world.kept.add("0_0")
    task = world.opened["0_0"]
    task.rounds = [RoundResult(stale={"counts": "records are gone"}), RoundResult(stale={"counts": "and again"})]
    world.round()
    (report,) = world.kept.report()
    assert (task.rebuilt, report.exit_code) == (1, Corrupted.exit_code)
    assert world.kept.sums() == {"0_0": 0}
    world.round()
    assert world.kept.report()[0].exit_code == 0


def test_a_store_found_stale_after_the_round_is_rebuilt(world: World) -> None:
    """Whoever starts from the copy next would keep rows whose deletes are gone."""
    world.kept.add("0_0")
    task = world.opened["0_0"]
    stopped: list[bool] = []

    def follow(_ends: Any, stop: Callable[[], bool]) -> RoundResult:
        if stopped:
            assert stop()
            return RoundResult()
        stopped.append(True)
        return RoundResult(stale={"counts": "deletes may be missing"})

    task.follow = follow  # type: ignore[method-assign]
    world.kept.round(lambda: bool(stopped))
    (report,) = world.kept.report()
    assert (task.rebuilt, report.exit_code, report.stores[0].rebuilt) == (1, 0, 1)


def test_what_the_group_says_in_the_middle_of_a_task_is_none_of_the_task_s_errors(world: World) -> None:
    world.kept.add("0_0")
    task = world.opened["0_0"]
    begun: list[bool] = []

    def follow(_ends: Any, stop: Callable[[], bool]) -> RoundResult:
        begun.append(True)
        assert stop()
        assert stop(), "asked again it does not go on"
        return RoundResult()

    def attend() -> bool:
        if begun:
            raise Invalid("The group refuses this member.", code="test-error", action="Start it again.")
        return False

    task.follow = follow  # type: ignore[method-assign]
    with pytest.raises(Invalid, match="refuses this member"):
        world.kept.round(attend)
    (report,) = world.kept.report()
    assert (report.error, report.exit_code, task.closed) == (None, 0, False)


def test_a_task_that_is_dropped_is_closed_and_one_that_stays_is_not(world: World) -> None:
    world.kept.add("0_0", Role.WARMUP)
    world.kept.add("0_1")
    world.kept.add("0_0", Role.STANDBY)
    assert len(world.opened) == 2
    assert [task.role for task in world.kept.report()] == ["standby", "standby"]
    assert world.kept.drop("0_1") == {world.opened["0_1"].changelog: StorePosition(9, is_confirmed=True)}
    assert (world.opened["0_1"].closed, world.opened["0_0"].closed) == (True, False)
    assert world.kept.names == ("0_0",)


def test_what_is_measured_goes_by_kafka_streams_names(world: World) -> None:
    world.kept.add("0_0")
    world.refused["0_1"] = Capacity("No room.", code="test-error", action="Make room.")
    world.kept.add("0_1")
    task = world.opened["0_0"]
    task.rounds = [RoundResult({task.changelog: FollowResult(0, 7, 7)})]
    world.round()
    assert world.told.counters[UPDATED.name, str({"application-id": "app", "task-id": "0_0"})] == 7
    assert world.told.now(RESTORE_REMAINING, "0_0") == 3
    assert (world.told.now(STANDBY_TASKS), world.told.now(STANDBY_FAILED)) == (1, 1)
    world.kept.close()
    assert task.closed
    assert world.told.gauges == {}


def test_while_the_brokers_are_away_no_lag_is_measured_and_the_tasks_count_as_failed(world: World) -> None:
    for name in ("0_0", "0_1"):
        world.kept.add(name)
    world.opened["0_1"].lag = {}  # no round has looked at it yet
    assert [world.told.now(RESTORE_REMAINING, name) for name in ("0_0", "0_1")] == [3, None]

    def away(_: Any) -> Any:
        raise Retryable("No broker answered.", code="test-error", action="Check the brokers.")

    world.ends = away
    world.round()
    assert [world.told.now(RESTORE_REMAINING, name) for name in ("0_0", "0_1")] == [None, None]
    assert (world.told.now(STANDBY_TASKS), world.told.now(STANDBY_FAILED)) == (0, 2)
    world.ends = lambda _: {}
    world.round()
    assert world.told.now(RESTORE_REMAINING, "0_0") == 3
    assert (world.told.now(STANDBY_TASKS), world.told.now(STANDBY_FAILED)) == (2, 0)


def test_an_outage_and_its_end_are_reported_once_for_all_tasks(world: World) -> None:
    for name in ("0_0", "0_1", "0_2"):
        world.kept.add(name)
    tries = itertools.count()

    def away(_: Any) -> Any:
        raise Retryable(f"No broker answered, try {next(tries)}.", code="test-error", action="Check the brokers.")

    world.ends = away
    for _ in range(3):
        world.round()
    (said,) = world.said
    assert said.endswith(": No broker answered, try 0. Check the brokers.")
    world.ends = lambda _: {}
    for _ in range(3):
        world.round()
    (_, again) = world.said
    assert "brokers answer again" in again


def test_tasks_that_go_on_are_named_together(world: World) -> None:
    for name in ("0_0", "0_1", "0_2"):
        world.kept.add(name)
    for name in ("0_0", "0_2"):
        world.opened[name].rounds = [
            RoundResult(failed={"counts": Retryable("No progress.", code="test-error", action="Look.")})
        ] * 2
    for _ in range(4):
        world.round()
    assert [words.split(":")[0] for words in world.said] == [
        "Task 0_0", "Task 0_2", "Tasks 0_0, 0_2 are followed again.",
    ]  # fmt: skip


def test_tasks_are_reported_in_the_order_of_their_partitions(world: World) -> None:
    for name in ("0_10", "1_0", "0_2"):
        world.kept.add(name)
    assert [task.task for task in world.kept.report()] == ["0_2", "0_10", "1_0"]


def test_the_tasks_are_closed_before_a_base_that_is_on_its_way_is_waited_for(world: World) -> None:
    open_then: list[bool] = []

    def close() -> None:
        open_then.append(not world.opened["0_0"].closed)

    bases: Any = SimpleNamespace(prepare=lambda _: True, close=close)
    cluster: Any = None
    kept = TaskManager(SPEC, cluster, world.open, world.said.append, bases=bases)
    kept.add("0_0")
    kept.close()
    assert open_then == [False]


def test_a_task_that_cannot_be_followed_gets_no_base_and_is_tried_again(world: World) -> None:
    asked: list[str] = []
    refused: list[Exception] = [NotFound("Its changelog is gone.", code="test-error", action="Look.")]

    def check(name: str) -> None:
        if refused:
            raise refused.pop()

    bases: Any = SimpleNamespace(prepare=lambda name: asked.append(name) is None, close=lambda: None)
    cluster: Any = None
    kept = TaskManager(
        SPEC, cluster, world.open, world.said.append, check=check, bases=bases, clock=lambda: world.now, ends=world.ask
    )
    kept.add("0_0")
    assert (asked, world.opened, kept.report()[0].exit_code) == ([], {}, NotFound.exit_code)
    world.now += FIRST_RETRY
    kept.round(lambda: False)
    assert (asked, list(world.opened), kept.report()[0].exit_code) == (["0_0"], ["0_0"], 0)


def test_a_task_that_is_dropped_while_its_base_is_on_its_way_gives_the_base_up(world: World) -> None:
    given_up: list[str] = []
    bases: Any = SimpleNamespace(prepare=lambda _: False, cancel_fetch=given_up.append)
    cluster: Any = None
    kept = TaskManager(SPEC, cluster, world.open, world.said.append, bases=bases)
    kept.add("0_0")
    assert (kept.is_waiting, given_up) == (True, [])
    assert kept.drop("0_0") == {}
    assert (kept.is_waiting, given_up, world.opened) == (False, ["0_0"], {})


def test_a_success_resets_the_backoff_of_a_task(world: World) -> None:
    world.kept.add("0_0")
    for _ in range(3):
        world.opened["0_0"].rounds = [Retryable("away", code="test-error", action="")]
        world.round()
        assert world.kept.report()[0].error is not None
        world.now += FIRST_RETRY  # after one good round the pause is the first one again
        world.round()
        assert world.kept.report()[0].error is None


def test_a_partition_without_a_leader_stops_only_the_tasks_that_follow_its_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("0_0", "0_1"):
        world.kept.add(name)
        world.opened[name].stores.stores[0].spec = name
    other = TopicPartition("app-other-changelog", 1)
    world.opened["0_1"].stores.stores[0].changelog = other
    asked: list[list[str]] = []

    def ends(_cluster: Any, _spec: Any, stores: list[str], _epochs: Any) -> dict[TopicPartition, int]:
        asked.append(stores)
        if "0_1" in stores:
            raise Retryable(
                "Partitions have no leader.", code="test-error", action="Bring the brokers back.", topics=[other.topic]
            )
        return {}

    world.ask = ends  # type: ignore[method-assign]
    world.opened["0_0"].rounds = [RoundResult({world.opened["0_0"].changelog: FollowResult(0, 7, 7)})]
    world.round()
    assert asked == [["0_0", "0_1"], ["0_0"]]
    first, second = world.kept.report()
    assert (first.stores[0].records, first.stores[0].error) == (7, None)
    assert "no leader" in str(second.stores[0].error)


def test_a_store_that_cannot_be_followed_any_more_counts_nothing_and_its_lag_is_not_known(world: World) -> None:
    """Its topic was created again: others that have less of the right topic get the task."""
    world.kept.add("0_0")
    assert world.kept.sums() == {"0_0": 10}
    for error, held in (
        (Invalid("Created again.", code="test-error", action="Look."), 0),
        (Retryable("Away.", code="test-error", action="Wait."), 10),
    ):
        world.opened["0_0"].rounds = [RoundResult(failed={"counts": error})]
        world.round()
        assert world.kept.sums() == {"0_0": held}
        assert world.kept.report()[0].lag is None
    world.round()
    assert world.kept.report()[0].lag == 3


def test_a_store_beyond_the_end_counts_nothing_until_a_round_has_seen_that_its_changelog_reaches_so_far(
    world: World,
) -> None:
    world.kept.add("0_0")
    task = world.opened["0_0"]
    seen, task.lag = task.lag, {}
    for end, held in ((9, 0), (10, 10)):
        assert world.kept.sums({task.changelog: end}) == {"0_0": held}
    task.lag = seen
    assert world.kept.sums({task.changelog: 9}) == {"0_0": 10}  # what was read of the end is older


def test_a_task_with_lower_offsets_is_announced_once(world: World) -> None:
    told: list[int] = []
    world.kept.on_state_loss(lambda: told.append(world.kept.sums()["0_0"]))
    world.kept.add("0_0")
    task = world.opened["0_0"]
    gone = RoundResult(failed={"counts": Invalid("Created again.", code="test-error", action="Look.")})
    task.rounds = [gone, gone, RoundResult(), RoundResult(stale={"counts": "records are gone"}), RoundResult()]
    for _ in range(2):
        world.round()
    assert told == [0]
    for _ in range(2):
        world.round()
    assert len(told) == 2
    task.rounds = [Capacity("No room.", code="test-error", action="Make room.")]
    world.round()
    assert told[2:] == [0]


def test_the_error_of_a_store_that_a_round_had_no_time_for_stays(world: World) -> None:
    """Else a stop between two such rounds would leave a copy that counts as usable."""
    world.kept.add("0_0")
    task = world.opened["0_0"]
    gone = Corrupted("Its topic was created again.", code="test-error", action="Look.")
    task.rounds += [RoundResult(failed={"counts": gone}), RoundResult(skipped=frozenset({"counts"})), RoundResult()]
    for _ in range(2):
        world.round()
        (report,) = world.kept.report()
        assert report.exit_code == gone.exit_code
        assert not [line for line in world.said if "followed again" in line]
        assert world.kept.sums() == {"0_0": 0}
    world.round()
    assert world.kept.report()[0].exit_code == 0
    assert [line for line in world.said if "followed again" in line]


def test_a_client_that_the_token_endpoint_refuses_ends_the_process(world: World) -> None:
    """Another one has the new secret."""

    def refuse(_: set[str]) -> NoReturn:
        raise Invalid("Refused.", code="token-refused", action="Correct the secret.")

    world.kept.add("0_0")
    world.ends = refuse
    with raises(Invalid, "token-refused"):
        world.round()


def test_a_store_that_cannot_be_followed_counts_nothing_while_its_brokers_are_away(world: World) -> None:
    world.kept.add("0_0")
    gone = NotFound("The changelog is gone.", code="test-error", action="Act.")
    world.opened["0_0"].rounds = [RoundResult(failed={"counts": gone})]
    world.round()
    assert world.kept.sums() == {"0_0": 0}

    def away(_: Any) -> Any:
        raise Retryable("No broker answers.", code="test-error", action="Act.")

    world.ends = away
    world.round()
    (store,) = world.kept.report()[0].stores
    assert store.error == str(gone)
    assert world.kept.sums() == {"0_0": 0}
