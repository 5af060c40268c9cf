"""``checkpoint --when-refused reconcile``: where deletes may be missing, what the whole log says otherwise is put."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.bases.base import Base
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.compact.policy import CompactionSettings
from statecore.jobs.compact.run import compact
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.read_report import ReadReport
from statecore.repository.manifest import StoreSnapshot
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.fault_action import FaultAction
from tests.harness.job_contexts import context_of
from tests.harness.shop_application import Shop
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

EAGER = {"min.cleanable.dirty.ratio": "0.00001", "segment.ms": "100", "delete.retention.ms": "100"}
PLAIN = [("0_0", "plain"), ("0_1", "plain")]


@dataclass
class Compacted(Shop):
    """A shop whose changelogs are compacted when a test wants it.

    Attributes:
        broker: the broker.
        said: what checkpoints have said.
    """

    broker: Broker = field(kw_only=True)
    said: list[str] = field(default_factory=list)

    def compact(self, *names: str, deletes_go: bool = True) -> None:
        """Let the broker compact changelogs, until no delete is left in them."""
        config = EAGER if deletes_go else {**EAGER, "delete.retention.ms": "86400000"}
        for topic in names:
            for name, value in config.items():
                topics.configure(self.servers, topic, {name: value})
            for partition in range(self.partitions):
                self._compact(topic, partition, deletes_go=deletes_go)

    def _compact(self, topic: str, partition: int, *, deletes_go: bool) -> None:
        key = b"filler-%d" % partition
        if topic == self.changelog("clicks"):
            key += (self.now // 60_000 * 60_000).to_bytes(8, "big") + bytes(4)
        filler = Record(key, b"12345678 filler", partition, self.now)
        deadline = time.monotonic() + 300
        while True:
            with suppress(TimeoutError):  # of a broker that does not know its new settings yet
                topics.compact(self.servers, topic, partition, self.broker.data_directory, filler, timeout=5)
            read = topics.read(self.servers, topic, partition)
            if not deletes_go or all(record.value is not None for record in read):
                return
            assert time.monotonic() < deadline, "the broker kept the deletes"

    def reconcile(self, engine: Engine | None = None, **asked: Any) -> ReadReport:
        more = {name: asked.pop(name) for name in ("faults", "small_tail") if name in asked}
        request = self.request(when_refused=WhenRefused.RECONCILE, compact=False, **asked)
        report = run_checkpoint(request, engine or InProcessEngine(), say=self.said.append, **more)
        assert isinstance(report, ReadReport)
        return report

    def put_bytes(self) -> int:
        """Bytes of all files and packs of the repository."""
        below = self.scratch / "repository" / "apps" / self.application_id
        return sum(file.stat().st_size for name in ("files", "packs") for file in (below / name).rglob("*"))

    def only_plain(self, stores: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
        return {key: value for key, value in stores.items() if key[1] == "plain"}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Compacted:
    return Compacted(broker.bootstrap_servers, tmp_path, broker=broker)


def bases_of(report: ReadReport) -> dict[tuple[str, str], str]:
    return {(one.task, one.store): one.base for one in report.stores}


def put_above(before: StoreSnapshot, after: StoreSnapshot) -> tuple[int, int]:
    """Rows and deletes of the runs above those of a store without segments, which are all still there."""
    (old,), (new,) = before.databases, after.databases
    assert new.runs[: len(old.runs)] == old.runs
    made = [stored.run for stored in new.runs[len(old.runs) :]]
    return sum(run.rows for run in made), sum(run.deletes for run in made)


def about(report: ReadReport, *words: str) -> list[str]:
    return [note for note in report.notes if all(word in note for word in words)]


def test_stores_whose_deletes_are_gone_are_made_right_and_others_rebuilt_with_the_reason(shop: Compacted) -> None:
    shop.write(300)
    first = shop.checkpoint().published
    assert first is not None
    before = shop.stores_there()
    shop.write(120)
    topics.configure(shop.servers, shop.changelog("clicks"), {"cleanup.policy": "compact,delete"})
    topics.configure(shop.servers, shop.changelog("clicks"), {"retention.ms": "-1"})
    shop.compact(shop.changelog("plain"), shop.changelog("clicks"), shop.names)
    report = shop.reconcile()
    assert report.published is not None
    after, bases = shop.stores_there(), bases_of(report)
    assert {key: name for key, name in bases.items() if name} == dict.fromkeys(PLAIN, first.snapshot)
    assert len(bases) == 5
    for key in PLAIN:
        rows, deletes = put_above(before[key], after[key])
        assert rows > 0
        assert deletes > 0, "though the log has none"
        assert after[key].base_snapshot == first.snapshot
        (said,) = about(report, f"of task {key[0]} was compared")
        assert f" {rows:,} rows and {deletes:,} deletes" in said
    for store, why in (("clicks", "compact,delete"), ("names", f"built from {shop.partitions} partitions of")):
        tasks = sorted({task for task, name in bases if name == store})
        of = f"task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}"
        (said,) = about(report, f"Store {store} of {of} is not advanced from {first.snapshot}")
        assert "compaction has removed" in said
        assert why in said
        assert shop.said.count(said) == 1
    (rebuilt,) = about(report, "No snapshot can be advanced for ")
    assert rebuilt in shop.said
    assert "plain" not in rebuilt
    assert len(report.notes) == len(set(report.notes))
    assert shop.fetched() == shop.restored()


def test_a_store_that_was_made_right_is_advanced_by_its_tail_again(shop: Compacted) -> None:
    shop.write(200)
    shop.checkpoint()
    shop.write(80)
    shop.compact(shop.changelog("plain"))
    shop.reconcile()
    for name, value in topics.UNCLEANED.items():
        topics.configure(shop.servers, shop.changelog("plain"), {name: value})
    before = shop.stores_there()
    shop.write(50, only=["plain"])
    report = shop.reconcile()
    assert not about(report, "was compared with its")
    assert all(put_above(before[key], shop.stores_there()[key]) != (0, 0) for key in PLAIN)
    assert sum(one.records for one in report.stores) == 50
    assert shop.fetched() == shop.restored()


def test_what_is_put_is_the_difference_and_not_the_store(shop: Compacted) -> None:
    plain = shop.changelog("plain")

    def write(numbers: range, *, value: bool = True) -> None:
        records = [
            Record(b"key-%06d" % n, shop.chance.randbytes(100) if value else None, n % shop.partitions) for n in numbers
        ]
        topics.produce(shop.servers, plain, records, batch_size=16_000)

    write(range(20_000))
    shop.checkpoint(stores=("plain",))
    whole = shop.put_bytes()
    assert whole > 2_000_000
    write(range(100))
    write(range(200, 300), value=False)
    shop.compact(plain)
    report = shop.reconcile(stores=("plain",))
    assert shop.put_bytes() - whole < whole / 20
    assert report.published is not None
    assert report.published.new_bytes < whole / 40
    assert [one.runs for one in report.stores] == [1, 1]
    assert {one.start for one in report.stores} == {0}
    assert sum(one.records for one in report.stores) > 19_900, "all of the log was read"
    assert shop.only_plain(shop.fetched()) == shop.only_plain(shop.restored())


@pytest.mark.parametrize("age", one_of(["too great", "known", "unknown"]))
def test_a_snapshot_of_no_known_or_too_great_an_age_is_held_against_the_whole_log_though_no_delete_is_gone(
    shop: Compacted, monkeypatch: pytest.MonkeyPatch, age: str
) -> None:
    shop.write(200)
    first = shop.checkpoint().published
    assert first is not None
    shop.write(100)
    shop.compact(shop.changelog("plain"), shop.changelog("clicks"), deletes_go=False)
    if age == "too great":
        time_ms = Cluster.time_ms
        monkeypatch.setattr(Cluster, "time_ms", lambda cluster: (time_ms(cluster) or 0) + 2 * 86_400_000)
    of_snapshot = Base.of_snapshot
    if age == "unknown":
        monkeypatch.setattr(Base, "of_snapshot", lambda name, store, _: of_snapshot(name, store, None))
    report = shop.reconcile()
    why = {"too great": "delete.retention.ms", "unknown": "it is not known since when", "known": ""}[age]
    compared = about(report, "was compared with its whole changelog", why)
    assert len(compared) == (0 if age == "known" else 4), "windows too, where nothing else removes rows"
    assert set(bases_of(report).values()) == {first.snapshot}
    assert shop.fetched() == shop.restored()


def test_a_rebuild_because_of_refusals_says_each_of_them_once_and_a_retry_as_well(shop: Compacted) -> None:
    made = []
    for _ in range(7):
        shop.write(40)
        published = shop.checkpoint(stores=("plain",), compact=False).published
        assert published is not None
        made.append(published.snapshot)
    shop.write(40)
    shop.compact(shop.changelog("plain"))
    asked: dict[str, Any] = {"stores": ("plain",), "compact": False, "request_id": "one"}
    said: list[str] = []
    with pytest.raises(FaultInjected):
        shop.checkpoint(**asked, say=said.append, faults=InjectedFault("checkpoint.after-runs", "raise", 2))
    first = list(said)
    for report in (None, shop.checkpoint(**asked, say=said.append)):
        of_both = [line for line in said if "Store plain of tasks 0_0, 0_1 is not advanced from" in line]
        assert f"{made[-1]}: compaction has removed" in of_both[0]
        older = f"{', '.join(made[-2:-5:-1])} and 1 more"
        assert older in of_both[1]
        assert made[-1] in of_both[1]
        if report is not None:
            assert set(said[len(first) :]) == set(first), "the retry says them again"
            assert len(first) == len(set(first))
            assert all(report.notes.count(line) == 1 for line in first if line.endswith("."))
            assert set(bases_of(report).values()) == {""}
    (rebuilt,) = {line for line in said if line.startswith("No snapshot")}
    assert all(f"plain of task {task}" in rebuilt for task, _ in PLAIN)
    assert shop.only_plain(shop.fetched()) == shop.only_plain(shop.restored())


@pytest.mark.parametrize(
    "point",
    one_of(
        (
            "reconcile.after-files",
            "checkpoint.after-plan",
            "checkpoint.after-runs",
            "reconcile.after-logs",
            "publish.after-task-manifests",
            "publish.before-head",
            "checkpoint.after-publication",
        )
    ),
)
def test_a_retry_after_a_kill_ends_as_if_there_had_been_none(shop: Compacted, point: str) -> None:
    shop.write(150)
    shop.checkpoint()
    before = shop.stores_there()
    shop.write(60)
    shop.compact(shop.changelog("plain"))
    with pytest.raises(FaultInjected):
        shop.reconcile(request_id="one", faults=InjectedFault(point, "raise"))
    put = shop.put_bytes()
    report = shop.reconcile(request_id="one")
    assert report.published is not None
    assert all(put_above(before[key], shop.stores_there()[key])[1] > 0 for key in PLAIN)
    if point not in ("checkpoint.after-plan", "checkpoint.after-runs", "reconcile.after-logs"):
        assert shop.put_bytes() == put, "the same bytes under the same hashes"
    assert shop.fetched() == shop.restored()


def test_a_damaged_base_is_found_and_its_store_rebuilt(shop: Compacted) -> None:
    shop.write(200)
    first = shop.checkpoint(stores=("plain",)).published
    assert first is not None
    (run,) = shop.stores_there()["0_1", "plain"].databases[0].runs
    blob = shop.scratch / "repository" / run.extent.blob
    content = bytearray(blob.read_bytes())
    content[run.extent.start + run.extent.bytes // 2] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(content)
    shop.write(60)
    shop.compact(shop.changelog("plain"))
    report = shop.reconcile(stores=("plain",))
    assert bases_of(report) == {("0_0", "plain"): first.snapshot, ("0_1", "plain"): ""}
    (said,) = about(report, "Store plain of task 0_1 is not advanced from")
    assert "differs from that recorded" in said
    assert len(about(report, "was compared with its")) == 1
    assert shop.only_plain(shop.fetched()) == shop.only_plain(shop.restored())


class Apart:
    """An engine whose workers share nothing with this machine but the repository, as far as a job knows."""

    options = ()

    def expected(self, spec: ApplicationSpec) -> int:
        return 2

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[Workers]:
        with InProcessEngine().start(job, spec) as workers:
            workers.are_local = lambda: False  # type: ignore[method-assign]
            yield workers


@pytest.mark.full
@pytest.mark.parametrize("engine", one_of([Apart(), ProcessEngine(2)]))
def test_long_logs_are_compared_on_this_machine_with_any_engine(shop: Compacted, engine: Engine) -> None:
    shop.write(200)
    shop.checkpoint()
    before = shop.stores_there()
    shop.write(60)
    shop.compact(shop.changelog("plain"))
    report = shop.reconcile(engine, small_tail=0)
    assert report.published is not None
    assert all(put_above(before[key], shop.stores_there()[key])[1] > 0 for key in PLAIN)
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("other", one_of(["a compaction", "a rebuild that ends later", "a rebuild to the same ends"]))
def test_snapshots_published_during_a_reconciliation_stay_correct(shop: Compacted, other: str) -> None:
    for _ in range(4):
        shop.write(50, only=["plain"])
        shop.checkpoint(stores=("plain",), compact=False)
    shop.write(60, only=["plain"])
    shop.compact(shop.changelog("plain"))
    before = shop.snapshots()[0]

    def publish() -> None:
        if other == "a compaction":
            settings = CompactionSettings(new_due=2, eligible=2, remaining=1, all_due=2, max_old=1)
            assert (
                compact(context_of(shop.app_repository, parse_spec(shop.spec)), settings=settings).snapshot is not None
            )
            return
        if other == "a rebuild that ends later":
            shop.write(30, only=["plain"])
        assert set(bases_of(shop.checkpoint(stores=("plain",), compact=False)).values()) == {""}

    report = shop.reconcile(stores=("plain",), faults=FaultAction("reconcile.after-files", publish))
    assert shop.snapshots()[1 if report.published is None else 2] == before
    assert (report.published is None) == (other != "a compaction"), "what others have is not put twice"
    assert shop.only_plain(shop.fetched()) == shop.only_plain(shop.restored())
