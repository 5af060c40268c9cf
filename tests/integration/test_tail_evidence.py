"""What real logs tell of a base and its tail, and that what is judged by it comes to what a rebuild comes to.

The judge of how much of a tail is there is the broker's own disk, read by kafka-python record by record.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.changelog.soundness import BaseEnd
from statecore.formats.topic_partition import TopicPartition
from tests.harness import topics
from tests.harness.bases import base_of, log_of, why_hopeless, why_unsound
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.cluster import BrokerCluster
from tests.harness.reading import plain
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
SMALL = {"fetch_bytes": 20_000, "max_wait": 0.2}
DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
Rows = dict[bytes | None, bytes]


def applied(rows: Rows, read: Sequence[tuple[bytes | None, bytes | None]]) -> Rows:
    """The last write of each key, deletes taken out."""
    found = {**rows}
    for key, value in read:
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found


def whole(
    cluster: Cluster, topic: str, start: int, end: int, isolation: IsolationLevel = COMMITTED, **options: int
) -> tuple[list[tuple[bytes | None, bytes | None]], ReadStatistics]:
    """Keys and values of a range, and what the read saw."""
    reader = ChangelogReader(cluster, ReaderOptions(**options))
    read = [
        (key, value)
        for batch in reader.read(OffsetRange(topic, 0, start, end), isolation)
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]
    return read, reader.statistics


def on_disk(broker: Broker, topic: str) -> set[int]:
    """The offsets of all records of partition 0, control records too, that the broker has, once its cleaner rests."""
    return still(lambda: _on_disk(broker, topic))


def _on_disk(broker: Broker, topic: str) -> set[int]:
    found: set[int] = set()
    for file in sorted((broker.data_directory / f"{topic}-0").glob("*.log")):
        batches = MemoryRecords(file.read_bytes())
        while (batch := batches.next_batch()) is not None:
            found.update(record.offset for record in batch)
    return found


def still(look: Callable[[], set[int]]) -> set[int]:
    """What is seen for two seconds without a change."""
    deadline = time.monotonic() + 300
    before: set[int] = set()
    since = time.monotonic()
    while time.monotonic() < since + 2:
        assert time.monotonic() < deadline, "the broker goes on cleaning"
        try:
            now = look()
        except FileNotFoundError:  # a segment was replaced by what is left of it
            now = set()
        if now != before or not now:
            before, since = now, time.monotonic()
        time.sleep(0.2)
    return before


def compact_until(broker: Broker, topic: str, key: bytes, *, gone: bool) -> None:
    """Let the broker compact until it has taken the deletes of a key away, or once where they stay."""
    servers = broker.bootstrap_servers
    deadline = time.monotonic() + 300
    while True:
        topics.compact(servers, topic, 0, broker.data_directory, Record(b"filler", b"f"))
        if not gone or all(row[0] != key for row in plain(servers, topic)):
            return
        assert time.monotonic() < deadline, "the broker kept the deletes"


def history(broker: Broker, cluster: Cluster, topic: str) -> tuple[Rows, BaseEnd]:
    """Thirty rows; the base has them all. Then a third is deleted, a third written twice."""
    servers = broker.bootstrap_servers
    topics.produce(servers, topic, [Record(b"key-%02d" % n, b"old") for n in range(30)])
    base = base_of(cluster, topic)
    rows = applied({}, whole(cluster, topic, 0, base.end)[0])
    assert len(rows) == 30
    topics.produce(servers, topic, [Record(b"key-%02d" % n, None) for n in range(10)])
    for value in (b"newer", b"newest"):
        topics.produce(servers, topic, [Record(b"key-%02d" % n, value) for n in range(10, 20)])
    return rows, base


def test_a_tail_whose_deletes_were_compacted_away_is_refused_for_any_age_of_the_base(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    topics.create(broker.bootstrap_servers, topic_name, 1, {**topics.COMPACTED, "delete.retention.ms": "100"})
    rows, base = history(broker, cluster, topic_name)
    compact_until(broker, topic_name, b"key-00", gone=True)
    assert why_hopeless(cluster, base) is None
    there, end = on_disk(broker, topic_name), log_of(cluster, topic_name).log_end
    tail, seen = whole(cluster, topic_name, base.end, end)
    assert seen.removed == len(set(range(base.end, end)) - there)
    assert 20 <= seen.removed < end - base.end
    assert seen.tombstones == 0
    rebuilt = applied({}, whole(cluster, topic_name, 0, end)[0])
    assert len(applied(rows, tail)) == len(rebuilt) + 10, "rows live on that were deleted"
    assert "delete.retention.ms" in str(why_unsound(cluster, base, [seen]))
    unknown = replace(base, read_at_ms=None)
    assert "it is not known since when" in str(why_unsound(cluster, unknown, [seen]))


def test_a_compacted_tail_that_kept_its_deletes_is_sound_for_a_base_of_known_age(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    topics.create(broker.bootstrap_servers, topic_name, 1, topics.COMPACTED)
    rows, base = history(broker, cluster, topic_name)
    compact_until(broker, topic_name, b"key-00", gone=False)
    there, end = on_disk(broker, topic_name), log_of(cluster, topic_name).log_end
    tail, seen = whole(cluster, topic_name, base.end, end)
    assert seen.removed == len(set(range(base.end, end)) - there) == 10
    assert seen.tombstones == 10
    assert why_unsound(cluster, base, [seen]) is None
    assert applied(rows, tail) == applied({}, whole(cluster, topic_name, 0, end)[0])
    unknown = replace(base, read_at_ms=None)
    assert "it is not known since when" in str(why_unsound(cluster, unknown, [seen]))


def test_a_tail_that_was_overwritten_and_not_compacted_is_whole(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    topics.create(broker.bootstrap_servers, topic_name, 1, {**topics.UNCLEANED, "delete.retention.ms": "0"})
    rows, base = history(broker, cluster, topic_name)
    end = log_of(cluster, topic_name).log_end
    tail, seen = whole(cluster, topic_name, base.end, end)
    assert (seen.removed, seen.records) == (0, 30)
    assert why_unsound(cluster, replace(base, read_at_ms=None), [seen]) is None
    assert applied(rows, tail) == applied({}, whole(cluster, topic_name, 0, end)[0])


def test_what_is_there_of_transactions_and_of_compaction_is_what_the_broker_has_on_its_disk(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    servers, chance = broker.bootstrap_servers, random.Random(5)
    topics.create(servers, topic_name, 1, {**topics.COMPACTED, "min.cleanable.dirty.ratio": "1.0"})
    for n in range(12):
        records = [
            Record(b"key-%d" % chance.randrange(40), chance.choice([None, chance.randbytes(90)])) for _ in range(30)
        ]
        how = (topics.produce_committed, topics.produce_aborted, topics.produce)[n % 3]
        how(servers, topic_name, records, compression_type=chance.choice(["none", "lz4", "zstd"]), batch_size=900)
    end = log_of(cluster, topic_name).log_end
    for isolation in IsolationLevel:
        assert whole(cluster, topic_name, 0, end, isolation)[1].removed == 0
        for start in range(0, end, 17):
            assert whole(cluster, topic_name, start, min(end, start + 17), isolation)[1].removed == 0
    topics.configure(servers, topic_name, {"min.cleanable.dirty.ratio": "0.01"})
    topics.compact(servers, topic_name, 0, broker.data_directory, Record(b"filler", b"f"))
    there = on_disk(broker, topic_name)
    assert len(there) < end / 2
    cuts = sorted({0, end, *(chance.randrange(end) for _ in range(40))})
    for isolation in IsolationLevel:
        for start, stop in pairwise(cuts):
            seen = whole(cluster, topic_name, start, stop, isolation)[1]
            assert seen.removed == len(set(range(start, stop)) - there)


def test_an_open_transaction_at_the_end_of_a_tail_is_read_by_the_next_checkpoint(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, 1, topics.UNCLEANED)
    topics.produce_committed(servers, topic_name, [Record(b"a", b"1")])
    first = base_of(cluster, topic_name, stable=True, known=False)
    topics.produce_committed(servers, topic_name, [Record(b"b", b"1")])
    with topics.transaction(servers, topic_name, [Record(b"a", None), Record(b"c", b"1")]):
        second = base_of(cluster, topic_name, stable=True, known=False)
        log = log_of(cluster, topic_name)
        assert second.end == log.last_stable == 4
        assert log.log_end == 6
        assert why_hopeless(cluster, first) is None
        tail, seen = whole(cluster, topic_name, first.end, second.end)
        assert (tail, seen.removed) == ([(b"b", b"1")], 0)
        assert why_unsound(cluster, first, [seen]) is None
    assert why_hopeless(cluster, second) is None
    tail, seen = whole(cluster, topic_name, second.end, log_of(cluster, topic_name).last_stable)
    assert (tail, seen.removed, seen.position) == ([(b"a", None), (b"c", b"1")], 0, 7)
    assert why_unsound(cluster, second, [seen]) is None


@pytest.mark.parametrize("by", one_of(["retention", "delete records"]))
def test_a_tail_of_which_something_is_deleted_while_it_is_read_is_refused(
    broker: Broker, cluster: Cluster, topic_name: str, by: str
) -> None:
    servers, chance = broker.bootstrap_servers, random.Random(1)
    segments = {"cleanup.policy": "delete", "segment.ms": "100"} if by == "retention" else {}
    topics.create(servers, topic_name, 1, {**DELETABLE, **segments})
    old = int(time.time() * 1000) - 3_600_000
    topics.produce(servers, topic_name, [Record(b"base", b"p", timestamp=old)])
    base = base_of(cluster, topic_name)
    for n in range(10):  # a segment of each, where they are small
        stamp = old + 1000 * n if n < 7 else None
        records = [Record(b"key", chance.randbytes(300), timestamp=stamp) for _ in range(200)]
        topics.produce(servers, topic_name, records, batch_size=4000)
    end = log_of(cluster, topic_name).log_end
    assert why_hopeless(cluster, base) is None
    reader = ChangelogReader(cluster, ReaderOptions(**SMALL))
    batches = reader.read(OffsetRange(topic_name, 0, base.end, end), COMMITTED)
    next(batches)
    if by == "retention":
        topics.configure(servers, topic_name, {"retention.ms": "1800000"})
        BrokerCluster.wait_until(lambda: topics.start_offset(servers, topic_name, 0) == 1401)
    else:
        topics.delete_records(servers, topic_name, 0, 1401)
    assert sum(1 for _ in batches) > 5
    seen = reader.statistics
    assert (seen.position, seen.log_start_moved_to) == (end, 1401)
    assert seen.removed == end - base.end - seen.records > 0
    said = why_unsound(cluster, base, [seen])
    assert said is not None
    values = {"topic": topic_name, "partition": 0, "log_start": 1401, "end": 1}
    assert (said.code, said.context) == ("records-deleted", values)
    hopeless = why_hopeless(cluster, base)
    assert hopeless is not None, "and nothing of it need be read the next time"
    assert (hopeless.code, hopeless.context) == ("records-deleted", values)


def test_a_base_at_the_end_of_a_log_that_was_emptied_can_be_used(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, 1, DELETABLE)
    topics.produce(servers, topic_name, [Record(b"key-%d" % n, b"v") for n in range(20)])
    base = base_of(cluster, topic_name, known=False)
    topics.delete_records(servers, topic_name, 0, 20)
    assert why_hopeless(cluster, base) is None
    topics.produce(servers, topic_name, [Record(b"key-1", None)])
    assert why_hopeless(cluster, base) is None
    tail, seen = whole(cluster, topic_name, base.end, 21)
    assert (tail, why_unsound(cluster, base, [seen])) == ([(b"key-1", None)], None)


def test_a_topic_that_was_created_again_is_refused_though_its_log_is_as_long(
    broker: Broker, cluster: Cluster, topic_name: str
) -> None:
    servers = broker.bootstrap_servers
    records = [Record(b"key-%d" % n, b"v") for n in range(20)]
    topics.create(servers, topic_name, 1, topics.UNCLEANED)
    topics.produce(servers, topic_name, records)
    base = base_of(cluster, topic_name)
    topics.delete(servers, topic_name)
    topics.create(servers, topic_name, 1, topics.UNCLEANED)
    emptied = why_hopeless(cluster, BaseEnd(base.topic_partition, "", 20, 0, None))
    assert emptied is not None
    of_it = {"topic": topic_name, "partition": 0}
    assert (emptied.code, emptied.context) == ("log-ends-before-base", {**of_it, "log_end": 0, "end": 20})
    topics.produce(servers, topic_name, records * 2)
    said = why_hopeless(cluster, base)
    assert said is not None
    assert (said.code, said.context["expected"]) == ("topic-recreated", base.topic_id)


@pytest.mark.full
def test_a_truncated_log_that_grew_again_refuses_only_the_bases_beyond_the_truncation(tmp_path: Path) -> None:
    topic, tp = "changelog", TopicPartition("changelog", 0)
    with Broker(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        topics.create(servers, topic, 1, topics.UNCLEANED)
        topics.produce(servers, topic, [Record(b"kept", b"%d" % n) for n in range(100)])
        with Cluster(servers, timeout=300) as cluster:
            before = base_of(cluster, topic)
            broker.stop()
            shutil.copytree(broker.data_directory / "changelog-0", tmp_path / "older")
            broker.start()
            servers = broker.bootstrap_servers
            topics.produce(servers, topic, [Record(b"lost", b"%d" % n) for n in range(50)])
        with Cluster(servers, timeout=300) as cluster:
            lost = base_of(cluster, topic)
            assert (before.end, lost.end) == (100, 150)
            assert lost.leader_epoch > before.leader_epoch, "a start is an election"
            assert why_hopeless(cluster, before) is None
            assert why_hopeless(cluster, lost) is None
        broker.stop()
        shutil.rmtree(broker.data_directory / "changelog-0")
        shutil.copytree(tmp_path / "older", broker.data_directory / "changelog-0")
        broker.start()
        servers = broker.bootstrap_servers
        with Cluster(servers, timeout=300) as cluster:
            shorter = why_hopeless(cluster, lost)
            assert shorter is not None
            values = {"topic": topic, "partition": 0, "log_end": 100, "end": 150}
            assert (shorter.code, shorter.context) == ("log-ends-before-base", values)
            log = log_of(cluster, topic)
            assert log.leader_epoch == cluster.leader(tp, refresh=True).epoch, "though nothing was written in it"
            assert cluster.epoch_ends({tp: log.leader_epoch}) == {tp: 100}
            topics.produce(servers, topic, [Record(b"other", b"%d" % n) for n in range(70)])
            assert log_of(cluster, topic).log_end == 170
            assert cluster.epoch_ends({tp: lost.leader_epoch}) == {tp: 100}
            said = why_hopeless(cluster, lost)
            assert said is not None
            assert (said.code, said.context["truncated_at"], said.context["end"]) == ("log-truncated", 100, 150)
            assert why_hopeless(cluster, before) is None
            tail, seen = whole(cluster, topic, before.end, 170)
            assert {key for key, _ in tail} == {b"other"}
            assert (seen.removed, why_unsound(cluster, before, [seen])) == (0, None)
