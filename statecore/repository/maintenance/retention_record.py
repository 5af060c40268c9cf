"""The retention record of an application: pins, retention and needs of its head, for a head that is lost with them.

It has every pin of the head: one is recorded before the head has it, and removed after the head has lost it. So it may
have one more, of a process that was killed in between, or of a head that was set back. Collections keep what such a
snapshot needs, and verifications name it (:mod:`statecore.repository.maintenance.reverted_head`). A retention is
recorded before the head has it, too, so that a refusal comes before snapshots are forgotten; a process that is killed
in between leaves the one that was wanted. Repairs of the head read the record. A replica has none: a promotion writes
it. A damaged one is written again by the next collection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from statecore.documents import DocumentType
from statecore.errors import StatecoreError
from statecore.objectstore.pointers import SWAP_TRIES
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import OTHER_HEAD_RELEASE, Head, Retention, SnapshotEntry
from statecore.repository.maintenance.record_pointer import RecordPointer
from statecore.repository.manifest import VERSION
from statecore.repository.needs import NO_NEEDS, Needs


@dataclass(frozen=True)
class Pin:
    """A pinned snapshot."""

    snapshot: str  # its id
    note: str = ""  # why it is pinned; may be empty


@dataclass(frozen=True)
class RetentionRecord:
    """The content of a retention record."""

    repository_id: str
    application_id: str
    generation: int  # rises with every swap, so no two contents are equal
    pins: tuple[Pin, ...] = ()
    keep: Retention = Retention()  # noqa: RUF009  # it is frozen
    needs: Needs = NO_NEEDS  # of the head

    def keep_with(self, other: Retention | None) -> Retention:
        """The retention of a head to be rebuilt, which may have had ``other``: never less than either of the two."""
        if other is None:
            return self.keep
        return self.keep.or_more(other) if self.generation else other

    @property
    def notes(self) -> dict[str, str]:
        """The note of each pinned snapshot."""
        return {one.snapshot: one.note for one in self.pins}


RECORD = DocumentType("retention record", VERSION, RetentionRecord, OTHER_HEAD_RELEASE, is_open=True, is_sealed=True)


def read_retention(app_repository: ApplicationRepository) -> RetentionRecord:
    """The record of an application; an empty one if there is none. Raises ``Invalid`` for one of a newer release."""
    found = _pointer(app_repository).read()
    found.needs.check_readable(f"The retention record of {app_repository.application_id}")
    return found


def record_head(app_repository: ApplicationRepository) -> None:
    """Write what the head pins and keeps; other pins stay.

    The head is read again after each change: a pin that it has lost since must not come back with an older head.
    """
    for _ in range(SWAP_TRIES):
        head, before = app_repository.reread_head().head, read_retention(app_repository)
        record = _pointer(app_repository).change(lambda record: _with_head(record, head))  # noqa: B023
        if record == before:
            return
        lost = head.pins.keys() - before.notes.keys() - app_repository.reread_head().head.pins.keys()
        _pointer(app_repository).change(lambda record: _without_pins(record, lost))  # noqa: B023
    raise app_repository.contended_error("the retention record may have pins that the head has not", SWAP_TRIES)


def record_pinned(app_repository: ApplicationRepository, head: Head, wanted: SnapshotEntry) -> None:
    """Add a pin that the head is about to have to the record, and what the head has."""
    _pointer(app_repository).change(lambda record: _with_head(record, head, {wanted.snapshot: wanted.note}))


def record_kept(app_repository: ApplicationRepository, head: Head) -> None:
    """Write the retention of a head that is about to be swapped in; pins stay, which others may remove meanwhile.

    A new record, of which there was none or a damaged one, has those of the head.
    """
    _pointer(app_repository).change(
        lambda record: (
            replace(record, keep=head.keep, needs=head.needs) if record.generation else _with_head(record, head)
        )
    )


@contextmanager
def head_change_in_errors(app_repository: ApplicationRepository, then: str = "run this again") -> Iterator[None]:
    """Errors of the record say that the head has changed before."""
    try:
        yield
    except StatecoreError as error:
        raise error.restated(
            f"The head of {app_repository.application_id} was changed, and its retention record does not have the "
            f"change yet: {error.what}",
            action=f"{error.action} Then {then}.",
            head_changed=True,
        ) from error


def record_named_pins(app_repository: ApplicationRepository, head: Head) -> None:
    """Remove the pins of snapshots that a rebuilt head does not name: they cannot be fetched."""
    named = {entry.snapshot for entry in head.snapshots}
    _pointer(app_repository).change(
        lambda record: _with_pins(record, {name: note for name, note in record.notes.items() if name in named})
    )


def record_unpinned(app_repository: ApplicationRepository, snapshot: str) -> None:
    """Remove a pin from the record."""
    _pointer(app_repository).change(lambda record: _without_pins(record, {snapshot}))


def _with_head(record: RetentionRecord, head: Head, pins: Mapping[str, str] = MappingProxyType({})) -> RetentionRecord:
    return replace(_with_pins(record, {**record.notes, **head.pins, **pins}), keep=head.keep, needs=head.needs)


def _without_pins(record: RetentionRecord, snapshots: Collection[str]) -> RetentionRecord:
    return _with_pins(record, {name: note for name, note in record.notes.items() if name not in snapshots})


def _with_pins(record: RetentionRecord, notes: Mapping[str, str]) -> RetentionRecord:
    return replace(record, pins=tuple(Pin(name, notes[name]) for name in sorted(notes)))


def _pointer(app_repository: ApplicationRepository) -> RecordPointer[RetentionRecord]:
    return RecordPointer(app_repository, app_repository.names.retention, RECORD)
