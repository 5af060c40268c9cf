"""Makes a replica a primary, to which jobs may publish.

::

    descriptor   role primary: no copy is begun, and one that is under way swaps no head any more
    heads        each is swapped for one with the next epoch: what copies and jobs knew of it is void
    descriptor   the URL of the old primary is removed: the promotion is done

A copier reads a head before it reads the descriptor, and swaps the version that it has read. So a swap of its own comes
before that of the promotion, or fails. A killed promotion is gone on with by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from statecore.documents import encode_json
from statecore.errors import Fenced, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.repository.application_repository import ApplicationRepository, applications_in
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, RepositoryDescriptor, Role
from statecore.repository.head import Head
from statecore.repository.needs import UNSUPPORTED
from statecore.repository.repository import Repository

_TRIES = 20


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
            if read is not None:
                read.head.needs.check_writable(f"The head of {name}")
                plan.heads[name] = read.head
    return plan


def promote(repository: Repository, faults: FaultPoints = NO_FAULTS) -> PromotionPlan:
    """Make a replica a primary; what was changed. A damaged head is left to ``repo repair-head``."""
    plan = plan_promotion(repository)
    if plan.copy_of:
        primary = _rewritten(repository, lambda found: replace(found, role=Role.PRIMARY))
        faults.reach("promote-replica.after-descriptor")
        for name in plan.heads:
            ApplicationRepository(primary, name).change_head(_with_next_epoch)
            faults.reach("promote-replica.after-head")
        _rewritten(repository, lambda found: replace(found, copy_of=""))
    return plan


def _rewritten(repository: Repository, change: Callable[[RepositoryDescriptor], RepositoryDescriptor]) -> Repository:
    """Change the descriptor; the repository as it is then."""
    object_store = repository.object_store
    for _ in range(_TRIES):
        found = object_store.pointers.read(DESCRIPTOR_NAME)
        if found is None:
            break
        document = DESCRIPTOR.read(found.content)
        if document.value.id != repository.descriptor.id:
            break
        changed = change(document.value)
        content = encode_json(DESCRIPTOR.sealed(DESCRIPTOR.rewritten(document, changed)))
        if changed == document.value or object_store.pointers.swap(DESCRIPTOR_NAME, content, found.version):
            return Repository(object_store, changed)
    raise Fenced(
        f"The descriptor of the repository at {object_store.url} was replaced by another process.",
        code="repository-replaced",
        action="Check which process writes there, and run this again.",
        repository=object_store.url,
    )


def _with_next_epoch(head: Head) -> Head:
    return replace(head, epoch=head.epoch + 1, generation=head.generation + 1)
