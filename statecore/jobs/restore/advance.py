"""Advance: a restore whose bases are the stores of the state directory itself.

Existing files are linked, and one run is added above them. Stores that cannot be advanced are refused by name before
anything is changed. Versioned, in-memory and unlogged stores stay as they are.
"""

from __future__ import annotations

from typing import Any

from statecore.errors import NotFound
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.selection import select_stores, unadvanceable_stores
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import AdvanceRequest
from statecore.jobs.restore.run import restore_in
from statecore.progress import Progress
from statecore.statedir.state_directory import application_directory_given


def run_advance(
    request: AdvanceRequest, engine: Engine, progress: Progress | None = None, **opened: Any
) -> ReadReport | ReadPlan:
    """Bring the stores of a state directory to the end of their changelogs; or plan it."""
    with translated_errors(f"stores were advanced in {request.state_dir}"):
        return _advance(JobContext.open(request, progress, **opened), engine)


def _advance(context: JobContext[AdvanceRequest], engine: Engine) -> ReadReport | ReadPlan:
    request, directory = context.request, context.directory
    if directory.is_application_given():
        raise application_directory_given(directory.state_dir)
    if not directory.task_directories() and not directory.stores("global"):
        raise NotFound(
            f"{directory.path} has no task: there is nothing to advance.",
            code="no-tasks",
            action="Check state_dir and the application id, or build the stores (statecore restore, statecore fetch).",
            state_dir=str(directory.state_dir),
        )
    wanted = select_stores(context.spec, request.stores, request.partitions)
    unadvanceable_stores(wanted, request.stores)  # refused before a broker is asked
    return restore_in(context.with_request(request.restore()), engine)
