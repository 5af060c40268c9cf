"""The example of the documentation, killed again and again against a real broker: every word counted once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import StoreSettings
from statecore.tasks.restoration.restore import restore
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "word_count.py"
CHANGELOG = TopicPartition("word-count-words-changelog", 0)
KILLS = 3


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """The example's topics have fixed names, so each test gets a broker of its own."""
    broker = Broker(tmp_path / "broker").start()
    yield broker
    broker.stop()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(broker: Broker, state_dir: Path, stderr: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE), "--bootstrap-servers", broker.bootstrap_servers]
    return subprocess.Popen(
        [*command, "--state-dir", str(state_dir)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.startswith(line):
            return
    raise AssertionError(f"the example ended with {process.wait()} before it said {line!r}")


def wait_for_records(servers: str, end: int) -> None:
    """Wait until the changelog has come so far."""
    deadline = time.monotonic() + 300
    while topics.end_offset(servers, CHANGELOG.topic, 0) < end:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rows(state_dir: Path) -> tuple[dict[bytes, int], int | None]:
    """What the store of a process that has ended has, and the offset it stands at."""
    path = state_dir / "word-count" / "0_0" / "rocksdb" / "words"
    with RocksDBStore(path, StoreKind.KEY_VALUE, read_only=True) as store:
        return {word: int(count) for word, count in store.all()}, store.committed_offset(CHANGELOG)


def test_words_are_counted_exactly_once_through_kills(
    own_broker: Broker, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    servers = own_broker.bootstrap_servers
    for topic in ("lines", "counts", CHANGELOG.topic):
        topics.create(servers, topic, 1)
    chance = random.Random(7)
    expected: Counter[bytes] = Counter()
    words = [b"word-%d" % number for number in range(50)]
    for _ in range(KILLS):
        lines = [b" ".join(chance.choices(words, k=6)) for _ in range(400)]
        expected.update(word for line in lines for word in line.split())
        topics.produce(servers, "lines", [Record(b"", line, 0) for line in lines])
        started.append(start(own_broker, tmp_path))
        wait_for(started[-1], "running")
        wait_for_records(servers, topics.end_offset(servers, CHANGELOG.topic, 0) + chance.choice((0, 1, 20)))
        started[-1].kill()
        started[-1].wait()
    process = start(own_broker, tmp_path)
    started.append(process)
    wait_for(process, "running")
    topics.wait_until_consumed(servers, "word-count", ["lines"])
    process.terminate()
    assert process.wait(300) == 0
    stored, committed = rows(tmp_path)
    assert stored == expected
    published = {record.key: int(record.value) for record in topics.read(servers, "counts", 0)}
    assert published == expected
    assert committed is not None
    assert committed < topics.end_offset(servers, CHANGELOG.topic, 0)


@pytest.mark.full
def test_word_count_topics_second_instance_and_lost_disk(
    own_broker: Broker, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    """On the same directory the second one is refused and the first goes on; on another disk the first is fenced."""
    servers = own_broker.bootstrap_servers
    for topic in ("counts", CHANGELOG.topic, "lines"):
        early = start(own_broker, tmp_path / "early", stderr=subprocess.PIPE)
        started.append(early)
        said = early.communicate(timeout=1200)[1]
        assert said.startswith("NotFound: ")
        assert topic in said
        assert len(said.splitlines()) == 1
        topics.create(servers, topic, 1)
    topics.produce(servers, "lines", [Record(b"", b"gone long ago", 0)] * 10)
    topics.delete_records(servers, "lines", 0, 10)
    topics.produce(servers, "lines", [Record(b"", line, 0) for line in (b"a b a", None, b"", b"b c")] * 100)
    first = start(own_broker, tmp_path / "first")
    started.append(first)
    wait_for(first, "running")
    topics.wait_until_consumed(servers, "word-count", ["lines"])

    refused = start(own_broker, tmp_path / "first", stderr=subprocess.PIPE)
    started.append(refused)
    assert "Fenced" in refused.communicate(timeout=1200)[1]
    assert refused.returncode != 0
    topics.produce(servers, "lines", [Record(b"", b"c", 0)] * 100)
    topics.wait_until_consumed(servers, "word-count", ["lines"])
    assert first.poll() is None

    second = start(own_broker, tmp_path / "second")
    started.append(second)
    wait_for(second, "caught up: ")
    wait_for(second, "running")
    topics.produce(servers, "lines", [Record(b"", b"a", 0)] * 100)
    assert first.wait(300) != 0
    topics.wait_until_consumed(servers, "word-count", ["lines"])
    second.terminate()
    assert second.wait(300) == 0
    assert rows(tmp_path / "second")[0] == {b"a": 300, b"b": 200, b"c": 200}
    published = {record.key: int(record.value) for record in topics.read(servers, "counts", 0)}
    assert published == {b"a": 300, b"b": 200, b"c": 200}


def test_a_changelog_larger_than_memory_is_caught_up_with_in_several_commits(own_broker: Broker) -> None:
    servers = own_broker.bootstrap_servers
    topics.create(servers, CHANGELOG.topic, 1, {"max.message.bytes": "2000000"})
    records = [Record(b"%03d" % number, b"%d" % number + bytes(200_000), 0) for number in range(150)]
    topics.produce(servers, CHANGELOG.topic, records)
    committed: list[int | None] = []

    class Counting(InMemoryStore):
        def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
            assert self.uncommitted_bytes < 20_000_000
            super().commit(offsets)
            committed.append(self.committed_offset(CHANGELOG))
            assert len(list(self.all())) == offsets[CHANGELOG] + 1

    with Counting(settings=StoreSettings(uncommitted_max_bytes=1_000_000)) as store, Cluster(servers) as cluster:
        assert restore(store, CHANGELOG, cluster).records == 150
        assert dict(store.all()) == {record.key: record.value for record in records}
    assert committed[-1] == 149
    assert len(committed) > 2
    assert committed == sorted(committed)
