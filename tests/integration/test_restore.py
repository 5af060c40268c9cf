"""Rebuilds the state of a real Kafka Streams application, and lets the application be the judge."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.size_estimate import estimate_sizes
from statecore.cli.main import main
from statecore.errors import Capacity, Fenced, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.planning.plan import ReadPlan
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.on_spark import SPARK_LEFTOVERS, run_restore
from tests.harness.raising import raises
from tests.harness.streams import StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, Lived, World
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS, pytest.mark.usefixtures("local_spark")]


@pytest.fixture
def world(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path) -> World:
    """An application of this test alone."""
    return World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")


@pytest.fixture(scope="module")
def lived(broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """One that was fed and closed; most tests begin with that."""
    name = f"restore-{uuid.uuid4().hex[:8]}"
    return Lived.of(World(broker, streams_jvm, name, tmp_path_factory.mktemp("lived"), "exactly_once_v2"))


@pytest.fixture
def lost(lived: Lived, state_dir: Path) -> World:
    """The same, after its directory was lost."""
    return lived.lost(state_dir)


def test_kafka_streams_opens_what_was_rebuilt_restores_nothing_and_answers_as_before(lived: Lived, lost: World) -> None:
    opens_what_is_rebuilt(lived, lost)


@pytest.mark.full
def test_kafka_streams_opens_what_was_rebuilt_without_transactions(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, state_dir: Path
) -> None:
    lived = Lived.of(World(broker, streams_jvm, application_id, tmp_path / "lived", "at_least_once"))
    opens_what_is_rebuilt(lived, lived.lost(state_dir))


def opens_what_is_rebuilt(lived: Lived, lost: World) -> None:
    report = lost.restore()
    assert lost.rows() == lived.rows
    assert lost.reopen() == (lived.answers, 0)
    assert {(store.store, store.partition) for store in report.stores} == set(lived.answers)
    assert report.totals["records"] == 2 * (3 * 200 + 40)
    assert report.totals["rows"] == 2 * 160
    assert all(store.tail_left == 0 and store.tombstones == 20 for store in report.stores)


@pytest.mark.full
def test_what_the_application_writes_after_a_rebuild_is_continued_from_there(world: World) -> None:
    world.feed()
    world.live()
    world.lose()
    world.restore()
    world.feed(rounds=1, keys=50)
    before = world.live()
    assert world.reopen() == (before, 0)


def test_a_partition_split_into_ranges_gives_the_same_rows(
    lived: Lived, lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, before = lost, lived.answers
    monkeypatch.setattr("statecore.jobs.planning.plan.plan_ranges", _cut_everywhere)
    report = world.restore()
    assert world.rows() == lived.rows
    assert world.reopen() == (before, 0)
    assert min(store.runs for store in report.stores) >= 3


def _cut_everywhere(partitions: Any, *_: Any, **__: Any) -> list[Any]:
    from statecore.changelog.ranges import split_range

    return [part for whole in partitions for part in split_range(whole, 5)]


def test_kafka_streams_finds_keys_of_any_length_through_the_filters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several runs lie above each other, because RocksDB asks no filter of the lowest file.

    Each key is written once: what the broker's compaction takes away would leave ranges without a record.
    """
    lengths = (*range(1, 260, 8), 240, 256, 257, 600, 1023, 1024, 1025, 1088, 2048, 4999, 5000)
    keys = [(number % PARTITIONS, random.Random(length).randbytes(length)) for number, length in enumerate(lengths)]
    rows = [Record(key, b"%d bytes" % len(key), partition, 1000 + at) for at, (partition, key) in enumerate(keys)]
    random.Random(7).shuffle(rows)
    topics.produce(world.servers, world.input, rows)
    before = world.live()
    world.lose()
    monkeypatch.setattr("statecore.jobs.planning.plan.plan_ranges", _cut_in_three)
    report = world.restore()
    assert [store.runs for store in report.stores] == [3] * len(report.stores)
    with world.application() as running:
        for store, partition in before:
            there = [key for its, key in keys if its == partition]
            absent = [key[:-1] + bytes([key[-1] ^ 1]) for key in there]
            assert running.get(store, partition, there) == [b"%d bytes" % len(key) for key in there]
            assert running.get(store, partition, absent) == [None] * len(absent)
        assert world.answers(running) == before
        assert sum(running.restored_records().values()) == 0


