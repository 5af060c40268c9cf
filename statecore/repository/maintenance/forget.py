"""Forgets snapshots: one swap of the head without those that a retention does not keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, Retention
from statecore.repository.maintenance.retention_record import read_retention, record_retention
from statecore.repository.repository import check_descriptor_unchanged
from statecore.repository.retention import KeptSnapshot, judged_entries


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


def plan_forget(app_repository: ApplicationRepository, keep: Retention | None = None) -> ForgetPlan:
    """What a retention, by default the head's own, keeps. Nothing is changed."""
    app_repository.repository.check_primary()
    return _plan(app_repository.head(), keep)


def forget(app_repository: ApplicationRepository, keep: Retention | None = None) -> ForgetPlan:
    """Forget what a retention, by default the head's own, does not keep; it becomes the head's own."""
    app_repository.repository.check_primary()
    read_retention(app_repository)  # refuses one of a newer release before anything is changed
    plan = _plan(app_repository.head(), keep)

    def change(head: Head) -> Head:
        nonlocal plan
        plan = _plan(head, keep)
        if not plan.is_changed:
            return head
        check_descriptor_unchanged(app_repository.repository)
        kept = tuple(one.entry for one in plan.snapshots if one.reasons)
        return replace(head, generation=head.generation + 1, snapshots=kept, keep=plan.keep)

    app_repository.change_head(change)
    record_retention(app_repository, plan.keep)
    return plan


def _plan(head: Head, keep: Retention | None) -> ForgetPlan:
    keep = head.keep if keep is None else keep
    if keep.keeps_nothing:
        raise Invalid(
            f"Nothing of {head.application_id} would be kept but pinned snapshots.",
            code="retention-empty",
            action="Keep at least the newest snapshot: --keep-last 1.",
            application_id=head.application_id,
        )
    snapshots = judged_entries(head.snapshots, keep)
    return ForgetPlan(keep, snapshots, keep != head.keep or any(not one.reasons for one in snapshots))
