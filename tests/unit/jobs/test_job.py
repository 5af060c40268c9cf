"""What every job does around its own steps, seen on a job that has next to none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.errors import Capacity, Fenced, Invalid, StatecoreError
from statecore.jobs.context import JobContext
from statecore.jobs.engine.processes import ProcessWorkers
from statecore.jobs.engine.protocol import RanOn, WorkerRequirements
from statecore.jobs.job import Job, Phases
from statecore.jobs.job_home import DirectoryHome, JobHome, RepositoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, REPORT_SUFFIX
from statecore.jobs.restore.request import RestoreRequest
from statecore.objectstore.base import Blobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import create_repository

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "broker:9092",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}}}},
}


class Workers:
    """Workers that only answer whether they could take part."""

    name = "nobody"

    def __init__(self, refusal: StatecoreError | None = None) -> None:
        self.refusal = refusal
        self.asked: list[WorkerRequirements] = []

    def parallelism(self) -> int:
        return 1

    def check(self, required: WorkerRequirements) -> RanOn:
        self.asked.append(required)
        if self.refusal is not None:
            raise self.refusal
        return RanOn("local[1]", 1, ("here",))

    def run(self, *_: object) -> list[object]:
        raise AssertionError("there is nothing to be done")


@pytest.fixture
def said() -> list[str]:
    return []


def in_directory(path: Path) -> JobHome:
    work = path / "app" / ".statecore"
    work.mkdir(parents=True)
    return DirectoryHome(work, work, "r")


def in_repository(path: Path) -> JobHome:
    return RepositoryHome(ApplicationRepository(create_repository(path.as_uri())[0], "app"), "r")


HOMES = {"directory": in_directory, "repository": in_repository}


@pytest.fixture(params=sorted(HOMES))
def job(tmp_path: Path, said: list[str], request: pytest.FixtureRequest) -> Job:
    asked = RestoreRequest(spec=SPEC, state_dir=str(tmp_path), request_id="r")
    context = JobContext.open(asked, say=said.append)
    return Job(context, HOMES[request.param](tmp_path), "nothing was done")


PLAN = "a1"


def planned(job: Job) -> Blobs:
    """The staging of a plan that was frozen, with something in it."""
    job.save(PLAN_SUFFIX, {"version": 0})
    blobs = job.home.staging_place(PLAN).blobs()
    blobs.put_if_absent("runs/one", b"1")
    return blobs


def is_staged(blobs: Blobs) -> bool:
    return bool(list(blobs.list()))


def test_a_job_that_succeeds_leaves_its_report_and_nothing_else(job: Job) -> None:
    with job.attempted():
        with job.phase("plan"):
            staged = planned(job)
            job.save(ATTEMPT_SUFFIX, job.attempt.begun())
        with job.phase("work"):
            pass
        job.finish(PLAN, {"version": 2})
    assert list(job.phases.wall) == ["plan", "work"]
    assert json.loads(job.home.read(REPORT_SUFFIX) or b"") == {"version": 2}
    assert not is_staged(staged)
    assert job.home.read(ATTEMPT_SUFFIX) is None


@pytest.mark.parametrize(("name", "has_work"), [("Spark", True), ("", True), ("", False)])
def test_local_workers_are_not_waited_for_and_no_worker_is_named_where_nothing_is_read(
    job: Job, said: list[str], monkeypatch: pytest.MonkeyPatch, name: str, has_work: bool
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(job.progress, "phase", waits.append)
    monkeypatch.setattr(Workers, "name", name)
    job.wait_for(cast(Any, Workers()), PLAN, lambda: None, {}, has_work=has_work)
    assert (waits, len(said), job.ran_on.executors) == ([f"wait for {name}"] if name else [], int(has_work), 1)
    assert not ProcessWorkers(0, Path(), ()).name


def test_a_failure_is_kept_beside_the_plan_with_the_phase_it_came_in(job: Job) -> None:
    planned(job)
    with pytest.raises(OSError), job.attempted(), job.phase("work"):
        raise OSError(28, "No space left on device")
    kept = json.loads(job.home.read(ATTEMPT_SUFFIX) or b"")
    assert (kept["error"], kept["phase"], kept["request_id"]) == ("Capacity", "work", "r")
    assert "nothing was done" in kept["what"]


def test_a_failure_before_there_is_a_plan_leaves_nothing(job: Job) -> None:
    job.save(ATTEMPT_SUFFIX, job.attempt.begun())
    with pytest.raises(Fenced), job.attempted(), job.phase("plan"):
        raise Fenced("in use", code="test-error", action="stop it")
    assert job.home.read(ATTEMPT_SUFFIX) is None


def test_workers_are_asked_what_the_job_needs_of_them(job: Job, said: list[str]) -> None:
    workers = Workers()
    job.brokers = ["broker:9092"]
    job.wait_for(workers, PLAN, lambda: Path("/shared"), {"ssl_cafile": "/ca.pem"})
    (required,) = workers.asked
    assert required == WorkerRequirements(Path("/shared"), ("broker:9092",), ("broker:9092",), ("/ca.pem",))
    assert list(job.phases.wall) == ["start", "check"]
    assert job.ran_on.master == "local[1]"
    assert said == [str(job.ran_on)]


@pytest.mark.parametrize("taken_up", [False, True])
def test_workers_that_could_not_take_part_cost_no_plan_of_an_earlier_try(job: Job, taken_up: bool) -> None:
    staged = planned(job)
    job.is_resumed = taken_up
    with pytest.raises(Invalid):
        job.wait_for(Workers(Invalid("no shared disk", code="test-error", action="share one")), PLAN, lambda: None, {})
    assert (job.home.read(PLAN_SUFFIX) is not None) is taken_up
    assert is_staged(staged) is taken_up


def test_what_another_try_may_cure_costs_no_plan(job: Job) -> None:
    staged = planned(job)
    with pytest.raises(Capacity), job.discarding_invalid(PLAN):
        raise Capacity("full", code="test-error", action="free room")
    assert job.home.read(PLAN_SUFFIX) is not None
    assert is_staged(staged)


def test_two_requests_of_one_plan_share_no_staging_in_a_repository(tmp_path: Path) -> None:
    app_repository = ApplicationRepository(create_repository(tmp_path.as_uri())[0], "app")
    one, other = RepositoryHome(app_repository, "one"), RepositoryHome(app_repository, "other")
    for home in (one, other):
        home.staging_place(PLAN).blobs().put_if_absent("runs/one", b"1")
    one.discard(PLAN)
    assert not is_staged(one.staging_place(PLAN).blobs())
    assert is_staged(other.staging_place(PLAN).blobs())


def test_a_phase_that_fails_is_reached_and_has_no_time() -> None:
    phases = Phases()
    with phases.phase("read"):
        pass
    with pytest.raises(ValueError, match="torn"), phases.phase("build"):
        raise ValueError("torn")
    assert phases.reached == "build"
    assert phases.wall.keys() == phases.cpu.keys() == {"read"}
    assert phases.elapsed >= phases.wall["read"]
