"""Inspection of an application's state directory without changes, even while it runs.

Reports unreadable databases, missing or contradictory offsets, stores that were not closed, and files that override
offsets: the findings of :mod:`statecore.doctor.diagnosis` that one inspection can show.
"""

from __future__ import annotations

from collections.abc import Sequence

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.database_inspection import InspectionDepth
from statecore.doctor.inspection_reader import read_inspection
from statecore.doctor.run_checks import run_checks
from statecore.doctor.views import Inspection
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory


def inspect(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    estimate: bool = False,
) -> Inspection:
    reading = read_inspection(
        directory, spec=spec, tasks=tasks, stores=stores, depth=InspectionDepth(count=not estimate)
    )
    guarantee = None if spec is None else spec.processing_guarantee
    context = CheckContext(
        directory.application_id, guarantee, spec=spec, now_ms=reading.read_at_ms, transactional=reading.transactional
    )
    seen, beyond = run_checks(reading, context)
    return Inspection(
        directory.application_id, directory.path, reading.holder, estimate, seen, reading.offset_files, tuple(beyond)
    )
