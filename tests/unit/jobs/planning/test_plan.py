from __future__ import annotations

import json

import pytest

from statecore.changelog.model import IsolationLevel, LogOffsets, OffsetRange, TopicDescription
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.planning.plan import ReadPlan, VersionedStart, make_plan
from statecore.jobs.planning.selection import check_partitions
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec

EOS = ProcessingGuarantee.EXACTLY_ONCE_V2
ALOS = ProcessingGuarantee.AT_LEAST_ONCE


def store(name: str, subtopology: int = 0, kind: StoreKind = StoreKind.KEY_VALUE) -> StoreSpec:
    return StoreSpec(name, kind, subtopology, f"app-{name}-changelog", line=7)


def application(*stores: StoreSpec, guarantee: ProcessingGuarantee = EOS) -> ApplicationSpec:
    return ApplicationSpec("app", "broker:9092", guarantee, stores)


def topic(store_: StoreSpec, partitions: int) -> TopicDescription:
    return TopicDescription(store_.changelog, "id-" + store_.name, partitions, {})


def plan_of(spec: ApplicationSpec, offsets: dict[int, LogOffsets], parallelism: int = 2) -> ReadPlan:
    topics = {each.changelog: topic(each, len(offsets)) for each in spec.stores}
    seen = {TopicPartition(each.changelog, part): log for each in spec.stores for part, log in offsets.items()}
    return make_plan(spec, check_partitions(spec.stores, topics), topics, seen, parallelism=parallelism)


def test_under_exactly_once_the_plan_ends_at_the_last_stable_offset_and_says_which_tail_is_left() -> None:
    plan = plan_of(application(store("a")), {0: LogOffsets(5, 90, 100)})
    (part,) = plan.partitions
    assert (part.start, part.end, part.committed_offset, part.tail_left) == (5, 90, 89, 10)
    assert plan.isolation is IsolationLevel.READ_COMMITTED


def test_under_at_least_once_the_plan_ends_at_the_log_end() -> None:
    plan = plan_of(application(store("a"), guarantee=ALOS), {0: LogOffsets(5, 90, 100)})
    (part,) = plan.partitions
    assert (part.end, part.committed_offset, part.tail_left) == (100, 99, 0)
    assert plan.isolation is IsolationLevel.READ_UNCOMMITTED


def test_an_empty_changelog_commits_the_unknown_offset_so_that_kafka_streams_does_not_wipe_the_task() -> None:
    (part,) = plan_of(application(store("a")), {0: LogOffsets(0, 0, 0)}).partitions
    assert part.committed_offset == -4
    assert part.offset_ranges == ()


def test_a_log_whose_records_were_all_deleted_commits_its_end() -> None:
    (part,) = plan_of(application(store("a")), {0: LogOffsets(50, 50, 50)}).partitions
    assert part.committed_offset == 49


def test_a_log_start_beyond_the_last_stable_offset_is_an_empty_range_not_a_negative_one() -> None:
    (part,) = plan_of(application(store("a")), {0: LogOffsets(95, 90, 100)}).partitions
    assert part.start == part.end == 90


@pytest.mark.parametrize("parallelism", [1, 2, 8])
def test_the_ranges_of_a_partition_cover_it_exactly(parallelism: int) -> None:
    plan = plan_of(application(store("a")), {0: LogOffsets(3, 4_000_000, 4_000_000)}, parallelism)
    (part,) = plan.partitions
    assert part.ranges[0][0] == 3
    assert part.ranges[-1][1] == 4_000_000
    assert all(left[1] == right[0] for left, right in zip(part.ranges, part.ranges[1:], strict=False))
    assert part.offset_ranges[0] == OffsetRange("app-a-changelog", 0, *part.ranges[0])


def test_a_plan_survives_its_json_form_with_the_same_id() -> None:
    plan = plan_of(
        application(store("a"), store("b", 1)), {0: LogOffsets(0, 7, 9), 1: LogOffsets(0, 3_000_000, 3_000_000)}
    )
    again = ReadPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.plan_id == plan.plan_id


def test_plans_over_other_offsets_have_other_ids() -> None:
    first = plan_of(application(store("a")), {0: LogOffsets(0, 7, 7)})
    second = plan_of(application(store("a")), {0: LogOffsets(0, 8, 8)})
    assert first.plan_id != second.plan_id


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(Invalid, match="version 99"):
        ReadPlan.from_json({"version": 99})


def test_stores_are_named_by_task_and_partition() -> None:
    plan = plan_of(application(store("a", 3)), {0: LogOffsets(0, 1, 1), 1: LogOffsets(0, 1, 1)})
    assert [(part.task, part.partition) for part in plan.partitions] == [("3_0", 0), ("3_1", 1)]


def test_the_partitions_of_a_global_store_are_one_image_with_the_next_offset_of_each() -> None:
    everywhere = StoreSpec("g", StoreKind.KEY_VALUE, -1, "products")
    spec = ApplicationSpec("app", "broker:9092", ALOS, (), (everywhere,))
    topics = {"products": TopicDescription("products", "id", 3, {})}
    seen = {TopicPartition("products", part): LogOffsets(0, part * 10, part * 10) for part in range(3)}
    plan = make_plan(spec, check_partitions([everywhere], topics), topics, seen, parallelism=2)
    (parts,) = plan.stores.values()
    assert plan.stores.keys() == {("global", "g")}
    assert [part.committed_offset for part in parts] == [0, 10, 20]
    assert ReadPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(("versioned", "offset"), [(VersionedStart.HISTORY, -4), (VersionedStart.LATEST, 6)])
def test_a_versioned_store_carries_an_offset_only_where_the_past_is_not_asked_for(
    versioned: VersionedStart, offset: int
) -> None:
    kept = StoreSpec("v", StoreKind.VERSIONED_KEY_VALUE, 0, "app-v-changelog", retention_ms=600_000)
    topics, seen = {kept.changelog: topic(kept, 1)}, {TopicPartition(kept.changelog, 0): LogOffsets(0, 7, 7)}
    plan = make_plan(
        application(kept), check_partitions([kept], topics), topics, seen, parallelism=1, versioned=versioned
    )
    assert plan.partitions[0].committed_offset == offset
    assert plan.partitions[0].segmentation == Segmentation(600_000, 60_000)


def test_a_store_that_kafka_streams_restores_is_not_read() -> None:
    left = StoreSpec("v", StoreKind.VERSIONED_KEY_VALUE, 0, "app-v-changelog", retention_ms=600_000)
    read = store("a", 0)
    topics = {one.changelog: topic(one, 1) for one in (left, read)}
    seen = {TopicPartition(one.changelog, 0): LogOffsets(0, 5, 9) for one in (left, read)}
    wanted = check_partitions([left, read], topics)
    spec = ApplicationSpec("app", "broker:9092", EOS, (left, read))
    plan = make_plan(spec, wanted, topics, seen, parallelism=1)
    parts = {part.store: part for part in plan.partitions}
    assert (parts["v"].restored_by_kafka_streams, parts["v"].ranges, parts["v"].tail_left) == (True, (), 0)
    assert (parts["a"].restored_by_kafka_streams, parts["a"].ranges, parts["a"].tail_left) == (False, ((0, 5),), 4)
    assert (parts["v"].start, parts["v"].end, plan.offsets) == (0, 5, 5)
    assert ReadPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
