"""What is to become of one task's directory that an application of another release is to open."""

from __future__ import annotations

from pathlib import Path

from statecore.conversion.downward import Terms, downward
from statecore.conversion.inspection import Wanted, inspect_task
from statecore.conversion.model import TaskConversion
from statecore.conversion.upward import upward
from statecore.formats.releases import Release
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.store_places import check_application


def plan_conversion(
    task: str,
    path: Path,
    to: Release,
    *,
    application_id: str,
    spec: ApplicationSpec | None = None,
    exactly_once: bool | None = None,
    lose_headers: bool = False,
) -> TaskConversion:
    """Decide what is to become of a task's directory. Changes nothing, whatever lies there.

    All rows are read of stores with headers, and of those whose SST files have to be written anew; of others a few.
    Each store is looked at by itself, so a directory that was converted in part is gone on with, and one that is of the
    release already is nothing to do.

    Args:
        task: ``0_1``, ``__north__/0_1`` or ``global``.
        path: its directory; nobody may write to it meanwhile.
        to: the release.
        application_id: of the application: the names of changelogs begin with it.
        spec: what is declared: kinds, changelogs, guarantee. Without it, names and rows tell.
        exactly_once: the guarantee; ``None`` for that of the spec, and without one the stricter.
        lose_headers: move rows with headers to a release that keeps none, without them; else that is refused.

    Raises:
        Invalid: this user may not look, or the spec is of another application.
        Fenced: somebody writes to a database.
        Capacity, Retryable: the system did not give what it takes.
    """
    check_application(spec, application_id)
    if exactly_once is None and spec is not None:
        exactly_once = spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    moves = not any(kind.startswith("headers-") for kind in to.kinds)
    seen = inspect_task(task, path, application_id, spec, Wanted(moves, to.sst_format))
    if to.offsets_inside:
        transactional = None if spec is None else spec.transactional_state_stores
        return upward(seen, to, exactly_once, transactional=transactional)
    return downward(seen, Terms(to, exactly_once, lose_headers))
