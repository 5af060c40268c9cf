from __future__ import annotations

from typing import Any

import pytest

from statecore.airflow.job_progress import STARTING, ProgressRecorder, sentence
from tests.unit.airflow.stub import FakeStateStore


def advance(count: int, **fields: Any) -> dict[str, Any]:
    return {
        "event": "advance",
        "phase": "read",
        "count": count,
        "total": 9,
        "unit": "records",
        "seconds": 1.0,
        **fields,
    }


class Log:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: Any) -> None:
        self.lines.append(text % values if values else text)

    warning = info


def test_progress_is_written_at_most_once_a_second_and_each_step_begins_and_ends_in_the_log() -> None:
    now, log, store = [0.0], Log(), FakeStateStore()
    recorder = ProgressRecorder({"task_state_store": store}, log, clock=lambda: now[0])
    written = []
    for seconds, line in (
        (0.0, advance(0, event="begin")),
        (0.1, advance(1)),
        (0.9, advance(2)),
        (1.1, advance(3)),
        (1.2, advance(9, event="done", message="ok")),
    ):
        now[0] = seconds
        recorder(line)
        written.append(store["progress"]["count"])
    assert written == [0, 0, 0, 3, 9]
    assert log.lines == [
        "read: 0 of 9 records after 1.0 s",
        "read: 3 of 9 records (33 %) after 1.0 s",
        "read: 9 of 9 records after 1.0 s (ok)",
    ]


def test_progress_that_cannot_be_written_does_not_stop_the_job() -> None:
    class Broken:
        calls = 0

        def set(self, key: str, value: Any) -> None:
            self.calls += 1
            raise ConnectionError("no API server")

    log, broken = Log(), Broken()
    recorder = ProgressRecorder({"task_state_store": broken}, log)
    for _ in range(3):
        recorder(advance(1, event="done"))
    assert broken.calls == 1
    assert len([line for line in log.lines if "no API server" in line]) == 1


@pytest.mark.parametrize("line", [{}, {"count": None, "total": None, "seconds": None}, {"phase": "x", "message": "m"}])
def test_a_progress_line_with_fields_missing_is_still_a_sentence(line: dict[str, Any]) -> None:
    assert "after 0.0 s" in sentence(line)


def recorded(*steps: tuple[float, dict[str, Any]]) -> list[str]:
    """The lines of the log for progress at these seconds."""
    now, log = [0.0], Log()
    recorder = ProgressRecorder({"task_state_store": FakeStateStore()}, log, clock=lambda: now[0])
    for seconds, line in steps:
        now[0] = seconds
        recorder(line)
    return log.lines


def test_the_first_progress_line_precedes_the_job() -> None:
    now, log, store = [0.0], Log(), FakeStateStore()
    ProgressRecorder({"task_state_store": store}, log, clock=lambda: now[0])(STARTING)
    assert store["progress"]["phase"] == "starting Spark"
    assert log.lines == ["starting Spark: begun after 0.0 s"]


def test_every_tenth_is_a_line_with_pace_and_time_left() -> None:
    def at(count: int, **fields: Any) -> dict[str, Any]:
        return advance(count, total=1000, rate=10.0, left=(1000 - count) / 10, seconds=count / 10, **fields)

    steps = [(count / 10, at(count)) for count in range(20, 1000, 20)]
    lines = recorded((0.0, at(0, event="begin")), *steps, (100.0, at(1000, event="done")))
    assert len(lines) == 11
    assert lines[1].split(", ") == ["read: 100 of 1,000 records (10 %) after 10.0 s", "10/s", "1 min 30 s left"]


def test_slow_work_has_a_line_every_minute() -> None:
    steps = [(float(second), advance(second, total=100_000, rate=1.0, left=1e5)) for second in range(2, 602, 2)]
    lines = recorded((0.0, advance(0, event="begin", total=100_000)), *steps)
    assert len(lines) == 11
    assert lines[-1].endswith("left")


def test_each_phase_counts_its_own_tenths() -> None:
    phases = []
    for start in (0.0, 10.0):
        phases += [(start, advance(0, event="begin")), (start + 2, advance(5)), (start + 3, advance(9, event="done"))]
    assert len(recorded(*phases)) == 6
