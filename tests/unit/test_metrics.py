from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from statecore.errors import Corrupted, Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import (
    ALL_LATENCY,
    CHECKPOINT_AGE,
    CHECKPOINT_SUCCESS,
    COMMIT_AGE,
    COMMIT_LATENCY,
    COMMITS,
    COMMITTED_BYTES,
    GETS,
    ITERATOR_DURATION,
    NO_METRICS,
    OPEN_ITERATORS,
    OPEN_STORES,
    PREFIX_SCAN_LATENCY,
    PUTS,
    RANGE_LATENCY,
    RESTORE_REMAINING,
    RESTORED,
    SNAPSHOT_READ_AT,
    SNAPSHOTS_DAMAGED,
    SNAPSHOTS_VERIFIED,
    UNCOMMITTED_BYTES,
    CheckpointMetrics,
    Instrument,
    InstrumentKind,
    MeteredProgress,
    OpenTelemetryMetrics,
    RestoreMetrics,
    VerificationMetrics,
    store_tags,
)
from statecore.progress import NullProgress
from statecore.stores.metered import MeteredStore
from tests.harness.instruments import INSTRUMENTS
from tests.harness.manual_clock import ManualClock
from tests.unit.stores.recorded_store import RecordedStore

CHANGELOG = TopicPartition("app-s-changelog", 0)
TAGS = {"task-id": "0_1", "rocksdb-state-id": "s"}
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "metrics.md"


class SlowStore(RecordedStore):
    """A commit takes 20 ms of the clock."""

    def __init__(self, file: Path, clock: ManualClock) -> None:
        super().__init__(file, manages_offsets=True)
        self.clock = clock

    def _happen(self, what: str) -> None:
        self.clock.now += 0.02 if what == "commit" else 0.0
        super()._happen(what)


