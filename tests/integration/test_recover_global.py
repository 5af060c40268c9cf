"""Applications that end in ``ERROR`` because of their global stores: each failure of real Kafka Streams is seen first.

Then ``recover-global`` rebuilds the store that is not valid, the application starts and restores nothing but what came
later, and every key is answered rightly. The other global store keeps its files.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import fingerprint
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness import damage_functions, topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.feeds import EVENTS, PRICES, REFERENCE, SPAN
from tests.harness.flushing import flush_global
from tests.harness.kinds import GLOBALS
from tests.harness.rebuilding import PARTITIONS, KindsWorld, eventually, restored, table
from tests.harness.streams import StreamsApplication, StreamsFailed, StreamsJvm, leave_group
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

BROKEN, SOUND = "global-plain", "global-table"
TOPIC = PRICES
"""The role of the topic of the broken one."""
DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
KEPT_A_DAY = {"cleanup.policy": "delete", "retention.ms": "86400000"}
KEYS = 20


class World(KindsWorld):
    """An application with two global tables, of topics from which records can be deleted."""

    def __init__(self, broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str) -> None:
        super().__init__(broker, jvm, application_id, state_dir, guarantee, GLOBALS)
        self.sent: dict[str, list[Record]] = {REFERENCE: [], PRICES: []}
        for role in self.sent:
            self.make_anew(role)

    def make_anew(self, role: str, config: dict[str, str] = DELETABLE) -> None:
        """The topic, deleted and created again."""
        topics.delete(self.servers, self.inputs[role])
        topics.create(self.servers, self.inputs[role], PARTITIONS, config)
        self.sent[role] = []

    def fill(self, role: str, word: str, keys: int = KEYS) -> None:
        records = [Record(b"%d" % n, b"%s %d" % (word.encode(), n), n % PARTITIONS, self.base + n) for n in range(keys)]
        topics.produce(self.servers, self.inputs[role], records)
        self.sent[role] += records

    def fill_all(self) -> None:
        for role in self.sent:
            self.fill(role, "first")
        topics.produce(self.servers, self.inputs[EVENTS], [Record(b"0", b"event", p, self.base) for p in (0, 1)])

    def truth(self) -> dict[str, list[Any]]:
        return {
            "global-table": table(self.sent[REFERENCE], timestamped=True),
            "global-plain": table(self.sent[PRICES], timestamped=False),
        }

    def assert_answers(self, running: StreamsApplication) -> None:
        running.stores = self.kinds.queries(self.base, SPAN)
        for store, expected in self.truth().items():
            assert eventually(partial(running.query_rows, store, None), expected) == expected

    def live(self) -> None:
        with self.application() as running:
            self.assert_answers(running)

    def fails_to_start(self, times: int, says: str, ends: Sequence[str] = ("ERROR", "PENDING_ERROR")) -> None:
        """The application does not get to work that often, upon a copy of the directory."""
        copy = self.state_dir.parent / "failing"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.state_dir, copy)
        kept, self.state_dir = self.state_dir, copy
        try:
            for _ in range(times):
                running, said = self.application(), ""
                try:
                    running.launch()
                except StreamsFailed as failed:
                    said = str(failed)
                deadline = time.monotonic() + 180
                while running.state not in ends or says not in said:
                    assert time.monotonic() < deadline, f"{running.state}: {said}"
                    time.sleep(0.1)
                    said += self.jvm.log_tail(20_000)
                assert running.state != "RUNNING"
                with contextlib.suppress(StreamsFailed):
                    running.close(3)
        finally:
            self.state_dir = kept

    def recover(self, *words: object, code: int = 0) -> dict[str, Any]:
        """What the command says, as JSON."""
        spec = self.state_dir.parent / "stores.yaml"
        spec.write_text(yaml.safe_dump(self.spec()))
        done = statecore_here("recover-global", "--spec", spec, "--state-dir", self.state_dir, "--json", *words)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def assert_recovered(self, plan: dict[str, Any], *, rebuilt: bool = True) -> None:
        """After the plan is applied it starts, restores nothing, and answers rightly; the other store is as it was."""
        before = files(self.directory, SOUND)
        report = self.recover("--apply", "--approved", plan["plan_id"])
        assert (report["outcome"], report["remaining"], report["exit_code"]) == ("repaired", [], 0)
        assert [one["stores"] for one in report["rebuilt"]] == ([[BROKEN]] if rebuilt else [])
        assert files(self.directory, SOUND) == before
        assert (self.directory / ".statecore" / "replaced").is_dir(), "what was replaced is kept"
        assert {one["store"]: one["start"] for one in self.recover()["next_starts"]} == {
            BROKEN: "sound",
            SOUND: "sound",
        }
        with self.application() as running:
            assert restored(running) == {}
            self.assert_answers(running)


def files(application: Path, store: str) -> dict[str, bytes]:
    database = damage_functions.database_of(application, store, "global")
    return {file.name: file.read_bytes() for file in database.glob("*.sst")}


def starts(plan: dict[str, Any]) -> dict[str, str]:
    return {one["store"]: one["start"] for one in plan["next_starts"]}


@pytest.fixture
def world(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path) -> World:
    made = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    made.fill_all()
    made.live()
    return made


def truncated(world: World) -> None:
    """Records that the store has not are deleted, and records behind them are left."""
    world.fill(TOPIC, "gone", 8)
    world.fill(TOPIC, "second")
    for p in range(PARTITIONS):
        topics.delete_records(world.servers, world.inputs[TOPIC], p, KEYS // PARTITIONS + 4)
    del world.sent[TOPIC][: KEYS + 8]


def made_anew(world: World) -> None:
    world.make_anew(TOPIC)
    world.fill(TOPIC, "anew", 6)


def unknown(world: World) -> None:
    damage_functions.change_offsets(damage_functions.database_of(world.directory, BROKEN, "global"), lambda _: -4)


@pytest.mark.parametrize(
    ("damage", "times", "says", "code"),
    [
        pytest.param(truncated, 1, "to have been initialized", "offset-before-start", marks=pytest.mark.full),
        (made_anew, 1, "OutOfRange", "offset-past-end"),
        pytest.param(unknown, 2, "must not be a negative number", "global-offset-unknown", marks=pytest.mark.full),
    ],
)
def test_a_global_store_whose_offset_is_not_valid(
    world: World, damage: Callable[[World], None], times: int, says: str, code: str
) -> None:
    damage(world)
    # The thread of global stores dies of a truncated log while another store waits for it: nothing ends in ERROR then.
    world.fails_to_start(times, says, ("REBALANCING", "ERROR") if damage is truncated else ("ERROR", "PENDING_ERROR"))
    before = fingerprint(world.directory / "global")
    plan = world.recover()
    assert (plan["outcome"], starts(plan)) == ("planned", {BROKEN: "fails", SOUND: "sound"})
    assert [(one["stores"], code in one["codes"]) for one in plan["rebuilt"]] == [([BROKEN], True)]
    assert fingerprint(world.directory / "global") == before, "nothing was changed"
    world.assert_recovered(plan)


@pytest.mark.full
def test_a_global_store_that_was_killed_open_under_exactly_once(
    broker: Broker, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    with StreamsJvm(tmp_path / "killed.log") as jvm:
        world = World(broker, jvm, application_id, state_dir, "exactly_once_v2")
        world.fill_all()
        running = world.application()
        running.start()
        world.assert_answers(running)
        assert set(flush_global(running)) == {BROKEN, SOUND}
        running.kill()
    with StreamsJvm(tmp_path / "again.log") as world.jvm:
        leave_group(world.jvm, world.servers, application_id)
        world.fails_to_start(2, "TaskCorruptedException")
        plan = world.recover()
        assert starts(plan) == {BROKEN: "fails", SOUND: "fails"}
        report = world.recover("--apply")
        assert (report["outcome"], report["remaining"]) == ("repaired", [])
        world.live()
        with world.application() as running:
            assert restored(running) == {}
            world.assert_answers(running)


@pytest.mark.full
def test_a_topic_that_is_gone_or_not_compacted_is_refused_and_the_latter_can_be_accepted(world: World) -> None:
    unknown(world)
    before = fingerprint(world.directory / "global")
    world.make_anew(TOPIC, KEPT_A_DAY)
    world.fill(TOPIC, "anew", 6)
    refused = world.recover("--apply", code=13)
    assert (refused["code"], refused["context"]["cleanup_policy"]) == ("topic-not-compacted", "delete")
    assert "--accept-uncompacted" in refused["action"]
    topics.delete(world.servers, world.inputs[TOPIC])
    gone = world.recover("--apply", code=14)
    assert world.inputs[TOPIC] in gone["what"]
    assert fingerprint(world.directory / "global") == before
    topics.create(world.servers, world.inputs[TOPIC], PARTITIONS, KEPT_A_DAY)
    world.fill(TOPIC, "again", 6)
    del world.sent[TOPIC][:6]
    report = world.recover("--apply", "--accept-uncompacted", code=20)
    assert [one["stores"] for one in report["rebuilt"]] == [[BROKEN]]
    assert [one["code"] for one in report["remaining"]] == ["global-topic-not-compacted"]
    with world.application() as running:
        assert restored(running) == {}
        world.assert_answers(running)


@pytest.mark.full
def test_a_topic_that_was_emptied_takes_the_rows_away_only_when_that_is_approved(world: World) -> None:
    world.make_anew(TOPIC)
    plan = world.recover()
    refused = world.recover("--apply", code=13)
    assert refused["code"] == "rebuild-source-unverified"
    world.assert_recovered(plan)


@pytest.mark.full
def test_a_store_of_another_topic_is_unsound_and_only_reported(world: World) -> None:
    """The spec may be what is wrong, so nothing is rebuilt; Kafka Streams reads the declared topic over the rows."""
    database = damage_functions.database_of(world.directory, BROKEN, "global")
    shutil.rmtree(database)
    with RocksDBStore(database, StoreKind.KEY_VALUE, create=True) as store:
        store.put_all([(b"ghost", b"of another topic")])
        store.commit({TopicPartition(world.inputs[REFERENCE], p): 5 for p in range(PARTITIONS)})
    before = fingerprint(world.directory / "global")
    for words in ((), ("--apply",)):
        report = world.recover(*words, code=22)
        assert starts(report) == {BROKEN: "answers wrongly", SOUND: "sound"}
        (why,) = (one["why"] for one in report["next_starts"] if one["store"] == BROKEN)
        assert world.inputs[TOPIC] in why[0]
        assert report["rebuilt"] == []
    assert fingerprint(world.directory / "global") == before
    with world.application() as running:
        running.stores = world.kinds.queries(world.base, SPAN)
        rows = [*world.truth()[BROKEN], (b"ghost", b"of another topic")]
        expected = sorted(row[:2] for row in rows)
        assert eventually(lambda: sorted(row[:2] for row in running.query_rows(BROKEN, None)), expected) == expected


@pytest.mark.full
def test_a_file_in_the_place_of_a_store_is_refused_and_stays(world: World) -> None:
    database = damage_functions.database_of(world.directory, BROKEN, "global")
    shutil.rmtree(database)
    database.write_text("somebody's")
    world.fails_to_start(1, "Wiping global state directory")
    for words in ((), ("--apply",)):
        refused = world.recover(*words, code=13)
        assert (refused["code"], str(database) in refused["what"]) == ("store-not-directory", True)
    assert database.read_text() == "somebody's"
    database.unlink()
    assert starts(world.recover()) == {BROKEN: "recovers by itself", SOUND: "sound"}
