"""Days of checkpoints every five minutes in minutes: real brokers, S3 server, jobs, and a moved clock.

The clock that is moved is the one that snapshots are named by and that ages are told from; nobody else's. What it says
decides two things that cost requests: whether a publication is the first of its hour, and so looks at what it takes
over, and whether moments at which nothing was new are worth a publication.

A checkpoint is asked for as a service does it (what is open stays open), or as a process of its own would.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.checkpoint_figures import Fetched, Step
from bench.checkpoint_testbed import Application, Testbed
from bench.process import checked, measure
from bench.restoring import fetch
from bench.s3_request_log import RequestLog
from bench.small import Case, fill_case
from bench.streams import LONGEST, STORE
from statecore.changelog.cluster import Cluster
from statecore.formats.rocksdb_log import read_manifest
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.read_report import ReadReport
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Origin, SnapshotEntry
from statecore.repository.manifest import StoredDatabase
from tests.harness import topics
from tests.harness.topics import Record

INTERVAL = 300.0
"""Seconds between two checkpoints, by the moved clock."""
LINGER = 10.0
"""Seconds for which Kafka Streams stays up, so that it can rewrite what it wants to."""

_HOUR = len("2026-11-23T01")


def steps(
    testbed: Testbed, spec: Path, application: str, url: str, changes: Sequence[Callable[[], None]], *, warm: bool
) -> Iterator[Step]:
    """Checkpoints at every interval, each after a change.

    Args:
        testbed: broker and S3 server.
        spec: the application's.
        application: its id.
        url: the repository, which has a snapshot of it.
        changes: make the change of each checkpoint.
        warm: whether repository and brokers stay open from one to the next.
    """
    app_repository = ApplicationRepository.open(url, application)
    ahead = 0.0

    def clock() -> float:
        return time.time() + ahead

    with Cluster(testbed.to_broker.address) as cluster:
        kept: dict[str, Any] = {"shared_repository": app_repository, "shared_cluster": cluster} if warm else {}
        hour = _newest(app_repository).created_at[:_HOUR]
        for change in changes:
            change()
            ahead += INTERVAL
            asked, moved, began = RequestLog(testbed.log), testbed.to_store.moved(), time.monotonic()
            request = CheckpointRequest(spec_path=str(spec), repository=url)
            report = run_checkpoint(request, InProcessEngine(), clock=clock, **kept)
            seconds, counts, moved = time.monotonic() - began, asked.counts(), testbed.to_store.moved() - moved
            if not isinstance(report, ReadReport):
                raise RuntimeError("a checkpoint was only planned")
            newest = _newest(app_repository)
            before, hour = hour, newest.created_at[:_HOUR]
            yield Step(
                asked=counts,
                put=moved.sent,
                got=moved.came,
                seconds=seconds,
                changed=sum(store.file_bytes for store in report.stores if store.records),
                compacted=newest.new_bytes if newest.origin == Origin.COMPACTION else None,
                is_idle=report.published is None,
                is_first_of_hour=report.published is not None and before != hour,
                runs=max(len(one.runs) for one in _databases(app_repository, newest)),
                state=newest.file_bytes,
            )


def day(testbed: Testbed, records: int, change: int, checkpoints: int) -> tuple[Application, str, list[Step]]:
    """So many checkpoints of an application of four store partitions, as a service makes them.

    Args:
        testbed: broker and S3 server.
        records: of the changelog at first.
        change: records that come between two checkpoints.
        checkpoints: how many.

    Returns:
        The application, its repository, and what became of each checkpoint.
    """
    app = Application.filled(testbed, "day", records)
    url = testbed.repository("day")
    app.rebuilt(url)
    changes = [partial(app.change, change, 1000 + number) for number in range(checkpoints)]
    return app, url, list(steps(testbed, app.spec, app.name, url, changes, warm=True))


def small_partitions(testbed: Testbed, partitions: int, checkpoints: int) -> list[Step]:
    """Checkpoints of many small store partitions, each made as by a process of its own; the first has nothing to do."""
    return list(small_steps(testbed, partitions, checkpoints, idle=1)[2])


def small_steps(
    testbed: Testbed, partitions: int, checkpoints: int, *, idle: int = 0
) -> tuple[str, str, Iterator[Step]]:
    """An application of many small store partitions, its repository, and its checkpoints, which are yet to be made.

    Args:
        testbed: broker and S3 server.
        partitions: of its store; a record comes in each between two checkpoints.
        checkpoints: how many.
        idle: how many there are before these that have nothing to do.
    """
    case = Case(f"checkpoint-{partitions}", f"{partitions} small store partitions", [STORE], partitions)
    fill_case(testbed.servers, case, partitions, 10)
    spec, url = case.spec(testbed.scratch, testbed.to_broker.address), testbed.repository(f"small-{partitions}")

    def change(number: int) -> None:
        records = [
            Record(b"key-0", b"value %d of %d" % (number, one), one, 1_700_000_000_000 + number)
            for one in range(partitions)
        ]
        topics.produce(testbed.servers, case.changelog(STORE), records)

    changes: list[Callable[[], None]] = [lambda: None] * idle
    changes += [partial(change, number) for number in range(checkpoints)]
    run_checkpoint(CheckpointRequest(spec_path=str(spec), repository=url), InProcessEngine())
    return case.application, url, steps(testbed, spec, case.application, url, changes, warm=False)


def fetches(testbed: Testbed, app: Application, url: str, rounds: int) -> Mapping[str, Fetched]:
    """Fetches of a repository after a day, and of one that was made anew, in turn; and Kafka Streams on both.

    Args:
        testbed: broker and S3 server.
        app: the application.
        url: the repository after a day.
        rounds: how often each is fetched; the middle one counts.
    """
    fresh = testbed.repository("fresh")
    app.rebuilt(fresh)
    places = {"after the day": url, "restored anew": fresh}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in places}
    for turn in range(rounds):
        for name in places if turn % 2 == 0 else reversed(places):
            cost, report = fetch(places[name], app.name, testbed.scratch / "fetched")
            found[name].append((cost.wall, report["seconds"]))
    return {name: _fetched(testbed, app, place, found[name]) for name, place in places.items()}


def _fetched(testbed: Testbed, app: Application, url: str, took: Sequence[tuple[float, float]]) -> Fetched:
    state = testbed.scratch / "fetched"
    fetch(url, app.name, state)
    before = data_files(state)
    command = [sys.executable, "-m", "bench.streams", "start", "--bootstrap-servers", testbed.servers]
    command += ["--application-id", app.name, "--state-dir", str(state), "--linger", str(LINGER)]
    started = json.loads(checked(measure(command, timeout=LONGEST)).stdout)
    after = data_files(state)
    shutil.rmtree(state)
    wall, inside = sorted(took)[(len(took) - 1) // 2]
    app_repository = ApplicationRepository.open(url, app.name)
    databases = _databases(app_repository, _newest(app_repository))
    return Fetched(
        wall=wall,
        inside=inside,
        runs=max(len(one.runs) for one in databases),
        named=sum(stored.extent.bytes for one in databases for stored in one.runs),
        placed=sum(before.values()),
        records=started["records"],
        rewritten=sum(size for file, size in before.items() if file not in after),
    )


def data_files(state: Path) -> dict[str, int]:
    """The SST files below a state directory that hold rows, with their bytes; offsets are in others."""
    found = {}
    for current in state.rglob("CURRENT"):
        database = current.parent
        manifest = read_manifest((database / current.read_text().strip()).read_bytes())
        for file in manifest.files.values():
            if file.family != "offsets":
                found[str((database / f"{file.number:06d}.sst").relative_to(state))] = file.size
    return found


def _newest(app_repository: ApplicationRepository) -> SnapshotEntry:
    newest = app_repository.head().newest
    if newest is None:
        raise RuntimeError(f"{app_repository.url} has no snapshot")
    return newest


def _databases(app_repository: ApplicationRepository, snapshot: SnapshotEntry) -> list[StoredDatabase]:
    parts = app_repository.task_manifests(app_repository.manifest(snapshot).value.task_manifests)
    return [one for read in parts.values() for store in read.manifest.stores for one in store.databases]
