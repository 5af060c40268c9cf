"""``checkpoint``: a snapshot is advanced by the tails of the changelogs, and is what a restore of them makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statecore.jobs.checkpoint import run_checkpoint
from statecore.jobs.checkpoint_request import CheckpointRequest
from statecore.jobs.fetch import run_fetch
from statecore.jobs.fetch_report import FetchReport
from statecore.jobs.fetch_request import FetchRequest
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.report import RestoreReport
from statecore.jobs.request import RestoreRequest
from statecore.jobs.restore import run_restore
from statecore.jobs.versioned_start import VersionedStart
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import make_repository
from statecore.repository.shelf import Shelf
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

PARTITIONS = 2
RETENTION = 600_000


@dataclass
class Shop:
    """An application whose changelogs are written by the test, and its repository.

    Attributes:
        servers: the brokers.
        scratch: a directory for all of it.
        configs: of the changelogs.
        scattered: whether a key of the global store lies in several partitions, as after somebody has added one.
        chance: decides what is written.
    """

    servers: str
    scratch: Path
    configs: Mapping[str, str] = field(default_factory=lambda: topics.UNCLEANED)
    chance: Random = field(default_factory=lambda: Random(7))
    application_id: str = field(default_factory=lambda: f"checkpoint-{time.time_ns()}")
    scattered: bool = True
    now: int = field(default_factory=lambda: int(time.time() * 1000) - 86_400_000)

    def __post_init__(self) -> None:
        for store in ("plain", "clicks"):
            topics.create(self.servers, self.changelog(store), PARTITIONS, self.configs)
        topics.create(self.servers, self.names, PARTITIONS, self.configs)
        make_repository(self.url)

    def changelog(self, store: str) -> str:
        return f"{self.application_id}-{store}-changelog"

    @property
    def names(self) -> str:
        return f"{self.application_id}-names"

    @property
    def url(self) -> str:
        return (self.scratch / "repository").as_uri()

    @property
    def shelf(self) -> Shelf:
        return Shelf.at(self.url, self.application_id)

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "application_id": self.application_id,
            "bootstrap_servers": self.servers,
            "processing_guarantee": "at_least_once",
            "subtopologies": {
                "0": {
                    "stores": {
                        "plain": {"kind": "key-value"},
                        "clicks": {"kind": "timestamped-window", "retention": "10m"},
                    }
                }
            },
            "global_stores": {"names": {"kind": "timestamped-key-value", "topic": self.names}},
        }

    def write(self, count: int = 200, *, only: str | None = None) -> None:
        """Overwrite some keys, delete some, add some; the windows go on with the time."""
        written: dict[str, list[Record]] = {self.changelog("plain"): [], self.changelog("clicks"): [], self.names: []}
        for _ in range(count):
            self.now += self.chance.randrange(2000)
            key = b"key-%d" % self.chance.randrange(150)
            value = None if self.chance.random() < 0.3 else b"value %d" % self.chance.randrange(10**9)
            window = key + (self.now // 60_000 * 60_000).to_bytes(8, "big") + bytes(4)
            for topic, its_key in zip(written, (key, window, key), strict=True):
                scattered = self.scattered and topic == self.names
                partition = self.chance.randrange(PARTITIONS) if scattered else key[-1] % PARTITIONS
                written[topic].append(Record(its_key, value, partition=partition, timestamp=self.now))
        for topic, records in written.items():
            if only is None or topic == only:
                topics.produce(self.servers, topic, records)

    def checkpoint(self, **asked: Any) -> RestoreReport:
        more = {name: asked.pop(name) for name in ("say", "faults") if name in asked}
        request = CheckpointRequest(spec=self.spec, repository=self.url, **asked)
        report = run_checkpoint(request, InProcessEngine(), **more)
        assert isinstance(report, RestoreReport)
        return report

    def restored(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Rows and digest of each store, as a restore of the logs makes them."""
        request = RestoreRequest(
            spec=self.spec,
            state_dir=str(self.scratch / f"restored-{time.time_ns()}"),
            versioned=VersionedStart.LATEST,
            start_from="none",
        )
        report = run_restore(request, InProcessEngine())
        assert isinstance(report, RestoreReport)
        return {(one.task, one.store): (one.rows, one.digest) for one in report.stores}

    def fetched(self) -> dict[tuple[str, str], tuple[int | None, str | None]]:
        """The same of the newest snapshot, when it is fetched."""
        report: FetchReport = run_fetch(
            FetchRequest(
                repository=self.url,
                application_id=self.application_id,
                state_dir=str(self.scratch / f"fetched-{time.time_ns()}"),
                versioned=VersionedStart.LATEST,
                bootstrap_servers=self.servers,
            )
        )
        return {(one.task, one.store): (one.rows, one.digest) for one in report.stores}

    def stores(self) -> dict[tuple[str, str], StoreSnapshot]:
        """The stores of the newest snapshot."""
        newest = self.shelf.head().newest
        assert newest is not None
        parts = self.shelf.parts(self.shelf.manifest(newest).value.parts)
        return {(task, store.store): store for task, read in parts.items() for store in read.part.stores}


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap_servers, tmp_path)


def test_checkpoint_after_checkpoint_holds_what_a_restore_of_the_logs_makes(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    assert first.published is not None
    assert {store.parent for store in first.stores} == {""}
    for _ in range(3):
        before = shop.stores()
        shop.write(60)
        report = shop.checkpoint()
        assert report.published is not None
        assert all(store.parent for store in report.stores)
        for key, store in shop.stores().items():
            for old in before[key].databases:
                new = next((one for one in store.databases if one.segment == old.segment), None)
                assert new is None or [run for run in new.runs if run in old.runs] == list(old.runs)
        assert shop.fetched() == shop.restored()


def test_nothing_is_published_where_nothing_is_new(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    again = shop.checkpoint()
    assert first.published is not None
    assert again.published is None
    assert [entry.snapshot for entry in shop.shelf.head().snapshots] == [first.published.snapshot]


def test_runs_stay_few_and_hold_the_same(shop: Shop) -> None:
    shop.write(600)
    shop.checkpoint()
    folds, most = 0, 0
    for _ in range(16):
        shop.write(30)
        report = shop.checkpoint()
        folds += any("runs were folded" in note for note in report.notes)
        for (task, _), store in shop.stores().items():
            most = max(most, *(len(one.runs) // (PARTITIONS if task == "global" else 1) for one in store.databases))
    assert folds
    assert most <= 13
    assert shop.fetched() == shop.restored()
