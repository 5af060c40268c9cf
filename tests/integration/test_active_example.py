"""The example of an active task, killed, and with brokers that do not answer: it counts each word once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "active_task.py"


class Example:
    """The process of the example."""

    def __init__(self, servers: str, state_dir: Path) -> None:
        command = [sys.executable, str(EXAMPLE), "--bootstrap-servers", servers, "--state-dir", str(state_dir)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*command, "--max-block-ms", "2000"], stdout=subprocess.PIPE, text=True, env=environment
        )

    def wait_for(self, line: str) -> None:
        """Until it says a line that begins so."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said.startswith(line):
                return
        raise AssertionError(f"the example ended with {self.process.wait()} before it said {line!r}")

    def __enter__(self) -> Example:
        self.wait_for("running")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Words:
    """The topics of the example, what was fed to it, and what it published."""

    def __init__(self, servers: str, state_dir: Path) -> None:
        self.servers, self.state_dir, self.expected = servers, state_dir, Counter[bytes]()
        for topic in ("lines", "counts", "active-words-words-changelog"):
            topics.create(servers, topic, 1)

    def feed(self, count: int = 300) -> None:
        lines = [b"a b word-%d" % (number % 7) for number in range(count)]
        self.expected.update(word for line in lines for word in line.split())
        topics.produce(self.servers, "lines", [Record(None, line) for line in lines])

    def feed_and_see(self, count: int = 300) -> None:
        """Feeds it, and returns when it has begun to count that."""
        counted = topics.end_offset(self.servers, "counts", 0)
        self.feed(count)
        deadline = time.monotonic() + 180
        while topics.end_offset(self.servers, "counts", 0) == counted:
            assert time.monotonic() < deadline, "it counts nothing"

    def end(self, example: Example) -> None:
        """Ends it when it has come to the end, and compares what it published, and its store, with what was fed."""
        self.feed()
        topics.wait_until_consumed(self.servers, "active-words", ["lines"])
        example.process.terminate()
        assert example.process.wait(180) == 0
        published = {record.key: int(record.value or b"") for record in topics.read(self.servers, "counts", 0)}
        path = self.state_dir / "active-words/0_0/rocksdb/words"
        with RocksDBStore(path, StoreKind.KEY_VALUE, read_only=True) as store:
            assert {word: int(count) for word, count in store.all()} == self.expected == published


def test_the_example_counts_each_word_once_through_a_kill(broker: Broker, tmp_path: Path) -> None:
    words = Words(broker.bootstrap_servers, tmp_path / "state")
    with Example(words.servers, words.state_dir):
        words.feed_and_see()
    with Example(words.servers, words.state_dir) as example:
        words.end(example)


@pytest.mark.full
def test_the_example_counts_each_word_once_through_kills_and_brokers_that_do_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        words = Words(broker.bootstrap_servers, tmp_path / "state")
        for _ in range(3):
            with Example(words.servers, words.state_dir):
                words.feed_and_see()
        with Example(words.servers, words.state_dir) as example:
            topics.wait_until_consumed(words.servers, "active-words", ["lines"])
            words.feed_and_see(20_000)
            broker.freeze()  # while it works
            try:
                example.wait_for("again: ")
            finally:
                broker.thaw()
            example.wait_for("running")
            words.end(example)