def _cut_in_three(partitions: Any, *_: Any, **__: Any) -> list[Any]:
    from statecore.changelog.ranges import split_range

    return [part for whole in partitions for part in split_range(whole, 3)]


def test_restoring_one_store_keeps_its_sibling_and_nothing_is_restored(lived: Lived, state_dir: Path) -> None:
    world, before = lived.copied(state_dir), lived.answers
    for partition in range(PARTITIONS):
        shutil.rmtree(world.state_dir / world.application_id / f"0_{partition}" / "rocksdb" / "plain")
    report = world.restore(stores=("plain",))
    assert {store.store for store in report.stores} == {"plain"}
    assert world.reopen() == (before, 0)


def test_restoring_one_store_of_an_empty_directory_leaves_the_other_to_kafka_streams_without_a_wipe(
    lived: Lived, lost: World
) -> None:
    world, before = lost, lived.answers
    world.restore(stores=("stamped",))
    with world.application() as running:
        restored = running.restored_records()
        assert world.answers(running) == before
    assert {store for (store, _), records in restored.items() if records} == {"plain"}


@pytest.mark.full
def test_one_partition_alone_can_be_restored(lived: Lived, lost: World) -> None:
    world, before = lost, lived.answers
    world.restore(partitions=(1,))
    with world.application() as running:
        restored = running.restored_records()
        assert world.answers(running) == before
    assert {partition for (_, partition), records in restored.items() if records} == {0}


def test_aborted_transactions_never_reach_a_store_and_a_hanging_one_leaves_its_tail(world: World) -> None:
    world.feed()
    before = world.live()
    world.lose()
    changelog = f"{world.application_id}-plain-changelog"
    topics.produce_aborted(world.servers, changelog, [Record(b"ghost", b"aborted", 0)])
    hanging = topics.produce_hanging(world.servers, changelog, [Record(b"ghost", b"never committed", 1)])
    report = world.restore(transaction_wait=0.5)
    left = {(store.store, store.partition): store.tail_left for store in report.stores}
    assert left == {("plain", 0): 0, ("plain", 1): 1, ("stamped", 0): 0, ("stamped", 1): 0}
    assert any("open transaction" in note and f"{changelog}-1" in note for note in report.notes)
    hanging.abort_transaction(300)
    answers, restored = world.reopen()
    assert (answers, restored) == (before, 0)
    assert sum(store.aborted for store in report.stores) == 1


def test_an_empty_changelog_gives_an_empty_store_that_is_not_wiped(world: World) -> None:
    with world.application():
        pass  # makes the topics
    world.lose()
    report = world.restore()
    assert {store.committed_offset for store in report.stores} == {-4}
    databases = world.rows()
    assert world.reopen()[1] == 0
    assert set(world.rows()) == set(databases)


def test_a_rerun_of_the_same_request_finds_everything_in_place(lost: World) -> None:
    first = lost.restore(request_id="one")
    again = lost.restore(request_id="one")
    assert not again.placed
    assert again.stores == first.stores
    assert again.plan_id == first.plan_id


@pytest.mark.full
def test_two_requests_build_the_same_rows(lost: World) -> None:
    first = lost.restore()
    second = lost.restore(replace=True)
    assert [store.digest for store in first.stores] == [store.digest for store in second.stores]
    assert second.placed


