"""What a checkpoint publishes: which tasks, with which read positions, and beside those of another job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.jobs.bases.base import Base, Key
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.publish import ChangedTasks, changed_tasks, rebased
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.repository.manifest import (
    Extent,
    Manifest,
    ReadPosition,
    StoredEnd,
    StoreSnapshot,
    TaskManifest,
    TaskManifestReference,
)
from statecore.repository.publish.publication import Publication
from statecore.spec.model import ProcessingGuarantee
from tests.harness.raising import raises
from tests.unit.jobs.checkpoint.reconciling import NEW_END, PLAIN, World

HOUR = 3_600_000
NOW = 1_700_000_000_000
QUIET = ReadPosition(NOW, None)
NEWEST = "newest"
VERSIONED = StoreKind.VERSIONED_KEY_VALUE


def planned(task: str = "0_0", store: str = "plain", start: int = 100, end: int = 100, **more: Any) -> PartitionPlan:
    partition = int(task.rpartition("_")[2])
    fields: dict[str, Any] = {
        "kind": StoreKind.KEY_VALUE,
        "ranges": ((start, end),) if start < end else (),
        "base": NEWEST,
        **more,
    }
    return PartitionPlan(
        store=store,
        task=task,
        topic=f"{store}-changelog",
        topic_id="a" * 32,
        partition=partition,
        start=start,
        end=end,
        log_end=end,
        **fields,
    )


def published(part: PartitionPlan, **changed: Any) -> StoreSnapshot:
    """A store as the newest snapshot has it, where a tail begins."""
    end = StoredEnd(part.topic, part.partition, part.topic_id, part.start - 1, part.start, 0, part.start, 3)
    store = StoreSnapshot(
        part.store,
        part.kind,
        "identity",
        (end,),
        "read_uncommitted",
        retention_ms=part.retention_ms,
        restored_by_kafka_streams=part.restored_by_kafka_streams,
    )
    return replace(store, **changed)


def manifest(tasks: Collection[str]) -> Manifest:
    parts = tuple(TaskManifestReference(task, "", "", Extent("blob", 0, 1), 0, NOW - HOUR) for task in tasks)
    guarantee = ProcessingGuarantee.AT_LEAST_ONCE
    return Manifest(NEWEST, "", "orders", 0, 1, None, "", "", "checkpoint", "", guarantee, {}, "", parts)


def news(
    *plan: PartitionPlan,
    there: Sequence[StoreSnapshot] | None = None,
    is_first: bool = False,
    reconciled: Collection[Key] = (),
    more: Mapping[str, StoreSnapshot] = {},
    goes: Callable[[str], bool] = lambda _: False,
) -> ChangedTasks:
    """What is news of a plan, where the newest snapshot has all its stores as they were when their tails began.

    Args:
        plan: the plan.
        there: what the newest snapshot has instead.
        is_first: whether there is no snapshot.
        reconciled: stores that were compared with their whole changelogs.
        more: by task a store that it has besides, and the plan has not.
        goes: whether that leaves the snapshot.
    """
    of_task: dict[str, list[StoreSnapshot]] = {part.task: [] for part in plan}
    for task, store in zip((part.task for part in plan), there or map(published, plan), strict=True):
        of_task[task].append(store)
    for task, store in more.items():
        of_task[task].append(store)
    task_manifests = {task: TaskManifest(task, tuple(stores)) for task, stores in of_task.items()}
    publication = SimpleNamespace(
        newest=None if is_first else manifest(of_task),
        task_manifests=lambda: {} if is_first else task_manifests,
    )
    frozen = FrozenPlan(
        ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, plan), (), NOW / 1000, "one", newest_snapshot=NEWEST
    )
    parents = {(part.task, part.store): Base(part.base, {}, frozenset()) for part in plan if part.base}
    of = CheckpointPlan(
        frozen=frozen, bases=parents, refused=(), topics={}, notes=(), candidates=cast(SnapshotBases, None)
    )
    return changed_tasks(of, cast(Publication, publication), reconciled, goes)


def test_a_tail_is_news_and_where_there_is_none_that_is_known_up_to_when_the_ends_were_read() -> None:
    found = news(planned("0_0", end=101), planned("0_1"))
    assert (found.tasks, found.read_positions) == ({"0_0"}, {"0_1": QUIET})


def test_a_task_with_an_unread_store_has_no_read_position() -> None:
    unread = {"0_0": published(planned(store="other"))}
    assert news(planned(), planned("0_1"), more=unread).read_positions == {"0_1": QUIET}
    assert news(planned(), planned("0_1"), more=unread, goes=lambda store: store == "other").read_positions.keys() == {
        "0_0",
        "0_1",
    }
    left = {"0_0": replace(unread["0_0"], restored_by_kafka_streams=True)}
    assert news(planned(), more=left).read_positions == {"0_0": QUIET}


def test_a_read_position_has_the_shortest_delete_retention_of_a_task() -> None:
    parts = planned(delete_retention_ms=3 * HOUR), planned(store="other", delete_retention_ms=2 * HOUR)
    assert news(*parts).read_positions == {"0_0": ReadPosition(NOW, 2 * HOUR)}
    assert news(planned(delete_retention_ms=1), planned(store="other")).read_positions == {"0_0": QUIET}


def test_a_log_that_has_gone_on_without_a_record_is_news() -> None:
    assert news(planned(end=102, ranges=())).tasks == {"0_0"}


def test_where_nothing_was_published_everything_is_news() -> None:
    found = news(planned(base=""), is_first=True)
    assert (found.tasks, found.read_positions) == ({"0_0"}, {})


@pytest.mark.parametrize("parent", ["", "an older one"])
def test_a_store_not_based_on_the_newest_snapshot_is_published_with_any_tail(parent: str) -> None:
    assert news(planned(base=parent)).tasks == {"0_0"}


def test_a_store_that_was_compared_with_its_whole_log_is_news_although_it_has_no_tail() -> None:
    assert news(planned(), reconciled={("0_0", "plain")}).tasks == {"0_0"}
    assert news(planned(), reconciled={("0_0", "other")}).tasks == frozenset()


def test_one_store_makes_its_whole_task_news() -> None:
    found = news(planned(), planned(store="more", end=101))
    assert (found.tasks, found.read_positions) == ({"0_0"}, {})


def test_a_task_with_records_after_its_ends_has_no_read_position() -> None:
    found = news(planned(reaches_log_end=False), planned(store="more"), planned("0_1"))
    assert (found.tasks, found.read_positions) == (frozenset(), {"0_1": QUIET})


@pytest.mark.parametrize(
    ("changed", "is_news"),
    [({}, False), ({"restored_by_kafka_streams": False}, True), ({"kind": StoreKind.KEY_VALUE}, True)],
)
def test_a_store_restored_by_kafka_streams_is_published_once(changed: dict[str, Any], is_news: bool) -> None:
    part = planned(
        kind=VERSIONED, start=0, end=50, ranges=(), restored_by_kafka_streams=True, base="", reaches_log_end=False
    )
    found = news(part, there=[published(part, **changed)])
    assert (found.tasks, found.read_positions) == (({"0_0"}, {}) if is_news else (frozenset(), {"0_0": QUIET}))


@pytest.mark.parametrize(
    ("changed", "is_news"),
    [
        ({}, False),
        ({"restored_by_kafka_streams": True}, True),
        ({"kind": StoreKind.KEY_VALUE}, True),
        ({"retention_ms": HOUR}, True),
        ({"changelogs": published(planned(start=99)).changelogs}, True),
        ({"changelogs": published(replace(planned(), topic_id="b" * 32)).changelogs}, True),
        ({"changelogs": ()}, True),
    ],
)
@pytest.mark.parametrize("parent", ["", NEWEST, "an older one"])
def test_a_versioned_store_that_is_made_as_it_is_there_already_is_no_news_wherever_it_is_from(
    changed: dict[str, Any], is_news: bool, parent: str
) -> None:
    part = planned(kind=VERSIONED, base=parent)
    assert bool(news(part, there=[published(part, **changed)]).tasks) is is_news


def test_what_is_kept_of_a_versioned_store_whose_log_has_grown_says_nothing_of_now() -> None:
    found = news(planned(kind=VERSIONED, reaches_log_end=False))
    assert (found.tasks, found.read_positions) == (frozenset(), {})


STORES = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["0_0", "0_1", "0_2"]),
        "tail": st.integers(0, 1),
        "base": st.sampled_from([NEWEST, NEWEST, "an older one", ""]),
        "reaches_log_end": st.sampled_from([True, True, False]),
        "restored_by_kafka_streams": st.booleans(),
    }
)


@settings(deadline=None)
@given(stores=st.lists(STORES, min_size=1, max_size=6))
def test_a_task_with_an_incomplete_store_is_not_complete(stores: Sequence[dict[str, Any]]) -> None:
    """Whatever else its other stores are; and no task that is complete is left out."""
    parts = [
        planned(store=f"store-{number}", end=100 + one.pop("tail"), **one)
        for number, one in enumerate([{**one} for one in stores])
    ]
    found = news(*parts)
    complete = {part.task for part in parts}
    for part in parts:
        has_all = part.start == part.end and part.base == NEWEST and part.reaches_log_end
        complete -= set() if has_all or part.restored_by_kafka_streams else {part.task}
    assert found.read_positions == dict.fromkeys(complete, QUIET)
    assert not found.tasks & found.read_positions.keys()
    lagging = {part.task for part in parts if not part.reaches_log_end}
    assert {part.task for part in parts} == found.tasks | found.read_positions.keys() | lagging


def test_what_was_compared_is_put_upon_the_parent_alone(world: World) -> None:
    below = TaskManifest("0_0", (world.stores[PLAIN],))
    mine = world.published(PLAIN, world.reconcile(PLAIN))
    (made,) = mine.stores
    assert rebased(mine, below, below, {PLAIN}) == mine
    (database,) = below.stores[0].databases
    other = replace(below.stores[0], identity="f" * 64, databases=(replace(database, runs=database.runs[:1]),))
    theirs = TaskManifest("0_0", (other,))
    assert rebased(mine, theirs, below, {PLAIN}) == mine, "with the runs that it was compared with"
    assert rebased(mine, theirs, below, {}) != mine, "which is what a tail becomes"
    further = replace(other, changelogs=tuple(replace(one, end=NEW_END, offset=NEW_END - 1) for one in made.changelogs))
    assert rebased(mine, TaskManifest("0_0", (further,)), below, {PLAIN}) is None
    with pytest.raises(Fenced):
        rebased(mine, TaskManifest("0_0", ()), below, {PLAIN})


def test_a_damaged_store_that_was_rebuilt_replaces_what_others_appended_to_it(world: World) -> None:
    below = TaskManifest("0_0", (world.stores[PLAIN],))
    mine = world.published(PLAIN, world.reconcile(PLAIN))
    (made,) = mine.stores
    advanced = replace(below.stores[0], identity="f" * 64, changelogs=made.changelogs)
    assert rebased(mine, TaskManifest("0_0", (advanced,)), below, ()) is None
    assert rebased(mine, TaskManifest("0_0", (advanced,)), below, (), {PLAIN}) == mine
    other = published(planned(store="other"))
    both, theirs = replace(mine, stores=(*mine.stores, other)), replace(mine, stores=(advanced,))
    assert rebased(both, theirs, below, (), {PLAIN}) == replace(mine, stores=(other, made))
    assert rebased(both, replace(theirs, stores=(advanced, other)), below, (), {PLAIN}) == mine
    undeclared = replace(advanced, kind=VERSIONED)
    with raises(Fenced, "publication-conflict"):
        rebased(mine, TaskManifest("0_0", (undeclared,)), below, (), {PLAIN})
