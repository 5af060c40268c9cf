"""Reads that outlive their leader, and those that cannot: brokers stopped, killed, hung, moved, throttling."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.progress import NullProgress
from statecore.spark.session import spark_context
from tests.harness import directory, topics
from tests.harness.bases import base_of, why_hopeless
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.cluster import BrokerCluster
from tests.harness.on_spark import run_restore
from tests.harness.raising import raises
from tests.harness.reading import Row, columnar, joined, plain
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

SMALL = {"fetch_bytes": 20_000, "max_wait": 0.2}
DURABLE = {**topics.UNCLEANED, "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("cluster"), 3) as made:
        yield made


@pytest.fixture
def brokers(started: BrokerCluster) -> BrokerCluster:
    """Three brokers that run, whatever the test before did to them."""
    started.start()
    return started


def fill(brokers: BrokerCluster, topic: str, count: int = 4000, seed: int = 0) -> None:
    """Records in many small batches, acknowledged by all replicas in sync, some of aborted transactions between."""
    chance = random.Random(seed)
    records = [Record(b"key-%d" % (n % 700), chance.randbytes(200)) for n in range(count)]
    servers = brokers.bootstrap_servers
    half = count // 2
    topics.produce(servers, topic, records[:half], batch_size=4000, linger_ms=0)
    topics.produce_aborted(servers, topic, records[:100], batch_size=4000)
    topics.produce_committed(servers, topic, records[half:], batch_size=4000)


def connect(brokers: BrokerCluster, **kafka: Any) -> Cluster:
    return Cluster(brokers.bootstrap_servers, kafka, timeout=300)


def end_of(cluster: Cluster, topic: str) -> int:
    return cluster.log_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].last_stable


def started_reading(batches: Iterator[list[Row]], count: int = 3) -> list[Row]:
    """The first batches: the read is under way, and far from its end."""
    return [row for _ in range(count) for row in next(batches)]


@pytest.mark.parametrize("trouble", one_of(["killed", "stopped", "hung", "moved"]))
def test_a_read_resumes_when_its_leader_is_back(brokers: BrokerCluster, topic_name: str, trouble: str) -> None:
    brokers.create(topic_name, [1, 2, 3], DURABLE)
    fill(brokers, topic_name)
    wanted = plain(brokers.bootstrap_servers, topic_name)
    if trouble == "moved":  # away from the preferred leader first, so that it can be moved back
        brokers[1].stop()
        brokers[1].start()
        brokers.wait_until(lambda: brokers.in_sync(topic_name) == {1, 2, 3})
    before = brokers.leader(topic_name)
    assert (before == 1) == (trouble != "moved")
    with connect(brokers) as cluster:
        end = end_of(cluster, topic_name)
        batches = columnar(cluster, topic_name, end, stall_timeout=300, **SMALL)
        rows = started_reading(batches)
        try:
            if trouble == "stopped":
                brokers[1].stop()
            elif trouble == "killed":
                brokers[1].kill()
            elif trouble == "hung":
                brokers[1].freeze()
            else:
                brokers.elect_preferred(topic_name)
            rows += joined(batches)
            # Whoever asks now is answered by the brokers that are left.
            with connect(brokers) as another:
                assert end_of(another, topic_name) == end
        finally:
            if trouble == "hung":
                brokers[1].thaw()
    assert brokers.leader(topic_name) != before or trouble == "hung"
    assert rows == wanted
    assert len(rows) == 4000


@pytest.mark.full
def test_without_a_leader_and_without_a_quorum_the_read_ends_at_its_deadline_and_says_where(
    brokers: BrokerCluster, topic_name: str
) -> None:
    alone, shared = f"{topic_name}-alone", f"{topic_name}-shared"
    brokers.create(alone, [1], topics.UNCLEANED)
    brokers.create(shared, [1, 2], topics.UNCLEANED)
    for topic in (alone, shared):
        fill(brokers, topic)
    where = brokers[1].bootstrap_servers
    with connect(brokers) as one, connect(brokers) as two:
        under_way = [
            (topic, started, columnar(cluster, topic, end_of(cluster, topic), stall_timeout=4, **SMALL))
            for topic, cluster, started in ((alone, one, 1), (shared, two, 1))
        ]
        reached = [started_reading(batches)[-1][2] for _, _, batches in under_way]
        brokers[1].kill()
        brokers.wait_until(lambda: brokers.leader(alone) == -1)
        stuck(under_way[0][2], alone, reached[0], where)
        # The node that is left is no quorum: it elects nobody, and goes on naming the leader it knew.
        brokers[2].kill()
        stuck(under_way[1][2], shared, reached[1], "127.0.0.1:")


class KillOnceItReads(NullProgress):
    """Kills a broker when the first offsets are reported as read."""

    def __init__(self, victim: Broker) -> None:
        self.victim, self.reading = victim, False
        self.total = self.seen = 0

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.reading = name == "read"
        if self.reading:
            self.total = total or 0

    def advance(self, amount: int = 1) -> None:
        if self.reading and amount and not self.seen:
            self.seen = amount
            self.victim.kill()


# PySpark leaves its gateway's sockets and pipe to the end of the process.
@pytest.mark.full
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_restore_reads_on_from_the_other_replica_when_a_leader_dies(
    brokers: BrokerCluster, application_id: str, tmp_path: Path
) -> None:
    changelog = f"{application_id}-store-changelog"
    brokers.create(changelog, [1, 2], {**topics.UNCLEANED, "min.insync.replicas": "1"})
    chance = random.Random(3)
    records = [Record(b"key-%d" % (n % 5000), chance.randbytes(2500)) for n in range(16_000)]
    topics.produce(brokers.bootstrap_servers, changelog, records, acks="all")
    brokers.wait_until(lambda: brokers.in_sync(changelog) == {1, 2})
    with connect(brokers) as cluster:  # so slow that the read, of 8 MB at a time, takes some seconds
        limit(cluster, application_id, 8_000_000)
    spec = {
        "application_id": application_id,
        "bootstrap_servers": brokers.bootstrap_servers,
        "processing_guarantee": "at_least_once",
        "kafka": {"client_id": application_id},
        "subtopologies": {"0": {"stores": {"store": {"kind": "key-value"}}}},
    }
    progress = KillOnceItReads(brokers[1])
    with spark_context("tests", "local[2]"):
        report = run_restore(RestoreRequest(state_dir=str(tmp_path / "state"), spec=spec), progress)
    assert isinstance(report, ReadReport)
    assert 0 < progress.seen < progress.total
    assert brokers.leader(changelog) == 2
    wanted = {record.key: record.value for record in records}
    found = directory.read_application(tmp_path / "state" / application_id)
    assert dict(found["0_0", "store"]["default"]) == wanted
    assert report.totals["records"] == len(records)


def stuck(batches: Iterator[list[Row]], topic: str, reached: int | None, where: str) -> None:
    with raises(Retryable, "fetch-stalled", topic=topic, partition=0) as caught:
        joined(batches)
    context = caught.value.context
    assert reached is not None
    assert context["offset"] > reached
    assert where in context["broker"]


@pytest.mark.full
def test_a_log_that_an_unclean_election_truncated_is_an_error_never_a_mix(
    brokers: BrokerCluster, topic_name: str
) -> None:
    unclean = {**topics.UNCLEANED, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    brokers.create(topic_name, [1, 2], unclean)
    servers = brokers.bootstrap_servers
    topics.produce(servers, topic_name, [Record(b"both", b"%d" % n) for n in range(200)])
    brokers.wait_until(lambda: brokers.in_sync(topic_name) == {1, 2})
    brokers[2].kill()
    brokers.wait_until(lambda: brokers.in_sync(topic_name) == {1})
    lost = [Record(b"lost", b"x" * 300) for _ in range(2000)]
    topics.produce(servers, topic_name, lost, batch_size=4000, linger_ms=0)
    with connect(brokers) as cluster:
        batches = columnar(cluster, topic_name, 2200, stall_timeout=300, **SMALL)
        rows = started_reading(batches, 5)
        assert 200 < len(rows) < 1500
        brokers[1].kill()
        brokers[2].start()
        brokers.wait_until(lambda: brokers.leader(topic_name) == 2)
        topics.produce(servers, topic_name, [Record(b"other", b"y" * 300) for _ in range(4000)], batch_size=4001)
        with raises(Invalid, "log-truncated", topic=topic_name, partition=0, offset=200):
            rows.extend(row for batch in batches for row in batch)
    assert {row[0] for row in rows} == {b"both", b"lost"}


@pytest.mark.full
def test_an_election_refuses_only_bases_beyond_a_truncation(brokers: BrokerCluster, topic_name: str) -> None:
    unclean = {**topics.UNCLEANED, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    brokers.create(topic_name, [1, 2], unclean)
    servers, tp = brokers.bootstrap_servers, TopicPartition(topic_name, 0)

    def grow(key: bytes, count: int) -> BaseEnd:
        topics.produce(servers, topic_name, [Record(key, b"%d" % n) for n in range(count)], acks="all")
        with connect(brokers) as cluster:
            return base_of(cluster, topic_name)

    bases = [grow(b"first", 100)]
    brokers[1].stop()
    brokers.wait_until(lambda: brokers.leader(topic_name) == 2)
    with connect(brokers) as cluster:
        bases.append(base_of(cluster, topic_name))  # of an epoch in which nothing was written yet
    bases.append(grow(b"second", 50))
    brokers[1].start()
    brokers.wait_until(lambda: brokers.in_sync(topic_name) == {1, 2})
    brokers.elect_preferred(topic_name)
    brokers.wait_until(lambda: brokers.leader(topic_name) == 1)
    bases.append(grow(b"third", 50))
    epochs = [base.leader_epoch for base in bases]
    assert [base.end for base in bases] == [100, 100, 150, 200]
    assert epochs[0] < epochs[1] == epochs[2] < epochs[3]
    with connect(brokers) as cluster:
        for base, end in zip(bases, [100, 150, 150, 200], strict=True):
            assert cluster.epoch_ends({tp: base.leader_epoch}) == {tp: end}
            assert why_hopeless(cluster, base) is None
        brokers[2].kill()
        brokers.wait_until(lambda: brokers.in_sync(topic_name) == {1})
        lost = grow(b"lost", 80)
        assert why_hopeless(cluster, lost) is None, "it is all there, at one broker"
        brokers[1].kill()
        brokers[2].start()
        brokers.wait_until(lambda: brokers.leader(topic_name) == 2)
        grow(b"other", 120)
        # The same client, which knows the leader of before.
        assert cluster.epoch_ends({tp: lost.leader_epoch}) == {tp: 200}
        said = why_hopeless(cluster, lost)
        assert said is not None
        assert (said.code, said.context["truncated_at"], said.context["end"]) == ("log-truncated", 200, 280)
        for base in bases:
            assert why_hopeless(cluster, base) is None


@pytest.mark.full
def test_a_quota_of_bytes_slows_a_read_down_and_does_not_end_it(
    brokers: BrokerCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore.changelog.wire import Fetched, Wire

    brokers.create(topic_name, [2], topics.UNCLEANED)
    chance = random.Random(1)
    records = [Record(b"key-%d" % n, chance.randbytes(1000)) for n in range(6000)]
    topics.produce(brokers.bootstrap_servers, topic_name, records, batch_size=100_000)
    throttled: list[float] = []
    receive = Wire.receive

    def noting(self: Wire, timeout: float) -> Fetched:
        fetched = receive(self, timeout)
        throttled.append(fetched.throttle)
        return fetched

    monkeypatch.setattr(Wire, "receive", noting)
    rate = 1_500_000
    with connect(brokers, client_id=topic_name) as cluster:
        limit(cluster, topic_name, rate)
        # Shorter than what the broker makes its client wait: that is no stall.
        rows = joined(columnar(cluster, topic_name, 6000, fetch_bytes=4 << 20, stall_timeout=0.7))
    assert max(throttled) > 0.7
    assert rows == plain(brokers.bootstrap_servers, topic_name)
    assert len(rows) == 6000


def limit(cluster: Cluster, client_id: str, bytes_per_second: float) -> None:
    """A consumer quota of this client id, in force when this returns on all brokers."""
    from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

    def request() -> Any:
        entry = AlterClientQuotasRequest.EntryData
        entity = [entry.EntityData(entity_type="client-id", entity_name=client_id)]
        operation = entry.OpData(key="consumer_byte_rate", value=float(bytes_per_second), remove=False)
        return AlterClientQuotasRequest(entries=[entry(entity=entity, ops=[operation])], validate_only=False)

    async def ask() -> Any:
        return await cluster.ask(cluster.metadata_brokers, request, cluster.deadline())

    response = cluster.run(ask)
    assert [entry.error_code for entry in response.entries] == [0]

    def told() -> Any:
        component = DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=0, match=client_id)
        return DescribeClientQuotasRequest(components=[component], strict=True)

    async def tell(node: Any) -> Any:
        return await cluster.ask(lambda: [node], told, cluster.deadline())

    for node in cluster.metadata_brokers():  # brokers follow the metadata log at their own pace
        until(lambda node=node: bool(cluster.run(lambda: tell(node)).entries))  # type: ignore[misc]


def until(so: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
