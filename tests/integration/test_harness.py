"""The harness itself: a test that stands on a broken harness proves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo import flights
from demo.application import FlightsApplication, StoreState, create_topics
from tests.harness import directory, process_guard, topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker, BrokerFailed
from tests.harness.snapshot_content import differences
from tests.harness.streams import StreamsApplication, StreamsJvm, stores_of
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

PARTITIONS = 2
NOW = int(time.time() * 1000)
"""Commit markers carry the broker's time: beside older records they roll segments, and then the cleaner comes."""


def _input(rounds: int = 3, keys: int = 200) -> list[Record]:
    """Updates and deletes of keys over two partitions; every fifth key is deleted at the end."""
    updates = [
        Record(b"key-%d" % key, b"round %d of %d" % (turn, key), key % PARTITIONS, NOW - rounds + turn)
        for turn in range(rounds)
        for key in range(keys)
    ]
    deletes = [Record(b"key-%d" % key, None, key % PARTITIONS, NOW) for key in range(0, keys, 5)]
    return updates + deletes


def _expected(records: list[Record], partition: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.partition == partition and record.key is not None:
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
    return state


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_an_application_restores_nothing_after_a_close_and_everything_after_a_loss(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path, guarantee: str
) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, PARTITIONS)
    records = _input()
    topics.produce(servers, topic_name, records)

    def application() -> StreamsApplication:
        return StreamsApplication(
            streams_jvm,
            application_id,
            servers,
            state_dir,
            two_stores(topic_name),
            guarantee=guarantee,
            stores=PLAIN_AND_STAMPED,
        )

    def answers(running: StreamsApplication) -> dict[tuple[str, int], str]:
        return {(store, p): running.query_digest(store, p) for _, store, p in running.store_tasks()}

    with application() as running:
        topics.wait_until_consumed(servers, application_id, [topic_name])
        before = answers(running)
        assert set(before) == {(store, p) for store in PLAIN_AND_STAMPED for p in range(PARTITIONS)}
        for p in range(PARTITIONS):
            assert {key: value for key, value, _ in running.query_rows("plain", p)} == _expected(records, p)
            stamped = running.query_rows("stamped", p)
            assert {key: value for key, value, _ in stamped} == _expected(records, p)
            assert {at for _, _, at in stamped} == {NOW - 1}

    with application() as running:
        assert sum(running.restored_records().values()) == 0
        assert answers(running) == before

    shutil.rmtree(state_dir / application_id)
    with application() as running:
        held = {
            (store, p): len(topics.read(servers, f"{application_id}-{store}-changelog", p))
            for store in PLAIN_AND_STAMPED
            for p in range(PARTITIONS)
        }
        assert running.restored_records() == held
        assert sum(held.values()) == 2 * len(records)
        assert answers(running) == before


@pytest.mark.full
def test_a_killed_application_leaves_its_state_directory_as_a_lost_machine_does(
    broker: Broker, application_id: str, topic_name: str, state_dir: Path, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, PARTITIONS)
    topics.produce(servers, topic_name, _input())
    with StreamsJvm(tmp_path / "killed.log") as jvm:
        killed = StreamsApplication(jvm, application_id, servers, state_dir, two_stores(topic_name))
        killed.start()
        topics.wait_until_consumed(servers, application_id, [topic_name])
        killed.kill()
        assert jvm.process.poll() is not None
    # Kafka Streams wrote neither a clean status nor, under exactly-once, an offset.
    for families in directory.read_application(state_dir / application_id).values():
        assert dict(families["offsets"]).get(b"status") != bytes(8)


def test_the_state_directory_is_read_row_by_row_and_left_untouched(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path
) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, PARTITIONS)
    records = _input()
    topics.produce(servers, topic_name, records)
    with StreamsApplication(streams_jvm, application_id, servers, state_dir, two_stores(topic_name)):
        topics.wait_until_consumed(servers, application_id, [topic_name])

    files = directory.files(state_dir)
    found = directory.read_application(state_dir / application_id)
    assert directory.files(state_dir) == files
    assert set(found) == {(f"0_{p}", store) for store in PLAIN_AND_STAMPED for p in range(PARTITIONS)}
    for p in range(PARTITIONS):
        assert dict(found[f"0_{p}", "plain"]["default"]) == _expected(records, p)
        stamp = (NOW - 1).to_bytes(8, "big")
        rows = dict(found[f"0_{p}", "stamped"]["keyValueWithTimestamp"])
        assert rows == {key: stamp + value for key, value in _expected(records, p).items()}
        offsets = dict(found[f"0_{p}", "plain"]["offsets"])
        assert offsets[b"status"] == bytes(8)
        changelog = f"{application_id}-plain-changelog"
        last = topics.read(servers, changelog, p)[-1].offset
        assert int.from_bytes(offsets[f"{changelog}-{p}".encode()], "big") == last


