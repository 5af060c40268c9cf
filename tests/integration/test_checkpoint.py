"""``checkpoint``: a snapshot is advanced by the tails of the changelogs, and is what a restore of them makes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.faults import FaultInjected, FaultPoints, InjectedFault
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.checkpoint.schedule import check_due
from statecore.jobs.compact.report import CompactionOutcome
from statecore.jobs.compact.run import compact
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.protocol import HandedOver
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.in_progress_marker import marked_in_progress, marker_age
from statecore.jobs.job_home import RepositoryHome
from statecore.jobs.planning.frozen_plan import PLAN_SUFFIX
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spec.reader import parse_spec
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.fault_action import FaultAction
from tests.harness.job_contexts import context_of
from tests.harness.raising import raises
from tests.harness.shop_application import CLICKS, EXACTLY_ONCE, PLAIN, Shop
from tests.harness.snapshot_checkpoints import EAGER

pytestmark = pytest.mark.integration

PLAIN_0 = ("0_0", "plain")


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap_servers, tmp_path, scattered=True)


def test_checkpoint_after_checkpoint_holds_what_a_restore_of_the_logs_makes(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    assert first.published is not None
    assert {store.base for store in first.stores} == {""}
    for _ in range(3):
        before = shop.stores_there()
        shop.write(60)
        report = shop.checkpoint()
        assert report.published is not None
        assert all(store.base for store in report.stores)
        for key, store in shop.stores_there().items():
            for old in before[key].databases:
                new = next((one for one in store.databases if one.segment == old.segment), None)
                assert new is None or [run for run in new.runs if run in old.runs] == list(old.runs)
        assert shop.fetched() == shop.restored()


def test_nothing_is_published_where_nothing_is_new(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    again = shop.checkpoint()
    assert first.published is not None
    assert (first.unchanged, again.published) == (None, None)
    assert again.unchanged is not None
    assert (again.unchanged.snapshot, first.published.read_at_ms) == (
        first.published.snapshot,
        min(first.published.read_at_ms or 0, again.unchanged.read_at_ms - 1),
    )
    assert shop.checkpoint(stores=("plain",)).unchanged is None, "of the others it says nothing"
    assert shop.snapshots() == [first.published.snapshot]


@pytest.mark.full
def test_runs_stay_few_and_hold_the_same(shop: Shop) -> None:
    shop.write(600)
    shop.checkpoint()
    compactions, most = 0, 0
    for _ in range(16):
        shop.write(30)
        report = shop.checkpoint()
        compactions += any("runs were compacted" in note for note in report.notes)
        for (task, _), store in shop.stores_there().items():
            partitions = shop.partitions if task == "global" else 1
            most = max(most, *(len(one.runs) // partitions for one in store.databases))
    assert compactions
    assert most <= 13
    assert shop.fetched() == shop.restored()


def upon(report: ReadReport) -> dict[tuple[str, str], tuple[bool, int, int]]:
    """Of each store whether it stands on a parent, and what was read."""
    return {(one.task, one.store): (bool(one.base), one.start, one.end) for one in report.stores}


def test_an_open_transaction_ends_the_tail_and_only_what_is_committed_is_ever_published(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path, guarantee=EXACTLY_ONCE)
    with shop.transaction({"a": "1", "b": "1"}):
        pass
    assert upon(shop.checkpoint()) == {PLAIN_0: (False, 0, 3)}
    with shop.transaction({"a": None, "c": "1"}) as producer:
        assert shop.checkpoint().published is None, "nothing is stable behind the snapshot"
        producer.abort_transaction(300)
    before = shop.stores_there()[PLAIN_0].databases
    assert shop.checkpoint().published is not None, "nobody reads what was aborted again, nor is it due at every tick"
    assert shop.stores_there()[PLAIN_0].databases == before
    assert shop.checkpoint().published is None
    with shop.transaction({"d": "1"}):
        pass
    with shop.transaction({"a": None, "e": "1"}):
        report = shop.checkpoint()
        assert upon(report) == {PLAIN_0: (True, 6, 8)}, "the end of the log is 10"
        assert shop.fetched() == shop.restored()
        assert [rows for rows, _ in shop.fetched().values()] == [3]
    report = shop.checkpoint()
    assert upon(report) == {PLAIN_0: (True, 8, 11)}
    assert shop.fetched() == shop.restored()
    assert [rows for rows, _ in shop.fetched().values()] == [3], "b, d, e"
    assert [run.run.end for run in shop.stores_there()[PLAIN_0].databases[0].runs] == [3, 8, 11]


def test_what_a_spec_changes_between_two_checkpoints_is_read_whole_and_nothing_else(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path)

    def changed(because: str, *whole: str, **asked: Any) -> None:
        shop.write(30)
        with raises(Invalid, "advance-refused") as caught:
            shop.checkpoint(when_refused=WhenRefused.REFUSE)
        assert all(because in problem["what"] for problem in caught.value.context["problems"])
        report = shop.checkpoint(**asked)
        assert {key[1] for key, (advanced, _, _) in upon(report).items() if not advanced} == set(whole)
        assert any(note.startswith("No snapshot can be advanced") for note in report.notes)
        assert shop.fetched() == shop.restored()

    shop.write()
    shop.checkpoint()
    shop.stores["plain"] = {"kind": "timestamped-key-value"}
    changed("kind is key-value in the snapshot", "plain")
    shop.stores["clicks"] = {**CLICKS, "retention": "20m", "segment_interval": "5m"}
    changed("retention is 10m in the snapshot", "clicks")
    shop.stores["clicks"] = {**CLICKS, "segment_interval": "5m"}
    shop.write(30)
    assert {advanced for advanced, _, _ in upon(shop.checkpoint()).values()} == {True}, "a shorter one does no harm"
    assert shop.fetched().keys() == shop.restored().keys()
    shop.stores["plain"] = {**shop.stores["plain"], "changelog": shop.changelog("elsewhere")}
    topics.create(shop.servers, shop.changelog("plain"), shop.partitions, shop.configs)
    topics.commit(shop.servers, shop.application_id, {(shop.changelog("plain"), part): 0 for part in range(2)})
    with raises(Invalid, "advance-refused"):
        shop.checkpoint(when_refused=WhenRefused.REFUSE)
    shop.guarantee = EXACTLY_ONCE
    with raises(Invalid, "advance-refused"):
        shop.checkpoint(when_refused=WhenRefused.REFUSE)


def test_stores_and_partitions_come_and_go(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, stores={"plain": PLAIN})
    shop.write(60)
    shop.checkpoint()
    shop.stores["clicks"] = CLICKS
    topics.create(shop.servers, shop.changelog("clicks"), shop.partitions, shop.configs)
    shop.write(60)
    report = shop.checkpoint(when_refused=WhenRefused.REFUSE)
    assert {key[1]: advanced for key, (advanced, _, _) in upon(report).items()} == {
        "plain": True,
        "clicks": False,
        "names": True,
    }, "what is new in the spec is not refused"
    assert shop.fetched() == shop.restored()

    topics.grow(shop.servers, [shop.changelog("plain"), shop.changelog("clicks")], 3)
    shop.partitions = 3
    shop.write(60, only=["plain", "clicks"])
    report = shop.checkpoint(when_refused=WhenRefused.REFUSE)
    assert {key[0]: advanced for key, (advanced, _, _) in upon(report).items()} == {
        "0_0": True,
        "0_1": True,
        "0_2": False,
        "global": True,
    }
    assert shop.fetched() == shop.restored()
    topics.grow(shop.servers, [shop.names], 3)
    with raises(Invalid, "advance-refused"):
        shop.checkpoint(when_refused=WhenRefused.REFUSE)
    report = shop.checkpoint()
    assert {key[1] for key, (advanced, _, _) in upon(report).items() if not advanced} == {"names"}
    assert shop.fetched() == shop.restored()

    del shop.stores["plain"]
    assert shop.checkpoint().published is None
    shop.write(10)
    shop.checkpoint()
    assert shop.fetched() == shop.restored()
    assert {store for _, store in shop.stores_there()} == {"clicks", "names"}


def test_some_stores_and_some_partitions_are_advanced_alone(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path)
    shop.write()
    shop.checkpoint()
    shop.write(60)
    before = shop.stores_there()
    report = shop.checkpoint(stores=("plain",), partitions=(1,))
    assert upon(report).keys() == {("0_1", "plain")}
    after = shop.stores_there()
    assert {key for key in after if after[key] != before[key]} == {("0_1", "plain")}
    report = shop.checkpoint(partitions=(0,))
    assert upon(report).keys() == {("0_0", "plain"), ("0_0", "clicks")}
    report = shop.checkpoint()
    read = {key for key, (_, start, end) in upon(report).items() if start < end}
    assert read == {("0_1", "clicks"), ("global", "names")}
    assert shop.fetched() == shop.restored()


def test_a_checkpoint_of_some_stores_says_nothing_of_the_others_of_their_tasks(broker: Broker, tmp_path: Path) -> None:
    """Who takes a tail that nobody has looked at for younger than it is, misses the deletes that are gone from it."""
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=False)
    shop.write()
    shop.checkpoint()
    before = shop.cuts_there()
    shop.write(60, only=["clicks"])
    topics.produce(shop.servers, shop.changelog("plain"), [topics.Record(b"news", b"1", partition=1)])
    assert shop.checkpoint(stores=("plain",)).published is not None
    assert shop.cuts_there()["0_0"] == before["0_0"]
    shop.checkpoint()
    assert shop.cuts_there()["0_0"] > before["0_0"]


def test_versioned_stores_are_restored_by_kafka_streams_or_rebuilt_at_intervals(broker: Broker, tmp_path: Path) -> None:
    kinds = {"plain": PLAIN, "past": {"kind": "versioned-key-value", "retention": "10m"}}
    shop = Shop.small(broker.bootstrap_servers, tmp_path, stores=kinds)
    past = ("0_0", "past")
    shop.write(60)
    shop.checkpoint()
    assert shop.stores_there()[past].restored_by_kafka_streams
    assert shop.checkpoint().published is None, "that it is empty is no news"
    shop.write(30)
    assert upon(shop.checkpoint(versioned=VersionedStart.LATEST)) == {PLAIN_0: (True, 60, 90), past: (False, 0, 90)}
    there = shop.fetched()
    assert there == shop.restored()
    assert shop.checkpoint(versioned=VersionedStart.LATEST, versioned_interval=1).published is None, (
        "read, and the same"
    )
    shop.write(30)
    report = shop.checkpoint(versioned=VersionedStart.LATEST)
    assert upon(report) == {PLAIN_0: (True, 90, 120), past: (True, 90, 90)}
    assert any("Versioned stores stay" in note for note in report.notes)
    assert shop.fetched() == {PLAIN_0: shop.restored()[PLAIN_0], past: there[past]}
    later = time.time() + 600
    for versioned_ms, due in ((86_400_000, False), (0, True)):
        verdict = check_due(
            shop.app_repository,
            parse_spec(shop.spec),
            versioned=VersionedStart.LATEST,
            versioned_ms=versioned_ms,
            clock=lambda: later,
        )
        assert verdict.is_due is due, "what a checkpoint would leave as it is makes none due"
    report = shop.checkpoint(versioned=VersionedStart.LATEST, versioned_interval=1)
    assert upon(report) == {PLAIN_0: (True, 120, 120), past: (False, 0, 120)}
    assert shop.fetched() == shop.restored()


class Slow(FaultPoints):
    """A checkpoint that has read, and goes on when it is told to."""

    def __init__(self) -> None:
        self.has_read, self.may_go_on = threading.Event(), threading.Event()

    def reach(self, point: str) -> None:
        if point == "checkpoint.after-runs":
            self.has_read.set()
            assert self.may_go_on.wait(300)


def test_while_a_checkpoint_takes_long_no_other_is_due(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(marked_in_progress.__wrapped__.__kwdefaults__, "first", 0.1)
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(10)
    slow = Slow()
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(shop.checkpoint, faults=slow)
        assert slow.has_read.wait(300)
        deadline = time.monotonic() + 300
        while marker_age(shop.app_repository, time.time()) is None:
            assert time.monotonic() < deadline, "it says nothing"
            time.sleep(0.05)
        verdict = check_due(shop.app_repository, parse_spec(shop.spec, "test"))
        slow.may_go_on.set()
        assert made.result(300).published is not None
    assert (verdict.is_due, verdict.why[:18]) == (False, "one is in progress")
    assert marker_age(shop.app_repository, time.time()) is None


def test_a_due_checkpoint_is_skipped_if_another_job_has_made_it(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(10)
    first = check_due(shop.app_repository, parse_spec(shop.spec, "test"))
    assert first.is_due
    assert shop.checkpoint(decided_upon=first.last_snapshot).published is not None
    shop.write(10)
    late = shop.checkpoint(decided_upon=first.last_snapshot)
    assert (late.published, len(shop.snapshots())) == (None, 1)
    assert any("was made at" in note for note in late.notes)
    with suppress(HandedOver), marked_in_progress(shop.app_repository, "handed-over"):  # others were faster
        RepositoryHome(shop.app_repository, "handed-over").save(PLAN_SUFFIX, b"{}")
        raise HandedOver
    assert shop.checkpoint(decided_upon=first.last_snapshot, request_id="handed-over").published is None
    assert marker_age(shop.app_repository, time.time()) is None
    again = shop.checkpoint(decided_upon=shop.snapshots()[0])
    assert again.published is not None
    shop.write(10)
    assert shop.checkpoint(decided_upon=None).published is not None, "who asks by hand gets one"


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_checkpoint_is_overtaken_by_a_shorter_one(broker: Broker, tmp_path: Path, is_compacted: bool) -> None:
    """Its tail takes the place of the shorter one of the same base; above one that was compacted it plans again."""
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    for _ in range(2):
        shop.write(10)
        shop.checkpoint()
    shop.write(10)
    with pytest.raises(FaultInjected):
        shop.checkpoint(request_id="other", faults=InjectedFault("checkpoint.after-plan"))
    shop.write(10)

    def overtake() -> None:
        assert shop.checkpoint(request_id="other").published is not None
        if is_compacted:
            context = context_of(shop.app_repository, parse_spec(shop.spec, "test"))
            assert compact(context, settings=EAGER).outcome is CompactionOutcome.PUBLISHED

    said: list[str] = []
    report = shop.checkpoint(faults=FaultAction("checkpoint.after-runs", overtake), say=said.append)
    assert report.published is not None
    assert any("planning again" in line for line in said) is is_compacted
    assert shop.fetched() == shop.restored()


def damage_first_run(shop: Shop) -> None:
    """Turn a bit of the oldest run of ``plain``."""
    extent = shop.stores_there()[PLAIN_0].databases[0].runs[0].extent
    path = shop.scratch / "repository" / extent.blob
    data = bytearray(path.read_bytes())
    data[extent.start + extent.bytes // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def checkpoints_until_said(shop: Shop, what: str, **asked: Any) -> ReadReport:
    for _ in range(20):
        shop.write(30)
        report = shop.checkpoint(**asked)
        if any(what in note for note in report.notes):
            return report
    raise AssertionError(f"nobody said {what}")


def test_a_store_whose_runs_are_damaged_is_rebuilt_as_soon_as_a_compaction_finds_it(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(100)
    shop.checkpoint()
    damage_first_run(shop)
    report = checkpoints_until_said(shop, "were not compacted")
    assert report.published is not None
    assert shop.snapshots()[0] == report.published.snapshot
    assert shop.rows_there()[0] == 0, "it stands upon no snapshot"
    assert shop.fetched() == shop.restored()
    shop.write(30)
    assert all(store.base for store in shop.checkpoint().stores)
    assert shop.fetched() == shop.restored()


def test_a_checkpoint_upon_a_damaged_store_does_not_take_the_place_of_its_rebuild(
    broker: Broker, tmp_path: Path
) -> None:
    """It is made while the store is rebuilt, and has read more."""
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(100)
    shop.checkpoint()
    damage_first_run(shop)
    others: list[str] = []

    class WhileRebuilding(FaultPoints):
        def reach(self, point: str) -> None:
            super().reach(point)
            is_rebuilding = any("whole changelogs are read" in line for line in said)
            if point == "checkpoint.after-plan" and is_rebuilding and not others:
                shop.write(5)
                other = shop.checkpoint(compact=False).published
                assert other is not None
                others.append(other.snapshot)

    for _ in range(20):
        shop.write(30)
        said: list[str] = []
        report = shop.checkpoint(faults=WhileRebuilding(), say=said.append)
        if others:
            break
    assert report.published is not None
    assert shop.snapshots()[:2] == [report.published.snapshot, *others]
    assert shop.rows_there()[0] == 0, "it stands upon no snapshot"
    assert shop.fetched() == shop.restored()


def test_where_no_store_may_be_rebuilt_a_damaged_one_is_reported(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(100)
    shop.checkpoint()
    damage_first_run(shop)
    found = checkpoints_until_said(shop, "were not compacted", when_refused=WhenRefused.REFUSE)
    assert found.published is not None
    assert found.published.snapshot == shop.snapshots()[0]
    again = shop.checkpoint(when_refused=WhenRefused.REFUSE, request_id=found.request_id)
    assert again.published is not None
    assert again.published.snapshot == found.published.snapshot
    assert again.notes[-1] == found.notes[-1], "the damaged store, by name"
    assert "plain of task 0_0" in again.notes[-1]
    rebuilt = shop.checkpoint(request_id=found.request_id)
    assert rebuilt.published is not None
    assert rebuilt.published.snapshot == shop.snapshots()[0] != found.published.snapshot
    assert shop.fetched() == shop.restored()


def restore_request(shop: Shop, state_dir: str, **asked: Any) -> RestoreRequest:
    return RestoreRequest(**{"spec": shop.spec, "state_dir": state_dir, "repository": shop.url, **asked})


def of_stores(report: object) -> dict[tuple[str, str], tuple[int | None, str | None]]:
    assert isinstance(report, ReadReport)
    return {(one.task, one.store): (one.rows, one.digest) for one in report.stores}


@pytest.mark.full
@pytest.mark.parametrize("start_from", one_of(["cheapest", "none"]))
def test_a_restore_that_a_checkpoint_outruns_is_placed_all_the_same_and_says_that_nothing_was_published(
    broker: Broker, tmp_path: Path, start_from: str
) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(100)
    shop.checkpoint()
    shop.write(30)
    expected = shop.restored()

    class Outrun(FaultPoints):
        done = False

        def reach(self, point: str) -> None:
            if point == "restore.after-runs" and not self.done:
                self.done = True
                assert marker_age(shop.app_repository, time.time()) is not None, "a schedule waits"
                shop.write(10)
                shop.checkpoint()

    said: list[str] = []
    request = restore_request(shop, str(tmp_path / "state"), start_from=start_from)
    report = run_restore(request, InProcessEngine(), faults=Outrun(), say=said.append)
    assert of_stores(report) == expected
    assert isinstance(report, ReadReport)
    assert (report.placed, report.published) == (True, None)
    assert any("Nothing was published" in line for line in said)
    again = run_restore(request, InProcessEngine())
    assert isinstance(again, ReadReport)
    assert (again.placed, again.notes) == (False, report.notes), "it is in place already"
    assert marker_age(shop.app_repository, time.time()) is None


def test_a_restore_falls_back_from_a_damaged_snapshot_to_an_older_one_and_then_to_the_log(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(100)
    shop.checkpoint()
    damage_first_run(shop)
    (rotten,) = shop.snapshots()
    shop.write(30)
    said: list[str] = []
    whole = run_restore(restore_request(shop, str(tmp_path / "a")), InProcessEngine(), say=said.append)
    assert of_stores(whole) == shop.restored() == shop.fetched()
    assert any(rotten in line and "Not used as base" in line for line in said)
    (before, _) = shop.snapshots()
    shop.write(30)
    shop.checkpoint()
    newest = shop.stores_there()[PLAIN_0].databases[0].runs
    (shop.scratch / "repository" / newest[-1].extent.blob).unlink()
    older = run_restore(restore_request(shop, str(tmp_path / "b")), InProcessEngine())
    assert of_stores(older) == shop.restored()
    assert isinstance(older, ReadReport)
    assert {store.base for store in older.stores} == {before}
