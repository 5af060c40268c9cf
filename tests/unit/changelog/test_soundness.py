"""A tail may be put above a base only if it is of the same log and nothing that would delete a row is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS, ENDLESS_MS
from statecore.changelog.model import LogOffsets, ReadStatistics, TopicDescription
from statecore.changelog.soundness import BaseEnd, EndAge, age_of, missed_deletes, refusal, start_moved, truncation
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition

HERE = TopicPartition("app-counts-changelog", 3)
ID, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
HOUR = 3_600_000
MOMENT = 1_700_000_000_000
END = BaseEnd(HERE, ID, end=100, leader_epoch=5, read_at_ms=MOMENT, delete_retention_ms=10 * HOUR)
LOG = LogOffsets(40, 150, 150, 5)


def topic(topic_id: str = ID, policy: str | None = "compact", retention: int | None = HOUR) -> TopicDescription:
    configs = {"cleanup.policy": policy, "delete.retention.ms": None if retention is None else str(retention)}
    return TopicDescription(
        HERE.topic, topic_id, 4, {name: value for name, value in configs.items() if value is not None}
    )


def said(end: BaseEnd = END, log: LogOffsets = LOG, epoch_end: int | None = 150, **of_topic: Any) -> Reason | None:
    return refusal(end, topic(**of_topic), log, epoch_end)


def seen(removed: int = 0, moved_to: int | None = None) -> ReadStatistics:
    return ReadStatistics(removed=removed, log_start_moved_to=moved_to)


def missed(*statistics: ReadStatistics, after: int = HOUR, end: BaseEnd = END, **of_topic: Any) -> Reason | None:
    return missed_deletes(end, topic(**of_topic), statistics, MOMENT + after)


def reason(found: Reason | None) -> tuple[str, dict[str, Any]]:
    """The code and the values of a reason, which names the partition."""
    assert found is not None
    values = dict(found.context)
    assert (values.pop("topic"), values.pop("partition")) == HERE
    return found.code, values


def test_a_log_that_has_only_grown_is_no_reason() -> None:
    assert said() is None
    assert said(log=LogOffsets(100, 100, 100, 6), epoch_end=100) is None


def test_a_topic_that_was_created_again_is_refused_whatever_its_offsets() -> None:
    assert reason(said(topic_id=OTHER)) == ("topic-recreated", {"expected": ID, "found": OTHER})


@pytest.mark.parametrize("unknown", ["", "0" * 32])
def test_a_topic_without_an_id_counts_as_the_same(unknown: str) -> None:
    assert said(topic_id=unknown) is None
    assert said(replace(END, topic_id=unknown)) is None
    assert said(replace(END, topic_id=""), topic_id="0" * 32) is None


def test_a_log_that_begins_after_the_end_is_refused() -> None:
    assert said(log=replace(LOG, log_start=100)) is None
    assert reason(said(log=replace(LOG, log_start=101))) == ("records-deleted", {"log_start": 101, "end": 100})


def test_a_log_that_ends_before_the_base_is_refused() -> None:
    assert said(log=LogOffsets(0, 100, 100, 5), epoch_end=100) is None
    found = said(log=LogOffsets(0, 99, 99, 5), epoch_end=99)
    assert reason(found) == ("log-ends-before-base", {"log_end": 99, "end": 100})


def test_an_open_transaction_below_the_end_of_the_base_refuses_nothing() -> None:
    assert said(log=LogOffsets(0, 90, 150, 5)) is None  # read uncommitted, the base may end behind it


def test_a_log_that_was_truncated_below_the_end_is_refused() -> None:
    later = replace(LOG, leader_epoch=6)
    assert said(log=later, epoch_end=100) is None
    found = said(log=later, epoch_end=99)
    assert reason(found) == ("log-truncated", {"truncated_at": 99, "end": 100, "leader_epoch": 5})


def test_a_truncation_between_plan_and_read_is_detected_by_the_ends_of_the_plan() -> None:
    assert truncation(END, None) is None
    assert truncation(END, 100) is None
    found = truncation(END, 99, name="the plan's end")
    assert reason(found) == ("log-truncated", {"truncated_at": 99, "end": 100, "leader_epoch": 5})
    assert str(found).count("the plan's end") == 2


def test_what_the_brokers_do_not_tell_of_epochs_is_no_reason() -> None:
    assert said(epoch_end=None) is None
    assert said(replace(END, leader_epoch=-1), epoch_end=None) is None
    assert said(log=replace(LOG, leader_epoch=-1), epoch_end=None) is None


def test_a_log_in_an_earlier_epoch_than_the_base_is_refused() -> None:
    found = said(log=replace(LOG, leader_epoch=4), epoch_end=None)
    assert reason(found) == ("leader-epoch-decreased", {"expected": 5, "found": 4, "end": 100})


def test_a_tail_that_is_whole_is_sound_whatever_its_age() -> None:
    for read_at in (None, MOMENT, MOMENT + 50 * HOUR):
        assert missed(seen(), seen(), after=99 * HOUR, end=replace(END, read_at_ms=read_at)) is None


def test_an_empty_tail_is_sound_for_any_age_of_the_base() -> None:
    assert missed(after=99 * HOUR) is None
    assert missed(end=replace(END, read_at_ms=None)) is None


def test_a_tail_that_was_compacted_is_sound_if_it_was_read_in_time() -> None:
    latest = HOUR - CLOCK_MARGIN_MS
    assert missed(seen(7), after=0) is None
    assert missed(seen(7), after=latest - 1) is None
    values = {"end": 100, "removed": 1_007, "age_ms": 3_300_000, "retention_ms": HOUR}
    assert reason(missed(seen(), seen(1_007), after=latest)) == ("tail-read-too-late", values)


def test_the_age_of_an_end_keeps_deletes_until_clocks_may_be_past_their_retention() -> None:
    for age_ms, keeps in (
        (-CLOCK_MARGIN_MS, True),
        (HOUR - CLOCK_MARGIN_MS - 1, True),
        (HOUR - CLOCK_MARGIN_MS, False),
    ):
        age = age_of(MOMENT, HOUR, MOMENT + age_ms, "gone")
        assert age == EndAge(age_ms, HOUR)
        assert age.keeps_deletes is keeps
    for unknown in ((None, HOUR, MOMENT), (MOMENT, None, MOMENT), (MOMENT, HOUR, None)):
        assert isinstance(age_of(*unknown, "gone"), Reason)


def test_where_deletes_are_kept_for_less_than_clocks_differ_a_tail_must_be_whole() -> None:
    for retention in (60_000, CLOCK_MARGIN_MS, 0):
        values = {"end": 100, "removed": 1, "age_ms": 0, "retention_ms": retention}
        assert reason(missed(seen(1), after=0, retention=retention)) == ("retention-too-short", values)
    assert missed(seen(0), after=0, retention=0) is None


def test_a_base_of_unknown_age_is_refused_if_its_tail_was_compacted() -> None:
    found = missed(seen(3), after=0, end=replace(END, read_at_ms=None))
    assert reason(found) == ("base-age-unknown", {"end": 100, "removed": 3})


def test_clocks_that_contradict_each_other_prove_no_age() -> None:
    assert missed(seen(3), after=-CLOCK_MARGIN_MS) is None
    found = missed(seen(3), after=-CLOCK_MARGIN_MS - 1000)
    assert reason(found) == ("clocks-disagree", {"end": 100, "removed": 3, "age_ms": -301_000})
    assert missed(seen(0), after=-HOUR) is None


def test_a_log_start_that_passed_the_end_during_the_read_is_a_reason_whatever_else_was_seen() -> None:
    assert start_moved(END, []) is None
    assert start_moved(END, [seen(), seen(7)]) is None
    found = start_moved(END, [seen(moved_to=110), seen(20, moved_to=120), seen()])
    assert reason(found) == ("records-deleted", {"log_start": 120, "end": 100})


def test_a_topic_that_is_not_compacted_keeps_deletes_for_ever() -> None:
    never = replace(END, read_at_ms=None, delete_retention_ms=ENDLESS_MS)
    assert missed(seen(5), after=99 * HOUR, end=never, policy="delete") is None


def test_the_least_counts_of_what_was_in_force_then_and_what_is_now() -> None:
    low = replace(END, delete_retention_ms=60_000)
    values = {"end": 100, "removed": 1, "age_ms": 1000, "retention_ms": 60_000}
    for now, known in ({"retention": 24 * HOUR}, 24 * HOUR), ({"policy": "delete"}, None):
        found = missed(seen(1), after=1000, end=low, **now)
        assert reason(found) == ("retention-was-shorter", {**values, "retention_ms_now": known})
    assert reason(missed(seen(1), after=1000, retention=60_000)) == ("retention-too-short", values)
    assert missed(seen(0), after=1000, end=low, retention=24 * HOUR) is None
    never = replace(END, delete_retention_ms=ENDLESS_MS)
    assert missed(seen(1), after=0, end=never) is None
    values = {"end": 100, "removed": 1, "age_ms": 2 * HOUR, "retention_ms": HOUR}
    assert reason(missed(seen(1), after=2 * HOUR, end=never)) == ("tail-read-too-late", values)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_missing_records_of_the_base_prove_nothing(policy: str) -> None:
    unknown = replace(END, delete_retention_ms=None)
    found = missed(seen(1), after=0, end=unknown, policy=policy)
    assert reason(found) == ("retention-unknown", {"end": 100, "removed": 1})
    assert missed(seen(0), after=0, end=unknown, policy=policy) is None


def test_without_the_clusters_time_no_age_is_known() -> None:
    assert reason(missed_deletes(END, topic(), [seen(1)], None)) == ("cluster-time-unknown", {"end": 100, "removed": 1})
    assert missed_deletes(END, topic(), [seen(0)], None) is None


@settings(deadline=None, max_examples=500)
@given(history=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=6), taken=st.data())
def test_a_base_is_refused_exactly_if_its_records_are_not_in_the_log(
    history: list[tuple[int, int]], taken: st.DataObject
) -> None:
    """Epoch by epoch a leader appends; the next one begins where it has the log, which may be further down."""
    log: list[tuple[int, int]] = []  # of each offset: its epoch, and which record it is
    starts: dict[int, int] = {}
    bases: list[tuple[BaseEnd, list[tuple[int, int]]]] = []
    for epoch, (appended, cut) in enumerate(history):
        log = log[: max(0, len(log) - cut)]
        starts = {older: start for older, start in starts.items() if start < len(log)} | {epoch: len(log)}
        log = log + [(epoch, number) for number in range(appended)]
        bases.append((BaseEnd(HERE, ID, len(log), epoch, None), list(log)))
    now = LogOffsets(0, len(log), len(log), len(history) - 1)
    base, read = taken.draw(st.sampled_from(bases))
    later = [start for epoch, start in sorted(starts.items()) if epoch > base.leader_epoch]
    found = refusal(base, topic(), now, [*later, len(log)][0])
    assert (found is None) == (log[: base.end] == read)
    if found is not None:
        assert reason(found)[0] in ("log-truncated", "log-ends-before-base")
