"""SIGKILL at every fault point of a placement, in a process of its own, and again while recovering.

After each kill every task directory is wholly old or wholly new; the old data exists until the new was verified; the
next start brings everything to an end; and a retry of the request makes all tasks new and leaves nothing behind.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statecore.faults import PLACEMENT_POINTS
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import file_sizes
from statecore.statedir.state_directory import StateDirectory
from tests.harness.case_selection import three_of
from tests.unit.statedir.placing_process import ALONE, GLOBAL, GLOBAL_OFFSETS
from tests.unit.statedir.placing_process import TASKS as PLAIN_TASKS
from tests.unit.statedir.support import (
    BUFFER,
    KIND,
    changelog,
    content_of,
    make_live,
    make_segments,
    make_with_offsets,
    offset_of,
)

Content = dict[str, object]
Run = Callable[..., int]

TASKS = (*PLAIN_TASKS, ALONE, GLOBAL)
HIDDEN = {TopicPartition("hidden", 0): 8}


def offsets(task: str, **stores: int) -> Content:
    """The databases of plain stores, each with its offset."""
    return {f"rocksdb/{store}": {changelog(task, store): offset} for store, offset in stores.items()}


def segments(task: str, store: str, offset: int, *starts: int) -> Content:
    return {f"{store}/{store}.{start}": {changelog(task, store): offset} for start in starts}


def buffer(task: str, store: str, offset: int) -> Content:
    partition = changelog(task, store)
    file = f"0\n1\n{partition.topic} {partition.partition} {offset}\n"
    return {**segments(task, store, offset, 0), f".checkpoint_{store}": file}


KEPT = {"0_0": segments("0_0", "windows", 50, 0), GLOBAL: {"rocksdb/h": HIDDEN}}
OLD: dict[str, Content | None] = {
    "0_0": {**offsets("0_0", s=5, k=21), **KEPT["0_0"], "s.position": "0\n0\n"},
    "0_1": None,
    "1_0": {**offsets("1_0", s=5, t=6, k=22), **segments("1_0", "w", 30, 0, 60_000), **buffer("1_0", "b", 7)},
    ALONE: None,
    GLOBAL: {"rocksdb/g": {TopicPartition("products", 0): 3}, **KEPT[GLOBAL]},
}
NEW: dict[str, Content] = {
    "0_0": {**offsets("0_0", s=9, t=9, k=21, gap=-4), **KEPT["0_0"]},
    "0_1": {
        **offsets("0_1", s=9, t=9, k=-4, gap=-4),
        **segments("0_1", "window-gap", -4, 0),
        **buffer("0_1", "buffer-gap", -4),
    },
    "1_0": {
        **offsets("1_0", s=9, t=9, k=22, gap=-4),
        **segments("1_0", "w", 9, 60_000, 120_000),
        **buffer("1_0", "b", 9),
    },
    ALONE: offsets(ALONE, s=9),
    GLOBAL: {"rocksdb/g": GLOBAL_OFFSETS, **KEPT[GLOBAL]},
}
OLD_IS_NEEDED_AT = PLACEMENT_POINTS[: PLACEMENT_POINTS.index("placement.after-mark")]


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state", "app")
    for task, stores in {"0_0": {"s": 5, "k": 21}, "1_0": {"s": 5, "t": 6, "k": 22}}.items():
        for store, offset in stores.items():
            make_live(directory, task, store, offset)
    one = directory.task_path("1_0")
    make_segments(directory.task_path("0_0") / "windows", changelog("0_0", "windows"), 50, (0,))
    make_segments(one / "w", changelog("1_0", "w"), 30, (0, 60_000))
    make_segments(one / "b", changelog("1_0", "b"), 7, (0,), BUFFER)
    (one / ".checkpoint_b").write_text("0\n1\napp-b-changelog 0 7\n")
    (directory.task_path("0_0") / "s.position").write_text("0\n0\n")
    make_with_offsets(directory.global_path / "rocksdb" / "g", {TopicPartition("products", 0): 3})
    make_with_offsets(directory.global_path / "rocksdb" / "h", HIDDEN)
    assert {task: content_of(directory.task_path(task)) for task in TASKS} == OLD
    return directory


@pytest.fixture(scope="module")
def run(templates: None) -> Iterator[Run]:
    """Lets a process of its own do the work; how it ended."""
    command = [sys.executable, "-m", "tests.unit.statedir.placing_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        requests, answers = server.stdin, server.stdout
        assert requests is not None
        assert answers is not None

        def ended(directory: StateDirectory, work: str, swapping: str, fault: str = "") -> int:
            requests.write(json.dumps([fault, str(directory.state_dir), work, swapping]) + "\n")
            requests.flush()
            code = int(answers.readline())
            assert code in (0, -signal.SIGKILL)  # what else it said is on stderr
            return code

        yield ended


def stands(directory: StateDirectory, task: str) -> str:
    """``old``, ``new`` or ``absent``; anything else fails."""
    found = content_of(directory.task_path(task))
    if found is None:
        return "absent"
    assert found in (OLD[task], NEW[task]), f"{task} is a mixture: {found}"
    return "old" if found == OLD[task] else "new"


def databases(directory: StateDirectory) -> dict[str, dict[str, int]]:
    """Every database anywhere in the application's directory: its identity → its files."""
    return {path.read_text(): file_sizes(path.parent) for path in directory.path.rglob("IDENTITY")}


