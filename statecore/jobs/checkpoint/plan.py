"""Plan of a checkpoint: a base for each store and the tails to read; notes for the operator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from statecore.changelog.delete_retention import min_current_retention_ms
from statecore.jobs.bases.base import Key, Refused, grouped
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.jobs.checkpoint.replaced_changelogs import pin_last_before, replaced_notes, replaced_stores
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.planned_tails import RESUMED_NOTE, PlannedTails
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import TaskManifest
from statecore.spec.units import format_duration
from statecore.words import note_line


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan(PlannedTails):
    """A planned checkpoint.

    Attributes:
        candidates: the snapshots.
        brokers: their advertised addresses, if workers read the tails.
    """

    candidates: SnapshotBases
    brokers: tuple[str, ...] = ()

    def without_resumed_note(self) -> CheckpointPlan:
        """The same for an attempt whose own first process has made the plan."""
        return replace(self, notes=tuple(note for note in self.notes if note != RESUMED_NOTE))

    def newest_task(self, task: str) -> TaskManifest | None:
        """The task in the snapshot that was the newest when the plan was made."""
        return self.candidates.task(self.frozen.newest_snapshot, task)

    @property
    def not_advanced(self) -> frozenset[Key]:
        """Stores with a refused base and no other."""
        return frozenset(one.key for one in self.refused) - self.bases.keys()

    @property
    def replaced(self) -> list[str]:
        """The stores that are read whole because their changelog is another one."""
        return replaced_stores(self.refused, self.not_advanced, self.frozen.newest_snapshot)

    def keep_last(self, app_repository: ApplicationRepository, entries: Sequence[SnapshotEntry]) -> None:
        """Pin the newest snapshot of the plan if the changelogs of some stores are not those of before.

        Where the plan is resumed, another job may have published what is in the new ones.
        """
        before = list(dropwhile(lambda one: one.snapshot != self.frozen.newest_snapshot, entries))
        if self.replaced and before:
            pin_last_before(app_repository, before, self.replaced)

    @property
    def note_lines(self) -> tuple[str, ...]:
        return tuple(map(note_line, self.notes))

    @property
    def urgent_notes(self) -> tuple[str, ...]:
        """Told to the operator at once: bases that are not used, and what is read whole for that reason."""
        return (
            *grouped(self.refused),
            *rebuilt_notes(self.not_advanced, self.frozen.newest_snapshot),
            *replaced_notes(self.replaced),
        )

    @property
    def lacking(self) -> tuple[str, ...]:
        """Why no snapshot can be advanced for some stores."""
        return grouped(self.refused_without_base)

    @property
    def refused_without_base(self) -> tuple[Refused, ...]:
        """All refused bases of the stores without a base."""
        return tuple(one for one in self.refused if one.key in self.not_advanced)

    @property
    def delete_retention_ms(self) -> int | None:
        """Shortest time after which deletes of one of the changelogs may be gone; ``None`` if never."""
        return min_current_retention_ms(self.topics.values())


def read_whole(plan: ReadPlan) -> list[Key]:
    """The stores whose whole changelog is read."""
    return [key for key, parts in plan.stores.items() if not parts[0].base and not parts[0].restored_by_kafka_streams]


def rebuilt_notes(stores: Collection[Key], newest: str) -> tuple[str, ...]:
    """Note on stores whose whole changelog is read, because the newest snapshot cannot be advanced."""
    if not stores:
        return ()
    if not newest:
        return ("There was no snapshot when it began: whole changelogs are read.",)
    named = ", ".join(f"{store} of task {task}" for task, store in sorted(stores)[:10])
    more = f" and {len(stores) - 10} more" if len(stores) > 10 else ""
    return (f"No snapshot can be advanced for {named}{more}: whole changelogs are read.",)


def inherited_notes(plan: ReadPlan, versioned_ms: int) -> tuple[str, ...]:
    """Note on versioned stores that stay as they are in the snapshot."""
    names = {store for (_, store), parts in plan.stores.items() if parts[0].kind.is_versioned and parts[0].base}
    if not names:
        return ()
    return (
        f"Versioned stores stay as they are in the snapshot, because a tail cannot advance them: "
        f"{', '.join(sorted(names))}. They are rebuilt when that state is {format_duration(versioned_ms)} old.",
    )
