"""Task manifests of a restore fit those that other tests fetch."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.formats.kinds import StoreKind
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.task_manifests import task_manifests
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.repository.task_manifest_validation import contradictions_in
from statecore.spec.model import ProcessingGuarantee
from tests.unit.jobs.published import Shop

KINDS = st.sampled_from([StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.VERSIONED_KEY_VALUE])


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(2, 250), min_size=1, max_size=4, unique=True).map(sorted), st.booleans())
def test_what_is_published_of_runs_and_bases_is_read_and_fits_together(cuts: list[int], based: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(Path(directory))
        shop.publish(cuts, based=based)
        (entry,) = shop.app_repository.head().snapshots
        read = shop.app_repository.task_manifests(shop.app_repository.manifest(entry).value.task_manifests)
        assert {task: contradictions_in(found.manifest) for task, found in read.items()} == {
            "0_0": [],
            "0_1": [],
            "global": [],
        }


@settings(deadline=None)
@given(KINDS, st.sampled_from([0, 7]), st.sampled_from([0, 5]), st.booleans(), st.integers(0, 3))
def test_what_a_restore_publishes_of_empty_changelogs_fits_together(
    kind: StoreKind, start: int, length: int, left: bool, of_global: int
) -> None:
    one = PartitionPlan(
        store="plain",
        kind=kind,
        task="0_0",
        topic="orders-plain-changelog",
        topic_id="0" * 32,
        partition=0,
        start=start,
        end=start + length,
        log_end=start + length,
        ranges=(),
        retention_ms=None if kind is StoreKind.KEY_VALUE else 600_000,
        segment_interval_ms=300_000 if kind.is_segmented else None,
        restored_by_kafka_streams=left and kind.is_versioned,
    )
    names = replace(
        one, store="names", kind=StoreKind.KEY_VALUE, task="global", topic="names", restored_by_kafka_streams=False
    )
    globals_ = tuple(replace(names, partition=number, end=start + number) for number in range(of_global))
    plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, (one, *globals_))
    made = task_manifests(plan, ReadResult({}, {}), {})
    assert [task_manifest.task for task_manifest in made] == ["0_0", *(["global"] if of_global else [])]
    assert [contradictions_in(task_manifest) for task_manifest in made] == [[]] * len(made)
