"""New plans: their ends and notes, and what is refused before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.errors import NotFound
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.planning.planner import plan_reads
from statecore.jobs.planning.selection import select_stores
from statecore.spec.reader import parse_spec
from statecore.spec.writer import spec_to_mapping
from tests.harness.raising import raises
from tests.unit.jobs.planning.plans import ConsumedCluster, FakeCluster, plan, request, spec


def test_undeclared_changelogs_are_named_with_the_consequence() -> None:
    cluster = FakeCluster(
        ["app-a-changelog", "app-b-changelog", "app-forgotten-changelog", "other-x-changelog", "app-in"]
    )
    (note,) = plan(cluster=cluster)[1]
    assert "app-forgotten-changelog" in note
    assert "WIPES" in note
    assert "app-a-changelog" not in note
    assert "other-x" not in note
    (note,) = plan(spec("at_least_once"), cluster=cluster)[1]
    assert "WIPES" not in note


def test_a_misspelt_store_is_answered_with_the_nearest() -> None:
    declared = spec("at_least_once", clicks={"kind": "key-value"}, users={"kind": "key-value"})
    with raises(NotFound, "store-not-declared", stores=["click"]) as refused:
        select_stores(declared, ["click"])
    assert "did you mean clicks?" in refused.value.what


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_store_that_is_declared_not_to_be_logged_and_has_a_changelog_is_named(guarantee: str) -> None:
    topics = ["app-a-changelog", "app-b-changelog", "app-own-changelog"]
    declared = spec(guarantee, a={"kind": "key-value"}, own={"kind": "custom", "changelog": "none"})
    notes = [note for note in plan(declared, cluster=FakeCluster(topics))[1] if "app-own-changelog" in note]
    assert [("WIPES" in note) for note in notes] == [guarantee == "exactly_once_v2"]
    assert all(note.startswith("warning: ") for note in notes)
    assert not [note for note in plan(declared)[1] if "app-own-changelog" in note]


@pytest.mark.parametrize(("guarantee", "count"), [("exactly_once_v2", 1), ("at_least_once", 0)])
def test_a_store_that_is_declared_to_be_in_memory_is_named_where_a_task_would_be_wiped(
    guarantee: str, count: int
) -> None:
    notes = plan(spec(guarantee, a={"kind": "key-value"}, held={"kind": "in-memory"}))[1]
    assert len([note for note in notes if "held" in note and "WIPES" in note]) == count


@pytest.mark.parametrize(
    ("declared", "partitions", "why"),
    [
        ({"kind": "key-value"}, (0,), "only some partitions were asked for"),
        ({"kind": "key-value", "reprocess": True}, (), "the application fills it through its own processor"),
        ({"kind": "session", "retention": "10m"}, (), "the application fills it through its own processor"),
        ({"kind": "in-memory"}, (), "it is in memory"),
        ({"kind": "custom"}, (), "it is of the application's own class"),
    ],
)
def test_a_global_store_that_is_not_restored_is_named_with_the_reason(
    declared: dict[str, Any], partitions: tuple[int, ...], why: str
) -> None:
    application = spec()
    document = {**spec_to_mapping(application), "global_stores": {"products": {**declared, "topic": "products"}}}
    made, notes, *_ = plan(parse_spec(document), request(partitions=partitions))
    assert {part.store for part in made.partitions} == {"a", "b"}
    (note,) = notes
    assert ("'products'" in note, why in note) == (True, True)


@pytest.mark.parametrize(("committed", "end", "offset"), [(40, 40, 39), (10, 10, 9), (500, 100, 99)])
def test_a_source_topic_reused_as_changelog_is_restored_as_far_as_the_application_consumed_it(
    committed: int | None, end: int, offset: int
) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"}, b={"kind": "key-value"})
    made, *_ = plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 100, 100)))
    by_store = {part.store: part for part in made.partitions}
    assert (by_store["a"].end, by_store["a"].committed_offset, by_store["a"].tail_left) == (end, offset, 0)
    assert by_store["b"].end == 100


@pytest.mark.parametrize("committed", [None, 5])
def test_a_source_topic_without_a_committed_offset_is_refused(committed: int | None) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"})
    with raises(NotFound, "committed-offset-missing", group="app", partitions=["profiles-0", "profiles-1"]):
        plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 100, 100)))


@pytest.mark.parametrize("committed", [None, 5])
def test_a_source_topic_whose_records_are_gone_gets_no_offset_before_its_start(committed: int | None) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"})
    made, *_ = plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 10, 10)))
    assert {(part.ranges, part.committed_offset) for part in made.partitions} == {((), -4)}


def test_a_source_topic_without_records_needs_no_committed_offset() -> None:
    made, *_ = plan(
        spec(a={"kind": "key-value", "changelog": "profiles"}), cluster=ConsumedCluster(None, LogOffsets(0, 0, 0))
    )
    assert {part.committed_offset for part in made.partitions} == {-4}


def test_a_kind_that_the_changelog_s_configuration_contradicts_is_named() -> None:
    cluster = FakeCluster(configs={"cleanup.policy": "compact,delete"})
    notes = plan(spec(a={"kind": "key-value"}, w={"kind": "window", "retention": "1h"}), cluster=cluster)[1]
    (note,) = notes
    assert "Store 'a'" in note
    assert "key-value" in note
    assert "cleanup.policy compact,delete" in note
    assert "timestamped-window" in note


def test_a_source_topic_s_configuration_proves_nothing() -> None:
    cluster = ConsumedCluster(50, **{"cleanup.policy": "delete"})
    assert plan(spec(a={"kind": "key-value", "changelog": "profiles"}), cluster=cluster)[1] == ()


def test_a_requested_plan_has_an_estimate() -> None:
    asked = replace(request(), plan_only=True)
    _, notes, *_ = plan(asked=asked)
    (estimate,) = (note for note in notes if "are read" in note)
    numbers = {"400 records", "39 KiB", "4 ranges", "512 MiB", "--memory-budget", "48 KiB of disk"}
    assert {one for one in numbers if one in estimate} == numbers
    assert not any("are read" in note for note in plan()[1])


def test_a_plan_with_given_ends_waits_for_no_transaction_beyond_them() -> None:
    """Whoever holds a store against its changelog wants what was there at the store's own offset."""
    first, second = TopicPartition("app-a-changelog", 0), TopicPartition("app-a-changelog", 1)
    waited: list[float] = []
    made = plan_reads(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 90, 100))),
        spec(a={"kind": "key-value"}),
        request(transaction_wait=1.0),
        parallelism=lambda: 2,
        ends={first: 40, second: 90},
        clock=lambda: float(len(waited)),
        sleep=waited.append,
    )
    assert [(part.partition, part.end, part.committed_offset, part.tail_left) for part in made.plan.partitions] == [
        (0, 40, 39, 0),
        (1, 90, 89, 0),
    ]
    assert [part.reaches_log_end for part in made.plan.partitions] == [False, True]
    assert not waited
    made = plan_reads(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 90, 100))),
        spec(a={"kind": "key-value"}),
        request(transaction_wait=1.0),
        parallelism=lambda: 2,
        ends={first: 40, second: 200},
        clock=lambda: float(len(waited)),
        sleep=waited.append,
    )
    assert [(part.partition, part.end) for part in made.plan.partitions] == [(0, 40), (1, 90)]
    assert waited
