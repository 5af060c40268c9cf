"""Whether the frozen plan of an earlier attempt is still valid: its logs and its bases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Invalid, Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, FrozenPlan
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.planning.planned_tails import PlannedTails, check_unchanged, topics_of, valid_bases
from statecore.spec.model import ProcessingGuarantee
from tests.harness.raising import raises

HOUR = 3_600_000
KEY: Key = ("0_0", "plain")


class Brokers:
    """What a cluster says of logs, and of which it was asked."""

    def __init__(self, **starts: int) -> None:
        self.starts, self.asked = starts, set[TopicPartition]()

    def log_offsets(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        self.asked = set(parts)
        return {part: LogOffsets(self.starts.get(part.topic, 0), 150, 150) for part in self.asked}

    def time_ms(self) -> int:
        return 10 * HOUR

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        configs = {"cleanup.policy": "compact", "delete.retention.ms": str(HOUR)}
        return {name: TopicDescription(name, "a" * 32, 2, configs) for name in names}


class Candidates:
    """Finds bases again, and records what was asked for."""

    def __init__(self, found: Mapping[Key, Base]) -> None:
        self.found, self.asked = found, list[tuple[Key, str]]()

    def named(self, key: Key, name: str) -> Base | None:
        self.asked.append((key, name))
        return self.found.get(key)


def planned(task: str = "0_0", store: str = "plain", partition: int = 0, base: str = "newest") -> PartitionPlan:
    kind, topic = StoreKind.KEY_VALUE, f"{store}-changelog"
    return PartitionPlan(
        store, kind, task, topic, "a" * 32, partition, 100, 150, 150, ((100, 150),), base=base, delete_retention_ms=HOUR
    )


def base_of(*parts: PartitionPlan) -> Base:
    """What ends where tails begin."""
    ends = {part.topic_partition: BaseEnd(part.topic_partition, "", part.start, -1, None) for part in parts}
    return Base(parts[0].base, ends, frozenset([None]))


def valid(
    *plan: PartitionPlan, found: Mapping[Key, Base] | None = None, brokers: Brokers | None = None, age: float = 0.0
) -> dict[Key, Base] | str:
    if found is None:
        stores = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, plan).stores
        found = {key: base_of(*parts) for key, parts in stores.items()}
    return valid_bases(
        cluster(brokers), frozen(*plan, age=age), topics_of(cluster(), frozen(*plan).plan), Candidates(found)
    )


def frozen(*plan: PartitionPlan, age: float = 0.0, **more: Any) -> FrozenPlan:
    of = ReadPlan("orders", ProcessingGuarantee.AT_LEAST_ONCE, plan)
    return FrozenPlan(of, (0,), 0.0, "one", broker_read_at_ms=10 * HOUR - int(age * 1000), **more)


def cluster(brokers: Brokers | None = None) -> Cluster:
    return cast(Cluster, brokers or Brokers())


def test_a_frozen_plan_is_valid_with_the_bases_that_it_names() -> None:
    one, other = planned(), planned("0_1", partition=1)
    assert valid(one, other) == {KEY: base_of(one), ("0_1", "plain"): base_of(other)}


def test_no_base_is_searched_for_a_store_that_is_read_whole() -> None:
    brokers, candidates = Brokers(), Candidates({})
    plan = frozen(planned(base=""))
    assert valid_bases(cluster(brokers), plan, topics_of(cluster(), plan.plan), candidates) == {}
    assert candidates.asked == []
    assert brokers.asked == {TopicPartition("plain-changelog", 0)}, "its log may have lost its start all the same"


def test_a_base_is_found_by_its_name_in_the_plan() -> None:
    part, candidates = planned(base="20261123T010203Z-0badcafe"), Candidates({KEY: base_of(planned())})
    plan = frozen(part)
    valid_bases(cluster(), plan, topics_of(cluster(), plan.plan), candidates)
    assert candidates.asked == [(KEY, "20261123T010203Z-0badcafe")]


def assert_names(why: object, *names: str) -> None:
    """The plan is stale, and the reason names these."""
    assert isinstance(why, str)
    assert [name for name in names if name not in why] == []


def test_a_missing_base_makes_the_plan_stale_and_names_the_store() -> None:
    why = valid(planned(), found={})
    assert_names(why, "newest", "store plain", "task 0_0")


@pytest.mark.parametrize("end", [99, 101])
def test_a_base_that_does_not_end_where_its_tail_begins_makes_the_plan_stale(end: int) -> None:
    part = planned()
    why = valid(part, found={KEY: base_of(replace(part, start=end))})
    assert_names(why, "newest", "store plain", "task 0_0")


def test_one_changed_partition_of_a_global_store_makes_the_plan_stale() -> None:
    parts = [planned(GLOBAL, partition=number) for number in (0, 1)]
    key = (GLOBAL, "plain")
    assert valid(*parts) == {key: base_of(*parts)}
    assert_names(valid(*parts, found={key: base_of(parts[0])}), "store plain", "task global")
    moved = base_of(parts[0], replace(parts[1], start=99))
    assert_names(valid(*parts, found={key: moved}), "store plain", "task global")


def test_one_missing_base_makes_the_whole_plan_stale() -> None:
    one, other = planned(), planned("0_1", partition=1)
    assert "store plain of task 0_1" in str(valid(one, other, found={KEY: base_of(one)}))


def test_deleted_records_make_a_plan_stale_whatever_its_bases_are() -> None:
    part = planned()
    why = valid(part, brokers=Brokers(**{part.topic: 101}))
    assert_names(why, "plain-changelog-0", "101", "100", "newest")
    grown = replace(part, end=140, log_end=140)
    assert isinstance(valid(grown, age=HOUR / 2000 - 60), dict)
    assert "the plan is" in str(valid(grown, age=HOUR / 2000 + 60))


def test_the_ends_of_a_refused_newest_snapshot_are_not_valid() -> None:
    refused = (Refused("0_0", "plain", "newest", "it is torn"), Refused("0_1", "plain", "an older one", "it is torn"))
    tails = PlannedTails(
        frozen=frozen(planned(), newest_snapshot="newest"), bases={}, refused=refused, topics={}, notes=()
    )
    assert tails.not_newest == {KEY}


def test_a_frozen_plan_has_codes_and_values_of_refused_bases() -> None:
    refused = Refused("0_0", "plain", "newest", Reason("it ends at 3", "log-ends-before-base", log_end=3))
    kept = FROZEN_PLAN.decode(FROZEN_PLAN.encode(replace(frozen(planned()), refused=(refused,)))).refused
    assert kept == (refused,)
    assert kept[0].to_json() == refused.to_json()
    assert (kept[0].reason.code, kept[0].reason.context) == ("log-ends-before-base", {"log_end": 3})


def test_a_plan_of_another_topic_is_refused_and_one_of_a_topic_without_id_is_not() -> None:
    def check(topic_id: str) -> None:
        part = replace(planned(), topic_id=topic_id)
        plan = ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
        check_unchanged(plan, topics_of(cast(Cluster, Brokers()), plan))

    for same in ("a" * 32, "", "0" * 32):
        check(same)
    with raises(Invalid, "topic-recreated", topics=["plain-changelog"]):
        check("b" * 32)
