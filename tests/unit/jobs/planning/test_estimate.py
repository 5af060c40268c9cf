"""The estimate of disk space is an upper bound."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from statecore.changelog.model import OffsetRange
from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate
from statecore.formats.kinds import StoreKind
from statecore.images.model import BaseDatabases
from statecore.images.runs import RunBuilder
from statecore.jobs.planning.estimate import ROW_BYTES, DiskNeed, disk_need, estimate_of
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.spec.model import ProcessingGuarantee
from tests.unit.images.changelog import batches

MIB = 1 << 20


class Part(NamedTuple):
    """A partition: what it takes on disk, into how many ranges it is cut, its kind."""

    mebibytes: int
    ranges: int = 1
    kind: StoreKind = StoreKind.KEY_VALUE


def planned(*parts: Part) -> tuple[ReadPlan, SizeEstimate]:
    spans = [OffsetRange("t", number, 0, 1000) for number in range(len(parts))]
    shapes = {
        span.topic_partition: PartitionShape(span, (1000.0,), float(part.mebibytes * MIB - 1000 * ROW_BYTES))
        for span, part in zip(spans, parts, strict=True)
    }
    partitions = [
        PartitionPlan(
            "store", part.kind, f"0_{n}", "t", "", n, 0, 1000, 1000, tuple((r, r + 1) for r in range(part.ranges))
        )
        for n, part in enumerate(parts)
    ]
    return ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, tuple(partitions)), SizeEstimate(shapes, 5 * MIB)


@pytest.mark.parametrize(
    ("parts", "besides"),
    [
        ([Part(100), Part(149)], 0),  # memory holds them
        ([Part(300), Part(400), Part(500)], 900),  # a scratch file of each range that is at work
        ([Part(300, 3)], 0),
        ([Part(600, 3)], 400),
        ([Part(500, 5)], 500),  # five runs are merged
        ([Part(500, 5), Part(300, 5), Part(900)], 900),  # one after the other
        ([Part(10, 1, StoreKind.VERSIONED_KEY_VALUE)], 10),
        ([Part(400, 1, StoreKind.EMIT_FINAL_WINDOW)], 400),
        ([Part(100, 1, StoreKind.EMIT_FINAL_WINDOW)], 0),  # one run for each segment
        ([Part(40, 0)], 0),  # nothing of it is read
    ],
)
def test_temporary_files_are_the_larger_of_scratch_and_merged_files(parts: list[Part], besides: int) -> None:
    need = disk_need(*planned(*parts), workers=2, memory_budget=150 * MIB)
    assert need == DiskNeed(5 * MIB, sum(part.mebibytes * MIB for part in parts if part.ranges), besides * MIB)


def test_small_records_take_more_than_their_keys_and_values() -> None:
    span = OffsetRange("t", 0, 0, 10 * MIB)
    weights = SizeEstimate({span.topic_partition: PartitionShape(span, (10.0 * MIB,), 16.0 * 10 * MIB)}, 80 * MIB)
    part = PartitionPlan("store", StoreKind.KEY_VALUE, "0_0", "t", "", 0, 0, span.end, span.end, ((0, span.end),))
    plan = ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
    assert disk_need(plan, weights, workers=2, memory_budget=2048 * MIB) == DiskNeed(80 * MIB, 400 * MIB, 0)
    besides = disk_need(plan, weights, workers=2, memory_budget=1024 * MIB).besides
    assert besides == 400 * MIB, "memory does not hold them, although it holds their keys and values"


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
@pytest.mark.parametrize(("key", "value"), [(4, 0), (8, 8), (16, 100), (40, 4000)])
def test_a_run_takes_at_most_its_estimate(tmp_path: Path, kind: StoreKind, key: int, value: int) -> None:
    count = 20_000
    source = random.Random(1)
    keys = [number.to_bytes(4, "big") + source.randbytes(key - 4) for number in range(count)]
    source.shuffle(keys)
    builder = RunBuilder(kind, tmp_path, base=BaseDatabases.NONE)
    for records in batches([(of, source.randbytes(value)) for of in keys], 5000):
        builder.add(records)
    (run,) = builder.finish()
    plan, weights = planned(Part(1, 1, kind))
    shape = PartitionShape(OffsetRange("t", 0, 0, count), (float(count),), float(count * (key + value)))
    need = disk_need(plan, replace(weights, shapes={shape.span.topic_partition: shape}), 1, 1 << 30)
    assert 0.4 * need.stores < run.file_bytes < 1.02 * need.stores


def test_the_estimate_names_records_ranges_and_disk() -> None:
    plan, weights = planned(Part(300), Part(400))
    need = disk_need(plan, weights, 2, 200 * MIB)
    said = estimate_of(plan, weights, need, 200 * MIB)
    assert need == DiskNeed(5 * MIB, 700 * MIB, 700 * MIB)
    assert all(value in said for value in ("2,000 records", "2 ranges"))
    assert said.count("700 MiB") == 3


def test_a_disk_that_may_be_too_small_is_named(tmp_path: Path) -> None:
    assert DiskNeed(1, 1000, 1000).warning(tmp_path) is None
    said = DiskNeed(1, 1 << 59, 1 << 59).warning(tmp_path / "not" / "there")
    assert said is not None
    assert str(tmp_path) in said
    assert "takes up to 1024 PiB" in said
    assert DiskNeed(0, 1 << 59, 1 << 59).warning(tmp_path) is None  # nobody knows how large the logs are


def test_a_job_without_images_has_no_disk_estimate() -> None:
    plan, weights = planned(Part(300), Part(400))
    said = estimate_of(plan, weights, disk_need(plan, weights, 2, 200 * MIB), 200 * MIB)
    short = estimate_of(plan, weights, None, 200 * MIB)
    assert said.startswith(short)
    assert short.endswith("of records (--memory-budget).")


def test_a_plan_without_ranges_reads_nothing_and_finds_nothing_new() -> None:
    plan, weights = planned(Part(300))
    nothing = replace(plan, partitions=tuple(replace(part, ranges=()) for part in plan.partitions))
    said = estimate_of(nothing, weights, disk_need(nothing, weights, 2, 200 * MIB), 200 * MIB)
    assert said == "Nothing is read."
    assert estimate_of(nothing, weights, None, 200 * MIB) == "Nothing is new."
