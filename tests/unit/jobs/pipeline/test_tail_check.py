from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS
from statecore.changelog.model import OffsetRange, ReadStatistics, TopicDescription
from statecore.changelog.soundness import BaseEnd
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.tail_check import Unsound, truncations, unsound
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.spec.model import ProcessingGuarantee

CHANGELOG = TopicPartition("changelog", 0)
KEY: Key = ("0_0", "store")
HOUR, READ_AT = 3_600_000, 1_000_000
TOPIC = TopicDescription("changelog", "a" * 32, 1, {"cleanup.policy": "compact", "delete.retention.ms": str(HOUR)})
PART = PartitionPlan(
    "store",
    StoreKind.KEY_VALUE,
    "0_0",
    "changelog",
    "a" * 32,
    0,
    100,
    300,
    300,
    ((100, 200), (200, 300)),
    base="newest",
)


def checked(
    *statistics: ReadStatistics,
    epoch: int = -1,
    epoch_end: int | None = None,
    read_at_ms: int | None = READ_AT,
    delete_retention_ms: int | None = 10 * HOUR,
    now_ms: int = READ_AT + 100_000,
    topic: TopicDescription = TOPIC,
    planned_ms: int | None = None,
    segments: frozenset[int | None] = frozenset([None]),
) -> Unsound:
    part = replace(PART, leader_epoch=epoch, delete_retention_ms=planned_ms)
    plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
    spans = [OffsetRange("changelog", 0, start, end) for start, end in PART.ranges]
    results = tuple(
        RangeResult("0_0", "store", span, (), seen, 0.0, {}, {}) for span, seen in zip(spans, statistics, strict=False)
    )
    base = Base("newest", {CHANGELOG: BaseEnd(CHANGELOG, "a" * 32, 100, 3, read_at_ms, delete_retention_ms)}, segments)
    return unsound(
        plan, {KEY: base}, {KEY: results}, {"changelog": topic}, lambda asked: dict.fromkeys(asked, epoch_end), now_ms
    )


def configured(**configs: str) -> TopicDescription:
    return replace(
        TOPIC, configs={**TOPIC.configs, **{name.replace("_", "."): value for name, value in configs.items()}}
    )


WHOLE, GAPS = ReadStatistics(records=100), ReadStatistics(records=90, removed=10)


def test_a_complete_tail_is_appended_whatever_the_age_of_its_base() -> None:
    assert checked(WHOLE, WHOLE, now_ms=10**12) == ((), {})


def test_a_tail_that_was_read_in_time_may_have_gaps() -> None:
    assert checked(WHOLE, GAPS) == ((), {})


def test_a_tail_with_gaps_that_was_read_too_late_refuses_its_base_permanently() -> None:
    found = checked(GAPS, WHOLE, now_ms=10**12)
    (refused,) = found.refused
    assert (refused.task, refused.store, refused.base) == ("0_0", "store", "newest")
    assert "delete.retention.ms" in refused.why
    assert found.permanent == {(KEY, "newest"): refused.why}


def test_the_shortest_recorded_delete_retention_counts() -> None:
    kept = configured(delete_retention_ms=str(10 * HOUR))
    assert checked(GAPS, WHOLE, topic=kept) == ((), {})
    assert checked(GAPS, WHOLE, topic=kept, delete_retention_ms=1000).refused[0].missed_deletes
    assert checked(GAPS, WHOLE, topic=kept, planned_ms=1000).refused[0].missed_deletes
    assert (
        checked(GAPS, WHOLE, topic=configured(cleanup_policy="delete"), delete_retention_ms=1000)
        .refused[0]
        .missed_deletes
    )
    assert checked(GAPS, WHOLE, topic=kept, delete_retention_ms=None).refused[0].missed_deletes


def test_no_delete_is_missed_above_a_base_without_rows() -> None:
    assert checked(GAPS, GAPS, delete_retention_ms=None, read_at_ms=None, segments=frozenset()) == ((), {})


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_a_log_start_beyond_the_base_refuses_it_permanently_in_every_topic(policy: str) -> None:
    found = checked(replace(WHOLE, log_start_moved_to=150), WHOLE, topic=configured(cleanup_policy=policy))
    assert found.permanent.keys() == {(KEY, "newest")}


