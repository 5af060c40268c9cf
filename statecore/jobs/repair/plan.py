"""Plan of a repair: the repairs and rebuilds of the findings in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statecore.doctor.diagnosis import Diagnosis
from statecore.doctor.repair_plan import RepairPlan
from statecore.jobs.directory_change import plan_id_of
from statecore.jobs.repair.report import RebuiltStores, RepairedTask


@dataclass(frozen=True)
class PlannedRepair:
    """The repairs of the findings in a directory.

    Attributes:
        actions: what is done to copies of tasks, and which stores are rebuilt.
        fingerprints: of the task directories, by task.
    """

    diagnosis: Diagnosis
    actions: RepairPlan
    fingerprints: Mapping[str, str]
    repaired: tuple[RepairedTask, ...]
    rebuilt: tuple[RebuiltStores, ...]

    @property
    def plan_id(self) -> str:
        rebuilt = [{**vars(one), "doubts": ()} for one in self.rebuilt]  # doubts name log ends, which may grow
        return plan_id_of(
            {"repaired": [*map(vars, self.repaired)], "rebuilt": rebuilt, "fingerprints": self.fingerprints}
        )

    @property
    def is_empty(self) -> bool:
        return self.actions.is_empty

    @property
    def doubts(self) -> list[str]:
        """Why a person has to approve the plan."""
        return [doubt for one in self.rebuilt for doubt in one.doubts]
