"""Entry point for planning the conversion of one task's directory to another release."""

from __future__ import annotations

from pathlib import Path

from statecore.conversion.downward import ConversionOptions, plan_downward
from statecore.conversion.inspection import InspectionTarget, inspect_task
from statecore.conversion.model import TaskConversion
from statecore.conversion.upward import plan_upward
from statecore.formats.releases import Release
from statecore.spec.model import ApplicationSpec
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
    """Plan the conversion of a task's directory. Changes nothing.

    All rows are read of stores with headers, and of those whose SST files have to be rewritten; of others a few. Each
    store is inspected separately, so a partially converted directory is continued, and one of the target release has
    nothing to do.
    """
    check_application(spec, application_id)
    if exactly_once is None and spec is not None:
        exactly_once = spec.processing_guarantee.is_exactly_once
    moves = not any(kind.startswith("headers-") for kind in to.kinds)
    seen = inspect_task(task, path, application_id, spec, InspectionTarget(moves, to.sst_format))
    if to.offsets_inside:
        transactional = None if spec is None else spec.transactional_state_stores
        return plan_upward(seen, to, exactly_once, transactional=transactional)
    return plan_downward(seen, ConversionOptions(to, exactly_once, lose_headers))
