"""Deletes what killed repairs have staged for rebuilds.

A rebuild is a restore whose request id is that of the repair with a suffix (:mod:`statecore.jobs.repair.rebuilds`). A
repair that is run again inspects the directory again, may rebuild other stores, and has another request id; so it
deletes the staged rebuilds of killed ones.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from statecore.errors import Invalid
from statecore.jobs.history.directory_changes import unfinished_changes
from statecore.jobs.job_home import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, load_plan
from statecore.jobs.restore.resume import frozen_plan
from statecore.statedir.journal import read_record
from statecore.statedir.work_directory import PLANS


def discard_placed(work: Path) -> None:
    """Delete the staging of a restore that was killed after its last swap; ``work`` is ``.statecore``."""
    record = read_record(work)
    if record is None or not record.request_id:
        return
    home = DirectoryHome(work, work, record.request_id)
    frozen = frozen_plan(home)
    placed = {entry.task for entry in (*record.tasks, *record.earlier)}
    if frozen is not None and frozen.plan.plan_id and {part.task for part in frozen.plan.partitions} <= placed:
        home.discard(frozen.plan.plan_id)


def discard_rebuilds(work: Path, job: str, keep: str = "") -> None:
    """Delete the staged rebuilds of killed attempts."""
    killed_requests = {one.attempt.request_id for one in unfinished_changes(work) if one.job == job} - {keep}
    for file in (work / PLANS).glob(f"*{PLAN_SUFFIX}"):
        with suppress(Invalid, OSError):
            frozen = load_plan(file)
            if frozen is None or not frozen.plan.plan_id or frozen.request_id.rpartition("-")[0] not in killed_requests:
                continue
            home = DirectoryHome(work, work, frozen.request_id)
            home.discard(frozen.plan.plan_id)
            for suffix in (ATTEMPT_SUFFIX, PLAN_SUFFIX):
                home.forget(suffix)
