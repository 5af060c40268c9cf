"""The retention record of an application: its pins and its retention, for a head that is lost with them.

It has every pin of the head: one is recorded before the head has it, and removed after the head has lost it. So it may
have one more, of a process that was killed in between, which only keeps a snapshot. Repairs of the head read it. A
replica has none: a promotion writes it. A damaged one is written again by the next collection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from statecore.documents import DocumentType
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import OTHER_HEAD_RELEASE, Head, Retention, SnapshotEntry
from statecore.repository.maintenance.record_pointer import RecordPointer
from statecore.repository.manifest import VERSION


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
    return _pointer(app_repository).read()


def record_head(app_repository: ApplicationRepository, head: Head) -> None:
    """Write what a head pins, and what it keeps where there is no record, or a damaged one."""

    def change(record: RetentionRecord) -> RetentionRecord:
        return replace(
            _with_pins(record, record.notes | head.pins), keep=record.keep if record.generation else head.keep
        )

    _pointer(app_repository).change(change)


def record_pinned(app_repository: ApplicationRepository, entries: Iterable[SnapshotEntry]) -> None:
    """Add pins to the record."""
    added = {entry.snapshot: entry.note for entry in entries if entry.pinned}
    _pointer(app_repository).change(lambda record: _with_pins(record, record.notes | added))


def record_named_pins(app_repository: ApplicationRepository, head: Head) -> None:
    """Remove the pins of snapshots that a rebuilt head does not name: they cannot be fetched."""
    named = {entry.snapshot for entry in head.snapshots}
    _pointer(app_repository).change(
        lambda record: _with_pins(record, {name: note for name, note in record.notes.items() if name in named})
    )


def record_unpinned(app_repository: ApplicationRepository, snapshot: str) -> None:
    """Remove a pin from the record."""
    _pointer(app_repository).change(
        lambda record: _with_pins(record, {name: note for name, note in record.notes.items() if name != snapshot})
    )


def record_retention(app_repository: ApplicationRepository, keep: Retention) -> None:
    _pointer(app_repository).change(lambda record: replace(record, keep=keep))


def _with_pins(record: RetentionRecord, notes: dict[str, str]) -> RetentionRecord:
    return replace(record, pins=tuple(Pin(name, notes[name]) for name in sorted(notes)))


def _pointer(app_repository: ApplicationRepository) -> RecordPointer[RetentionRecord]:
    return RecordPointer(app_repository, app_repository.names.retention, RECORD)
