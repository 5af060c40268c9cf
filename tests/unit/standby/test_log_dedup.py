"""Which messages and rounds of a standby are emitted."""

from __future__ import annotations

from statecore.standby.log_dedup import Messages, RoundReports
from statecore.standby.report import StandbyReport, StandbyStoreReport, StandbyTaskReport


class World:
    """Rounds that end, and those that were told."""

    def __init__(self) -> None:
        self.now, self.rounds, self.told = 0.0, 0, list[int]()
        self.news = RoundReports(lambda report: self.told.append(report.rounds), 30, lambda: self.now)

    def round(self, lag: int | None = 0, *, exit_code: int = 0, is_whole: bool = False) -> None:
        self.rounds += 1
        store = StandbyStoreReport("counts", "app-counts-changelog-0", 9, lag, 0, 0, None)
        task = StandbyTaskReport("0_0", "standby", (store,), None, exit_code)
        self.news.end_round(StandbyReport("app", "/d", self.rounds, (task,)), is_complete=is_whole)


def test_frequent_rounds_are_logged_once_an_interval() -> None:
    world = World()
    for second in range(100):
        world.now = float(second)
        world.round(lag=1_000 - second)
    assert world.told == [1, 31, 61, 91]


def test_a_long_round_is_reported_once_an_interval() -> None:
    world = World()
    for second in range(100):
        world.now = float(second)
        world.news.during_round(lambda: StandbyReport("app", "/d", int(world.now), ()))
    assert world.told == [30, 60, 90]


def test_complete_rounds_and_changes_are_logged_at_once() -> None:
    world = World()
    world.round(None)
    world.round(None)
    world.round(7)
    world.round(6)
    world.round(6, exit_code=10)
    world.round(5)
    world.round(0, is_whole=True)
    world.round(0, is_whole=True)
    assert world.told == [1, 3, 5, 6, 7, 8]


def test_a_text_is_emitted_again_once_its_words_change() -> None:
    said = list[str]()
    messages = Messages(said.append)
    for texts in (
        {"0_0": "behind by 9,000"},
        {"0_0": "behind by 7"},
        {"0_0": "gone", "0_1": "gone"},
        {},
        {"0_0": "gone"},
    ):
        messages.changes("tasks", texts)
    messages.changes("stores", {"0_0": "gone"})
    assert said == ["behind by 9,000", "gone", "gone", "gone", "gone"]
