"""Forgets snapshots: one swap of the head without those that a retention does not keep, or without named ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, Retention
from statecore.repository.listing import entry_of
from statecore.repository.maintenance.retention_record import (
    head_change_in_errors,
    read_retention,
    record_head,
    record_kept,
)
from statecore.repository.maintenance.reverted_head import check_not_reverted
from statecore.repository.repository import check_descriptor_unchanged
from statecore.repository.retention import KeptSnapshot, entries_with_reasons, newest_put_at


class ForgetPlan(NamedTuple):
    """What a retention keeps.

    Attributes:
        keep: the retention, by which later heads are thinned as well.
        snapshots: all snapshots, newest first, each with the reasons for which it is kept.
        is_changed: whether the head changes.
    """

    keep: Retention
    snapshots: Sequence[KeptSnapshot]
    is_changed: bool

    @property
    def forgotten(self) -> list[KeptSnapshot]:
        return [one for one in self.snapshots if not one.reasons]


def plan_forget(
    app_repository: ApplicationRepository, keep: Retention | None = None, snapshots: Collection[str] = ()
) -> ForgetPlan:
    """What a retention, by default the head's own, keeps; or all but the named snapshots. Nothing is changed."""
    app_repository.repository.check_primary()
    head = app_repository.head()
    app_repository.check_needs(head)
    check_not_reverted(app_repository, head)
    return _plan(app_repository, head, keep, {entry_of(app_repository, head, one).snapshot for one in snapshots})


def forget(
    app_repository: ApplicationRepository, keep: Retention | None = None, snapshots: Collection[str] = ()
) -> ForgetPlan:
    """Forget what a retention, by default the head's own, does not keep; it becomes the head's own.

    With ``snapshots`` these are forgotten and no others. Raises ``Invalid`` if one is the newest, or pinned.
    """
    app_repository.repository.check_primary()
    read_retention(app_repository)  # refuses one of a newer release before anything is changed
    head = app_repository.head()
    app_repository.check_needs(head)
    check_not_reverted(app_repository, head)  # the new generation would hide it
    named = {entry_of(app_repository, head, one).snapshot for one in snapshots}
    plan = _plan(app_repository, head, keep, named)

    def change(head: Head) -> Head:
        nonlocal plan
        plan = _plan(app_repository, head, keep, named)
        if not plan.is_changed:
            return head
        check_descriptor_unchanged(app_repository.repository)
        kept = tuple(one.entry for one in plan.snapshots if one.reasons)
        wanted = replace(head, generation=head.generation + 1, snapshots=kept, keep=plan.keep)
        record_kept(app_repository, wanted)
        return wanted

    app_repository.change_head(change)
    with head_change_in_errors(app_repository):
        record_head(app_repository)
    return plan


def _plan(
    app_repository: ApplicationRepository, head: Head, keep: Retention | None, named: Collection[str]
) -> ForgetPlan:
    if named:
        return _without(head, named)
    keep = head.keep if keep is None else keep
    if keep.keeps_nothing:
        raise Invalid(
            f"Nothing of {head.application_id} would be kept but pinned snapshots.",
            code="retention-empty",
            action="Keep at least the newest snapshot: --keep-last 1.",
            application_id=head.application_id,
        )
    entries = entries_with_reasons(head.snapshots, keep, newest_put_at(app_repository, head.snapshots, keep))
    return ForgetPlan(keep, entries, keep != head.keep or any(not one.reasons for one in entries))


def _without(head: Head, named: Collection[str]) -> ForgetPlan:
    """Forget these alone: what the retention would drop, too, stays until the next snapshot is published."""
    for entry in head.snapshots:
        if entry.snapshot in named and (entry.pinned or entry == head.newest):
            raise Invalid(
                f"The snapshot {entry.snapshot} of {head.application_id} is "
                f"{'pinned' if entry.pinned else 'the newest'}.",
                code="snapshot-kept",
                action="Unpin it first (statecore repo unpin)."
                if entry.pinned
                else "Publish another one first: instances start from the newest.",
                application_id=head.application_id,
                snapshot=entry.snapshot,
            )
    kept = [
        KeptSnapshot(one.entry, () if one.entry.snapshot in named else one.reasons or ("not named",))
        for one in entries_with_reasons(head.snapshots, head.keep)
    ]
    return ForgetPlan(head.keep, kept, any(not one.reasons for one in kept))
