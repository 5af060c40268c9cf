"""What a fold would merge: neighbours of one database and partition, where a fold is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from statecore.formats.kinds import StoreKind
from statecore.images.model import Run, RunFormat
from statecore.jobs.compact.plan import Merge
from statecore.jobs.compact.planner import planned_merges
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.spec.model import ProcessingGuarantee
from tests.unit.jobs.compact.compacting import spec_of

KB = 1000
SPEC = spec_of({"plain": StoreKind.KEY_VALUE, "clicks": StoreKind.WINDOW}, globals_={"names": StoreKind.KEY_VALUE})
BASE = (BaseFile("000001.sst", "b" * 64, Extent("apps/orders/files/bb/b", 0, 1 << 30)),)


def run_of(number: int, size: int, store: str = "plain", partition: int = 0, **changes: object) -> StoredRun:
    run = Run(
        f"{partition}{number:063d}",
        RunFormat.SST,
        1,
        0,
        1,
        size,
        "0" * 32,
        "00",
        "ff",
        start=number,
        end=number + 1,
        store=store,
        kind=StoreKind.WINDOW if store == "clicks" else StoreKind.KEY_VALUE,
        topic=f"orders-{store}-changelog",
        partition=partition,
    )
    return StoredRun(replace(run, **changes), Extent("apps/orders/packs/p", 0, size))  # type: ignore[arg-type]


def task_manifest_of(
    *databases: StoredDatabase, task: str = "0_0", store: str = "plain", **changes: object
) -> TaskManifest:
    kind = StoreKind.WINDOW if store == "clicks" else StoreKind.KEY_VALUE
    end = StoredEnd(f"orders-{store}-changelog", int(task[-1]) if "_" in task else 0, "", 99, 100)
    found = StoreSnapshot(store, kind, "i", (end,), "read_uncommitted", databases)
    return TaskManifest(task, (replace(found, **changes),))  # type: ignore[arg-type]


def small(count: int, first: int = 1, **changes: object) -> list[StoredRun]:
    return [run_of(number, 10 * KB, **changes) for number in range(first, first + count)]  # type: ignore[arg-type]


def database(runs: Sequence[StoredRun], segment: int | None = None, base: tuple[BaseFile, ...] = ()) -> StoredDatabase:
    return StoredDatabase(segment, tuple(runs), base)


def starts(merges: Sequence[Merge]) -> list[tuple[str, int | None, list[int], bool]]:
    return [(one.task, one.segment, [stored.run.start for stored in one.inputs], one.is_lowest) for one in merges]


def test_the_new_runs_above_a_large_one_are_merged_with_their_deletes() -> None:
    (merge,) = planned_merges([task_manifest_of(database([run_of(0, 1000 * KB), *small(11)]))], SPEC)
    assert starts([merge]) == [("0_0", None, list(range(1, 12)), False)]
    assert merge.bytes == 110 * KB
    assert [one.sha256 for one in merge.wanted] == [stored.run.sha256 for stored in merge.inputs]
    assert merge.name == "store 'plain' of task 0_0"


def test_deletes_are_dropped_if_the_oldest_run_without_base_files_is_merged() -> None:
    assert starts(planned_merges([task_manifest_of(database(small(12)))], SPEC))[0][3]
    assert not starts(planned_merges([task_manifest_of(database(small(12), base=BASE))], SPEC))[0][3]


def test_where_no_database_alone_is_worth_it_nothing_is_merged() -> None:
    near = task_manifest_of(database([run_of(0, 1000 * KB), *small(9)]))
    assert planned_merges([near], SPEC) == ()
    due = task_manifest_of(database([run_of(0, 1000 * KB), *small(11)]), task="0_1")
    assert [one.task for one in planned_merges([near, due], SPEC)] == ["0_0", "0_1"]


def test_each_segment_is_a_database() -> None:
    both = task_manifest_of(
        database([run_of(0, 1000 * KB, "clicks", segment=1), *small(11, store="clicks", segment=1)], 1),
        database([run_of(0, 1000 * KB, "clicks", segment=2), *small(3, store="clicks", segment=2)], 2),
        store="clicks",
    )
    (merge,) = planned_merges([both], SPEC)
    assert merge.segment == 1
    assert (merge.task, merge.store) == ("0_0", "clicks")
    assert merge.name.endswith("segment 1")


def test_runs_of_a_global_store_are_merged_with_those_of_their_partition() -> None:
    runs = [*(run_of(number, 10 * KB, "names", partition) for partition in (0, 1) for number in range(12))]
    found = starts(planned_merges([task_manifest_of(database(runs), task="global", store="names")], SPEC))
    assert found == [("global", None, list(range(12)), True), ("global", None, list(range(12)), False)]


def test_runs_of_a_partition_that_do_not_stand_side_by_side_are_not_merged() -> None:
    runs = [run_of(number, 10 * KB, "names", partition) for number in range(20) for partition in (0, 1)]
    assert planned_merges([task_manifest_of(database(runs), task="global", store="names")], SPEC) == ()


@pytest.mark.parametrize("odd", [{"row_version": 2}, {"format": RunFormat.RECORDS}, {"store": ""}])
def test_what_cannot_be_merged_ends_the_neighbours(odd: dict[str, object]) -> None:
    runs = [*small(12), run_of(20, 10 * KB, **odd), *small(12, 30)]  # type: ignore[arg-type]
    found = starts(planned_merges([task_manifest_of(database(runs))], SPEC))
    assert found == [("0_0", None, list(range(1, 13)), True), ("0_0", None, list(range(30, 42)), False)]


def test_what_is_not_declared_so_is_left_alone() -> None:
    due = task_manifest_of(database(small(12)))
    assert planned_merges([due], SPEC)
    assert planned_merges([due], spec_of({"clicks": StoreKind.WINDOW})) == ()
    assert planned_merges([due], spec_of({"plain": StoreKind.TIMESTAMPED_KEY_VALUE})) == ()
    once = replace(SPEC, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2)
    assert planned_merges([due], once) == ()
    assert planned_merges([task_manifest_of(database(small(12)), isolation="read_committed")], once)
