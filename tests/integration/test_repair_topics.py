"""Stores whose changelogs are not what they were: what real Kafka Streams answers, and that a repair makes it right.

What is right is what an instance with an empty directory restores from the changelog as it is now.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.repair import run_repair
from statecore.jobs.repair_report import Outcome, RepairReport
from statecore.jobs.repair_request import RepairRequest
from statecore.jobs.snapshot import run_snapshot
from statecore.jobs.snapshot_request import SnapshotRequest
from statecore.repository.repository import make_repository
from tests.harness import damaging, topics
from tests.harness.broker import Broker
from tests.harness.command import statecore
from tests.harness.streams import StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, Answers, World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])


def at_copy(world: World, name: str) -> World:
    """The same application upon a copy of its directory."""
    state_dir = world.state_dir.parent / name
    shutil.copytree(world.state_dir, state_dir)
    return world.at(state_dir)


def spec_of(world: World) -> Path:
    file = world.state_dir.parent / "stores.yaml"
    file.write_text(yaml.safe_dump(world.request().spec))
    return file


def truth(world: World) -> Answers:
    """What the changelogs have."""
    empty = world.state_dir.parent / "empty"
    empty.mkdir()
    answers, records = world.at(empty).reopen()
    assert records > 0
    return answers


def found(world: World) -> tuple[int, dict[tuple[str, str], str]]:
    """The exit code of ``statecore doctor``, and the code of what it finds, by task and store."""
    done = statecore("doctor", "--state-dir", world.state_dir, "--spec", spec_of(world), "--json")
    (application,) = json.loads(done.stdout)["applications"]
    worse = [one for one in application["findings"] if one["severity"] != "note"]
    return done.returncode, {(one["task"], one["store"]): one["code"] for one in worse}


def repair(world: World, **asked: Any) -> RepairReport:
    request = RepairRequest(
        application_id=world.application_id, state_dir=str(world.state_dir), spec_path=str(spec_of(world)), **asked
    )
    return run_repair(request, InProcessEngine())


def assert_repaired(world: World, expected: Answers) -> None:
    """After a repair it answers as expected, and nothing is restored."""
    plan = repair(world)
    assert (plan.outcome, plan.left) == (Outcome.PLANNED, ())
    report = repair(world, apply=True, approved=plan.plan_id)
    assert (report.outcome, report.left) == (Outcome.REPAIRED, ())
    assert found(world) == (0, {})
    assert world.reopen() == (expected, 0)


@GUARANTEES
def test_a_changelog_that_was_made_anew(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    """With more records than the store had, and with fewer."""
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    logs = [f"{application_id}-{store}-changelog" for store in KINDS]
    for log in logs:
        topics.create(world.servers, log, PARTITIONS, topics.UNCLEANED)
    world.feed(keys=20)
    world.live()
    many = topics.end_offset(world.servers, logs[0], 0) + 5
    for log in logs:
        topics.delete(world.servers, log)
        topics.create(world.servers, log, PARTITIONS, topics.UNCLEANED)
        for p, count in ((0, many), (1, 3)):
            topics.produce(world.servers, log, [Record(b"other-%d" % n, b"other", p) for n in range(count)])
    right = truth(world)
    codes = {("0_0", store): "topic-recreated" for store in KINDS}
    codes |= {("0_1", store): "offset-past-end" for store in KINDS}
    assert found(world) == (22, codes)

    answers, _ = at_copy(world, "opened").reopen()
    assert all(answers[store, 0] != right[store, 0] for store in KINDS), "rows of both logs"

    assert_repaired(at_copy(world, "repaired"), right)


@GUARANTEES
def test_records_behind_the_offset_that_the_changelog_has_no_more(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    log = f"{application_id}-plain-changelog"
    deletable = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
    topics.create(world.servers, log, PARTITIONS, deletable)
    world.feed(keys=20)
    world.live()
    older = at_copy(world, "older")
    said = topics.end_offset(world.servers, log, 0)
    world.feed(keys=6)
    world.live()
    topics.delete_records(world.servers, log, 0, said + 3)
    right = truth(world)
    code, codes = found(older)
    worst = 22 if guarantee == "at_least_once" else 21
    assert (code, codes["0_0", "plain"]) == (worst, "offset-before-start")

    answers, records = at_copy(older, "opened").reopen()
    if guarantee == "at_least_once":
        assert answers["plain", 0] != right["plain", 0], "keys that the log does not have live on"
    else:
        assert records > 0, "the task was deleted, and its other store with it"
        assert answers == right

    repaired = at_copy(older, "repaired")
    assert repair(repaired, apply=True).left == ()
    answers, records = repaired.reopen()
    assert answers == right
    rest = sum(topics.end_offset(world.servers, f"{application_id}-{store}-changelog", 1) for store in KINDS)
    assert records < rest, "what the other stores lacked since the copy was made, and of this one nothing"


def test_a_store_is_rebuilt_from_a_snapshot_where_that_is_less_work(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed(rounds=30)
    right = world.live()
    url = (tmp_path / "repository").as_uri()
    make_repository(url)
    published = run_snapshot(SnapshotRequest(spec=world.request().spec, state_dir=str(world.state_dir), repository=url))
    damaging.tables_of(damaging.database_of(world.state_dir / application_id, "stamped"))[-1].unlink()
    assert found(world) == (21, {("0_0", "stamped"): "file-missing"})
    report = repair(world, apply=True, repository=url)
    assert [(one.stores, one.tasks, one.parents) for one in report.rebuilt] == [
        (("stamped",), ("0_0",), (published.snapshot,))
    ]
    assert world.reopen() == (right, 0)
