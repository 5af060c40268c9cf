"""Deletes that compaction has taken away, and settings and clocks that say otherwise: no deleted row comes back.

Each test waits until the broker's cleaner has removed the deletes, and then compares what a job makes with what the
whole log says.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.changelog import soundness
from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import ENDLESS_MS
from statecore.errors import Invalid
from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.layout import NEWEST
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.changelog_ends import changelog_ends
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.task_stores import TaskStores
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.shop_application import PLAIN, Found, Shop
from tests.integration.test_checkpoint_bases import DAY, HELD_BACK, SHORT, compact, configure

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000


def small(broker: Broker, scratch: Path, retention_ms: str = SHORT, **configs: str) -> Shop:
    """A shop whose one changelog keeps its deletes for so long."""
    return Shop.small(
        broker.bootstrap_servers, scratch, configs={**HELD_BACK, "delete.retention.ms": retention_ms, **configs}
    )


def delete(shop: Shop, broker: Broker) -> None:
    """Delete a row of the newest snapshot, and wait until no record of it is left in the log."""
    shop.put({"gone": None, "stays": "2"})
    shop.put({"stays": "3"})
    compact(shop, broker, gone="gone")


def put_first(shop: Shop) -> str:
    """A snapshot with the row that is deleted later; its id."""
    shop.put({"gone": "row", "stays": "1"})
    assert shop.checkpoint().published is not None
    return shop.snapshots()[0]


@contextmanager
def clock_ahead(seconds: float) -> Iterator[None]:
    """The clock of another machine: this one's, so far ahead."""
    with pytest.MonkeyPatch.context() as patched:
        real = time.time
        patched.setattr(time, "time", lambda: real() + seconds)
        yield


def broker_ms(shop: Shop) -> int:
    """The time, as the cluster tells it."""
    with Cluster(shop.servers) as cluster:
        told = cluster.time_ms()
    assert told is not None
    return told


def upon(report: ReadReport) -> str:
    """Upon what the one store was put."""
    (store,) = report.stores
    return store.base


