"""A repair of an application's directory, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.repair.report import RepairReport
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair


def repair(
    application_id: str, state_dir: Path, spec: Path, engine: Engine | None = None, **changes: Any
) -> RepairReport:
    """Apply the plan of a repair, unless ``changes`` to the request say otherwise."""
    wanted: dict[str, Any] = {"apply": True, **changes}
    request = RepairRequest(application_id=application_id, state_dir=str(state_dir), spec_path=str(spec), **wanted)
    return run_repair(request, engine or InProcessEngine())