def check_after_kill(directory: StateDirectory, point: str, before: dict[str, dict[str, int]]) -> None:
    allowed_absent = {task for task, stores in OLD.items() if stores is None}
    for task in TASKS:
        standing = stands(directory, task)
        if standing == "absent" and task not in allowed_absent:
            assert point == "placement.between-renames"
    if point in OLD_IS_NEEDED_AT:
        after = databases(directory)
        assert {identity: after.get(identity) for identity in before} == before


def check_after_recovery(directory: StateDirectory) -> None:
    for task, stores in OLD.items():
        assert stands(directory, task) in (("old", "new") if stores else ("absent", "new"))
    left = {path.name for path in directory.work_path.iterdir()}
    assert left <= {"placed.json", "staged"}


def check_all_new(directory: StateDirectory) -> None:
    assert [stands(directory, task) for task in TASKS] == ["new"] * len(TASKS)
    assert {path.name for path in directory.work_path.iterdir()} <= {"placed.json", "staged"}
    for task in TASKS:
        for name in NEW[task]:
            assert name.startswith(".") or list((directory.task_path(task) / name).glob("*.sst")), (task, name)


def cases() -> list[tuple[str, str, int]]:
    per_task = {"placement.before-swap", "placement.between-renames", "placement.after-swap", "placement.after-verify"}
    found = []
    for point in PLACEMENT_POINTS:
        for swapping in ("exchange", "renames"):
            if point == "placement.between-renames" and swapping == "exchange":
                continue
            if swapping == "renames" and point not in per_task:
                continue
            times = {"placement.after-image-move": (1, 8), "placement.during-sweep": (1, 2)}.get(point, (1,))
            if point in per_task:
                times = (1, 3) if point == "placement.between-renames" else (1, 4, 5)
            found += [(point, swapping, nth) for nth in times]
    return found


@pytest.mark.parametrize(("point", "swapping", "nth"), three_of(cases(), by=lambda case: case[1]))
def test_a_kill_leaves_every_task_old_or_new_and_a_retry_finishes(directory, run, point, swapping, nth):
    before = databases(directory)
    assert run(directory, "place", swapping, f"{point}:kill:{nth}") == -signal.SIGKILL
    check_after_kill(directory, point, before)
    assert run(directory, "recover", swapping) == 0
    check_after_recovery(directory)
    assert run(directory, "place", swapping) == 0
    check_all_new(directory)


def double_cases() -> list[object]:
    """(first kill, second kill while recovering, swapping); the essential ones here, the others in the campaign."""
    seconds = [
        "placement.before-swap:kill:2",
        "placement.between-renames:kill:1",
        "placement.after-swap:kill:1",
        "placement.after-verify:kill:2",
        "placement.after-mark:kill",
        "placement.during-sweep:kill:2",
        "placement.after-sweep:kill",
    ]
    found: list[object] = []
    for first in ("placement.after-journal", "placement.after-swap", "placement.between-renames"):
        for second in seconds:
            for swapping in ("exchange", "renames"):
                if swapping == "exchange" and "between-renames" in first + second:
                    continue
                essential = (first == "placement.after-journal") == (swapping == "exchange")
                marks = () if essential else (pytest.mark.long,)
                found.append(pytest.param(first, second, swapping, marks=marks))
    return found


@pytest.mark.parametrize(("first", "second", "swapping"), three_of(double_cases(), by=lambda case: case[2]))
def test_a_kill_during_recovery_is_recovered_too(directory, run, first, second, swapping):
    before = databases(directory)
    assert run(directory, "place", swapping, f"{first}:kill") == -signal.SIGKILL
    assert run(directory, "recover", swapping, second) == -signal.SIGKILL
    check_after_kill(directory, second.partition(":")[0], before)
    assert run(directory, "recover", swapping) == 0
    check_after_recovery(directory)
    assert run(directory, "place", swapping) == 0
    check_all_new(directory)


def test_without_a_kill_everything_is_new_at_once(directory, run):
    assert run(directory, "place", "exchange") == 0
    check_all_new(directory)
    assert offset_of(directory, "0_0", "k") == 21
    assert directory.store_path("0_1", "gap", KIND).is_dir()
