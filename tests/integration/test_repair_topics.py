"""Stores whose changelogs are not what they were: what real Kafka Streams answers, and that a repair makes it right.

What is right is what an instance with an empty directory restores from the changelog as it is now.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.errors import Invalid
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.repository.repository import create_repository
from statecore.statedir.file_trees import fingerprint
from tests.harness import damage_functions, repairing, topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.raising import raises
from tests.harness.streams import StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, Answers, World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

GUARANTEES = pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))


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
    code, findings = examined(world.state_dir, spec_of(world))
    return code, {(one["task"], one["store"]): one["code"] for one in worse_than_notes(findings)}


def repair(world: World, **asked: Any) -> RepairReport:
    return repairing.repair(world.application_id, world.state_dir, spec_of(world), **{"apply": False, **asked})


def assert_repaired(world: World, expected: Answers) -> None:
    """After a repair it answers as expected, and nothing is restored."""
    plan = repair(world)
    assert (plan.outcome, plan.remaining) == (RepairOutcome.PLANNED, ())
    report = repair(world, apply=True, approved=plan.plan_id)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    assert found(world) == (0, {})
    assert world.reopen() == (expected, 0)


@GUARANTEES
def test_a_recreated_changelog(
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

    answers, _ = world.copied("opened").reopen()
    assert all(answers[store, 0] != right[store, 0] for store in KINDS), "rows of both logs"

    repaired = world.copied("repaired")
    before = fingerprint(repaired.state_dir / application_id)
    with raises(Invalid, "rebuild-source-unverified", state_dir=str(repaired.state_dir)):
        repair(repaired, apply=True)
    assert fingerprint(repaired.state_dir / application_id) == before
    assert_repaired(repaired, right)


def test_a_changelog_that_was_emptied_between_plan_and_approval_takes_nothing_away(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    log = f"{application_id}-stamped-changelog"
    topics.create(world.servers, log, PARTITIONS, topics.UNCLEANED)
    world.feed(rounds=3)
    world.live()
    application = world.state_dir / application_id
    damage_functions.tables_of(damage_functions.database_of(application, "stamped"))[-1].unlink()
    plan = repair(world)
    assert [(one.stores, one.doubts) for one in plan.rebuilt] == [(("stamped",), ())]
    topics.delete(world.servers, log)
    topics.create(world.servers, log, PARTITIONS, topics.UNCLEANED)
    before = fingerprint(application)
    with raises(Invalid, "plan-changed"):
        repair(world, apply=True, approved=plan.plan_id)
    with raises(Invalid, "rebuild-source-unverified") as emptied:
        repair(world, apply=True)
    (doubt,) = emptied.value.context["doubts"]
    assert f"{log}-0" in doubt
    assert fingerprint(application) == before


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
    older = world.copied("older")
    said = topics.end_offset(world.servers, log, 0)
    world.feed(keys=6)
    world.live()
    topics.delete_records(world.servers, log, 0, said + 3)
    right = truth(world)
    code, codes = found(older)
    worst = 22 if guarantee == "at_least_once" else 21
    assert (code, codes["0_0", "plain"]) == (worst, "offset-before-start")

    answers, records = older.copied("opened").reopen()
    if guarantee == "at_least_once":
        assert answers["plain", 0] != right["plain", 0], "keys that the log does not have live on"
    else:
        assert records > 0, "the task was deleted, and its other store with it"
        assert answers == right

    repaired = older.copied("repaired")
    with raises(Invalid, "rebuild-source-unverified"):  # the deleted records may have been the last ones of keys
        repair(repaired, apply=True)
    assert repair(repaired, apply=True, approved=repair(repaired).plan_id).remaining == ()
    answers, records = repaired.reopen()
    assert answers == right
    rest = sum(topics.end_offset(world.servers, f"{application_id}-{store}-changelog", 1) for store in KINDS)
    assert records < rest, "what the other stores lacked since the copy was made, and of this one nothing"


@pytest.mark.full
@GUARANTEES
def test_a_checkpoint_file_beyond_the_log_is_quarantined_and_the_store_keeps_its_own_offset(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    """Only where the store itself is of another log, too, it is rebuilt."""
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    world.feed(keys=20)
    world.live()
    older = world.copied("older")
    topics.produce(world.servers, world.input, [Record(b"key-%d" % n, b"later", n % 2) for n in range(6, 16)])
    right = world.live()
    past = {f"{application_id}-{store}-changelog-0": 10_000 for store in KINDS}
    damage_functions.write_checkpoint(older.state_dir / application_id / "0_0" / ".checkpoint", past)
    lost = older.copied("lost")
    damage_functions.change_offsets(
        damage_functions.database_of(lost.state_dir / application_id, "stamped"), lambda _: 20_000
    )

    tail = 20
    answers, records = older.copied("opened").reopen()
    assert answers != right or records > tail, "it believes the file, or restores all"

    repaired = older.copied("repaired")
    assert found(repaired)[0] == 22
    plan = repair(repaired)
    assert (plan.rebuilt, [one.task for one in plan.repaired], plan.remaining) == ((), ["0_0"], ())
    assert "offset-past-end" in plan.repaired[0].codes
    assert repair(repaired, apply=True, approved=plan.plan_id).remaining == ()
    assert repaired.reopen() == (right, tail), "what it lacked when it was copied"

    plan = repair(lost)
    assert [(one.stores, one.tasks) for one in plan.rebuilt] == [(("stamped",), ("0_0",))]
    assert [one.task for one in plan.repaired] == ["0_0"]
    assert repair(lost, apply=True, approved=plan.plan_id).remaining == ()
    assert lost.reopen()[0] == right


def test_a_store_is_rebuilt_from_a_snapshot_where_that_is_less_work(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed(rounds=30)
    right = world.live()
    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    published = run_backup(BackupRequest(spec=world.request().spec, state_dir=str(world.state_dir), repository=url))
    damage_functions.tables_of(damage_functions.database_of(world.state_dir / application_id, "stamped"))[-1].unlink()
    assert found(world) == (21, {("0_0", "stamped"): "file-missing"})
    report = repair(world, apply=True, repository=url)
    assert [(one.stores, one.tasks, one.bases) for one in report.rebuilt] == [
        (("stamped",), ("0_0",), (published.snapshot,))
    ]
    assert world.reopen() == (right, 0)


def test_a_changed_row_is_rebuilt_from_its_changelog_once_that_is_approved(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    """``rows-differ``. A backup of the directory has the same row, and is not taken."""
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed()
    right = world.live()
    plain = damage_functions.database_of(state_dir / application_id, "plain")
    damage_functions.put(plain, "default", b"key-190", b"a row that was deleted")
    answers, records = world.copied("opened").reopen()
    assert (answers != right, records) == (True, 0)

    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    run_backup(BackupRequest(spec=world.request().spec, state_dir=str(world.state_dir), repository=url))
    assert found(world) == (22, {("0_0", "plain"): "rows-differ"})
    before = fingerprint(world.state_dir / application_id)
    with raises(Invalid, "rebuild-source-unverified"):
        repair(world, apply=True, repository=url)
    assert fingerprint(world.state_dir / application_id) == before
    plan = repair(world, repository=url)
    report = repair(world, apply=True, approved=plan.plan_id, repository=url)
    assert [(one.stores, one.tasks, one.bases) for one in report.rebuilt] == [(("plain",), ("0_0",), ())]
    assert (report.remaining, found(world), world.reopen()) == ((), (0, {}), (right, 0))
