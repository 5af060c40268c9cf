"""Doubts about rebuilds, and what killed attempts have staged for them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from statecore.formats.releases import GLOBAL
from statecore.jobs.attempt import Attempt
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.request_files import ATTEMPT_SUFFIX, FROZEN_PLAN, PLAN_SUFFIX, FrozenPlan
from statecore.jobs.repair.rebuilds import discard_rebuilds, doubts_about
from statecore.spec.model import ProcessingGuarantee


def begun(work: Path, request_id: str, application_id: str) -> Path:
    """A restore that has frozen its plan and staged something; where that lies."""
    home = DirectoryHome(work, work, request_id)
    plan = RestorePlan(application_id, ProcessingGuarantee.AT_LEAST_ONCE, ())
    home.save(PLAN_SUFFIX, FROZEN_PLAN.encode(FrozenPlan(plan, (), 0.0, request_id)))
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


FULL, EMPTY = "names-0 of topic 7", "names-1 of topic 7, which has no record"


def rebuild() -> Any:
    return SimpleNamespace(stores=("table",), tasks=(GLOBAL,))


def test_of_a_store_of_which_one_partition_has_records_something_would_be_left() -> None:
    assert doubts_about(rebuild(), (FULL,), ()) == ()
    (part,), (whole,) = doubts_about(rebuild(), (FULL, EMPTY), ()), doubts_about(rebuild(), (EMPTY,), ())
    assert ("part of table" in part, "part of table" in whole) == (True, False)
    assert all(f"{EMPTY}." in said and str(FULL) not in said for said in (part, whole))


def test_what_was_found_is_said_as_it_is_whether_it_has_its_full_stop_or_not() -> None:
    for what in ("another cluster", "another cluster."):
        found: Any = SimpleNamespace(code="offset-past-end", task=GLOBAL, store="table", what=what)
        assert doubts_about(rebuild(), (FULL,), (found,)) == ("global/table: another cluster.",)
