"""Forgets snapshots: one swap of the head without those that a retention does not keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import ReadHead, Retention, encoded_head
from statecore.repository.repository import check_descriptor_unchanged
from statecore.repository.retention import KeptSnapshot, judged_entries

_TRIES = 20


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
    app_repository.head()  # raises if there is no snapshot
    return _plan(app_repository, _read_head(app_repository), keep)


def forget(app_repository: ApplicationRepository, keep: Retention | None = None) -> ForgetPlan:
    """Forget what a retention, by default the head's own, does not keep; it becomes the head's own."""
    app_repository.repository.check_primary()
    app_repository.head()
    for _ in range(_TRIES):
        read = _read_head(app_repository)
        plan = _plan(app_repository, read, keep)
        if not plan.is_changed:
            return plan
        kept = tuple(one.entry for one in plan.snapshots if one.reasons)
        head = replace(read.head, generation=read.head.generation + 1, snapshots=kept, keep=plan.keep)
        check_descriptor_unchanged(app_repository.repository)
        document = encoded_head(head, read.raw)
        if app_repository.pointers.swap(app_repository.names.head, document, read.version) is not None:
            return plan
    raise app_repository.contended_error(_TRIES, "nothing was changed")


def _plan(app_repository: ApplicationRepository, read: ReadHead, keep: Retention | None) -> ForgetPlan:
    keep = read.head.keep if keep is None else keep
    if keep.keeps_nothing:
        raise Invalid(
            f"Nothing of {app_repository.application_id} would be kept but pinned snapshots.",
            code="retention-empty",
            action="Keep at least the newest snapshot: --keep-last 1.",
            application_id=app_repository.application_id,
        )
    snapshots = judged_entries(read.head.snapshots, keep)
    return ForgetPlan(keep, snapshots, keep != read.head.keep or any(not one.reasons for one in snapshots))


def _read_head(app_repository: ApplicationRepository) -> ReadHead:
    read = app_repository.read_head()
    if read is None:
        raise app_repository.lost_head_error()
    return read
