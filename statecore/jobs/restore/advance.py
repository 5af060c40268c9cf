"""Advance: bring the stores of a stopped application's directory to the end of their changelogs.

It is a restore with the directory itself as base (:mod:`statecore.jobs.restore.run`): existing files are linked, and
one run is added above them. Stores that cannot be advanced are refused by name before anything is changed. Versioned,
in-memory and unlogged stores stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.errors import NotFound
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.engine import Engine
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.selection import select_stores, unadvanceable_stores
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.request import AdvanceRequest
from statecore.jobs.restore.run import run_restore
from statecore.progress import Progress
from statecore.statedir.state_directory import StateDirectory, application_directory_given


def run_advance(
    request: AdvanceRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> RestoreReport | RestorePlan:
    """Bring the stores of a state directory to the end of their changelogs.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.
    """
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id, request.owner)
    if directory.is_application_given():
        raise application_directory_given(directory.state_dir)
    if not directory.task_directories() and not directory.stores("global"):
        raise NotFound(
            f"{directory.path} has no task: there is nothing to advance.",
            code="no-tasks",
            action="Check state_dir and the application id, or build the stores (statecore restore, statecore fetch).",
            state_dir=str(directory.state_dir),
        )
    wanted = select_stores(spec, request.stores, request.partitions)
    unadvanceable_stores(wanted, request.stores)  # refused before a broker is asked
    return run_restore(request.restore(), engine, progress, faults=faults, say=say)
