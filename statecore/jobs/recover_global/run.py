"""Recovery of global stores: rebuilds those that would stop the application in ``ERROR``, and keeps the others.

It is a repair (:mod:`statecore.jobs.repair.run`) of the directory ``global`` only, with the same phases, lock and
crash safety. In addition (:mod:`statecore.jobs.recover_global.planner`):

- It reports for each global store what the next start would do with it (:mod:`statecore.doctor.global_store_outcome`).
- The topic of a global store is not owned by the application. A deleted topic, or one whose retention deletes last
  records of keys, is refused before a plan is shown.
- A recreated topic without records gives an empty store, which is correct; a person approves that by the plan id,
  because the existing rows may be the only copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from statecore.doctor.finding_catalog import Severity
from statecore.errors import NotFound
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import translated_errors
from statecore.jobs.recover_global.planner import GlobalStorePlanner
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.repair.plan import PlannedRepair
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.jobs.repair.run import DirectoryRepair
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, StoreSpec


def run_recover_global(
    request: RecoverGlobalRequest, engine: Engine, progress: Progress | None = None, **opened: Any
) -> RepairReport:
    """Rebuild the invalid global stores of a directory; or plan it."""
    with translated_errors(f"global stores in {request.state_dir} were recovered"):
        context = JobContext.open(request, progress, **opened)
        planner = GlobalStorePlanner(context, _selected_stores(context.spec, request))
        return _Recovery(planner, engine, request).run()


def _selected_stores(spec: ApplicationSpec, request: RecoverGlobalRequest) -> tuple[StoreSpec, ...]:
    """Declared global stores that the request selects. Raises ``NotFound``: one is not declared, or none is."""
    declared = {one.name: one for one in spec.global_stores}
    unknown = [name for name in request.stores if name not in declared]
    if unknown or not declared:
        what = f"no global store {', '.join(unknown)}" if unknown else "no global store"
        others = f"; it declares {', '.join(declared)}" if declared else ""
        raise NotFound(
            f"{spec.source} declares {what} for {spec.application_id}{others}.",
            code="store-not-declared",
            action="Name global stores of the spec, or add the missing ones to it below global_stores.",
            stores=unknown,
        )
    return tuple(one for name, one in declared.items() if not request.stores or name in request.stores)


class _Recovery(DirectoryRepair):
    """One attempt of a recovery."""

    name = "recovery of global stores"

    def __init__(self, planner: GlobalStorePlanner, engine: Engine, request: RecoverGlobalRequest) -> None:
        super().__init__(planner, engine, f"{request.state_dir} was repaired")
        self._recovery = request

    def command(self) -> tuple[str, ...]:
        return "recover-global", *self._recovery.to_words(without=("approved", "request_id")), *self.engine.options

    def report(self, plan: PlannedRepair, changed: Any) -> RepairReport:
        """See :class:`DirectoryRepair`; with errors that have no repair the outcome is never "unchanged"."""
        report = super().report(plan, changed)
        if report.outcome is RepairOutcome.UNCHANGED and report.exit_code >= Severity.ERROR.exit_code:
            return replace(report, outcome=RepairOutcome.NOT_REPAIRED)
        return report
