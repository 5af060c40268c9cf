"""Stage one on staging that is no directory of the workers: the same runs, and images with the same digests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.jobs.engine.processes import ProcessEngine, ProcessWorkers
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.build_stage import build_images, stores_to_build
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.ranges import ClusterSettings, RangeResult
from statecore.jobs.pipeline.read_stage import read_runs
from statecore.jobs.pipeline.staging_place import DirectoryPlace, StagingPlace
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.planner import plan_reads
from statecore.jobs.restore.request import RestoreRequest
from statecore.progress import NullProgress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.http_blobs import BlobServer, HttpPlace, serving
from tests.harness.raising import raises
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

NOW = int(time.time() * 1000)
BUDGET = 1 << 20


@dataclass
class Seen(NullProgress):
    """What a progress was told in all."""

    done_so_far: int = 0

    def advance(self, count: int) -> None:
        self.done_so_far += count


@pytest.fixture(scope="module")
def spec(broker: Broker) -> ApplicationSpec:
    """An application of two kinds, with deletes, overwrites and expired windows."""
    application_id, servers = f"places-{time.time_ns()}", broker.bootstrap_servers
    stamp = NOW.to_bytes(8, "big") + bytes(4)
    for store, end in (("plain", b""), ("clicks", stamp)):
        topics.create(servers, f"{application_id}-{store}-changelog", 2, topics.UNCLEANED)
        records = [
            Record(b"key-%d" % (n % 300) + end, None if n % 7 == 0 else b"%d" % n * 40, partition=n % 2, timestamp=NOW)
            for n in range(20_000)
        ]
        topics.produce(servers, f"{application_id}-{store}-changelog", records)
    return parse_spec(
        {
            "application_id": application_id,
            "bootstrap_servers": servers,
            "processing_guarantee": "at_least_once",
            "subtopologies": {
                "0": {"stores": {"plain": {"kind": "key-value"}, "clicks": {"kind": "window", "retention": "10m"}}}
            },
        },
        "<test>",
    )


@pytest.fixture(scope="module")
def plan(spec: ApplicationSpec, tmp_path_factory: pytest.TempPathFactory) -> ReadPlan:
    request = RestoreRequest(state_dir=str(tmp_path_factory.mktemp("state")), spec={}, memory_budget=BUDGET)
    with Cluster(spec.bootstrap_servers, spec.kafka) as cluster:
        return plan_reads(cluster, spec, request, parallelism=lambda: 4)[0]


@pytest.fixture(scope="module")
def workers(spec: ApplicationSpec) -> Iterator[ProcessWorkers]:
    with ProcessEngine(2).start("test", spec) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BlobServer]:
    with serving(tmp_path / "of-the-server") as started:
        yield started


Runs = dict[tuple[str, str], tuple[RangeResult, ...]]


def read(workers: ProcessWorkers, spec: ApplicationSpec, plan: ReadPlan, place: StagingPlace) -> tuple[Runs, int]:
    progress = Seen()
    cluster = ClusterSettings(spec.bootstrap_servers, spec.kafka, 30.0)
    return read_runs(workers, plan, cluster, place, BUDGET, progress), progress.done_so_far


def build(
    workers: ProcessWorkers, plan: ReadPlan, runs: Runs, place: StagingPlace, directory: Path
) -> dict[tuple[str, str], ImageResult]:
    stores = stores_to_build(plan, runs)
    return build_images(workers, plan.application_id, stores, place, directory, BUDGET, NullProgress())


def test_runs_behind_a_server_are_those_of_a_directory_and_so_are_the_images_of_them(
    workers: ProcessWorkers, spec: ApplicationSpec, plan: ReadPlan, server: BlobServer, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    shared = DirectoryPlace(str(tmp_path / "shared"))
    behind = HttpPlace(server.port)
    there, done = read(workers, spec, plan, shared)
    here, done_here = read(workers, spec, plan, behind)
    assert done == done_here == plan.offsets
    assert {key: [result.runs for result in results] for key, results in there.items()} == {
        key: [result.runs for result in results] for key, results in here.items()
    }
    names = {blob.name for blob in behind.blobs().list()}
    runs = [run for results in here.values() for result in results for run in result.runs]
    assert len(runs) >= 4
    for run in runs:
        assert behind.blobs().local_path(staging.run_name(run)) is None
        assert staging.is_whole(behind.blobs(), run)
    assert sum(name.startswith("runs/") for name in names) == sum(len(results) for results in here.values())

    again, _ = read(workers, spec, plan, behind)  # a retry finds them
    assert again == here

    of_directory = build(workers, plan, there, shared, tmp_path / "shared")
    of_server = build(workers, plan, here, behind, tmp_path / "images")
    assert {key: replace(one, seconds=0, cpu=0) for key, one in of_directory.items()} == {
        key: replace(one, seconds=0, cpu=0) for key, one in of_server.items()
    }
    assert not list((tmp_path / "images" / "attempts").iterdir())


def test_a_place_that_the_driver_has_put_nothing_into_is_refused_before_anything_is_read(
    workers: ProcessWorkers,
    spec: ApplicationSpec,
    plan: ReadPlan,
    server: BlobServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HttpPlace, "prepare", lambda self: None)
    with raises(Invalid, "staging-not-shared"):
        read(workers, spec, plan, HttpPlace(server.port))
    assert not any(method == "PUT" for method, _ in server.asked)
