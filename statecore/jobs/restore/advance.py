"""The advance: the stores of a stopped application's directory, brought to the end by the tails of their changelogs.

It is a restore that is put upon the directory itself (:mod:`statecore.jobs.restore.run`): the files that are there are
linked and stay, and one run is put above them. Stores that cannot be advanced are refused by name, before anything is
changed. Versioned stores are no history of last writes and stay as they are; so do stores that lie in memory, and those
that the application does not log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.errors import NotFound
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.engine import Engine
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.planning.plan import RestorePlan
from statecore.jobs.planning.selection import left_as_they_are, select_stores
from statecore.jobs.restore.advance_request import AdvanceRequest
from statecore.jobs.restore.report import RestoreReport
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

    Args:
        request: which stores of which directory.
        engine: who reads and builds.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.

    Raises:
        NotFound: there is no such directory, nothing in it, or no store of a name.
        Invalid: the application's own directory was given; stores cannot be advanced, all of which are named; or as
            :func:`run_restore`.
        Fenced, Capacity, Corrupted, Retryable: as :func:`run_restore`.
    """
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id, request.owner)
    if directory.is_application_given():
        raise application_directory_given(directory.state_dir)
    if not directory.task_directories() and not directory.stores("global"):
        raise NotFound(
            f"{directory.path} has no task: there is nothing to advance.",
            code="no-tasks",
            action="Check state_dir and the application id, or make the stores (statecore restore, statecore fetch).",
            state_dir=str(directory.state_dir),
        )
    wanted = select_stores(spec, request.stores, request.partitions)
    left_as_they_are(wanted, request.stores)  # refused before a broker is asked
    return run_restore(request.restore(), engine, progress, faults=faults, say=say)
