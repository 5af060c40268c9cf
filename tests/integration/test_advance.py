"""What is there is built upon: ``advance``, and a restore that takes the cheapest sound base."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.faults import RESTORE_POINTS, VARIABLE, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.advance import run_advance
from statecore.jobs.restore.planned_restore import RefusedPlan
from statecore.jobs.restore.request import AdvanceRequest, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.harness.shop_application import AT_LEAST_ONCE, EXACTLY_ONCE, PLAIN, Shop
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World
from tests.harness.verify_image import verify_image

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap_servers, tmp_path)


def restore(shop: Shop, state_dir: Path | None, **asked: Any) -> ReadReport:
    heard = asked.pop("say", lambda _: None)
    request = RestoreRequest(spec=shop.spec, state_dir="" if state_dir is None else str(state_dir), **asked)
    report = run_restore(request, InProcessEngine(), say=heard)
    assert isinstance(report, ReadReport)
    return report


def advance(shop: Shop, state_dir: Path, **asked: Any) -> ReadReport:
    report = run_advance(AdvanceRequest(spec=shop.spec, state_dir=str(state_dir), **asked), InProcessEngine())
    assert isinstance(report, ReadReport)
    return report


def content(shop: Shop, state_dir: Path) -> dict[tuple[str, str], tuple[int | None, str | None]]:
    """Rows and digest of each store, every row of which is read."""
    spec = parse_spec(shop.spec)
    directory = StateDirectory(state_dir, shop.application_id)
    found = {}
    for task in (*directory.task_directories(), "global"):
        for one in directory.stores(task):
            declared = spec.store(one.store)
            assert declared is not None
            parts = range(2) if task == "global" else [int(task[-1])]
            changelogs = [TopicPartition(declared.changelog, part) for part in parts]
            image = verify_image(one.path, declared.kind, changelogs)
            found[task, one.store] = image.rows, image.digest
    return found


def files_of(state_dir: Path) -> set[int]:
    """The inodes of all SST files of a store whose rows do not expire."""
    return {file.stat().st_ino for file in state_dir.rglob("plain/*.sst")}


def test_a_directory_is_advanced_by_the_tails_alone_and_keeps_its_files(shop: Shop, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    shop.write(2000)
    restore(shop, state_dir)
    before = files_of(state_dir)
    assert before
    for _ in range(2):
        shop.write(100)
        report = advance(shop, state_dir)
        assert {store.base for store in report.stores} == {DIRECTORY}
        assert sum(store.records for store in report.stores) == 300
        assert content(shop, state_dir) == shop.restored()
    assert before <= files_of(state_dir)
    inode = (state_dir / shop.application_id / "0_0").stat().st_ino
    report = advance(shop, state_dir)
    assert not report.stores
    assert any("stay as they are" in note for note in report.notes)
    assert (state_dir / shop.application_id / "0_0").stat().st_ino == inode


@pytest.mark.full
@pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))
def test_kafka_streams_restores_nothing_after_its_own_directory_was_advanced(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    world.feed()
    world.live()
    shutil.copytree(state_dir / application_id, tmp_path / "left")
    world.feed(rounds=4, keys=120)
    before = world.live()
    world.lose()
    shutil.copytree(tmp_path / "left", state_dir / application_id)
    request = AdvanceRequest(spec=world.request().spec, state_dir=str(state_dir), transaction_wait=5.0)
    report = run_advance(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert len(report.stores) == 4
    assert all(store.base == DIRECTORY and 0 < store.start < store.end for store in report.stores)
    assert world.reopen() == (before, 0)


def test_stores_that_cannot_be_advanced_are_named_and_nothing_is_changed(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, {"cleanup.policy": "compact,delete"})
    state_dir = tmp_path / "state"
    shop.write(500)
    restore(shop, state_dir)
    shop.write(100)
    changelog = shop.changelog("plain")
    topics.delete_records(shop.servers, changelog, 0, topics.end_offset(shop.servers, changelog, 0))
    before = content(shop, state_dir)
    with raises(Invalid, "advance-refused") as caught:
        advance(shop, state_dir)
    assert [(one["task"], one["store"]) for one in caught.value.context["problems"]] == [("0_0", "plain")]
    assert content(shop, state_dir) == before


@pytest.mark.parametrize("guarantee", one_of([EXACTLY_ONCE, AT_LEAST_ONCE]))
def test_a_store_that_a_task_at_its_end_lacks_is_noted_and_the_task_is_not_left_to_be_wiped(
    broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    shop = Shop(
        broker.bootstrap_servers,
        tmp_path,
        stores={"plain": PLAIN, "other": PLAIN},
        partitions=1,
        has_global=False,
        guarantee=guarantee,
    )
    state_dir = tmp_path / "state"
    shop.write(200)
    restore(shop, state_dir)
    task = state_dir / shop.application_id / "0_0"
    before = content(shop, state_dir)
    shutil.rmtree(task / "rocksdb" / "other")
    report = advance(shop, state_dir)
    assert any("other in 0_0" in note for note in report.notes)
    after = content(shop, state_dir)
    assert after["0_0", "plain"] == before["0_0", "plain"]
    created = {("0_0", "other"): 0} if guarantee == EXACTLY_ONCE else {}
    assert {key: rows for key, (rows, _) in after.items() if key[1] == "other"} == created


def test_a_store_whose_changelog_was_empty_is_made_of_what_came_since(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    state_dir = tmp_path / "state"
    restore(shop, state_dir)
    shop.put({"a": "1", "b": "2"})
    shop.put({"a": None})
    report = advance(shop, state_dir)
    assert [(store.records, store.committed_offset) for store in report.stores] == [(3, 2)]
    image = verify_image(
        state_dir / shop.application_id / "0_0" / "rocksdb" / "plain",
        StoreKind.KEY_VALUE,
        [TopicPartition(shop.changelog(), 0)],
    )
    assert image.rows == 1


def test_a_restore_takes_what_is_there_where_that_is_the_cheapest(shop: Shop, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    shop.write(2000)
    first = restore(shop, state_dir)
    assert {store.base for store in first.stores} == {""}
    shop.write(100)
    again = restore(shop, state_dir)
    assert {store.base for store in again.stores} == {DIRECTORY}
    assert content(shop, state_dir) == shop.restored()


def test_a_restore_takes_the_newest_snapshot_where_nothing_is_here(shop: Shop, tmp_path: Path) -> None:
    shop.write(3000)
    first = restore(shop, None, repository=shop.url)
    assert first.published is not None
    shop.write(100)
    state_dir = tmp_path / "state"
    report = restore(shop, state_dir, repository=shop.url)
    assert {store.base for store in report.stores} == {first.published.snapshot}
    assert sum(store.records for store in report.stores) == 300
    assert content(shop, state_dir) == shop.restored() == shop.fetched()
    whole = restore(shop, tmp_path / "whole", repository=shop.url, start_from="none")
    assert {store.base for store in whole.stores} == {""}


def test_without_replace_what_cannot_be_advanced_is_refused(shop: Shop, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    shop.write(500)
    restore(shop, state_dir)
    with raises(Invalid, "placement-refused"):
        restore(shop, state_dir, start_from="none")
    heard: list[str] = []
    restore(shop, state_dir, replace=True, say=heard.append)
    assert content(shop, state_dir) == shop.restored()


@pytest.mark.parametrize("lacks", one_of(["a store", "a task", "a task that is at its end"]))
def test_a_retry_resumes_its_plan_without_the_application(broker: Broker, tmp_path: Path, lacks: str) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=lacks == "a store")
    state_dir = tmp_path / "state"
    shop.write(200)
    if lacks == "a task that is at its end":
        restore(shop, state_dir)
        shop.put({"a": "1"})
    else:
        restore(shop, state_dir, partitions=(0,))
        shop.write(50)
    request = AdvanceRequest(spec=shop.spec, state_dir=str(state_dir), request_id="advance")
    with pytest.raises(FaultInjected):
        run_advance(request, InProcessEngine(), faults=InjectedFault("restore.after-images"))
    shop.write(20)
    report = run_advance(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert [note for note in report.notes if "earlier attempt" in note] == [RESUMED_NOTE]
    assert {store.task for store in report.stores} == {"0_0"}


PLACED = tuple(f"placement.{point}" for point in ("after-assembly", "after-journal", "after-swap", "during-sweep"))
"""Those points of a placement between which its steps lie; all of them are gone through by its own tests."""

AMONG = ("placement.after-journal",)
"""The one between plan and end at which the directory is changed in part."""


def killed_at(shop: Shop, state_dir: Path, point: str) -> None:
    """``statecore advance``, dead at a point."""
    spec = shop.scratch / "stores.yaml"
    spec.write_text(json.dumps(shop.spec))
    command = [sys.executable, "-m", "statecore.cli.main", "advance", "--spec", str(spec), "--json"]
    command += ["--state-dir", str(state_dir), "--request-id", point]
    ended = subprocess.run(
        command,
        env={**os.environ, VARIABLE: f"{point}:kill"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr)


@pytest.mark.parametrize(
    "points", [AMONG, pytest.param((*RESTORE_POINTS, *PLACED), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_after_a_kill_at_any_point_a_retry_ends_where_an_advance_that_lived_would(
    shop: Shop, tmp_path: Path, points: tuple[str, ...]
) -> None:
    state_dir = tmp_path / "state"
    shop.write(500)
    restore(shop, state_dir)
    for point in points:
        shop.write(40)
        killed_at(shop, state_dir, point)
        advance(shop, state_dir, request_id=point)
        assert content(shop, state_dir) == shop.restored(), point


def test_a_plan_ends_with_the_refusal_that_the_restore_ends_with(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, {"cleanup.policy": "compact,delete"})
    state_dir = tmp_path / "state"
    shop.write(200)
    restore(shop, state_dir)
    shop.write(50)
    with raises(Invalid, "placement-refused") as caught:
        restore(shop, state_dir, start_from="none", plan_only=True)
    assert isinstance(caught.value, RefusedPlan)
    assert caught.value.plan is not None
    assert caught.value.plan.offsets
    changelog = shop.changelog("plain")
    topics.delete_records(shop.servers, changelog, 0, topics.end_offset(shop.servers, changelog, 0))
    heard: list[str] = []
    with pytest.raises(RefusedPlan) as refused:
        restore(shop, state_dir, plan_only=True, say=heard.append)
    assert refused.value.code == "advance-refused"
    assert [(one["task"], one["store"]) for one in refused.value.context["problems"]] == [("0_0", "plain")]
    assert heard
    with pytest.raises(RefusedPlan):
        run_advance(AdvanceRequest(spec=shop.spec, state_dir=str(state_dir), plan_only=True), InProcessEngine())
    request = RestoreRequest(spec=shop.spec, state_dir=str(state_dir), replace=True, plan_only=True)
    assert isinstance(run_restore(request, InProcessEngine()), ReadPlan)
    with StateDirectory(state_dir, shop.application_id).lock():
        plan = run_restore(request, InProcessEngine())
    assert any("[state-directory-in-use]" in note for note in plan.to_json()["notes"])
    inside = replace(request, state_dir=str(state_dir / shop.application_id))
    for asked in (inside, replace(inside, plan_only=False)):
        with raises(Invalid, "application-directory-given"):
            run_restore(asked, InProcessEngine())


@pytest.mark.parametrize("command", one_of(["advance", "restore"]))
def test_versioned_stores_of_a_directory_stay_as_they_are(broker: Broker, tmp_path: Path, command: str) -> None:
    past = {"kind": "versioned-key-value", "retention": "1h"}
    shop = Shop(broker.bootstrap_servers, tmp_path, stores={"plain": PLAIN, "past": past}, has_global=False)
    shop.write(100)
    spec = shop.spec
    state_dir = tmp_path / "state"
    run_restore(RestoreRequest(spec=spec, state_dir=str(state_dir), versioned=VersionedStart.LATEST), InProcessEngine())
    files = {path: path.stat().st_ino for path in state_dir.rglob("past/**/*.sst")}
    assert files
    shop.write(50)
    if command == "advance":
        report = run_advance(AdvanceRequest(spec=spec, state_dir=str(state_dir)), InProcessEngine())
    else:
        request = RestoreRequest(spec=spec, state_dir=str(state_dir), start_from="directory")
        report = run_restore(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert {store.store for store in report.stores} == {"plain"}
    assert {path: path.stat().st_ino for path in state_dir.rglob("past/**/*.sst")} == files