class Collected:
    """What OpenTelemetry would export."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.metrics = OpenTelemetryMetrics(self.provider.get_meter("statecore"))

    def points(self, instrument: Instrument) -> dict[tuple[tuple[str, str], ...], Any]:
        data = self.reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == instrument.name
        ]
        assert all((metric.unit, metric.description) == (instrument.unit, instrument.meaning) for metric in found)
        return {
            tuple(sorted((point.attributes or {}).items())): point
            for metric in found
            for point in metric.data.data_points
        }

    def value(self, instrument: Instrument, tags: dict[str, str] | None = None) -> Any:
        return self.points(instrument)[tuple(sorted((TAGS if tags is None else tags).items()))].value


@pytest.fixture
def collected() -> Collected:
    return Collected()


def test_a_stores_commits_are_visible(collected: Collected, tmp_path: Path) -> None:
    clock = ManualClock()
    store = MeteredStore(SlowStore(tmp_path / "rows", clock), collected.metrics, task="0_1", name="s", clock=clock)
    store.open()
    store.put(b"key", b"v")
    store.put_all((bytes([key]), b"v") for key in range(3))
    store.get_many([b"key", b"other"])
    assert store.get(b"key") == b"v"
    assert store.put_if_absent(b"key", b"w") == b"v"
    assert store.put_if_absent(bytes([3]), b"v") is None
    assert collected.value(UNCOMMITTED_BYTES) == 7
    store.commit({CHANGELOG: 7})
    store.commit({CHANGELOG: 8})
    clock.now += 30
    assert collected.value(COMMITS) == 2
    assert (collected.value(PUTS), collected.value(GETS)) == (5, 5)
    assert collected.value(UNCOMMITTED_BYTES) == 0
    assert collected.value(COMMIT_AGE) == pytest.approx(30)
    latency = collected.points(COMMIT_LATENCY)[tuple(sorted(TAGS.items()))]
    assert (latency.count, latency.sum, latency.max) == (2, pytest.approx(40), pytest.approx(20))
    assert collected.points(COMMITTED_BYTES)[tuple(sorted(TAGS.items()))].max == 7
    store.close()
    assert collected.points(COMMIT_AGE) == {}


def test_iterators_are_measured_from_their_making_to_their_end(collected: Collected, tmp_path: Path) -> None:
    clock = ManualClock()
    inside = RecordedStore(tmp_path / "rows", manages_offsets=True)
    store = MeteredStore(inside, collected.metrics, task="0_1", name="s", clock=clock)
    store.open()
    store.put_all([(b"a", b"1"), (b"ab", b"2"), (b"b", b"3")])
    store.commit({CHANGELOG: 1})
    tags = tuple(sorted(TAGS.items()))

    def measured(instrument: Instrument) -> tuple[int, float]:
        point = collected.points(instrument).get(tags)
        return (0, 0.0) if point is None else (point.count, point.sum)

    everything = store.all()
    assert collected.value(OPEN_ITERATORS) == 1
    clock.now += 0.25
    assert [key for key, _ in everything] == [b"a", b"ab", b"b"]
    assert (measured(ALL_LATENCY), collected.value(OPEN_ITERATORS)) == ((1, pytest.approx(250)), 0)
    for rows in (store.range(b"a", b"ab"), store.reverse_range(b"a", b"ab"), store.scan(b"a", b"b")):
        assert len(list(rows)) == 2
    assert [value for _, value in store.prefix_scan(b"a")] == [b"1", b"2"]
    assert [value for _, value in store.reverse_prefix_scan(b"a")] == [b"2", b"1"]
    given_up, never_read = store.reverse_all(), store.all()
    assert next(given_up) == (b"b", b"3")
    assert collected.value(OPEN_ITERATORS) == 2
    given_up.close()  # type: ignore[attr-defined]
    del never_read
    assert collected.value(OPEN_ITERATORS) == 0
    assert [measured(one)[0] for one in (RANGE_LATENCY, PREFIX_SCAN_LATENCY, ALL_LATENCY)] == [3, 2, 3]
    assert measured(ITERATOR_DURATION) == (8, pytest.approx(250))
    store.close()
    assert collected.points(OPEN_ITERATORS) == {}


def test_a_commit_that_failed_does_not_count(collected: Collected, tmp_path: Path) -> None:
    inside = RecordedStore(tmp_path / "rows", manages_offsets=True)
    with MeteredStore(inside, collected.metrics, task="0_1", name="s") as store:
        store.put(b"key", b"v")
        inside.failing = "commit"
        with pytest.raises(Corrupted):
            store.commit({CHANGELOG: 7})
        assert collected.points(COMMITS) == {}
        inside.failing = None
        store.commit({CHANGELOG: 7})
        assert (collected.value(COMMITS), collected.value(PUTS)) == (1, 1)


def test_open_stores_are_counted_together(collected: Collected, tmp_path: Path) -> None:
    stores = [
        MeteredStore(RecordedStore(tmp_path / name, manages_offsets=True), collected.metrics, task="0_1", name=name)
        for name in ("a", "b")
    ]
    for store in stores:
        store.open()
        store.open()
    assert collected.value(OPEN_STORES, {}) == 2
    stores[0].close()
    stores[0].close()
    assert collected.value(OPEN_STORES, {}) == 1
    stores[1].close()
    assert collected.points(OPEN_STORES) == {}


def test_a_store_that_fails_to_open_or_close_is_not_open(collected: Collected, tmp_path: Path) -> None:
    inside = RecordedStore(tmp_path / "rows", manages_offsets=True)
    store = MeteredStore(inside, collected.metrics, task="0_1", name="s")
    inside.failing = "open"
    with pytest.raises(Corrupted):
        store.open()
    assert collected.points(OPEN_STORES) == {}
    inside.failing = "close"
    store.open()
    with pytest.raises(Corrupted):
        store.close()
    assert collected.points(OPEN_STORES) == {}


def test_a_restore_says_how_much_is_done_and_left(collected: Collected) -> None:
    tags = store_tags("0_1", "s")
    restore = RestoreMetrics(collected.metrics, 1000, tags)
    restore.restored(300)
    restore.restored(500)
    assert (collected.value(RESTORED), collected.value(RESTORE_REMAINING)) == (800, 200)
    restore.restored(250)
    assert collected.value(RESTORE_REMAINING) == 0, "a log that grew meanwhile leaves nothing negative"
    restore.close()
    assert collected.points(RESTORE_REMAINING) == {}
    assert collected.value(RESTORED) == 1050


def test_the_progress_of_a_restore_updates_metrics(collected: Collected) -> None:
    heard: list[tuple[object, ...]] = []

    class Listener:
        def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
            heard.append((name, total, unit))

        def advance(self, amount: int = 1) -> None:
            heard.append((amount,))

        def done(self, message: str = "") -> None:
            heard.append((message,))

    tags = {"application-id": "orders"}
    progress = MeteredProgress(Listener(), collected.metrics, tags)
    progress.phase("read", 1000, "offsets")
    progress.advance(400)
    assert (collected.value(RESTORED, tags), collected.value(RESTORE_REMAINING, tags)) == (400, 600)
    progress.phase("build", 2, "stores")
    progress.advance()
    progress.done("all of it")
    assert collected.value(RESTORED, tags) == 400, "stores are not records"
    assert collected.value(RESTORE_REMAINING, tags) == 600, "what was left is still told to whoever collects at the end"
    progress.close()
    assert collected.points(RESTORE_REMAINING) == {}
    assert heard == [("read", 1000, "offsets"), (400,), ("build", 2, "stores"), (1,), ("all of it",)]


def test_a_second_restore_resets_its_progress(collected: Collected) -> None:
    progress = MeteredProgress(NullProgress(), collected.metrics, TAGS)
    progress.phase("read", 10, "offsets")
    progress.advance(4)
    progress.phase("read", 100, "offsets")
    progress.advance(1)
    assert (collected.value(RESTORED), collected.value(RESTORE_REMAINING)) == (5, 99)
    progress.done()
    progress.advance(50)
    assert collected.value(RESTORED) == 5, "nothing is counted between two steps"


def test_checkpoint_metrics_give_last_success_and_freshness(collected: Collected) -> None:
    clock, tags = ManualClock(), {"application-id": "orders"}
    checkpoints = CheckpointMetrics(collected.metrics, tags, clock)
    assert checkpoints.is_exported
    assert collected.points(CHECKPOINT_SUCCESS) == collected.points(SNAPSHOT_READ_AT) == {}
    for now, cut in ((100.0, 90.0), (400.0, 395.5)):
        clock.now = now
        checkpoints.record_success(cut)
        assert (collected.value(CHECKPOINT_SUCCESS, tags), collected.value(SNAPSHOT_READ_AT, tags)) == (now, cut)
    clock.now = 700.0
    assert collected.value(CHECKPOINT_SUCCESS, tags) == 400, "it stands still where none succeeds"
    checkpoints.record_success(None)
    assert (collected.value(CHECKPOINT_SUCCESS, tags), collected.points(SNAPSHOT_READ_AT)) == (700, {})
    checkpoints.close()
    checkpoints.close()
    assert collected.points(CHECKPOINT_SUCCESS) == {}
    assert not CheckpointMetrics(NO_METRICS, tags).is_exported


def test_a_success_of_a_clock_that_is_ahead_is_exported_as_of_the_check(collected: Collected) -> None:
    tags = {"application-id": "orders"}
    CheckpointMetrics(collected.metrics, tags, ManualClock()).record_check(100.0, 700.0, 60.0)
    assert collected.value(CHECKPOINT_SUCCESS, tags) == 100


def test_verification_metrics_are_of_each_level(collected: Collected) -> None:
    exported = VerificationMetrics(collected.metrics, "orders", {"files": (90_500, 0), "bytes": (70_000, 2)})
    for level, since, damaged in (("files", 90.5, 0), ("bytes", 70.0, 2)):
        tags = {"application-id": "orders", "level": level}
        assert (collected.value(SNAPSHOTS_VERIFIED, tags), collected.value(SNAPSHOTS_DAMAGED, tags)) == (since, damaged)
    exported.close()
    exported.close()
    assert collected.points(SNAPSHOTS_VERIFIED) == collected.points(SNAPSHOTS_DAMAGED) == {}


def test_damage_of_a_level_is_exported_before_all_of_it_was_verified(collected: Collected) -> None:
    exported = VerificationMetrics(collected.metrics, "orders", {"bytes": (None, 1)})
    assert collected.value(SNAPSHOTS_DAMAGED, {"application-id": "orders", "level": "bytes"}) == 1
    assert collected.points(SNAPSHOTS_VERIFIED) == {}
    exported.close()


def test_gauges_with_the_same_tags_are_summed(collected: Collected) -> None:
    ends = [collected.metrics.observe(CHECKPOINT_AGE, lambda: 2.5, TAGS) for _ in range(2)]
    other = collected.metrics.observe(CHECKPOINT_AGE, lambda: 9, {"task-id": "0_2"})
    assert collected.value(CHECKPOINT_AGE) == 5
    assert collected.value(CHECKPOINT_AGE, {"task-id": "0_2"}) == 9
    for end in [*ends, *ends, other]:
        end()
    assert collected.points(CHECKPOINT_AGE) == {}


def test_a_gauge_without_a_value_reports_none(collected: Collected) -> None:
    known: list[float | None] = [None]
    end = collected.metrics.observe(CHECKPOINT_AGE, lambda: known[0], TAGS)
    assert collected.points(CHECKPOINT_AGE) == {}
    known[0] = 0.0
    assert collected.value(CHECKPOINT_AGE) == 0
    end()


def test_there_are_no_listeners_by_default(tmp_path: Path) -> None:
    with MeteredStore(
        RecordedStore(tmp_path / "rows", manages_offsets=True), NO_METRICS, task="0_1", name="s"
    ) as store:
        store.put(b"key", b"v")
        store.commit({CHANGELOG: 7})
        assert store.get(b"key") == b"v"


def test_opentelemetry_is_loaded_only_when_it_is_asked_for() -> None:
    code = (
        "import sys, statecore.metrics, statecore.tasks.checkpoint_policy, statecore.stores.metered;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_opentelemetry_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Invalid, match="Install opentelemetry-api"):
        OpenTelemetryMetrics()


def test_every_instrument_is_documented() -> None:
    section = DOCUMENTATION.read_text().partition("# Metrics")[2]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    documented = [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows]
    wanted = [[one.name, str(one.kind), one.unit, one.meaning, ", ".join(one.streams) or "none"] for one in INSTRUMENTS]
    assert documented == wanted
    assert {one.kind for one in INSTRUMENTS} == set(InstrumentKind)
