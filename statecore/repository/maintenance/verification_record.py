"""The verification record of an application: what of its snapshots was verified, and when.

A pointer beside the head, which ``statecore repo verify`` replaces. It proves nothing, and no job depends on it: a
damaged one, or one that was copied from another repository, is replaced as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from statecore.documents import DocumentType, encode_json
from statecore.errors import Invalid, Retryable
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import OTHER_RELEASE, VERSION

_TRIES = 20
_DAY_MS = 24 * 3_600_000


class Level(StrEnum):
    """How thoroughly is verified; each level includes those before it."""

    DOCUMENTS = "documents"  # head, manifests and task manifests: hashes, seals, structure
    FILES = "files"  # presence and size of all blobs
    BYTES = "bytes"  # all bytes of all files

    @property
    def included(self) -> tuple[Level, ...]:
        """This level and those before it."""
        return tuple(Level)[: tuple(Level).index(self) + 1]


@dataclass(frozen=True)
class VerifiedPart:
    """The last verification of a part of an application at a level."""

    level: str  # a Level, or one of another release
    part: int  # from 1 on; below the level bytes always all: 1 of 1
    parts: int
    at_ms: int  # when it began, in ms since the epoch, by the clock of its machine
    snapshot: str  # the newest snapshot then
    damaged: int  # how much damage it found up to this level


@dataclass(frozen=True)
class VerificationRecord:
    """The content of a verification record."""

    repository_id: str
    application_id: str
    generation: int  # rises with every swap, so no two contents are equal
    verified: tuple[VerifiedPart, ...] = ()

    def part(self, level: Level, part: int, parts: int) -> VerifiedPart | None:
        return next((one for one in self.verified if (one.level, one.part, one.parts) == (level, part, parts)), None)

    def whole(self, level: Level) -> list[VerifiedPart]:
        """All parts of a level, of the division whose oldest part is the newest; empty if none is complete."""
        divisions: dict[int, list[VerifiedPart]] = {}
        for one in self.verified:
            if one.level == level:
                divisions.setdefault(one.parts, []).append(one)
        whole = [found for parts, found in divisions.items() if len(found) == parts]
        return max(whole, key=lambda found: min(one.at_ms for one in found), default=[])

    @property
    def known(self) -> dict[Level, tuple[int, int]]:
        """Since when each level was verified as a whole, in ms since the epoch, and the damage that was found."""
        return {
            level: (min(one.at_ms for one in found), sum(one.damaged for one in found))
            for level in Level
            if (found := self.whole(level))
        }

    def next_part(self, parts: int, now_ms: int) -> int:
        """The part of all bytes whose last verification is the oldest; without any record another one each day."""
        first = now_ms // _DAY_MS % parts

        def verified_at(part: int) -> int:
            found = self.part(Level.BYTES, part, parts)
            return found.at_ms if found is not None and found.at_ms <= now_ms else -1  # the future: a wrong clock

        return min(((first + step) % parts + 1 for step in range(parts)), key=verified_at)

    def updated(self, verified: Iterable[VerifiedPart]) -> VerificationRecord:
        """The record with newer verifications."""
        by_part = {(one.level, one.parts, one.part): one for one in (*self.verified, *verified)}
        ordered = tuple(by_part[key] for key in sorted(by_part))
        return VerificationRecord(self.repository_id, self.application_id, self.generation + 1, ordered)


RECORD = DocumentType("verification record", VERSION, VerificationRecord, OTHER_RELEASE, is_open=True, is_sealed=True)


class ReadRecord(NamedTuple):
    """A record as read: the typed value, the whole JSON, and the pointer's version; an empty one if there is none."""

    record: VerificationRecord
    raw: Mapping[str, Any] | None
    version: str | None


def read_record(app_repository: ApplicationRepository) -> ReadRecord:
    """The record of an application. Raises ``Invalid`` if another release has written it."""
    ids = (app_repository.repository.descriptor.id, app_repository.application_id)
    found = app_repository.pointers.read(app_repository.names.verified)
    if found is None:
        return ReadRecord(VerificationRecord(*ids, 0), None, None)
    try:
        document = RECORD.read(found.content)
    except Invalid:
        if RECORD.seal_holds(found.content):
            raise
    else:
        if (document.value.repository_id, document.value.application_id) == ids:
            return ReadRecord(document.value, document.raw, found.version)
    return ReadRecord(VerificationRecord(*ids, 0), None, found.version)


def verified_before(app_repository: ApplicationRepository) -> VerificationRecord:
    """The record of an application; an empty one if another release, or nobody, has written it."""
    try:
        return read_record(app_repository).record
    except Invalid:
        return VerificationRecord("", "", 0)


def record_verified(app_repository: ApplicationRepository, verified: Sequence[VerifiedPart]) -> VerificationRecord:
    """Add verifications to the record of an application; the new record."""
    for _ in range(_TRIES):
        read = read_record(app_repository)
        record = read.record.updated(verified)
        document = RECORD.to_json(record) | ({} if read.raw is None else RECORD.unknown(read.raw))
        content = encode_json(RECORD.sealed(document))
        if app_repository.pointers.swap(app_repository.names.verified, content, read.version) is not None:
            return record
    raise Retryable(
        f"The verification record of {app_repository.application_id} was replaced by other processes {_TRIES} times "
        "in turn.",
        code="write-conflict",
        action="Run this again.",
        application_id=app_repository.application_id,
        repository=app_repository.url,
    )
