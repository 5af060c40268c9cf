"""Task directories of real Kafka Streams 3.9.1 and 4.2.0, converted, opened by 4.3.1, converted back, opened again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.formats.releases import RELEASES
from statecore.maintenance.conversion import TaskConversion, plan_conversion
from statecore.maintenance.conversion.rows import COUNTERPARTS
from statecore.maintenance.converting import convert, verify_conversion
from statecore.placement.trees import fingerprint, link_tree
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from tests.golden.make_older import OlderApplication
from tests.harness import kinds, topics
from tests.harness.broker import Broker
from tests.harness.feeds import EVENTS, LEFT, MINUTE, RIGHT, SPAN
from tests.harness.kinds import KindsApplication
from tests.harness.queries import StoreQuery, digest
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
NO_HEADERS = b"[]"
"""What an answer of a store that keeps headers ends in, where it keeps none."""

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

    stores: Mapping[str, StoreQuery] = STORES
    properties: Mapping[str, str] = LEAVES
    names: tuple[str, ...] = ("busy", "idle")

    def __init__(
        self, broker: Broker, jvms: Mapping[str, StreamsJvm], application_id: str, state_dir: Path, guarantee: str
    ) -> None:
        self.servers, self.jvms = broker.bootstrap_servers, jvms
        self.application_id, self.state_dir, self.guarantee = application_id, state_dir, guarantee
        self.roles = {name: f"{application_id}-{name}" for name in self.names}
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
        topics.wait_until_consumed(self.servers, self.application_id, [self.roles["busy"]])

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
            stores=self.stores,
            properties=self.properties,
        )
        with application:
            found = self._answers(application)
            restored = sum(application.restored_records().values())
            if feed is not None:
                self.feed(feed)
            return found, restored, self._answers(application) if feed is not None else found

    def _answers(self, application: StreamsApplication) -> Answers:
        tasks = application.store_tasks()
        found = {
            (store, p): digest(
                (key, value.removesuffix(NO_HEADERS), time) for key, value, time in application.query_rows(store, p)
            )
            for _, store, p in tasks
            if store in self.stores
        }
        assert len(found) == PARTITIONS * len(self.stores)
        return found

    @property
    def directory(self) -> Path:
        return self.state_dir / self.application_id

    def convert(
        self, release: str, scratch: Path, spec: ApplicationSpec | None = None, *, lose_headers: bool = False
    ) -> list[TaskConversion]:
        """Every task, as the job does it: the live directory is only read, and its copy takes its place."""
        plans = []
        for live in sorted(path for path in self.directory.iterdir() if path.is_dir()):
            before = fingerprint(live)
            plan = plan_conversion(
                live.name,
                live,
                RELEASES[release],
                application_id=self.application_id,
                spec=spec,
                exactly_once=self.guarantee == "exactly_once_v2",
                lose_headers=lose_headers,
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


class WithHeaders(World):
    """A store of every kind that keeps headers and that the DSL makes; older versions make those that keep none."""

    cases = tuple(case for case in kinds.HEADERS.cases if not case.store.startswith("put-"))
    names = (EVENTS, LEFT, RIGHT)

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.base = (NOW - 2 * SPAN) // MINUTE * MINUTE
        made = KindsApplication("headers", self.cases, kinds.HEADERS.feed)
        self.queries = made.queries(self.base)

    def topology(self, jvm: StreamsJvm) -> Any:
        properties = kinds.HEADERS.properties if jvm is self.jvms["4.3"] else {}
        return KindsApplication("headers", self.cases, kinds.HEADERS.feed, properties).topology(self.roles)(jvm)

    def run(self, release: str, feed: int | None = None) -> tuple[Answers, int, Answers]:
        current = release == "4.3"
        self.properties = {**LEAVES, **(kinds.HEADERS.properties if current else {})}
        self.stores = {store: replace(query, headers=current) for store, query in self.queries.items()}
        return super().run(release, feed)

    def feed(self, turn: int) -> None:
        for role, records in kinds.HEADERS.feed(self.base, PARTITIONS):
            if role in self.roles:
                topics.produce(self.servers, self.roles[role], records)
        topics.wait_until_consumed(self.servers, self.application_id, list(self.roles.values()))

    def spec(self) -> ApplicationSpec:
        """What nothing on disk tells: whether an aggregation that emits in the end slides."""
        declared = {
            case.store: {"kind": case.kind, **case.declared} for case in self.cases if "emit-final" in case.kind
        }
        return parse_spec(
            {
                "application_id": self.application_id,
                "bootstrap_servers": self.servers,
                "processing_guarantee": self.guarantee,
                "subtopologies": {"0": {"stores": declared}},
            }
        )


def test_stores_with_headers_go_down_to_releases_that_know_none(
    broker: Broker, jvms: Mapping[str, StreamsJvm], application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = WithHeaders(broker, jvms, application_id, state_dir, "exactly_once_v2")
    *_, before = world.run("4.3", feed=0)
    plans = world.convert("4.2", tmp_path, world.spec(), lose_headers=True)
    moves = [move for plan in plans for store in plan.stores for one in store.databases for move in one.moves]
    assert {move.target_kind for move in moves} == {target for targets in COUNTERPARTS.values() for target in targets}
    assert {move.source_kind.value for move in moves if move.headers} == {"headers-window"}, "those of joins"
    assert world.run("4.2")[:2] == (before, 0)
    world.convert("3.9", tmp_path)
    assert world.run("3.9")[:2] == (before, 0)
