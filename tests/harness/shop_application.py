"""An application whose changelogs the test writes, with its repository."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer

from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import create_repository
from tests.harness import topics
from tests.harness.topics import Record

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"

PLAIN: Mapping[str, Any] = {"kind": "key-value"}
CLICKS: Mapping[str, Any] = {"kind": "timestamped-window", "retention": "10m"}

Found = dict[tuple[str, str], tuple[int | None, str | None]]
"""Rows and digest of each store, by task and name."""


@dataclass
class Shop:
    """An application whose changelogs are written by the test, and its repository.

    Attributes:
        servers: the brokers.
        scratch: a directory for all of it.
        configs: of the changelogs.
        stores: those of its one subtopology, as a spec declares them; a test may change them.
        partitions: of each topic.
        guarantee: its processing guarantee.
        has_global: whether it has the global store ``names``.
        scattered: whether a key of that lies in several partitions, as after somebody has added one.
        url: of the repository; one in ``scratch`` where none is given.
        chance: decides what is written.
    """

    servers: str
    scratch: Path
    configs: Mapping[str, str] = field(default_factory=lambda: topics.UNCLEANED)
    stores: dict[str, Mapping[str, Any]] = field(default_factory=lambda: {"plain": PLAIN, "clicks": CLICKS})
    partitions: int = 2
    guarantee: str = AT_LEAST_ONCE
    has_global: bool = True
    scattered: bool = False
    url: str = ""
    chance: Random = field(default_factory=lambda: Random(7))
    application_id: str = field(default_factory=lambda: f"checkpoint-{time.time_ns()}")
    now: int = field(default_factory=lambda: int(time.time() * 1000) - 86_400_000)

    def __post_init__(self) -> None:
        self.url = self.url or (self.scratch / "repository").as_uri()
        for topic in self.topics:
            topics.create(self.servers, topic, self.partitions, self.configs)
        create_repository(self.url)

    @staticmethod
    def small(servers: str, scratch: Path, **more: Any) -> Shop:
        """One of a single store partition: ``plain`` of task ``0_0``."""
        return Shop(servers, scratch, **{"stores": {"plain": PLAIN}, "partitions": 1, "has_global": False, **more})

    @property
    def topics(self) -> list[str]:
        """What its stores are read from."""
        return [*map(self.changelog, self.stores), *([self.names] if self.has_global else [])]

    def changelog(self, store: str = "plain") -> str:
        """The changelog of a store: a source topic where the spec says so."""
        named = self.stores.get(store, {}).get("changelog")
        return str(named or f"{self.application_id}-{store}-changelog")

    @property
    def names(self) -> str:
        """The topic of the global store."""
        return f"{self.application_id}-names"

    @property
    def app_repository(self) -> ApplicationRepository:
        """What the repository has of it, opened anew."""
        return ApplicationRepository.open(self.url, self.application_id)

    @property
    def spec(self) -> dict[str, Any]:
        """What statecore is told."""
        spec: dict[str, Any] = {
            "application_id": self.application_id,
            "bootstrap_servers": self.servers,
            "processing_guarantee": self.guarantee,
            "subtopologies": {"0": {"stores": {name: dict(store) for name, store in self.stores.items()}}},
        }
        if self.has_global:
            spec["global_stores"] = {"names": {"kind": "timestamped-key-value", "topic": self.names}}
        return spec

    def records(self, store: str, count: int) -> list[Record]:
        """Some keys are overwritten, some deleted, some are new; the windows go on with the time."""
        made = []
        for _ in range(count):
            self.now += self.chance.randrange(2000)
            number = self.chance.randrange(150)
            key = b"key-%d" % number
            value = None if self.chance.random() < 0.3 else b"value %d" % self.chance.randrange(10**9)
            if "window" in str(self.stores.get(store, PLAIN)["kind"]):
                key += (self.now // 60_000 * 60_000).to_bytes(8, "big") + bytes(4)
            made.append(Record(key, value, partition=number % self.partitions, timestamp=self.now))
        return made

    def write(self, count: int = 200, *, only: Sequence[str] | None = None) -> None:
        """Write records of all stores, or of some."""
        for store in self.stores if only is None else only:
            topics.produce(self.servers, self.changelog(store), self.records(store, count))
        if self.has_global and only is None:
            records = self.records("", count)
            if self.scattered:
                records = [replace(one, partition=self.chance.randrange(self.partitions)) for one in records]
            topics.produce(self.servers, self.names, records)

    def put(self, rows: Mapping[str, str | None], store: str = "plain") -> None:
        """Write what is said, into partition 0."""
        topics.produce(self.servers, self.changelog(store), put_of(rows))

    def transaction(self, rows: Mapping[str, str | None]) -> AbstractContextManager[Producer]:
        """Write what is said into partition 0 of ``plain``, in a transaction that is open meanwhile."""
        return topics.transaction(self.servers, self.changelog(), put_of(rows))

    def request(self, **asked: Any) -> CheckpointRequest:
        """A request of a checkpoint."""
        return CheckpointRequest(**{"spec": self.spec, "repository": self.url, "transaction_wait": 0.2, **asked})

    def checkpoint(self, **asked: Any) -> ReadReport:
        """Make one; ``say`` and ``faults`` are the job's, all else are fields of the request."""
        more = {name: asked.pop(name) for name in ("say", "faults") if name in asked}
        report = run_checkpoint(self.request(**asked), InProcessEngine(), **more)
        assert isinstance(report, ReadReport)
        return report

    def restored(self) -> Found:
        """Each store, as a restore of the logs makes it."""
        request = RestoreRequest(
            spec=self.spec,
            state_dir=str(self.scratch / f"restored-{time.time_ns()}"),
            versioned=VersionedStart.LATEST,
            start_from=NOTHING,
            transaction_wait=0.2,
        )
        report = run_restore(request, InProcessEngine())
        assert isinstance(report, ReadReport)
        return {(one.task, one.store): (one.rows, one.digest) for one in report.stores}

    def fetched(self) -> Found:
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

    def snapshots(self) -> list[str]:
        """The snapshots that count, newest first."""
        head = self.app_repository.read_head()
        return [] if head is None else [entry.snapshot for entry in head.head.snapshots]

    def stores_there(self) -> dict[tuple[str, str], StoreSnapshot]:
        """The stores of the newest snapshot."""
        newest = self.app_repository.head().newest
        assert newest is not None
        task_manifests = self.app_repository.task_manifests(self.app_repository.manifest(newest).value.task_manifests)
        return {(task, store.store): store for task, read in task_manifests.items() for store in read.manifest.stores}

    def cuts_there(self) -> dict[str, int]:
        """The moment up to which the newest snapshot says that nothing lay behind the ends of each task, in ms."""
        newest = self.app_repository.head().newest
        assert newest is not None
        return {
            reference.task: reference.read_at_ms or 0
            for reference in self.app_repository.manifest(newest).value.task_manifests
        }

    def rows_there(self, task: str = "0_0", store: str = "plain") -> tuple[int, int]:
        """First offset and end of the runs of a store's first database in the newest snapshot."""
        runs = self.stores_there()[task, store].databases[0].runs
        return runs[0].run.start, runs[-1].run.end


def put_of(rows: Mapping[str, str | None]) -> list[Record]:
    """Records of partition 0."""
    return [Record(key.encode(), None if value is None else value.encode()) for key, value in rows.items()]
