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
from statecore.stores.rocksdb import RocksDBStore
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


def test_the_example_counts_each_word_once_through_kills_and_brokers_that_do_not_answer(tmp_path: Path) -> None:
    changelog = "active-words-words-changelog"
    expected: Counter[bytes] = Counter()
    with Broker(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers

        def feed(count: int = 300) -> None:
            lines = [b"a b word-%d" % (number % 7) for number in range(count)]
            expected.update(word for line in lines for word in line.split())
            topics.produce(servers, "lines", [Record(None, line) for line in lines])

        for topic in ("lines", "counts", changelog):
            topics.create(servers, topic, 1)
        for _ in range(3):
            with Example(servers, tmp_path / "state"):
                feed()
                time.sleep(0.2)
        with Example(servers, tmp_path / "state") as example:
            topics.wait_until_consumed(servers, "active-words", ["lines"])
            counted = topics.end_offset(servers, "counts", 0)
            feed(20_000)
            deadline = time.monotonic() + 60
            while topics.end_offset(servers, "counts", 0) == counted:
                assert time.monotonic() < deadline, "it counts nothing"
            broker.freeze()  # while it works
            try:
                example.wait_for("again: Task 0_0 waited 2 s (max.block.ms) for ")
            finally:
                broker.thaw()
            example.wait_for("running")
            feed()
            topics.wait_until_consumed(servers, "active-words", ["lines"])
            example.process.terminate()
            assert example.process.wait(120) == 0
        published = {record.key: int(record.value or b"") for record in topics.read(servers, "counts", 0)}
    with RocksDBStore(tmp_path / "state/active-words/0_0/rocksdb/words", StoreKind.KEY_VALUE, read_only=True) as store:
        assert {word: int(count) for word, count in store.all()} == expected == published