def restored_upon_newest(shop: Shop) -> tuple[Found, str]:
    """What a restore makes upon the newest snapshot, and upon what it was put in the end."""
    request = RestoreRequest(
        spec=shop.spec,
        repository=shop.url,
        state_dir=str(shop.scratch / f"upon-{time.time_ns()}"),
        start_from=NEWEST,
        transaction_wait=0.2,
    )
    report = run_restore(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    return {(one.task, one.store): (one.rows, one.digest) for one in report.stores}, upon(report)


CHANGES = {
    "not compacted any more": {"cleanup.policy": "delete"},
    "kept for longer now": {"delete.retention.ms": DAY},
    "both": {"cleanup.policy": "compact,delete", "retention.ms": "-1", "delete.retention.ms": DAY},
}
JOBS = ("checkpoint", "reconcile", "restore")


@pytest.mark.parametrize(
    ("change", "job"),
    [  # each once in make test
        pytest.param(change, job, marks=() if at == JOBS.index(job) else pytest.mark.full, id=f"{name}-{job}")
        for at, (name, change) in enumerate(CHANGES.items())
        for job in JOBS
    ],
)
def test_what_was_in_force_when_the_base_was_made_counts(
    broker: Broker, tmp_path: Path, change: dict[str, str], job: str
) -> None:
    shop = small(broker, tmp_path)
    base = put_first(shop)
    delete(shop, broker)
    for name, value in change.items():
        configure(shop, name, value)
    if job == "restore":
        made, base = restored_upon_newest(shop)
        assert (made, base) == (shop.restored(), "")
        return
    with pytest.raises(Invalid):
        shop.checkpoint(when_refused=WhenRefused.REFUSE)
    report = shop.checkpoint(when_refused=WhenRefused(job) if job == "reconcile" else WhenRefused.REBUILD)
    is_compared = job == "reconcile" and "cleanup.policy" not in change
    assert upon(report) == (base if is_compared else "")
    assert shop.fetched() == shop.restored()
    assert [rows for rows, _ in shop.fetched().values()] == [2], "stays, and the filler"


@pytest.mark.parametrize("policy", one_of(["compact,delete", "compact"]))
def test_the_smallest_recorded_delete_retention_counts_after_a_temporary_change(
    broker: Broker, tmp_path: Path, policy: str
) -> None:
    """The quiet checkpoint in between publishes nothing but that deletes are kept for a shorter time now."""
    shop = small(broker, tmp_path, DAY, **{"cleanup.policy": policy, "retention.ms": "-1"})
    put_first(shop)
    configure(shop, "delete.retention.ms", str(HOUR_MS))
    assert shop.checkpoint().published is not None
    assert shop.checkpoint().published is None
    assert shop.stores_there()["0_0", "plain"].delete_retention_ms == HOUR_MS
    configure(shop, "delete.retention.ms", SHORT)
    shop.checkpoint()
    delete(shop, broker)
    configure(shop, "cleanup.policy", "delete")
    configure(shop, "cleanup.policy", policy)
    configure(shop, "delete.retention.ms", DAY)
    assert upon(shop.checkpoint()) == ""
    assert shop.fetched() == shop.restored()


def test_an_older_snapshot_is_checked_with_the_delete_retention_of_newer_ones(broker: Broker, tmp_path: Path) -> None:
    shop = small(broker, tmp_path, DAY)
    older = put_first(shop)
    configure(shop, "delete.retention.ms", SHORT)
    shop.put({"more": "1"})
    shop.checkpoint()
    delete(shop, broker)
    configure(shop, "delete.retention.ms", DAY)
    for snapshot in (NEWEST, older):
        refuses_to_fetch(shop, snapshot)
    request = RestoreRequest(
        spec=shop.spec, repository=shop.url, state_dir=str(tmp_path / "named"), start_from=older, transaction_wait=0.2
    )
    report = run_restore(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert upon(report) == ""
    assert {(one.task, one.store): (one.rows, one.digest) for one in report.stores} == shop.restored()


def test_a_topic_that_was_never_compacted_is_advanced_whatever_its_age(broker: Broker, tmp_path: Path) -> None:
    shop = small(broker, tmp_path, **{"cleanup.policy": "delete"})
    base = put_first(shop)
    assert shop.stores_there()["0_0", "plain"].delete_retention_ms == ENDLESS_MS
    shop.put({"gone": None})
    assert upon(shop.checkpoint()) == base
    assert shop.fetched() == shop.restored()


@pytest.mark.full
def test_the_time_is_the_brokers_and_not_that_of_the_machine_that_makes_the_base(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is made by a machine two hours ahead. By such clocks it is a second old when its deletes are gone."""
    monkeypatch.setattr(soundness, "CLOCK_MARGIN_MS", 0)
    shop = small(broker, tmp_path, "4000")
    shop.put({"gone": "row", "stays": "1"})
    before = broker_ms(shop)
    with clock_ahead(7200):
        shop.checkpoint()
    read_at_ms = shop.stores_there()["0_0", "plain"].read_at_ms or 0
    assert before <= read_at_ms <= broker_ms(shop)
    made = time.time()
    delete(shop, broker)
    while broker_ms(shop) <= read_at_ms + 4000:  # for so long deletes are kept
        time.sleep(0.1)
    with clock_ahead(7200 - (time.time() - made) + 1):
        assert upon(shop.checkpoint()) == ""
    assert shop.restored() == {("0_0", "plain"): shop_rows(shop)}


def shop_rows(shop: Shop) -> tuple[int | None, str | None]:
    """Rows and digest of the newest snapshot."""
    return shop.fetched()["0_0", "plain"]


def test_a_clock_that_is_ahead_costs_no_base_that_is_sound(broker: Broker, tmp_path: Path) -> None:
    shop = small(broker, tmp_path, DAY)
    with clock_ahead(7200):
        base = put_first(shop)
    shop.put({"gone": None, "stays": "2"})
    shop.put({"stays": "3"})
    compact(shop, broker)
    assert upon(shop.checkpoint()) == base
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("asked", one_of(["partitions", "stores"]))
def test_stores_that_a_checkpoint_did_not_read_grow_no_younger(broker: Broker, tmp_path: Path, asked: str) -> None:
    """Of one partition by a shorter spec, or of one store."""
    stores = {"plain": PLAIN, "other": PLAIN}
    shop = Shop.small(
        broker.bootstrap_servers, tmp_path, stores=stores, configs={**HELD_BACK, "delete.retention.ms": SHORT}
    )
    shop.put({"stays": "1"})
    shop.put({"gone": "row"}, "other")
    shop.checkpoint()
    before = shop.stores_there()["0_0", "other"]
    shop.put({"gone": None}, "other")
    for _ in range(2):
        if asked == "partitions":
            shop.stores = {"plain": PLAIN}
            shop.checkpoint(partitions=(0,))
            shop.stores = stores
        else:
            shop.checkpoint(stores=("plain",))
        after = shop.stores_there()["0_0", "other"]
        assert (after.read_at_ms, after.delete_retention_ms) == (before.read_at_ms, before.delete_retention_ms)
        if asked == "stores":
            shop.put({"stays": "2"})  # the other store of the task has news
    shop.checkpoint()
    assert shop.fetched() == shop.restored()


def test_a_plan_that_was_frozen_records_what_was_in_force_then(broker: Broker, tmp_path: Path) -> None:
    """What the retry of a killed checkpoint publishes is as old as the plan, and its delete retention too."""
    shop = small(broker, tmp_path)
    shop.put({"gone": "row", "stays": "1"})
    with pytest.raises(FaultInjected):
        shop.checkpoint(request_id="killed", faults=InjectedFault("checkpoint.after-plan"))
    configure(shop, "delete.retention.ms", DAY)
    shop.checkpoint(request_id="killed")
    assert shop.stores_there()["0_0", "plain"].delete_retention_ms == int(SHORT)
    configure(shop, "delete.retention.ms", SHORT)
    delete(shop, broker)
    configure(shop, "delete.retention.ms", DAY)
    assert upon(shop.checkpoint()) == ""
    assert shop.fetched() == shop.restored()


def test_a_snapshot_of_a_directory_knows_what_was_in_force_when_its_ends_were_read(
    broker: Broker, tmp_path: Path
) -> None:
    shop = small(broker, tmp_path)
    shop.put({"gone": "row", "stays": "1"})
    state_dir = tmp_path / "state"
    request = RestoreRequest(spec=shop.spec, state_dir=str(state_dir), transaction_wait=0.2)
    assert isinstance(run_restore(request, InProcessEngine()), ReadReport)
    run_backup(BackupRequest(spec=shop.spec, state_dir=str(state_dir), repository=shop.url))
    there = shop.stores_there()["0_0", "plain"]
    assert (there.delete_retention_ms, abs((there.read_at_ms or 0) - broker_ms(shop)) < 60_000) == (int(SHORT), True)
    delete(shop, broker)
    configure(shop, "delete.retention.ms", DAY)
    assert upon(shop.checkpoint()) == ""
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("change", one_of([{"cleanup.policy": "delete"}, {"delete.retention.ms": DAY}]), ids=str)
def test_a_standby_task_is_checked_with_the_delete_retention_of_its_last_round(
    broker: Broker, tmp_path: Path, change: dict[str, str]
) -> None:
    shop = small(broker, tmp_path)
    shop.put({"gone": "row", "stays": "1"})
    spec = parse_spec(shop.spec, "the test")
    directory = StateDirectory(tmp_path / "warm", shop.application_id)
    with Cluster(shop.servers) as cluster, directory.lock():
        task = StandbyTask(TaskStores(spec, directory, "0_0"), cluster, spec.processing_guarantee.isolation)
        task.open()
        stores = [store.spec for store in task.stores.stores]
        assert not task.follow(changelog_ends(cluster, spec, stores)).stale
        delete(shop, broker)
        for name, value in change.items():
            configure(shop, name, value)
        done = task.follow(changelog_ends(cluster, spec, stores, task.epochs()))
        assert (list(done.stale), done.failed) == (["plain"], {})
        task.rebuild("plain")
        assert not task.follow(changelog_ends(cluster, spec, stores, task.epochs())).stale
        task.close()


@pytest.mark.parametrize(
    "change",
    one_of([{"cleanup.policy": "delete"}, {"delete.retention.ms": DAY}, {}]),
    ids=["policy", "retention", "none"],
)
def test_a_fetch_checks_bases_as_a_checkpoint_does(broker: Broker, tmp_path: Path, change: dict[str, str]) -> None:
    shop = small(broker, tmp_path)
    put_first(shop)
    delete(shop, broker)
    for name, value in change.items():
        configure(shop, name, value)
    refuses_to_fetch(shop)


def refuses_to_fetch(shop: Shop, snapshot: str = NEWEST) -> None:
    """The fetch is refused before anything is changed."""
    state_dir = shop.scratch / f"refused-{time.time_ns()}"
    request = FetchRequest(
        repository=shop.url,
        application_id=shop.application_id,
        state_dir=str(state_dir),
        snapshot=snapshot,
        bootstrap_servers=shop.servers,
    )
    with pytest.raises(Invalid) as caught:
        run_fetch(request)
    assert (caught.value.exit_code, bool(caught.value.action)) == (13, True)
    assert not list(state_dir.rglob("*.sst"))


@pytest.mark.full
def test_a_fetch_refuses_what_was_truncated_below_the_base_and_has_grown_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        shop = Shop.small(broker.bootstrap_servers, tmp_path)
        shop.put({f"kept-{number}": "1" for number in range(100)})
        log = broker.data_directory / f"{shop.changelog()}-0"
        broker.stop()
        shutil.copytree(log, tmp_path / "older")
        broker.start()
        shop.servers = broker.bootstrap_servers
        shop.put({f"lost-{number}": "1" for number in range(50)})
        shop.checkpoint()
        assert shop.fetched() == shop.restored()
        broker.stop()
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "older", log)
        broker.start()
        shop.servers = broker.bootstrap_servers
        shop.put({f"other-{number}": "1" for number in range(80)})
        assert topics.end_offset(shop.servers, shop.changelog(), 0) == 180
        refuses_to_fetch(shop)
        shop.checkpoint()
        assert shop.fetched() == shop.restored()
