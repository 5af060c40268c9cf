"""The topics of an application that counts, what was fed to it and what became of it, for tests of an active task."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.faults import VARIABLE
from statecore.formats.kinds import StoreKind
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.changelog_ends import changelog_ends
from statecore.tasks.standby_task import StandbyTask
from tests.harness import topics
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record
from tests.unit.tasks.counting import AGAIN, COUNTS

EXACTLY_ONCE = "exactly_once_v2"


class World:
    """The topics of an application, and what was fed to it."""

    def __init__(
        self, servers: str, application_id: str, guarantee: str, changelog: Mapping[str, str] = topics.UNCLEANED
    ) -> None:
        self.servers, self.application_id, self.guarantee = servers, application_id, guarantee
        self.input, self.output = f"{application_id}-in", f"{application_id}-out"
        self.changelog, self.again = (f"{application_id}-{name}-changelog" for name in (COUNTS, AGAIN))
        for topic in (self.input, self.output, self.changelog, self.again):
            topics.create(servers, topic, 1, changelog if topic == self.changelog else topics.UNCLEANED)
        self.fed: Counter[bytes] = Counter()

    def feed(self, count: int = 100) -> int:
        """More input; its end."""
        keys = [b"key-%d" % (number * number % 17) for number in range(count)]
        topics.produce(self.servers, self.input, [Record(key, b"v") for key in keys])
        self.fed.update(keys)
        return self.fed.total()

    def run(self, state_dir: Path, until: int, fault: str = "") -> subprocess.CompletedProcess[str]:
        """An active task in a process of its own."""
        command = [sys.executable, "-m", "tests.integration.active_process", self.servers, self.application_id]
        command += [str(state_dir), self.guarantee, str(until)]
        environment = {**os.environ, **({VARIABLE: fault} if fault else {})}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)

    def replayed(self, topic: str) -> dict[bytes, int]:
        """The last committed value of each key in a topic that is not deleted."""
        last = {one.key or b"": one.value for one in self._committed(topic)}
        return {key: int(value) for key, value in last.items() if value is not None}

    def every_count(self) -> Counter[tuple[bytes, int]]:
        """How often each count was told, read committed."""
        return Counter((one.key or b"", int(one.value or b"0")) for one in self._committed(self.output))

    def _committed(self, topic: str) -> list[Record]:
        """What was committed to a topic. A commit is answered before its markers are in the logs: they are waited for.

        Not for long, as a test may also have left a transaction open.
        """
        deadline = time.monotonic() + 2
        end = topics.end_offset(self.servers, topic, 0)
        while topics.end_offset(self.servers, topic, 0, "read_committed") < end and time.monotonic() < deadline:
            time.sleep(0.01)
        return topics.read(self.servers, topic, 0)

    def told_once(self) -> Counter[tuple[bytes, int]]:
        """Every count of every key, once."""
        return Counter((key, number) for key, total in self.fed.items() for number in range(1, total + 1))

    def rows(self, state_dir: Path, name: str = COUNTS) -> dict[bytes, int]:
        """The rows of the closed store."""
        path = StateDirectory(state_dir, self.application_id).store_path("0_0", name, StoreKind.KEY_VALUE)
        with RocksDBStore(path, StoreKind.KEY_VALUE, read_only=True) as store:
            return {key: int(value) for key, value in store.all()}


def counted(topic: str) -> Callable[[StreamsJvm], Any]:
    """A topology of one table of the input, whose store and changelog are those of the task."""

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        builder = streams.StreamsBuilder()
        consumed = getattr(streams.kstream.Consumed, "with")(serdes.ByteArray(), serdes.ByteArray())
        store = getattr(streams.kstream.Materialized, "as")(streams.state.Stores.persistentKeyValueStore(COUNTS))
        store = store.withKeySerde(serdes.ByteArray()).withValueSerde(serdes.ByteArray()).withCachingDisabled()
        builder.stream(topic, consumed).toTable(store)
        return builder.build()

    return build


def follow(cluster: Cluster, spec: ApplicationSpec, task: StandbyTask) -> int:
    """One round of a standby, in which nothing goes wrong; how many records it read.

    A commit is answered before its markers are in the logs, so the round begins when no transaction is open over them.
    """
    deadline = time.monotonic() + 180
    while True:
        ends = changelog_ends(cluster, spec, [store.spec for store in task.stores.stores], task.epochs())
        if all(one.log.last_stable == one.log.log_end for one in ends.values()):
            break
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.01)
    done = task.follow(ends)
    assert not done.stale
    assert not done.failed
    assert not any(task.lag.values())
    return done.records