def test_a_store_that_the_spec_forgot_is_named_because_the_application_wipes_its_tasks(
    lived: Lived, lost: World
) -> None:
    world, before = lost, lived.answers
    forgotten: dict[str, Any] = {"subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}}}
    report = world.restore(spec=forgotten)
    assert any(f"{world.application_id}-stamped-changelog" in note and "WIPES" in note for note in report.notes)
    with world.application() as running:
        restored = running.restored_records()
        assert world.answers(running) == before
    assert {store for (store, _), records in restored.items() if records} == {"plain", "stamped"}


def test_a_request_under_a_corrected_spec_is_not_taken_for_done(lived: Lived, lost: World) -> None:
    """What the note of the restore asks for, by a cleared task of Airflow: the same request, and one store more."""
    world, before = lost, lived.answers
    forgotten: dict[str, Any] = {"subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}}}
    world.restore(spec=forgotten, request_id="one")
    with raises(Invalid, "placement-refused") as caught:
        world.restore(request_id="one", start_from="none")
    assert {(one["code"], one["store"]) for one in caught.value.context["problems"]} == {("store-exists", "plain")}
    with pytest.raises(FaultInjected):
        world.restore(request_id="one", replace=True, faults=InjectedFault("restore.after-plan", "raise"))
    report = world.restore(request_id="one", replace=True)  # not the one of the plan before, though that one was placed
    assert report.placed
    assert {store.store for store in report.stores} == {"plain", "stamped"}
    assert world.reopen() == (before, 0)


def test_a_request_of_an_older_release_gets_a_new_plan(lived: Lived, lost: World) -> None:
    world, before = lost, lived.answers
    with pytest.raises(FaultInjected):
        run_restore(world.request(request_id="one"), faults=InjectedFault("restore.after-images", "raise"))
    (plan,) = (world.state_dir / world.application_id / ".statecore" / "plans").glob("*.json")
    plan.write_text(plan.read_text().replace('"version": 5', '"version": 4'))
    report = world.restore(request_id="one")
    assert any("version 4" in note for note in report.notes)
    assert world.reopen() == (before, 0)


def test_a_refusal_of_sparks_settings_keeps_what_an_earlier_attempt_has_read(lived: Lived, lost: World) -> None:
    world, before = lost, lived.answers
    with pytest.raises(FaultInjected):
        run_restore(world.request(request_id="one"), faults=InjectedFault("restore.after-runs", "raise"))
    work = world.state_dir / world.application_id / ".statecore"
    read = {path: path.stat().st_ino for path in work.glob("*/files/*")}
    assert read
    with raises(Invalid, "spark-master-mismatch", asked="spark://absent:7077"):
        run_restore(world.request(request_id="one"), master="spark://absent:7077")
    assert {path: path.stat().st_ino for path in work.glob("*/files/*")} == read
    assert any("earlier attempt" in note for note in world.restore(request_id="one").notes)
    assert world.reopen() == (before, 0)


@pytest.mark.full
def test_staging_elsewhere_leaves_nothing_there_and_the_stores_are_the_same(
    lived: Lived, lost: World, tmp_path: Path
) -> None:
    world, before = lost, lived.answers
    world.restore(staging_dir=str(tmp_path / "staging"))
    assert [path for path in (tmp_path / "staging").rglob("*") if not path.is_dir()] == []
    assert world.reopen() == (before, 0)


@pytest.mark.full
def test_one_task_lost_again_is_rebuilt_by_the_same_request_and_the_other_is_left_alone(world: World) -> None:
    world.feed()
    world.live()
    world.lose()
    world.restore(request_id="one")
    world.feed(rounds=1, keys=50)
    before = world.live()
    kept = world.state_dir / world.application_id / "0_0"
    inode = kept.stat().st_ino
    shutil.rmtree(world.state_dir / world.application_id / "0_1")
    report = world.restore(request_id="one")
    assert any("earlier attempt" in note for note in report.notes)
    assert kept.stat().st_ino == inode
    with world.application() as running:
        restored = running.restored_records()
        assert world.answers(running) == before
    # The frozen plan ends before the second round: the application reads on from there, in the rebuilt task only.
    assert {partition for (_, partition), records in restored.items() if records} == {1}
    assert max(restored.values()) < 100


def test_a_source_topic_reused_as_changelog_is_restored_up_to_what_the_group_has_committed(world: World) -> None:
    world.feed()
    reused: dict[str, Any] = {
        "subtopologies": {"0": {"stores": {"plain": {"kind": "key-value", "changelog": world.input}}}}
    }
    topics.commit(world.servers, world.application_id, {(world.input, 0): 17})
    error = refused(world, NotFound, "committed-offset-missing", spec=reused)
    assert error.context["partitions"] == [f"{world.input}-1"]
    topics.commit(world.servers, world.application_id, {(world.input, 1): 0})
    plan = run_restore(world.request(spec=reused, plan_only=True))
    assert isinstance(plan, ReadPlan)
    assert [(part.end, part.committed_offset) for part in plan.partitions] == [(17, 16), (0, -4)]


def test_the_plan_is_shown_with_what_it_takes_and_nothing_is_changed(
    lost: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lost
    monkeypatch.setattr("statecore.jobs.planning.estimate.free_space", lambda path: (path, 1000))
    said: list[str] = []
    plan = run_restore(world.request(plan_only=True), say=said.append)
    assert isinstance(plan, ReadPlan)
    assert any(re.search(r"[\d,]+ records", note) for note in said)
    assert any("1000 B" in note for note in said)
    assert sorted(part.task for part in plan.partitions) == ["0_0", "0_0", "0_1", "0_1"]
    assert not (world.state_dir / world.application_id).exists()


def refused(world: World, kind: type[StatecoreError], code: str, **changes: Any) -> StatecoreError:
    """The restore is refused for this reason, and no task directory was touched."""
    before = directory.files(world.state_dir)
    with raises(kind, code) as caught:
        world.restore(**changes)
    tasks = {name: size for name, size in directory.files(world.state_dir).items() if "/0_" in name}
    assert tasks == {name: size for name, size in before.items() if "/0_" in name}
    assert caught.value.action
    return caught.value


def test_a_running_application_makes_the_job_refuse(lived: Lived, state_dir: Path) -> None:
    world = lived.copied(state_dir)
    with world.application():
        with raises(Fenced, "state-directory-in-use"):
            world.restore(replace=True)


def test_a_target_that_holds_the_stores_is_refused_without_replace(lived: Lived, state_dir: Path) -> None:
    refused(lived.copied(state_dir), Invalid, "placement-refused", start_from="none")


def test_an_unknown_topic_is_not_found(world: World) -> None:
    refused(world, NotFound, "topic-not-found")


def test_an_unreachable_broker_is_another_error_than_a_missing_topic(world: World) -> None:
    refused(world, Retryable, "broker-unreachable", spec={"bootstrap_servers": "127.0.0.1:1"}, timeout=2.0)


def test_a_wrong_partition_count_is_refused(world: World) -> None:
    for store, partitions in (("plain", 2), ("stamped", 3)):
        topics.create(world.servers, f"{world.application_id}-{store}-changelog", partitions)
    refused(world, Invalid, "partition-count-mismatch")


def test_a_disk_without_room_is_refused_beforehand(lost: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(estimate_sizes.__kwdefaults__, "sizes_of", lambda *_: {"all": 1 << 60})
    refused(lost, Capacity, "no-space")


def test_the_command_line_does_the_same_and_prints_one_json_document(
    lived: Lived, lost: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world, before = lost, lived.answers
    spec = tmp_path / "stores.yaml"
    stores = "\n".join(f"      {name}: {{kind: {kind}}}" for name, kind in KINDS.items())
    spec.write_text(
        f"application_id: {world.application_id}\nbootstrap_servers: {world.servers}\n"
        f"processing_guarantee: {world.guarantee}\nsubtopologies:\n  '0':\n    stores:\n{stores}\n"
    )
    command = [sys.executable, "-m", "statecore.cli.main", "restore", "--spec", str(spec)]
    command += ["--state-dir", str(world.state_dir), "--master", "local[2]", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["rows"] == 2 * 160
    assert world.reopen() == (before, 0)
    capfd.readouterr()
    assert main([*command[3:], "--from", "none"]) == Invalid.exit_code
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["code"] == "placement-refused"
