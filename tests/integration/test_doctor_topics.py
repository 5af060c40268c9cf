"""Directories of real Kafka Streams whose topics are not what they were: what it does with them, what the doctor finds.

The failure comes first in each test: what Kafka Streams 4.3.1 answers, restores or throws when it opens the directory.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from statecore.maintenance.doctor_topics import TopicsLook, look_at_topics
from statecore.maintenance.inspection import inspect
from statecore.placement.state_directory import StateDirectory
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.kinds import GLOBALS, HEADERS, PLAIN, SOURCES, UNLOGGED, KindsApplication
from tests.harness.rebuilding import KindsWorld
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])


def look(state_dir: Path, application_id: str, servers: str, spec: ApplicationSpec | None = None) -> TopicsLook:
    before = files_of(state_dir)
    inspection = inspect(StateDirectory(state_dir, application_id), spec=spec)
    found = look_at_topics(inspection, servers, spec=spec, timeout=20)
    assert spec is not None or files_of(state_dir) == before or inspection.holder is not None
    return found


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*")}


def seen(found: TopicsLook) -> set[tuple[str, str, str]]:
    return {(one.code, one.task, one.store) for one in found.findings}


def copy_of(world: World, name: str) -> World:
    """The same application upon a copy of its directory as it is now."""
    state_dir = world.state_dir.parent / name
    shutil.copytree(world.state_dir, state_dir)
    return world.at(state_dir)


def changelog(world: World, store: str) -> str:
    return f"{world.application_id}-{store}-changelog"


def explore(world: World, what: str) -> None:
    try:
        answers, restored = world.reopen()
        print(what, "restored", restored, {k: v[:8] for k, v in answers.items()})
    except Exception as error:
        print(what, "FAILED", str(error)[:3000])


@GUARANTEES
def test_explore(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    for store in KINDS:
        topics.create(world.servers, changelog(world, store), PARTITIONS, topics.UNCLEANED)
    world.feed(keys=20)
    before = world.live()
    print("before", {k: v[:8] for k, v in before.items()})
    ends = [topics.end_offset(world.servers, changelog(world, "plain"), p) for p in range(PARTITIONS)]
    print(ends)
    print(look(world.state_dir, application_id, world.servers))

    def recreate(records: dict[int, int], partitions: int = PARTITIONS) -> None:
        for store in KINDS:
            topics.delete(world.servers, changelog(world, store))
            topics.create(world.servers, changelog(world, store), partitions, topics.UNCLEANED)
            for p, count in records.items():
                topics.produce(
                    world.servers, changelog(world, store), [Record(b"other-%d" % n, b"x", p) for n in range(count)]
                )

    for name, counts in {
        "longer": {0: ends[0] + 5, 1: ends[1] + 5},
        "one short": {0: ends[0] - 1, 1: ends[1] - 1},
        "short": {0: 3, 1: 3},
        "empty": {},
    }.items():
        recreate(counts)
        copied = copy_of(world, name)
        found = look(copied.state_dir, application_id, world.servers)
        for one in found.findings:
            print(name, one.code, one.what)
        print(name, found.undecided)
        explore(copied, name)
        print("then", look(copied.state_dir, application_id, world.servers))
    recreate({}, 1)
    copied = copy_of(world, "few")
    print(look(copied.state_dir, application_id, world.servers))
    explore(copied, "few")
    for store in KINDS:
        topics.delete(world.servers, changelog(world, store))
    copied = copy_of(world, "none")
    print(look(copied.state_dir, application_id, world.servers))
    explore(copied, "none")
    print("then", look(copied.state_dir, application_id, world.servers))


DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
FORGETFUL = {**topics.COMPACTED, "min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "100"}
"""Compacted only when the test says so; deletes go with the second compaction."""


def configure(servers: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})  # has to live until the answer is there
    admin.incremental_alter_configs([resource])[resource].result(30)


def compact(broker: Broker, topic: str, partition: int, gone: bytes) -> None:
    """Compact a partition until no record of a key is left."""
    servers = broker.bootstrap_servers
    configure(servers, topic, "min.cleanable.dirty.ratio", "0.01")
    deadline = time.monotonic() + 90
    while True:
        filler = Record(b"filler", b"%d" % time.time_ns(), partition)
        topics.compact(servers, topic, partition, broker.data_directory, filler)
        if gone not in {record.key for record in topics.read(servers, topic, partition)}:
            break
        assert time.monotonic() < deadline, "the broker kept the deletes"
    configure(servers, topic, "min.cleanable.dirty.ratio", "1.0")


@GUARANTEES
def test_explore2(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    topics.create(world.servers, changelog(world, "plain"), PARTITIONS, DELETABLE)
    topics.create(world.servers, changelog(world, "stamped"), PARTITIONS, FORGETFUL)
    world.feed(keys=20)
    world.live()
    older = copy_of(world, "older")
    topics.produce(
        world.servers,
        world.input,
        [Record(b"key-%d" % n, None, n % 2) for n in (1, 3, 2, 4)]
        + [Record(b"key-%d" % n, b"upd", n % 2) for n in range(6, 16)],
    )
    with world.application() as running:
        topics.wait_until_consumed(world.servers, world.application_id, [world.input])
        topics.produce(world.servers, world.input, [Record(b"key-%d" % n, b"now", n % 2) for n in range(6, 16)])
        print("running", look(world.state_dir, application_id, world.servers))
        topics.wait_until_consumed(world.servers, world.application_id, [world.input])
        right = world.answers(running)
    print("right", right)
    print("closed", look(world.state_dir, application_id, world.servers))
    print("older", look(older.state_dir, application_id, world.servers))
    end = topics.end_offset(world.servers, changelog(world, "plain"), 0)
    topics.delete_records(world.servers, changelog(world, "plain"), 0, end - 2)
    compact(broker, changelog(world, "stamped"), 1, b"key-1")
    print("older", look(older.state_dir, application_id, world.servers))
    explore(older, "older")


@GUARANTEES
@pytest.mark.parametrize("kinds", [PLAIN, HEADERS, SOURCES, GLOBALS, UNLOGGED], ids=lambda one: one.name)
def test_explore3(
    broker: Broker,
    streams_jvm: StreamsJvm,
    application_id: str,
    state_dir: Path,
    guarantee: str,
    kinds: KindsApplication,
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, kinds)
    with world.application():
        world.feed(kinds.feed(world.base, PARTITIONS))
        print("running", look(world.state_dir, application_id, world.servers))
    spec = parse_spec(world.spec())
    print("closed", look(world.state_dir, application_id, world.servers))
    print("closed", look(world.state_dir, application_id, world.servers, spec))
    if kinds is SOURCES:
        before = inspect(StateDirectory(state_dir, application_id)).stores
        print([(one.task, one.offsets) for one in before])
        source = world.inputs["source"]
        topics.commit(world.servers, application_id, {(source, 0): 3})
        print("ahead", look(world.state_dir, application_id, world.servers))
        topics.forget_group(world.servers, application_id)
        print("ahead", look(world.state_dir, application_id, world.servers))