def test_transactions_end_as_the_test_says(broker: Broker, topic_name: str) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name)  # a compacted topic would refuse the null key
    committed = [Record(b"a", b"1"), Record(b"b", None, headers=(("h", b"x"), ("n", None)))]
    aborted = [Record(b"a", b"never")]
    topics.produce_committed(servers, topic_name, committed)
    topics.produce_aborted(servers, topic_name, aborted)
    topics.produce(servers, topic_name, [Record(None, b"no key")])
    with topics.transaction(servers, topic_name, [Record(b"c", b"open")]):
        assert topics.end_offset(servers, topic_name, 0, "read_committed") == 6
        assert topics.end_offset(servers, topic_name, 0) == 7
    found = topics.read(servers, topic_name, 0)
    assert [(one.offset, one.key, one.value, one.headers) for one in found] == [
        (0, b"a", b"1", ()),
        (1, b"b", None, (("h", b"x"), ("n", None))),
        (5, None, b"no key", ()),  # 2: commit, 3: aborted, 4: abort
        (6, b"c", b"open", ()),
    ]
    assert [one.offset for one in topics.read(servers, topic_name, 0, "read_uncommitted")] == [0, 1, 3, 5, 6]


@pytest.mark.full
def test_a_hanging_transaction_holds_the_last_stable_offset_until_its_time_out(broker: Broker, topic_name: str) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name)
    topics.produce(servers, topic_name, [Record(b"a", b"1")])
    topics.produce_hanging(servers, topic_name, [Record(b"a", b"2")], timeout_ms=8000)
    assert topics.end_offset(servers, topic_name, 0, "read_committed") == 1
    deadline = time.monotonic() + 240
    while topics.end_offset(servers, topic_name, 0, "read_committed") == 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert topics.end_offset(servers, topic_name, 0, "read_committed") == 3
    assert [one.value for one in topics.read(servers, topic_name, 0)] == [b"1"]


@pytest.mark.full
def test_compaction_and_deletion_leave_gaps(broker: Broker, topic_name: str) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, topic_name, 1, {**topics.COMPACTED, "cleanup.policy": "compact,delete"})
    old = 1_700_000_000_000
    topics.produce(servers, topic_name, [Record(b"key-%d" % (i % 3), b"%d" % i, timestamp=old) for i in range(30)])
    topics.compact(servers, topic_name, 0, broker.data_directory, Record(b"filler", b""))
    assert [one.offset for one in topics.read(servers, topic_name, 0)] == [27, 28, 29, 30]
    topics.delete_records(servers, topic_name, 0, 29)
    assert topics.start_offset(servers, topic_name, 0) == 29
    assert [one.offset for one in topics.read(servers, topic_name, 0)] == [29, 30]


def test_the_broker_is_found_by_another_process_and_refuses_a_second_start(broker: Broker) -> None:
    found = Broker.attach(broker.directory)
    assert found is not None
    assert (found.pid, found.bootstrap_servers) == (broker.pid, broker.bootstrap_servers)
    with pytest.raises(BrokerFailed, match="already runs"):
        Broker(broker.directory).start()


@pytest.mark.full
def test_a_broker_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    kept = subprocess.Popen(
        process_guard.command_line(
            owner.pid, [sys.executable, "-c", f"open({str(tmp_path / 'up')!r}, 'w'); import time; time.sleep(600)"]
        ),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "up").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / "up").exists()
        assert kept.poll() is None
        owner.kill()
        owner.wait()
        assert kept.wait(timeout=1200) == -signal.SIGKILL % 256
    finally:
        if kept.poll() is None:
            os.killpg(kept.pid, signal.SIGKILL)
            kept.wait()


def test_subtopologies_and_their_stores_are_read_from_the_description() -> None:
    text = """Topologies:
   Sub-topology: 0
    Processor: A (stores: [x, y])
      --> none
   Sub-topology: 11
    Processor: B (stores: [])
    Processor: C (stores: [z])
"""
    assert stores_of(text) == {0: {"x", "y"}, 11: {"z"}}


@pytest.mark.full
def test_the_demo_application_gives_the_same_answers_after_a_loss(tmp_path: Path, state_dir: Path) -> None:
    def life(broker: Broker) -> tuple[list[StoreState], int]:
        with FlightsApplication(broker.bootstrap_servers, state_dir, tmp_path / "flights.log") as application:
            application.wait_until_processed()
            return application.digests(), sum(application.restored_records().values())

    # The demo's names are fixed, so it gets a broker of its own.
    with Broker(tmp_path / "broker", owner=os.getpid()) as broker:
        create_topics(broker.bootstrap_servers)
        assert flights.produce_flights(broker.bootstrap_servers, limit=5000) == 5000
        first, _ = life(broker)
        assert sum(one.rows for one in first if one.store == "flights-by-id") == 5000
        assert {one.task for one in first} == {f"{sub}_{p}" for sub in range(4) for p in range(flights.PARTITIONS)}
        shutil.rmtree(state_dir / "flights")
        rebuilt, restored = life(broker)
        assert rebuilt == first
        assert restored >= 5000


def test_segments_without_a_row_are_as_good_as_none_and_other_databases_are_not():
    row = (b"key", b"value")
    full, empty = {"default": [row]}, {"default": []}
    task = "0_0"
    assert differences({(task, "store/store.0"): empty}, {}) == {}
    assert differences({}, {(task, "store/store.0"): empty}) == {}
    assert differences({(task, "store"): empty}, {}) == {(task, "store"): {"default": ([], [])}}
    assert differences({(task, "store/store.0"): full}, {}) == {(task, "store/store.0"): {"default": ([row], [])}}
    assert differences({(task, "store"): full}, {(task, "store"): full}) == {}
