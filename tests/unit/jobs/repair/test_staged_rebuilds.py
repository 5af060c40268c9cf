"""What killed attempts have staged for rebuilds."""

from __future__ import annotations

import json
from pathlib import Path

from statecore.jobs.attempt import Attempt
from statecore.jobs.job_home import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, FrozenPlan
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.repair.staged_rebuilds import discard_rebuilds
from statecore.spec.model import ProcessingGuarantee


def begun(work: Path, request_id: str, application_id: str) -> Path:
    """A restore that has frozen its plan and staged something; where that lies."""
    home = DirectoryHome(work, work, request_id)
    plan = ReadPlan(application_id, ProcessingGuarantee.AT_LEAST_ONCE, ())
    home.save_plan(FrozenPlan(plan, (), 0.0, request_id))
    home.save(ATTEMPT_SUFFIX, b"{}")
    staged = work / plan.plan_id
    staged.mkdir()
    (staged / "run.sst").write_bytes(b"rows")
    return staged


def tried(work: Path, request_id: str, job: str) -> None:
    said = {**Attempt.begin("app", str(work), request_id).begun(), "job": job, "words": []}
    DirectoryHome(work, work, request_id).save(ATTEMPT_SUFFIX, json.dumps(said).encode())


def test_rebuilds_of_repairs_that_were_tried_go_and_others_stay(tmp_path: Path) -> None:
    work = tmp_path / ".statecore"
    (work / "plans").mkdir(parents=True)
    jobs = {"first": "repair", "going-on": "repair", "other": "migration"}
    staged = {request: begun(work, f"{request}-0a1b2c3d", request) for request in (*jobs, "nobody")}
    for request, job in jobs.items():
        tried(work, request, job)
    discard_rebuilds(work, "repair", keep="going-on")
    assert {request for request, path in staged.items() if path.exists()} == {"going-on", "other", "nobody"}
    for suffix in (PLAN_SUFFIX, ATTEMPT_SUFFIX):
        assert DirectoryHome(work, work, "first-0a1b2c3d").read(suffix) is None
        assert DirectoryHome(work, work, "going-on-0a1b2c3d").read(suffix) is not None
    discard_rebuilds(work, "repair")
    assert {request for request, path in staged.items() if path.exists()} == {"other", "nobody"}
