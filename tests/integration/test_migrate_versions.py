"""Task directories of real Kafka Streams 3.9.1 and 4.2.0, converted, opened by 4.3.1, converted back, opened again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.releases import RELEASES
from statecore.maintenance.conversion import TaskConversion, plan_conversion
from statecore.maintenance.converting import convert, verify_conversion
from statecore.placement.trees import fingerprint, link_tree
from tests.golden.make_older import OlderApplication
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.queries import StoreQuery
from tests.harness.sources import Sources
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

PARTITIONS = 2
OLDER = {"3.9": "3.9.1", "4.2": "4.2.0"}
GUARANTEES = ("at_least_once", "exactly_once_v2")
STORES = {
    "plain": StoreQuery(timestamped=False, value="String"),
    "stamped": StoreQuery(timestamped=True, value="String"),
    "windows": StoreQuery(timestamped=True, value="String", shape="window"),
}
Answers = dict[tuple[str, int], str]
NOW = int(time.time() * 1000)
LEAVES = {"main.consumer.internal.leave.group.on.close": "true"}
"""Whoever is closed leaves its group, whatever version: the next one need not wait for its session to end."""


@pytest.fixture(scope="module")
def jvms(tmp_path_factory: pytest.TempPathFactory, streams_jvm: StreamsJvm) -> Iterator[Mapping[str, StreamsJvm]]:
    base = tmp_path_factory.mktemp("older")
    with (
        StreamsJvm(base / "3.9.log", streams_version="3.9.1", heap_mb=256) as first,
        StreamsJvm(base / "4.2.log", streams_version="4.2.0", heap_mb=256) as second,
    ):
        yield {"3.9": first, "4.2": second, "4.3": streams_jvm}


class World:
    """An application with tables, windows, and a join of which one side never has a record, on any version."""

    def __init__(
        self, broker: Broker, jvms: Mapping[str, StreamsJvm], application_id: str, state_dir: Path, guarantee: str
    ) -> None:
        self.servers, self.jvms = broker.bootstrap_servers, jvms
        self.application_id, self.state_dir, self.guarantee = application_id, state_dir, guarantee
        self.roles = {"busy": f"{application_id}-busy", "idle": f"{application_id}-idle"}
        for name in self.roles.values():
            topics.create(self.servers, name, PARTITIONS)

    def topology(self, jvm: StreamsJvm) -> Any:
        builder = jvm.jvm.org.apache.kafka.streams.StreamsBuilder()
        sources = Sources(jvm, builder, self.roles)
        busy, idle = sources.stream("busy"), sources.stream("idle")
        plain = sources.stores.persistentKeyValueStore("plain")
        busy.toTable(sources.materialized(plain))
        busy.toTable(sources.materialized("stamped"))
        tumbling = sources.grouped("busy").windowedBy(sources.tumbling())
        tumbling.reduce(sources.reducer(), sources.materialized("windows", retention=True))
        busy.join(idle, sources.joiner(), sources.join_windows(), sources.joined("join"))
        return builder.build()

    def feed(self, turn: int) -> None:
        records = [
            Record(b"key-%d" % key, b"turn %d of %d" % (turn, key), key % PARTITIONS, NOW + turn) for key in range(60)
        ]
        records += [Record(b"key-%d" % key, None, key % PARTITIONS, NOW + turn) for key in range(turn, 60, 10)]
        topics.produce(self.servers, self.roles["busy"], records)

    def run(self, release: str, feed: int | None = None) -> tuple[Answers, int, Answers]:
        """What the stores answer when it has started, how many records were restored, what they answer in the end."""
        of = OlderApplication if release in OLDER else StreamsApplication
        application = of(
            self.jvms[release],
            self.application_id,
            self.servers,
            self.state_dir,
            self.topology,
            guarantee=self.guarantee,
            stores=STORES,
            properties=LEAVES,
        )
        with application:
            found = self._answers(application)
            restored = sum(application.restored_records().values())
            if feed is not None:
                self.feed(feed)
                topics.wait_until_consumed(self.servers, self.application_id, [self.roles["busy"]])
            return found, restored, self._answers(application) if feed is not None else found

    def _answers(self, application: StreamsApplication) -> Answers:
        tasks = application.store_tasks()
        found = {(store, p): application.query_digest(store, p) for _, store, p in tasks if store in STORES}
        assert len(found) == PARTITIONS * len(STORES)
        return found

    @property
    def directory(self) -> Path:
        return self.state_dir / self.application_id

    def convert(self, release: str, scratch: Path) -> list[TaskConversion]:
        """Every task, as the job does it: the live directory is only read, and its copy takes its place."""
        plans = []
        for live in sorted(path for path in self.directory.iterdir() if path.is_dir()):
            before = fingerprint(live)
            plan = plan_conversion(
                live.name,
                live,
                RELEASES[release],
                application_id=self.application_id,
                exactly_once=self.guarantee == "exactly_once_v2",
            )
            assert not plan.refused
            assert not plan.left
            copy = scratch / f"{release}-{time.monotonic_ns()}" / live.name
            link_tree(live, copy)
            convert(plan, copy)
            verify_conversion(plan, copy)
            assert fingerprint(live) == before
            shutil.rmtree(live)
            copy.rename(live)
            plans.append(plan)
        assert plans
        return plans


@pytest.fixture
def make_world(
    broker: Broker, jvms: Mapping[str, StreamsJvm], application_id: str, state_dir: Path
) -> Callable[[str], World]:
    return lambda guarantee: World(broker, jvms, application_id, state_dir, guarantee)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("release", OLDER)
def test_a_directory_goes_up_and_down_again_and_nothing_is_restored(
    make_world: Callable[[str], World], guarantee: str, release: str, tmp_path: Path
) -> None:
    world = make_world(guarantee)
    *_, before = world.run(release, feed=0)
    plans = world.convert("4.3", tmp_path)
    made = [one for plan in plans for store in plan.stores for one in store.databases if one.create]
    assert len(made) == PARTITIONS, "one side of the join has no segment; its offset would be lost"
    found, restored, after = world.run("4.3", feed=1)
    assert (found, restored) == (before, 0)
    assert after != before
    for other in ("4.2", "3.9") if release == "3.9" else ("3.9", "4.3"):
        world.convert(other, tmp_path)
        assert world.run(other)[:2] == (after, 0), f"on {other}"
