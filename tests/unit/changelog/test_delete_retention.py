"""How long a topic keeps its deletes, by what it says of itself."""

from __future__ import annotations

import pytest

from statecore.changelog.delete_retention import (
    ENDLESS_MS,
    current_retention_ms,
    is_purely_compacted,
    min_current_retention_ms,
    recorded_retention_ms,
    with_shorter_retention,
)
from statecore.changelog.model import TopicDescription

HOUR = 3_600_000


def topic(policy: str | None, retention: int | None = HOUR) -> TopicDescription:
    configs = {"cleanup.policy": policy, "delete.retention.ms": None if retention is None else str(retention)}
    return TopicDescription("topic", "", 1, {name: value for name, value in configs.items() if value is not None})


@pytest.mark.parametrize(
    ("policy", "retention", "expected"),
    [
        ("compact", HOUR, HOUR),
        ("compact,delete", HOUR, HOUR),
        ("delete, compact", 0, 0),
        ("delete", HOUR, None),
        ("", HOUR, None),
        (None, HOUR, HOUR),
        ("compact", None, 24 * HOUR),
    ],
)
def test_deletes_are_kept_for_a_time_only_where_a_topic_is_compacted(
    policy: str | None, retention: int | None, expected: int | None
) -> None:
    assert current_retention_ms(topic(policy, retention)) == expected


@pytest.mark.parametrize(
    ("policy", "pure"),
    [("compact", True), (" compact ", True), ("compact,delete", False), ("delete,compact", False), ("delete", False)],
)
def test_gaps_prove_deletes_only_in_a_topic_cleaned_by_compaction_alone(policy: str, pure: bool) -> None:
    assert is_purely_compacted(topic(policy)) is pure
    assert not is_purely_compacted(topic(None))


def test_of_several_topics_the_shortest_time_counts_and_those_that_keep_deletes_do_not() -> None:
    topics = [topic("delete", 1), topic("compact", 3 * HOUR), topic("compact,delete", 2 * HOUR)]
    assert min_current_retention_ms(topics) == 2 * HOUR
    assert min_current_retention_ms(topics[:1]) is None


def test_what_is_recorded_is_a_number_also_of_a_topic_that_keeps_its_deletes() -> None:
    assert recorded_retention_ms(topic("compact")) == HOUR
    assert recorded_retention_ms(topic("delete")) == ENDLESS_MS == 2**63 - 1


def test_of_two_descriptions_of_a_topic_the_one_counts_that_keeps_deletes_for_a_shorter_time() -> None:
    low, high, never = topic("compact", 1), topic("compact,delete", HOUR), topic("delete", 1)
    for before, after in ((low, high), (high, low), (never, low), (low, never)):
        assert with_shorter_retention({"topic": before}, {"topic": after}) == {"topic": low}
