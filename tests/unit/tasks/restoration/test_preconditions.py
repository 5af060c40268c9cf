from __future__ import annotations

from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.errors import Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.tasks.restoration.preconditions import check_topic_id, settled_offsets, why_stale
from tests.harness.raising import raises

CHANGELOG = TopicPartition("app-s-changelog", 2)


@pytest.mark.parametrize(
    ("committed", "has_rows", "start", "end", "why"),
    [
        (None, False, 0, 0, None),
        (None, False, 50, 100, None),
        (None, True, 0, 100, ("offset-missing", {})),
        (41, True, 0, 100, None),
        (41, True, 42, 42, None),
        (41, True, 43, 100, ("records-deleted", {"offset": 41, "log_start": 43})),
        (41, True, 0, 41, ("log-ends-before-store", {"offset": 41, "log_end": 41})),
        (41, True, 0, 0, ("log-ends-before-store", {"offset": 41, "log_end": 0})),
        (0, True, 0, 0, ("log-ends-before-store", {"offset": 0, "log_end": 0})),
        (0, True, 0, 1, None),
        (0, True, 1, 5, None),
        (0, True, 2, 5, ("records-deleted", {"offset": 0, "log_start": 2})),
    ],
)
def test_a_store_is_stale_where_the_log_has_not_what_follows_its_offset(
    committed: int | None, has_rows: bool, start: int, end: int, why: tuple[str, dict[str, int]] | None
) -> None:
    found = why_stale(CHANGELOG, committed, LogOffsets(start, end, end), has_rows=has_rows)
    assert (None if found is None else (found.code, found.context)) == why
    assert found is None or str(CHANGELOG) in found


def test_an_id_is_compared_where_both_are_known() -> None:
    for expected, found in ((None, "a"), ("a", None), ("a", "a"), (None, None)):
        check_topic_id(CHANGELOG, expected, found)
    with raises(Invalid, "topic-recreated", expected="a", found="b"):
        check_topic_id(CHANGELOG, "a", "b")


class Looks:
    """A cluster that sees one thing after the other, a second between them."""

    def __init__(self, *seen: LogOffsets) -> None:
        self.seen = list(seen)
        self.now = 0.0

    def log_offsets(self, _: Any) -> dict[TopicPartition, LogOffsets]:
        return {CHANGELOG: self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]}

    def settled(self, wait: float) -> LogOffsets:
        return settled_offsets(cast(Cluster, self), CHANGELOG, wait, clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, _: float) -> None:
        self.now += 1


def test_open_transactions_below_the_first_end_are_waited_for_and_later_ones_are_not() -> None:
    looks = Looks(LogOffsets(0, 5, 10), LogOffsets(0, 7, 12), LogOffsets(3, 10, 14), LogOffsets(3, 14, 14))
    assert looks.settled(60) == LogOffsets(3, 10, 10)
    assert Looks(LogOffsets(1, 9, 9)).settled(0) == LogOffsets(1, 9, 9)


def test_a_transaction_that_stays_open_is_reported() -> None:
    with raises(Retryable, "log-transaction-open", offset=5):
        Looks(LogOffsets(0, 5, 10)).settled(3)
