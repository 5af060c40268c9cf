"""What ``statecore standby`` says after each round, and at its end."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from statecore.cli.standby import RoundLines, _stopped_by_signals, line_of, show
from statecore.standby.report import StandbyReport, StandbyStoreReport, StandbyTaskReport


def task(
    name: str, lag: int | None, *, role: str = "standby", exit_code: int = 0, records: int = 0
) -> StandbyTaskReport:
    store = StandbyStoreReport("counts", f"app-counts-changelog-{name[-1]}", 9, lag, records, 0, None)
    return StandbyTaskReport(name, role, (store,), None, exit_code)


def line(*tasks: StandbyTaskReport) -> str:
    return line_of(StandbyReport("app", "/d", 3, tasks), tasks)


def test_few_tasks_are_named_each() -> None:
    assert line() == "round 3: no tasks"
    assert (
        line(task("0_0", 0), task("0_1", 1_200, role="warmup"), task("0_2", None, exit_code=12))
        == "round 3: lag 0_0 0, 0_1 1,200 (warmup), 0_2 ? failed"
    )


def test_of_many_those_are_named_that_failed_or_are_furthest_behind() -> None:
    many = [task(f"0_{number}", number) for number in range(1_000)]
    many[5] = task("0_5", None, exit_code=12)
    said = line(*many)
    counts, _, first = said.partition("; most behind: ")
    assert {"1,000", "499,495", "1"} <= set(counts.replace(", ", " ").split())
    assert first.startswith("0_5 ? failed, 0_999 999, 0_998 998, ")
    assert len(said) < 200


def test_tasks_of_unknown_lag_are_not_reported_caught_up() -> None:
    names = [f"0_{number}" for number in range(12)]
    unknown = line(*(task(name, None) for name in names))
    assert unknown.startswith("round 3: 12 tasks, lag ?; ")
    assert "; most behind: 0_0 ?, 0_1 ?, 0_2 ?" in unknown
    away = line(*(task(name, None, exit_code=10) for name in names))
    assert away.startswith("round 3: 12 tasks, lag ?, 12 failed; ")
    assert "; most behind: 0_0 ? failed, 0_1 ? failed, " in away
    some = line(*(task(name, None if name in ("0_3", "0_10") else 7) for name in names))
    assert " 70; most behind: 0_3 ?, 0_10 ?, 0_0 7" in some


def test_each_error_is_printed_once_and_an_unknown_lag_is_no_number(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    stores = tuple(
        StandbyStoreReport(name, f"app-{name}-changelog-0", 9, None, 0, 0, error)
        for name, error in (("a", "No broker."), ("b", "No broker."), ("c", "Left."))
    )
    show(StandbyReport("app", "/d", 3, (StandbyTaskReport("0_0", "standby", stores, "Left.", 10),)))
    said = capfd.readouterr().out
    assert said.count("No broker.") == 1
    assert "task 0_0 (a, b): No broker." in said
    assert said.count("Left.") == 1
    assert said.count("?") == 3


def test_a_long_read_prints_rate_and_remaining_time() -> None:
    now = [100.0]
    lines = RoundLines(lambda: now[0])

    def after(seconds: float, lag: int, records: int) -> str | None:
        now[0] += seconds
        return lines.line(StandbyReport("app", "/d", 3, (task("0_0", lag, records=records),)))

    assert after(0, 9_000, 0) == "round 3: lag 0_0 9,000"
    assert after(10, 6_000, 3_000) == "round 3: lag 0_0 6,000; 300 records/s, 20.0 s left"
    assert after(10, 6_500, 5_000) == "round 3: lag 0_0 6,500; 200 records/s"
    assert after(10, 6_500, 5_000) is None
    assert after(10, 0, 12_000) == "round 3: lag 0_0 0"


def test_only_what_changed_is_printed() -> None:
    lines = RoundLines()

    def after(*tasks: StandbyTaskReport) -> str | None:
        return lines.line(StandbyReport("app", "/d", 3, tasks))

    assert after() == "round 3: no tasks"
    assert after() is None
    assert after(task("0_0", 0), task("0_1", 9)) == "round 3: lag 0_0 0, 0_1 9"
    assert after(task("0_0", 0), task("0_1", 0)) == "round 3: lag 0_1 0"
    assert after(task("0_0", 0), task("0_1", 0)) is None
    assert after(task("0_0", None, exit_code=10), task("0_1", 0)) == "round 3: lag 0_0 ? failed"
    assert after(task("0_1", 0), task("0_2", 4)) == "round 3: lag 0_2 4; no longer here: 0_0"
    assert after() == "round 3: no tasks; no longer here: 0_1, 0_2"


def test_an_error_of_many_tasks_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    def failed(name: str) -> StandbyTaskReport:
        stores = tuple(StandbyStoreReport(store, "c", 9, None, 0, 0, "No broker.") for store in "ab")
        return StandbyTaskReport(name, "standby", stores, None, 10)

    show(StandbyReport("app", "/d", 3, tuple(failed(f"0_{number}") for number in range(3))))
    assert "\ntask 0_0, task 0_1, task 0_2: No broker.\n" in capfd.readouterr().out


@pytest.mark.timeout(20)
def test_a_signal_that_comes_when_the_wait_begins_stops_all_the_same_and_a_second_one_ends_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _stopped_by_signals() as stop:
        locked: Any = stop
        with locked._cond:  # as Event.wait has it, on this thread
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is before
        assert stop.wait(10)
