"""A real Kafka Streams application under exactly-once opens the directory that a killed placement left.

Three tasks, two stores in each; the images are databases that Kafka Streams itself wrote, later than the live ones:

====  ===========================  ======================  ============================================
task  live before                  placed                  restored when the task is new
====  ===========================  ======================  ============================================
0_0   both stores, older           both                    nothing
0_1   both stores, older           plain; stamped is kept  plain nothing, stamped what it is behind
0_2   nothing                      plain; stamped is a gap plain nothing, stamped everything
====  ===========================  ======================  ============================================

A task that Kafka Streams had wiped would restore everything of both stores; a mixture would restore something else, or
answer something else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.faults import VARIABLE
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import read_database_state
from tests.harness import topics
from tests.harness.applications import two_stores
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.queries import Row, StoreQuery
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

PARTITIONS = 3
KINDS = {"plain": "key-value", "stamped": "timestamped-key-value"}
QUERIES = {"plain": StoreQuery(timestamped=False), "stamped": StoreQuery(timestamped=True)}

Counts = dict[tuple[str, int], int]
"""Records by (store, partition)."""


@dataclass
class World:
    """An application that has stopped, and its directory at two moments."""

    servers: str
    jvm: StreamsJvm
    application_id: str
    topic: str
    older: Path
    newer: Path
    older_counts: Counts
    counts: Counts
    rows: dict[tuple[str, int], list[Row]]

    def application(self, state_dir: Path) -> StreamsApplication:
        return StreamsApplication(
            self.jvm, self.application_id, self.servers, state_dir, two_stores(self.topic), stores=QUERIES
        )

    def changelog(self, store: str) -> str:
        return f"{self.application_id}-{store}-changelog"

    def count(self) -> Counts:
        return {
            (store, partition): len(topics.read(self.servers, self.changelog(store), partition))
            for store in KINDS
            for partition in range(PARTITIONS)
        }


def _updates(turn: int, keys: int) -> list[Record]:
    records = [Record(b"key-%d" % key, b"turn %d of %d" % (turn, key), key % PARTITIONS) for key in range(keys)]
    return records + [Record(b"key-%d" % key, None, key % PARTITIONS) for key in range(turn, keys, 10)]


@pytest.fixture(scope="module")
def world(broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory) -> World:
    base = tmp_path_factory.mktemp("placement-kills")
    state = base / "state"
    state.mkdir()
    name = f"placement-kills-{os.getpid()}"
    made = World(
        broker.bootstrap_servers, streams_jvm, name, f"{name}-input", base / "older", base / "newer", {}, {}, {}
    )
    topics.create(made.servers, made.topic, PARTITIONS)
    for turn, target in ((0, made.older), (1, made.newer)):
        topics.produce(made.servers, made.topic, _updates(turn, 300))
        with made.application(state) as application:
            topics.wait_until_consumed(made.servers, name, [made.topic])
            made.rows = {
                (store, partition): application.query_rows(store, partition)
                for store in KINDS
                for partition in range(PARTITIONS)
            }
        shutil.copytree(state, target)
        made.older_counts, made.counts = made.counts, made.count()
    return made


def _job(world: World, state_dir: Path, swapping: str) -> dict[str, Any]:
    images = []
    for task, stores in (("0_0", ["plain", "stamped"]), ("0_1", ["plain"]), ("0_2", ["plain"])):
        for store in stores:
            path = world.newer / world.application_id / task / "rocksdb" / store
            partition = TopicPartition(world.changelog(store), int(task[-1]))
            offset = read_database_state(path).offsets[partition]
            images.append([task, store, KINDS[store], *partition, str(path), offset])
    siblings = [
        [task, "stamped", KINDS["stamped"], world.changelog("stamped"), int(task[-1])] for task in ("0_1", "0_2")
    ]
    return {
        "state_dir": str(state_dir),
        "application_id": world.application_id,
        "swapping": swapping,
        "images": images,
        "siblings": siblings,
    }


def _place(job: dict[str, Any], tmp_path: Path, fault: str = "") -> int:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    process = subprocess.run(
        [sys.executable, "-m", "tests.integration.placing_process", str(file)],
        env={**os.environ, VARIABLE: fault},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode


def _restored_by_the_application(world: World, state_dir: Path) -> Counts:
    """Starts the application on the directory; what it answers has to be right whatever it had to restore."""
    with world.application(state_dir) as application:
        restored = application.restored_records()
        for (store, partition), rows in world.rows.items():
            assert application.query_rows(store, partition) == rows
    return {key: restored.get(key, 0) for key in world.rows}


def _ways(world: World, partition: int) -> dict[str, tuple[int, int]]:
    """(plain, stamped) records that are restored when the task is old, when it is new."""
    plain, stamped = (world.counts[store, partition] for store in ("plain", "stamped"))
    behind = [world.counts[store, partition] - world.older_counts[store, partition] for store in ("plain", "stamped")]
    return {
        0: {"old": (behind[0], behind[1]), "new": (0, 0)},
        1: {"old": (behind[0], behind[1]), "new": (0, behind[1])},
        2: {"old": (plain, stamped), "new": (0, stamped)},
    }[partition]


def _standings(world: World, state_dir: Path) -> list[str]:
    """How the application found each task: ``old`` or ``new``; anything else is a mixture or a wiped task."""
    restored = _restored_by_the_application(world, state_dir)
    standings = []
    for partition in range(PARTITIONS):
        found = (restored["plain", partition], restored["stamped", partition])
        ways = {numbers: way for way, numbers in _ways(world, partition).items()}
        assert found in ways, f"task 0_{partition} restored {found}; {ways} were possible"
        standings.append(ways[found])
    return standings


@pytest.fixture
def state(world: World, tmp_path: Path) -> Path:
    """The live directory: the older state of two tasks, and nothing of the third."""
    shutil.copytree(world.older, tmp_path / "state")
    shutil.rmtree(tmp_path / "state" / world.application_id / "0_2")
    return tmp_path / "state"


def test_without_a_kill_the_application_restores_only_what_was_not_placed(world, state, tmp_path):
    assert all(world.older_counts[key] < world.counts[key] for key in world.counts)
    assert _place(_job(world, state, "exchange"), tmp_path) == 0
    assert _standings(world, state) == ["new", "new", "new"]


@pytest.mark.parametrize(
    ("fault", "swapping", "expected"),
    one_of(
        [
            ("placement.after-swap:kill:1", "exchange", ["new", "old", "old"]),
            ("placement.after-sync:kill", "exchange", ["old", "old", "old"]),
            ("placement.after-journal:kill", "exchange", ["old", "old", "old"]),
            ("placement.after-swap:kill:2", "exchange", ["new", "new", "old"]),
            ("placement.after-verify:kill:3", "exchange", ["new", "new", "new"]),
            ("placement.after-mark:kill", "exchange", ["new", "new", "new"]),
            ("placement.during-sweep:kill:2", "exchange", ["new", "new", "new"]),
            ("placement.after-sweep:kill", "exchange", ["new", "new", "new"]),
            ("placement.after-swap:kill:2", "renames", ["new", "new", "old"]),
        ],
    ),
)
def test_the_application_finds_every_task_old_or_new_after_a_kill_and_all_new_after_a_retry(
    world, state, tmp_path, fault, swapping, expected
):
    job = _job(world, state, swapping)
    assert _place(job, tmp_path, fault) == -signal.SIGKILL
    at_once = tmp_path / "at-once" / "state"
    shutil.copytree(state, at_once)
    assert _standings(world, at_once) == expected
    assert _place(job, tmp_path) == 0
    assert _standings(world, state) == ["new", "new", "new"]


def test_between_two_renames_a_task_is_lost_to_the_application_but_not_to_the_retry(world, state, tmp_path):
    job = _job(world, state, "renames")
    assert _place(job, tmp_path, "placement.between-renames:kill:2") == -signal.SIGKILL
    at_once = tmp_path / "at-once" / "state"
    shutil.copytree(state, at_once)
    restored = _restored_by_the_application(world, at_once)
    assert (restored["plain", 0], restored["stamped", 0]) == (0, 0)
    assert (restored["plain", 1], restored["stamped", 1]) == (world.counts["plain", 1], world.counts["stamped", 1])
    assert _place(job, tmp_path) == 0
    assert _standings(world, state) == ["new", "new", "new"]


@pytest.mark.full
def test_an_application_that_ran_between_the_kill_and_the_retry_keeps_what_it_made(world, state, tmp_path):
    job = _job(world, state, "exchange")
    assert _place(job, tmp_path, "placement.after-swap:kill:1") == -signal.SIGKILL
    assert _standings(world, state) == ["new", "old", "old"]
    # Now everything is complete. The retry rolls nothing forward over it; as asked (replace), it places the rest anew.
    assert _place(job, tmp_path) == 0
    assert set(_restored_by_the_application(world, state).values()) <= {0, world.counts["stamped", 2]}


def _restore(world: World, state_dir: Path, tmp_path: Path, fault: str = "") -> int:
    """The whole job, as a person runs it."""
    spec = tmp_path / "stores.yaml"
    spec.write_text(
        f"application_id: {world.application_id}\n"
        f"bootstrap_servers: {world.servers}\n"
        "processing_guarantee: exactly_once_v2\n"
        "subtopologies:\n  '0':\n    stores:\n"
        + "".join(f"      {store}: {{kind: {kind}}}\n" for store, kind in KINDS.items())
    )
    words = ["restore", "--spec", spec, "--state-dir", state_dir, "--replace", "--request-id", "one"]
    process = subprocess.run(
        [sys.executable, "-m", "statecore.cli.main", *map(str, words), "--engine", "processes", "--processes", "2"],
        env={**os.environ, VARIABLE: fault},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode


@pytest.mark.parametrize(
    ("fault", "placed"),
    [
        pytest.param("restore.after-plan:kill", 0, marks=pytest.mark.long),
        pytest.param("restore.after-runs:kill", 0, marks=pytest.mark.full),
        pytest.param("restore.after-images:kill", 0, marks=pytest.mark.long),
        pytest.param("placement.after-journal:kill", 0, marks=pytest.mark.long),
        ("placement.after-swap:kill:2", 2),
        pytest.param("restore.after-placement:kill", 3, marks=pytest.mark.long),
    ],
)
def test_a_kill_of_the_whole_job_leaves_tasks_old_or_new_and_a_retry_of_the_request_finishes_it(
    world, state, tmp_path, fault, placed
):
    assert _restore(world, state, tmp_path, fault) == -signal.SIGKILL
    at_once = tmp_path / "at-once" / "state"
    shutil.copytree(state, at_once)
    restored = _restored_by_the_application(world, at_once)
    for partition in range(PARTITIONS):
        old = _ways(world, partition)["old"]
        found = (restored["plain", partition], restored["stamped", partition])
        assert found == ((0, 0) if partition < placed else old)
    assert _restore(world, state, tmp_path) == 0
    assert set(_restored_by_the_application(world, state).values()) == {0}
    work = state / world.application_id / ".statecore"
    assert {path.name for path in work.iterdir()} == {"placed.json", "plans"}
