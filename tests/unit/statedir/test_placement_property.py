"""Whatever stores of whatever tasks are placed, and wherever it fails: nothing is mixed, lost or left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from statecore.faults import PLACEMENT_POINTS, FaultInjected, InjectedFault
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.state_directory import StateDirectory
from tests.harness.case_selection import one_of
from tests.harness.filesystems import without_exchange
from tests.unit.statedir.support import make_image, make_live, offset_of, sibling

TASKS = ("0_0", "0_1", "1_0")
STORES = ("a", "b", "c")
ALL = [(task, store) for task in TASKS for store in STORES]
OLD, NEW = 5, 9

Content = dict[tuple[str, str], int]
"""Offset by (task, store) of what exists."""


def content(directory: StateDirectory) -> Content:
    return {key: offset for key in ALL if (offset := offset_of(directory, *key)) is not None}


def of_task(found: Content, task: str) -> Content:
    return {key: offset for key, offset in found.items() if key[0] == task}


def expected(before: Content, placed: set[tuple[str, str]], exactly_once: bool) -> Content:
    after = before | dict.fromkeys(placed, NEW)
    if exactly_once:
        touched = {task for task, _ in placed}
        after |= {key: OFFSET_UNKNOWN for key in ALL if key[0] in touched and key not in after}
    return after


@pytest.mark.parametrize("swapping", one_of(["exchange", "renames"]))
@given(
    live=st.sets(st.sampled_from(ALL)),
    placed=st.sets(st.sampled_from(ALL), min_size=1),
    guarantee=st.sampled_from(ProcessingGuarantee),
    point=st.sampled_from(PLACEMENT_POINTS),
    nth=st.integers(1, 3),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_stores_of_any_tasks_with_a_failure_anywhere(monkeypatch, swapping, live, placed, guarantee, point, nth):
    if swapping == "renames":
        without_exchange(monkeypatch)
    state_dir = Path(mkdtemp(prefix="statecore-property-"))
    directory = StateDirectory(state_dir, "app")
    try:
        for task, store in live:
            make_live(directory, task, store, OLD)
        before = content(directory)
        after = expected(before, placed, guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2)
        siblings = [sibling(*key) for key in ALL if key not in placed]

        def place(faults) -> None:
            with directory.lock():
                recover(directory, faults)
                images = [make_image(directory, *key, NEW) for key in sorted(placed)]
                plan = plan_placement(
                    directory, images, siblings=siblings, guarantee=guarantee, replace=True, request_id="r"
                )
                apply_placement(plan, faults)

        try:
            place(InjectedFault(point, "raise", nth))
        except FaultInjected:
            event(f"failed at {point}")
            found = content(directory)
            for task in TASKS:
                lost = point == "placement.between-renames" and not directory.task_path(task).exists()
                assert lost or of_task(found, task) in (of_task(before, task), of_task(after, task))
        place(InjectedFault("placement.start", "raise", 99))
        assert content(directory) == after
        left = {path.name for path in directory.work_path.iterdir()} - {"staged"}
        assert left == {"placed.json"}
    finally:
        shutil.rmtree(state_dir)
