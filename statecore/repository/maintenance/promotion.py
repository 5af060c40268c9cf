"""Makes a replica a primary, to which jobs may publish.

::

    descriptor   role primary: no copy is begun, and one that is under way swaps no head any more
    heads        each is swapped for one with a far greater epoch: what copies and jobs knew of it is void
    records      each head's pins and retention are recorded, for a head that is lost later
    descriptor   the URL of the old primary is removed: the promotion is done

A copier reads a head before it reads the descriptor, and swaps the version that it has read. So a swap of its own comes
before that of the promotion, or fails. Its other blobs may still arrive, or be there already: manifests of the old
primary, whose repairs may have raised the epoch since the last copy, but never as far. Otherwise they would look as if
the head had gone back (:mod:`statecore.repository.maintenance.reverted_head`). A killed promotion is gone on with by
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from statecore.errors import Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.repository.application_repository import ApplicationRepository, applications_in
from statecore.repository.descriptor import Role
from statecore.repository.head import Head
from statecore.repository.maintenance.descriptor_change import change_descriptor
from statecore.repository.maintenance.head_ancestry import EPOCHS_OF_PROMOTION
from statecore.repository.maintenance.retention_record import head_change_in_errors, read_retention, record_head
from statecore.repository.needs import UNSUPPORTED
from statecore.repository.repository import Repository


@dataclass(frozen=True)
class PromotionPlan:
    """What a promotion changes, or has changed."""

    copy_of: str  # URL of the old primary; empty if there is nothing to do: it is a primary
    heads: dict[str, Head] = field(default_factory=dict)  # present heads by application
    damaged: dict[str, StatecoreError] = field(default_factory=dict)  # why a head cannot be read, by application


def plan_promotion(repository: Repository) -> PromotionPlan:
    """What a promotion would change. Nothing is changed. Raises ``Invalid`` where a newer release has to do it."""
    repository.descriptor.needs.check_writable(f"The repository at {repository.object_store.url}")
    plan = PromotionPlan(repository.descriptor.copy_of)
    for name in applications_in(repository) if plan.copy_of else ():
        try:
            read = ApplicationRepository(repository, name).read_head()
        except StatecoreError as error:
            if isinstance(error, Retryable) or error.code == UNSUPPORTED:
                raise
            plan.damaged[name] = error
        else:
            read_retention(ApplicationRepository(repository, name))  # refuses one of a newer release
            if read is not None:
                read.head.needs.check_writable(f"The head of {name}")
                plan.heads[name] = read.head
    return plan


def promote(repository: Repository, faults: FaultPoints = NO_FAULTS) -> PromotionPlan:
    """Make a replica a primary; what was changed. A damaged head is left to ``repo repair-head``."""
    plan = plan_promotion(repository)
    if plan.copy_of:
        primary = change_descriptor(repository, lambda found: replace(found, role=Role.PRIMARY))
        faults.reach("promote-replica.after-descriptor")
        for name in plan.heads:
            app_repository = ApplicationRepository(primary, name)
            app_repository.change_head(promoted)
            with head_change_in_errors(app_repository):
                record_head(app_repository)
            faults.reach("promote-replica.after-head")
        change_descriptor(repository, lambda found: replace(found, copy_of=""))
    return plan


def promoted(head: Head) -> Head:
    """A head as a promotion leaves it."""
    return replace(head, epoch=head.epoch + EPOCHS_OF_PROMOTION, generation=head.generation + 1)
