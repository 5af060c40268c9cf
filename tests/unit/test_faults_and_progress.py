"""Fault points do nothing unless requested, and progress is passed to its listeners."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import statecore
from statecore.errors import Invalid
from statecore.faults import FAULT_POINTS, NO_FAULTS, FaultInjected, InjectedFault, fault_points_from_environment
from statecore.progress import MachineProgress, NullProgress, TerminalProgress, parse_machine_line, progress_of_each
from tests.harness.manual_clock import ManualClock


def reached_in_the_code() -> set[str]:
    found = set()
    for path in Path(statecore.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("reach", "locked"):
                found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def test_every_point_in_the_code_is_registered_and_every_registered_one_is_in_the_code():
    assert reached_in_the_code() == set(FAULT_POINTS)
    assert len(set(FAULT_POINTS)) == len(FAULT_POINTS)


def test_in_production_every_point_does_nothing_and_an_unknown_one_is_a_defect():
    for point in FAULT_POINTS:
        NO_FAULTS.reach(point)
    with pytest.raises(ValueError, match="not registered"):
        NO_FAULTS.reach("placement.somewhere")


def test_a_fault_strikes_at_the_nth_time_and_only_there():
    faults = InjectedFault("placement.after-swap", "raise", 3)
    for _ in range(2):
        faults.reach("placement.after-swap")
        faults.reach("placement.before-swap")
    with pytest.raises(FaultInjected, match="time 3"):
        faults.reach("placement.after-swap")
    faults.reach("placement.after-swap")


def test_the_environment_chooses_a_fault_and_a_kill_is_a_kill():
    code = "from statecore.faults import *; fault_points_from_environment().reach('placement.done'); print('alive')"
    for value, expected in (("placement.done:kill", -9), ("placement.done:kill:2", 0), ("", 0)):
        environment = {"STATECORE_FAULT": value, "PYTHONPATH": str(Path(statecore.__file__).parent.parent)}
        process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        assert process.returncode == expected, process.stderr


@pytest.mark.parametrize(
    "value", ["nowhere:kill", "placement.done:explode", "placement.done:kill:0", "placement.done:kill:x"]
)
def test_a_fault_that_does_not_exist_is_refused(value):
    with pytest.raises(Invalid, match="STATECORE_FAULT"):
        fault_points_from_environment({"STATECORE_FAULT": value})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(progress, clock) -> None:
    progress.phase("read", 4000, "records")
    for _ in range(4):
        clock.now += 1
        progress.advance(1000)
    progress.done("3 tasks")


def test_on_a_terminal_one_line_is_rewritten_with_rate_and_time_left():
    clock, stream = ManualClock(), Terminal()
    work(TerminalProgress(stream, clock=clock), clock)
    lines = stream.getvalue().split("\r")
    assert stream.getvalue().count("\n") == 1
    assert lines[2].rstrip() == "read:  1,000/4,000 records  1,000/s  3.0 s left"
    assert lines[-1] == "read:  4,000/4,000 records  1,000/s  in 4.0 s  (3 tasks)\n"


def test_what_takes_seconds_each_has_a_rate_that_is_not_zero():
    clock, stream = ManualClock(), io.StringIO()
    progress = TerminalProgress(stream, clock=clock)
    progress.phase("build", 4, "stores")
    for _ in range(4):
        clock.now += 2.5
        progress.advance()
    progress.done()
    assert stream.getvalue().splitlines()[-1] == "build:  4/4 stores  0.4/s  in 10.0 s"


def test_a_shorter_line_leaves_nothing_of_the_longer_one():
    clock, stream = ManualClock(), Terminal()
    progress = TerminalProgress(stream, clock=clock)
    progress.phase("a long name", 10)
    progress.phase("b")
    clock.now += 1
    progress.done()
    shown = [line.split("\r")[-1] for line in stream.getvalue().split("\n")]
    assert shown[1].strip() == "b: in 1.0 s"


def test_without_a_terminal_there_are_few_lines_and_no_carriage_returns():
    clock, stream = ManualClock(), io.StringIO()
    progress = TerminalProgress(stream, clock=clock)
    progress.phase("read", None, "records")
    for _ in range(100):
        clock.now += 0.5
        progress.advance(10)
    progress.done()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[-1] == "read:  1,000 records  20/s  in 50.0 s"
    assert "\r" not in stream.getvalue()


def test_machine_lines_are_read_back_from_wherever_they_stand_in_a_log():
    clock, stream = ManualClock(), io.StringIO()
    work(MachineProgress(stream, clock=clock), clock)
    found = [parse_machine_line(f"25/11/21 INFO {line}") for line in stream.getvalue().splitlines()]
    assert [fields["event"] for fields in found] == ["begin", "advance", "advance", "done"]
    assert found[1] == {
        "event": "advance", "phase": "read", "count": 2000, "total": 4000, "unit": "records",
        "seconds": 2.0, "rate": 1000.0, "left": 2.0, "message": "",
    }  # fmt: skip
    assert found[-1]["message"] == "3 tasks"
    assert json.dumps(found[0]["left"]) == "null"


@pytest.mark.parametrize("line", ["", "hello", "STATECORE_PROGRESS", "STATECORE_PROGRESS {", "STATECORE_PROGRESS []"])
def test_other_lines_are_no_progress(line):
    assert parse_machine_line(line) is None


def test_the_null_progress_has_no_listener(capfd):
    progress = NullProgress()
    progress.phase("x", 1)
    progress.advance()
    progress.done()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("names", "steps"), [(["a"], ["copy"]), (["a", "b"], ["a (1 of 2): copy", "b (2 of 2): copy"]), ([], [])]
)
def test_steps_of_several_say_which_one_they_are_of(names, steps):
    stream = io.StringIO()
    for _, progress in progress_of_each(names, MachineProgress(stream, clock=ManualClock())):
        progress.phase("copy", 2, "bytes")
        progress.advance(2)
        progress.done()
    ends = [fields for fields in map(parse_machine_line, stream.getvalue().splitlines()) if fields["event"] == "done"]
    assert [(fields["phase"], fields["count"]) for fields in ends] == [(step, 2) for step in steps]
