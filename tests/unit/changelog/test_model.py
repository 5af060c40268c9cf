"""Where a log ends."""

from __future__ import annotations

import pytest

from statecore.changelog.model import LogOffsets
from statecore.isolation import IsolationLevel


def ends(log: LogOffsets) -> tuple[int, int]:
    return log.end(IsolationLevel.READ_COMMITTED), log.end(IsolationLevel.READ_UNCOMMITTED)


def test_the_end_follows_the_isolation() -> None:
    assert ends(LogOffsets(0, 5, 9)) == (5, 9)


@pytest.mark.parametrize(
    ("committed", "exactly_once", "at_least_once"),
    [(None, 0, 0), (9, 0, 0), (10, 10, 10), (40, 40, 40), (95, 90, 95), (500, 90, 100)],
)
def test_a_source_topic_ends_where_the_application_has_consumed_it_and_never_between_nothing_and_its_start(
    committed: int | None, exactly_once: int, at_least_once: int
) -> None:
    seen = LogOffsets(10, 90, 100, 3).consumed(committed)
    assert ends(seen) == (exactly_once, at_least_once)
    assert (seen.log_start, seen.leader_epoch) == (10, 3)
