"""Plan of a promotion: the verdict of each task, and the stores that are put in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.directory_change import plan_id_of
from statecore.spec.model import StoreSpec
from statecore.standby.promote.report import PromotedTask
from statecore.statedir.placement_stores import StoreImage
from statecore.statedir.state_directory import store_directory
from statecore.statedir.store_places import StorePlace


@dataclass(frozen=True)
class CopiedStore:
    """A store that is put in place."""

    spec: StoreSpec
    changelog: TopicPartition
    offset: int  # offset at which the copy was closed; -4 if the store is created empty
    place: StorePlace | None  # the closed copy; None if the store is created empty

    def image(self, task: str, staging: Path | None) -> StoreImage:
        """The store as part of a placement; without a path while only planning."""
        path = None if staging is None else self.staged(task, staging)
        offsets = None if staging is None else {self.changelog: self.offset}
        return StoreImage(task, self.spec.name, self.spec.kind, self.changelog, path, offsets)

    def staged(self, task: str, staging: Path) -> Path:
        """Its path in the staging directory."""
        return staging / "warm" / task / store_directory(self.spec.name, self.spec.kind)


@dataclass(frozen=True)
class PromotionPlan:
    """The plan of a promotion."""

    tasks: tuple[PromotedTask, ...]  # verdict of each task
    stores: Mapping[str, Sequence[CopiedStore]]  # stores to put in place, by promoted task

    @property
    def plan_id(self) -> str:
        return plan_id_of({"tasks": [vars(one) for one in self.tasks]})

    @property
    def is_empty(self) -> bool:
        return not self.stores
