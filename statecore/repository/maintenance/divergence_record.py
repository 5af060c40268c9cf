"""The divergence record of an application in a replica: which head of it the source was found not to go on with.

Copies write it. What shows that a source is of another branch may be collected there later, while the replica keeps its
head: the record stays (:mod:`statecore.repository.maintenance.head_ancestry`). It is void for any other head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from statecore.documents import DocumentType
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head
from statecore.repository.maintenance.record_pointer import RecordPointer
from statecore.repository.manifest import OTHER_RELEASE, VERSION


@dataclass(frozen=True)
class DivergenceRecord:
    """The content of a divergence record."""

    repository_id: str
    application_id: str
    generation: int  # rises with every swap, so no two contents are equal
    head_epoch: int = -1  # of the head of the replica
    head_generation: int = -1


RECORD = DocumentType("divergence record", VERSION, DivergenceRecord, OTHER_RELEASE, is_open=True, is_sealed=True)


def is_diverged(replica: ApplicationRepository, head: Head) -> bool:
    """Whether a copy has found that the source does not go on with a head of the replica.

    Raises ``Invalid`` if another release has written the record.
    """
    record = _pointer(replica).read()
    return (record.head_epoch, record.head_generation) == head.order


def record_diverged(replica: ApplicationRepository, head: Head) -> None:
    """Record that the source does not go on with a head of the replica."""
    _pointer(replica).change(lambda record: replace(record, head_epoch=head.epoch, head_generation=head.generation))


def _pointer(replica: ApplicationRepository) -> RecordPointer[DivergenceRecord]:
    return RecordPointer(replica, replica.names.diverged, RECORD)
