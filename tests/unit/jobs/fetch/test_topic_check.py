"""Whether a snapshot fits the topics, against topics as a cluster would describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from statecore.changelog.delete_retention import ENDLESS_MS
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, NotFound, Reason, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.fetch.topic_check import check_topics
from statecore.repository.manifest import StoredEnd, StoreSnapshot
from tests.harness.raising import raises

TOPIC, ID = "orders-plain-changelog", "0123456789abcdef0123456789abcdef"
NOW = 1_795_251_600.0
DAY = 86_400.0


STILL, GROWN = LogOffsets(0, 300, 300), LogOffsets(0, 400, 400)


@dataclass
class FakeCluster:
    """One topic."""

    log: LogOffsets = STILL
    topic_id: str = ID
    partitions: int = 2
    configs: dict[str, str] | None = None
    epoch_end: int | None = None
    now: float | None = NOW

    def time_ms(self) -> int | None:
        return None if self.now is None else int(self.now * 1000)

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(wanted, self.epoch_end)

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        absent = sorted(set(names) - {TOPIC})
        if absent:
            raise NotFound(f"Topics do not exist: {absent[0]}.", code="test-error", action="Check.", topics=absent)
        return {TOPIC: TopicDescription(TOPIC, self.topic_id, self.partitions, self.configs or {})}

    def log_offsets(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return dict.fromkeys(wanted, self.log)


def store(cut: float | None = NOW - 60, retention_s: float | None = 9 * DAY, **changes: Any) -> StoreToFetch:
    end = replace(StoredEnd(TOPIC, 1, ID, 299, 300, 0, 300), **changes)
    read_at_ms = None if cut is None else int(cut * 1000)
    delete_retention_ms = None if cut is None or retention_s is None else int(min(retention_s * 1000, ENDLESS_MS))
    snapshot = StoreSnapshot("plain", StoreKind.KEY_VALUE, "i", (end,), "read_uncommitted", read_at_ms=read_at_ms)
    snapshot = replace(snapshot, delete_retention_ms=delete_retention_ms)
    return StoreToFetch("0_1", snapshot, placed_empty=False)


def check(cluster: FakeCluster, *stores: StoreToFetch) -> list[Reason]:
    return check_topics(cluster, stores)  # type: ignore[arg-type]


def refused(code: str, cluster: FakeCluster, one: StoreToFetch, **values: Any) -> StatecoreError:
    """The store does not fit for one reason, of this code and with these values."""
    with raises(Invalid, "snapshot-topics-mismatch") as caught:
        check(cluster, one)
    assert caught.value.action
    (problem,) = caught.value.context["problems"]
    assert (problem["task"], problem["store"], problem["topic"], problem["partition"]) == ("0_1", "plain", TOPIC, 1)
    assert {"code": problem["code"], **{name: problem[name] for name in values}} == {"code": code, **values}
    return caught.value


def test_what_ends_where_the_log_ends_fits_whatever_its_age() -> None:
    assert check(FakeCluster(), store()) == []
    assert check(FakeCluster(), store(cut=NOW - 1000 * DAY)) == []
    assert check(FakeCluster(), store(cut=None)) == []


def test_what_has_grown_fits_while_deletes_are_kept() -> None:
    assert check(FakeCluster(GROWN), store(cut=NOW - 0.4 * DAY)) == []
    (doubt,) = check(FakeCluster(GROWN), store(cut=NOW - 0.6 * DAY))
    assert (doubt.code, doubt.context["retention_ms"]) == ("retention-nearly-over", DAY * 1000)
    too_old = store(cut=NOW - 1.1 * DAY)
    error = refused("deletes-compacted", FakeCluster(GROWN), too_old, retention_ms=86_400_000, is_recorded=False)
    assert "statecore restore" in error.action
    assert f"{TOPIC}-1" in error.what
    assert "store plain of task 0_1" in error.what


def test_no_delete_is_lost_beyond_the_last_stable_offset() -> None:
    """A transaction that hangs holds compaction back."""
    hanging = LogOffsets(0, 300, 400)
    assert check(FakeCluster(hanging), store(cut=NOW - 1.1 * DAY)) == []


@pytest.mark.parametrize(
    ("configs", "fits"),
    [
        ({"delete.retention.ms": str(int(2 * DAY * 1000))}, True),
        ({"delete.retention.ms": "1000"}, False),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"cleanup.policy": "delete"}, True),
    ],
)
def test_the_topic_says_how_long_deletes_are_kept(configs: dict[str, str], fits: bool) -> None:
    cluster, one = FakeCluster(GROWN, configs=configs), store(cut=NOW - 1.1 * DAY)
    if fits:
        check(cluster, one)
    else:
        refused("deletes-compacted", cluster, one)


def test_an_unknown_age_is_reported() -> None:
    (doubt,) = check(FakeCluster(GROWN), store(cut=None))
    assert (doubt.code, doubt.context["grown"]) == ("base-age-unknown", 100)


def test_a_clock_that_was_ahead_is_reported_and_refused_from_the_retention_of_deletes_on() -> None:
    assert check(FakeCluster(GROWN), store(cut=NOW + 299)) == []
    (doubt,) = check(FakeCluster(GROWN), store(cut=NOW + 301))
    assert (doubt.code, doubt.context["age_ms"]) == ("clocks-disagree", -301_000)
    refused("clocks-disagree", FakeCluster(GROWN), store(cut=NOW + 1.1 * DAY), retention_ms=86_400_000)
    refused("deletes-compacted", FakeCluster(GROWN), store(cut=NOW + 100, retention_s=60), retention_ms=60_000)


def test_a_recreated_topic_is_another() -> None:
    refused("topic-recreated", FakeCluster(topic_id="f" * 32), store())
    for unknown in ("", "0" * 32):
        (doubt,) = check(FakeCluster(topic_id="f" * 32), store(topic_id=unknown))
        assert doubt.code == "topic-id-unknown"
    assert check(FakeCluster(topic_id="0" * 32), store()) == []  # brokers that are too old to have ids


def test_a_log_that_begins_after_the_store_ends_leaves_a_gap() -> None:
    assert check(FakeCluster(LogOffsets(300, 300, 300)), store()) == []
    refused("records-deleted", FakeCluster(LogOffsets(301, 400, 400)), store(), log_start=301, end=300)


def test_a_log_that_ends_before_the_store_has_lost_records() -> None:
    refused("log-ends-before-base", FakeCluster(LogOffsets(0, 299, 299)), store(), log_end=299, end=300)


def test_a_log_that_was_truncated_below_the_store_and_has_grown_again_is_refused() -> None:
    assert check(FakeCluster(GROWN, epoch_end=400), store(leader_epoch=3)) == []
    for log in (GROWN, STILL):
        refused("log-truncated", FakeCluster(log, epoch_end=299), store(leader_epoch=3), truncated_at=299)


@pytest.mark.parametrize("now", [{}, {"delete.retention.ms": str(int(9 * DAY * 1000))}, {"cleanup.policy": "delete"}])
def test_what_was_in_force_when_the_snapshot_was_made_counts(now: dict[str, str]) -> None:
    old = NOW - 0.5 * DAY
    cluster = FakeCluster(GROWN, configs=now)
    refused("deletes-compacted", cluster, store(old, retention_s=60), retention_ms=60_000, is_recorded=True)
    (doubt,) = check(FakeCluster(GROWN, configs=now), store(old, retention_s=None))
    assert doubt.code == ("cleanup-policy-unknown" if "cleanup.policy" in now else "retention-unknown")
    assert check(FakeCluster(STILL, configs=now), store(old, retention_s=60)) == []


def test_what_newer_snapshots_have_seen_counts() -> None:
    of: Any = FakeCluster(GROWN)
    assert check_topics(of, [store()], {"0_0": 1000, "0_1": int(DAY * 1000)}) == []
    with pytest.raises(Invalid):
        check_topics(of, [store()], {"0_1": 1000})


def test_a_missing_cluster_time_is_reported() -> None:
    (doubt,) = check(FakeCluster(GROWN, now=None), store())
    assert doubt.code == "cluster-time-unknown"
    assert check(FakeCluster(STILL, now=None), store()) == []


def test_a_topic_or_a_partition_that_is_gone_is_named() -> None:
    with raises(Invalid, "changelog-topic-missing", topics=["gone"]):
        check(FakeCluster(), store(topic="gone"))
    refused("partition-not-found", FakeCluster(partitions=1), store())


def test_stores_that_kafka_streams_restores_have_nothing_to_fit() -> None:
    cluster = FakeCluster(LogOffsets(500, 600, 600))
    assert check(cluster, replace(store(), placed_empty=True)) == []
    assert check(cluster, store(offset=OFFSET_UNKNOWN, end=0)) == []


def test_all_reasons_are_there_and_some_are_shown() -> None:
    with pytest.raises(Invalid) as caught:
        check(FakeCluster(LogOffsets(0, 0, 0)), *[store()] * 9)
    assert len(caught.value.context["problems"]) == 9
    assert caught.value.what.count(TOPIC) == 5
    doubts = check(FakeCluster(GROWN), *[store(cut=None)] * 9)
    assert (len(doubts), doubts[-1].code, doubts[-1].context) == (6, "more", {"count": 4})
