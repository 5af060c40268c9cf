"""Batches of tasks: what shares one, and what does not."""

from __future__ import annotations

from statecore.jobs.pipeline.batches import batched


def test_small_tasks_share_a_spark_task_and_large_ones_do_not() -> None:
    many = list(range(600))
    batches = batched(many, [100] * 600, parallelism=2)
    assert [each for batch in batches for each in batch] == many
    assert (len(batches), max(map(len, batches))) == (8, 75)
    assert len(batched(many, [100] * 600, parallelism=200)) == 600
    assert [len(batch) for batch in batched(many[:5], [5_000_000] * 5, 1)] == [1] * 5
    assert [len(batch) for batch in batched(many[:40], [5_000_000] * 4 + [90_000] * 36, 1)] == [1] * 4 + [2] * 18
    assert batched([], [], 2) == []


def test_a_worker_that_is_alone_gets_all_small_tasks_at_once() -> None:
    assert [len(batch) for batch in batched(list(range(100)), [100] * 100, 1)] == [100]
    assert [len(batch) for batch in batched(list(range(4)), [150_000] * 4, 1)] == [1] * 4
