"""Whose offsets a task has."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.migrate.planner import foreign_offsets
from statecore.spec.reader import parse_spec
from tests.golden.directories import golden_directories


def test_offsets_of_another_application_are_known_by_the_names_of_the_stores() -> None:
    def other(topic: str, spec: Any = None) -> tuple[str, ...]:
        return foreign_offsets("orders", ("by-day", "day"), [TopicPartition(topic, 0)], spec)

    assert "state of sales," in other("sales-by-day-changelog")[0]
    assert "state of sales-by-week," in other("sales-by-week-day-changelog")[0]
    assert other("orders-by-day-changelog") == ()
    assert "state of orders-v2," in other("orders-v2-by-day-changelog")[0]
    assert other("sales-other-changelog") == other("sales") == ()  # a source topic, or a store that is no more
    golden = deepcopy(golden_directories()["4.2.0-exactly-once-clean"].spec)
    parts: Any = golden["subtopologies"]
    parts["0"]["stores"]["key-value"]["changelog"] = "sales-key-value-changelog"
    declared = parse_spec({**golden, "application_id": "orders"})
    taken = [TopicPartition("sales-key-value-changelog", 0)]
    assert foreign_offsets("orders", ("key-value",), taken, None)
    assert foreign_offsets("orders", ("key-value",), taken, declared) == ()
