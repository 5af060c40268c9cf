"""A fleet goes back from 4.4.0 one instance at a time, and up again, with real instances of both versions side by side.

Each instance has its own ``state.dir``. Every value is the chain of all values of its key, so that a record that was
lost, applied twice or in another order shows for ever.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.fed_application import eventually, restored
from tests.harness.fleet import NEWEST, AnyVersion, Fleet, leave_group
from tests.harness.flushing import flush
from tests.harness.queries import StoreQuery
from tests.harness.sources import RETENTION, Sources
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

INSTANCES, PARTITIONS = 2, 4
KEYS = [b"key-%d" % number for number in range(24)]
NEW_KEYS = [b"new-%d" % number for number in range(4)]
IN = "in"
STORES = {
    "stamped": StoreQuery(timestamped=True, value="String"),
    "plain": StoreQuery(timestamped=False, value="String"),
    "windows": StoreQuery(timestamped=True, value="String", shape="window"),
}
DECLARED = {
    "stamped": {"kind": "timestamped-key-value"},
    "plain": {"kind": "key-value"},
    "windows": {"kind": "timestamped-window", "retention": f"{RETENTION}ms"},
}
BASE = int(time.time() * 1000) // 600_000 * 600_000
PROPERTIES = {
    "session.timeout.ms": "120000",
    # Who has the state gets the task.
    "acceptable.recovery.lag": "20",
    "max.warmup.replicas": "4",
}
SOON_FORGOTTEN = {"session.timeout.ms": "6000"}
"""Others get the tasks of an instance that was closed."""


class Member(AnyVersion):
    """An instance that keeps its place in the group when it is closed."""

    def close(self, timeout: float = 600.0) -> None:
        assert self._streams.close(self.jvm.jvm.java.time.Duration.ofMillis(int(timeout * 1000)))


class Rolling:
    """An application of several instances, which are restarted one at a time, on another version or the same."""

    def __init__(
        self, fleet: Fleet, servers: str, application_id: str, state_dir: Path, guarantee: str, standby: int
    ) -> None:
        self.fleet, self.servers, self.application_id = fleet, servers, application_id
        self.state_dir, self.guarantee, self.standby = state_dir, guarantee, standby
        self.topic = f"{application_id}-in"
        topics.create(servers, self.topic, PARTITIONS)
        self.running: dict[int, Member] = {}
        self.fed: dict[bytes, list[bytes]] = defaultdict(list)
        self.turn = 0
        self.is_static = True
        """Whether an instance that is down keeps its tasks."""

    def topology(self, jvm: StreamsJvm) -> Any:
        builder = jvm.jvm.org.apache.kafka.streams.StreamsBuilder()
        at = Sources(jvm, builder, {IN: self.topic})
        f = jvm.functions
        text = f.static("java.lang.String", "valueOf", "java.lang.String", "java.lang.Object")
        chain = f.cast(f.on_arguments(f.join(",", 2), 0, text, text), *["java.lang.Object"] * 3)
        reducer = f.instance("org.apache.kafka.streams.kstream.Reducer", chain)
        at.grouped(IN).reduce(reducer, at.materialized("stamped"))
        at.grouped(IN).reduce(reducer, at.materialized(at.stores.persistentKeyValueStore("plain")))
        at.grouped(IN).windowedBy(at.tumbling()).reduce(reducer, at.materialized("windows", retention=True))
        return builder.build()

    def directory(self, instance: int) -> Path:
        return self.state_dir / str(instance)

    def launch(self, instance: int, version: str, **properties: str) -> None:
        made = Member(
            self.fleet.jvm(version),
            self.application_id,
            self.servers,
            self.directory(instance),
            self.topology,
            guarantee=self.guarantee,
            standby_replicas=self.standby,
            stores=STORES,
            properties={
                **PROPERTIES,
                **({"main.consumer.group.instance.id": f"instance-{instance}"} if self.is_static else SOON_FORGOTTEN),
                **{name.replace("_", "."): value for name, value in properties.items()},
            },
        )
        self.running[instance] = made
        made.launch()

    def wait(self) -> None:
        """Until all instances run, and have consumed everything."""
        for one in self.running.values():
            one.wait_until_running()
        topics.wait_until_consumed(self.servers, self.application_id, [self.topic])

    def feed(self, keys: Sequence[bytes] = KEYS) -> None:
        """Ten more values of each key, each once."""
        records = []
        for place, key in enumerate(keys):
            for number in range(10):
                value = b"%d.%d" % (self.turn, number)
                self.fed[key].append(value)
                records.append(Record(key, value, place % PARTITIONS, BASE + self.turn * 1000 + number))
        topics.produce(self.servers, self.topic, records)
        self.turn += 1

    def answers(self) -> dict[str, dict[bytes, bytes]]:
        """What the instances answer together; each partition is answered by one of them."""
        found: dict[str, dict[bytes, bytes]] = {store: {} for store in STORES}
        for one in self.running.values():
            for _, store, partition in one.store_tasks():
                rows = {key: value for key, value, _ in one.query_rows(store, partition)}
                assert not rows.keys() & found[store].keys()
                found[store].update(rows)
        return found

    def expected(self) -> dict[bytes, bytes]:
        """The chain of each key."""
        return {key: b",".join(values) for key, values in self.fed.items()}

    def check(self) -> None:
        """Every record was applied once, and in order. While a group moves its tasks, nobody answers for some."""
        self.wait()
        expected = self.expected()
        chains = sorted(expected.values())
        told = {"stamped": expected, "plain": expected, "windows": chains}
        assert eventually(lambda: self._by_kind(self.answers()), told) == told

    @staticmethod
    def _by_kind(found: dict[str, dict[bytes, bytes]]) -> dict[str, object]:
        return {**found, "windows": sorted(found["windows"].values())}

    def tasks(self) -> dict[int, list[tuple[int, int]]]:
        return {number: one.tasks() for number, one in self.running.items()}

    def migrate(self, instance: int, to: str) -> None:
        where = ("--application-id", self.application_id, "--state-dir", self.directory(instance))
        guarantee = ("--processing-guarantee", self.guarantee)
        done = statecore_here("migrate", *where, "--to", to, "--apply", "--if-there", "--json", *guarantee)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["outcome"] == "migrated"

    def migrate_transactional(self, instance: int) -> None:
        """As an application with transactional stores: every task is refused, and its directory is taken away."""
        spec = {
            "application_id": self.application_id,
            "bootstrap_servers": self.servers,
            "processing_guarantee": self.guarantee,
            "transactional_state_stores": True,
            "subtopologies": {"0": {"stores": DECLARED}},
        }
        file = self.state_dir / "stores.yaml"
        file.write_text(json.dumps(spec))
        where = ("--application-id", self.application_id, "--state-dir", self.directory(instance))
        done = statecore_here("migrate", *where, "--to", NEWEST, "--apply", "--spec", file)
        assert done.returncode == 13, done.stderr
        for task in range(PARTITIONS):
            assert f"the directory 0_{task} away" in done.stderr
            shutil.rmtree(self.directory(instance) / self.application_id / f"0_{task}")

    def turn_over(self, instance: int, to: str) -> None:
        """Close an instance, migrate its directory, start it on another version, while records come in."""
        self.running.pop(instance).close()
        if not self.is_static:
            deadline = time.monotonic() + 120
            while sum(map(len, self.tasks().values())) < PARTITIONS:
                assert time.monotonic() < deadline, "nobody took the tasks over"
                time.sleep(0.1)
        self.migrate(instance, to)
        self.feed()  # the instance has its own part of that waiting
        self.launch(instance, to)
        self.check()

    def restored(self) -> dict[int, dict[str, int]]:
        """Records that each instance had to restore since it was started, by store."""
        return {number: found for number, one in self.running.items() if (found := restored(one))}

    def close(self) -> None:
        while self.running:
            self.running.popitem()[1].close(30)


@pytest.fixture
def make_rolling(
    fleet: Fleet, broker: Broker, application_id: str, state_dir: Path
) -> Iterator[Callable[[str, int], Rolling]]:
    made: list[Rolling] = []

    def make(guarantee: str, standby: int) -> Rolling:
        made.append(Rolling(fleet, broker.bootstrap_servers, application_id, state_dir, guarantee, standby))
        return made[0]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("older", "guarantee", "standby", "properties"),
    [
        pytest.param("4.2", "exactly_once_v2", 0, {}, id="4.2-exactly-once"),
        pytest.param(
            *("3.9", "at_least_once", 1, {"upgrade_from": "3.9"}),
            id="3.9-at-least-once-standby-upgrade-from",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_fleet_goes_back_and_up_again_one_instance_at_a_time(
    make_rolling: Callable[[str, int], Rolling], older: str, guarantee: str, standby: int, properties: dict[str, str]
) -> None:
    rolling = make_rolling(guarantee, standby)
    for instance in range(INSTANCES):
        rolling.launch(instance, NEWEST, **properties)
    rolling.wait()
    rolling.feed()
    rolling.check()
    tasks = rolling.tasks()
    assert all(tasks.values()), "each instance has its share"
    for to in (older, NEWEST):
        for instance in range(INSTANCES):
            rolling.turn_over(instance, to)
            assert rolling.tasks() == tasks
            assert rolling.restored() == {}


@pytest.mark.full
def test_tasks_that_the_group_gives_away_meanwhile_are_restored_elsewhere_and_nothing_is_lost(
    make_rolling: Callable[[str, int], Rolling],
) -> None:
    rolling = make_rolling("exactly_once_v2", 0)
    rolling.is_static = False
    for instance in range(INSTANCES):
        rolling.launch(instance, NEWEST)
    rolling.wait()
    rolling.feed()
    rolling.check()
    rolling.turn_over(0, "4.2")
    assert rolling.restored()[1] == {"stamped": 120, "plain": 120, "windows": 120}, "of the tasks that it took over"


@pytest.mark.full
@pytest.mark.parametrize(
    ("older", "way"),
    list(itertools.product(("4.2", "3.9"), ("again", "import", "migrate", "transactional"))),
)
def test_what_was_flushed_of_a_transaction_that_died_is_applied_twice_by_all_but_a_migration(
    make_rolling: Callable[[str, int], Rolling], older: str, way: str
) -> None:
    """3.9.1 and 4.2.0 leave the ``.checkpoint`` of their last start also under exactly-once, with rows on disk that
    were never committed, and go by it as 4.4.0 does. A migration sees that the rows are younger. With transactional
    stores 4.4.0 would restore upon them without a wipe, and process what is in them again: it refuses the task."""
    rolling = make_rolling("exactly_once_v2", 0)
    rolling.is_static = False
    rolling.launch(0, older)
    rolling.feed()
    rolling.check()
    rolling.running.pop(0).close()
    leave_group(rolling.fleet.jvm(older), rolling.servers, rolling.application_id)
    rolling.launch(0, older, commit_interval_ms="300000", producer_transaction_timeout_ms="600000")
    rolling.running[0].wait_until_running()
    rolling.feed([*KEYS, *NEW_KEYS])  # a restore upon the rows that there are would leave those of the new keys
    assert eventually(lambda: rolling.answers()["plain"], rolling.expected()) == rolling.expected()
    flush(rolling.running[0])
    rolling.fleet.kill(older)
    rolling.running.clear()
    if way == "migrate":
        rolling.migrate(0, NEWEST)
    properties = {}
    if way == "transactional":
        rolling.migrate_transactional(0)
        properties = {"enable_transactional_statestores": "true"}
    version = older if way == "again" else NEWEST
    leave_group(rolling.fleet.jvm(version), rolling.servers, rolling.application_id)
    rolling.launch(0, version, **properties)
    rolling.wait()
    if way in ("migrate", "transactional"):
        committed = 10 * len(KEYS)
        assert rolling.restored() == {0: {"stamped": committed, "plain": committed, "windows": committed}}
        rolling.check()
    else:
        assert rolling.restored() == {}
        twice = {key: b",".join([*values, *values[-10:]]) for key, values in rolling.fed.items()}
        assert rolling.answers()["plain"] == twice
