"""The read stage: order of its results, base of its first ranges, and which error it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.model import ReadStatistics
from statecore.errors import Corrupted, Invalid, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.images.model import BaseDatabases
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline.ranges import ClusterSettings, RangeResult, RangeTask
from statecore.jobs.pipeline.read_stage import read_runs
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.progress import NullProgress
from statecore.spec.model import ProcessingGuarantee

Answers = Callable[[RangeTask], RangeResult | Failure]


class Workers:
    """Answers for each task, the last one first."""

    def __init__(self, answer: Answers) -> None:
        self.answer = answer
        self.tasks: list[RangeTask] = []

    def parallelism(self) -> int:
        return 2

    def check(self, question: Any) -> Any:
        raise NotImplementedError

    def run(self, work: Callable[[Any], list[Any]], batches: Sequence[Any], doing: str) -> list[Any]:
        self.tasks = [task for batch in batches for task in batch]
        return [self.answer(task) for task in reversed(self.tasks)]


def part(store: str, task: str, partition: int, *ranges: tuple[int, int]) -> PartitionPlan:
    topic, kind, end = f"app-{store}-changelog", StoreKind.KEY_VALUE, ranges[-1][1]
    return PartitionPlan(store, kind, task, topic, "", partition, ranges[0][0], end, end, ranges)


PLAN = ReadPlan(
    "app",
    ProcessingGuarantee.AT_LEAST_ONCE,
    (
        part("store", "0_0", 0, (5, 90), (90, 200), (200, 1000)),
        part("of-all", "global", 0, (0, 30), (30, 40)),
        part("of-all", "global", 1, (0, 2000)),
    ),
)


def result_of(task: RangeTask) -> RangeResult:
    return RangeResult(task.task, task.store, task.offset_range, (), ReadStatistics(), 0.0, {}, {})


def read(path: Path, answer: Answers) -> tuple[list[RangeTask], dict[tuple[str, str], tuple[RangeResult, ...]]]:
    workers = Workers(answer)
    cluster = ClusterSettings("nowhere:1", {}, 1.0)
    found = read_runs(workers, PLAN, cluster, DirectoryPlace(str(path / "plan")), 1 << 20, NullProgress())
    return workers.tasks, found


def test_results_are_in_the_order_in_which_runs_are_applied(tmp_path: Path) -> None:
    _, found = read(tmp_path, result_of)
    spans = {
        key: [(one.offset_range.partition, one.offset_range.start) for one in results] for key, results in found.items()
    }
    assert spans == {("0_0", "store"): [(0, 5), (0, 90), (0, 200)], ("global", "of-all"): [(0, 0), (0, 30), (1, 0)]}


def test_deletes_are_dropped_in_the_first_range_of_a_store_alone(tmp_path: Path) -> None:
    tasks, _ = read(tmp_path, result_of)
    firsts = [(task.store, task.offset_range) for task in tasks if task.below is BaseDatabases.NONE]
    assert sorted((store, span.partition, span.start) for store, span in firsts) == [("of-all", 0, 0), ("store", 0, 5)]


@pytest.mark.parametrize("permanent", [Corrupted, Invalid])
@pytest.mark.parametrize("first", [0, 90, 200])
def test_a_permanent_error_is_reported_first(tmp_path: Path, permanent: type[StatecoreError], first: int) -> None:
    def answer(task: RangeTask) -> RangeResult | Failure:
        kind = permanent if task.offset_range.start == first else Retryable
        return Failure(kind("It failed.", code="test-error", action="Do something.").to_json())

    with pytest.raises(permanent):
        read(tmp_path, answer)