def test_a_log_truncated_during_the_read_refuses_the_plan_and_no_base() -> None:
    found = checked(WHOLE, WHOLE, epoch=4, epoch_end=250)
    (refused,) = found.refused
    assert (refused.code, refused.values["truncated_at"]) == ("log-truncated", 250)
    assert not found.permanent


def test_unknown_epochs_refuse_nothing() -> None:
    assert checked(WHOLE, WHOLE, epoch=4) == ((), {})


@settings(deadline=None, max_examples=500)
@given(
    deletes=st.lists(st.tuples(st.integers(0, 3 * HOUR), st.booleans()), max_size=5),
    retention=st.integers(0, 2 * HOUR),
    skews=st.tuples(*[st.integers(0, CLOCK_MARGIN_MS)] * 2),
    finished=st.integers(0, 4 * HOUR),
    known=st.booleans(),
    replaced=st.integers(0, 2),
)
def test_a_tail_whose_deletes_were_removed_before_the_read_is_refused(
    deletes: Sequence[tuple[int, bool]],
    retention: int,
    skews: tuple[int, int],
    finished: int,
    known: bool,
    replaced: int,
) -> None:
    """Times count from the read of the base's end; the clocks of planner and reader are ahead.

    ``replaced`` records of the first range were removed because later ones replace them, which does no harm.
    """
    # The broker may remove a delete once it is older than the delete retention.
    lost = sum(compacted and at + retention <= finished for at, compacted in deletes)
    planner, reader = skews
    found = checked(
        replace(WHOLE, removed=replaced),
        replace(WHOLE, removed=lost),
        read_at_ms=READ_AT + planner if known else None,
        now_ms=READ_AT + reader + finished,
        topic=configured(delete_retention_ms=str(retention)),
    )
    if lost:
        assert found.refused
    elif not replaced or (known and finished + 2 * CLOCK_MARGIN_MS < retention):
        assert not found.refused


def test_missed_deletes_are_reported_only_without_another_problem() -> None:
    (missed,) = checked(GAPS, WHOLE, now_ms=10**12).refused
    assert (missed.missed_deletes, missed.is_passing) == (True, False)
    (moved,) = checked(GAPS, replace(GAPS, log_start_moved_to=150), now_ms=10**12).refused
    assert (moved.missed_deletes, moved.is_passing) == (False, False)
    assert "began at 150" in moved.why
    (truncated,) = checked(GAPS, WHOLE, epoch=4, epoch_end=250, now_ms=10**12).refused
    assert (truncated.missed_deletes, truncated.is_passing) == (False, True)
    assert "was truncated at 250" in truncated.why


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_problem_of_one_partition_is_the_reason_for_all(order: tuple[int, int]) -> None:
    seen = {order[0]: GAPS, order[1]: replace(WHOLE, log_start_moved_to=150)}
    parts = tuple(replace(PART, task="global", partition=number) for number in seen)
    ends = {part.topic_partition: BaseEnd(part.topic_partition, "a" * 32, 100, 3, None) for part in parts}
    results = [
        RangeResult("global", "store", OffsetRange("changelog", number, 100, 300), (), one, 0.0, {}, {})
        for number, one in seen.items()
    ]
    key = ("global", "store")
    plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, parts)
    base = Base("newest", ends, frozenset([None]))
    found = unsound(plan, {key: base}, {key: results}, {"changelog": TOPIC}, lambda _: {}, 10**12)
    (refused,) = found.refused
    assert not refused.missed_deletes
    assert f"changelog-{order[1]} began at 150" in refused.why


def test_truncations_are_reported_of_the_requested_stores() -> None:
    plan = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, (replace(PART, leader_epoch=4),))
    assert list(truncations(plan, [KEY], lambda asked: dict.fromkeys(asked, 299))) == [KEY]
    assert truncations(plan, [KEY], lambda asked: dict.fromkeys(asked, 300)) == {}
    assert truncations(plan, [KEY], lambda asked: dict.fromkeys(asked, None)) == {}
    assert truncations(plan, [], lambda _: {}) == {}
