"""The verification record of an application: what of its snapshots was verified, and when.

``statecore repo verify`` writes it (:mod:`statecore.repository.maintenance.record_pointer`). It proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.maintenance.record_pointer import RecordPointer
from statecore.repository.manifest import OTHER_RELEASE, VERSION

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
class VerifiedLevel:
    """Since when all of a level is verified, and how much damage is known."""

    level: str
    since_ms: int | None  # None if a part of it was never verified
    damaged: int


@dataclass(frozen=True)
class VerificationRecord:
    """The content of a verification record."""

    repository_id: str
    application_id: str
    generation: int  # rises with every swap, so no two contents are equal
    verified: tuple[VerifiedPart, ...] = ()

    def part(self, level: Level, part: int, parts: int) -> VerifiedPart | None:
        return next((one for one in self.verified if (one.level, one.part, one.parts) == (level, part, parts)), None)

    def whole(self, level: Level, now_ms: int) -> list[VerifiedPart]:
        """All parts of a level, of the division whose oldest part is the newest; empty if none is complete."""
        whole = [found for parts, found in self._divisions(level, now_ms).items() if len(found) == parts]
        return max(whole, key=lambda found: min(one.at_ms for one in found), default=[])

    def damage(self, level: Level, now_ms: int) -> int:
        """The damage of each part that no later verification covers, summed over a division.

        Divisions overlap, so damage that two have found counts once: that which has found the most is taken.
        """
        divisions = self._divisions(level, now_ms)
        later = {parts: {one.part: one.at_ms for one in found} for parts, found in divisions.items()}

        def is_covered(one: VerifiedPart) -> bool:
            for parts, verified_at in later.items():
                step = gcd(one.parts, parts)  # its blobs are in these parts of the other division, and in no more
                overlapping = range((one.part - 1) % step + 1, parts + 1, step)
                if all(verified_at.get(part, -1) > one.at_ms for part in overlapping):
                    return True
            return False

        return max(
            (sum(one.damaged for one in found if not is_covered(one)) for found in divisions.values()),
            default=0,
        )

    def _divisions(self, level: Level, now_ms: int) -> dict[int, list[VerifiedPart]]:
        """The parts of a level by their number; those of a day after ``now_ms``, of a wrong clock, do not count."""
        divisions: dict[int, list[VerifiedPart]] = {}
        for one in self.verified:
            if one.level == level and one.at_ms <= now_ms + _DAY_MS:
                divisions.setdefault(one.parts, []).append(one)
        return divisions

    def known(self, now_ms: int) -> dict[Level, tuple[int | None, int]]:
        """Of each level of which anything was verified: since when all of it, and the damage.

        The time is in ms since the epoch, and ``None`` as long as a part was never verified.
        """
        return {
            level: (min((one.at_ms for one in self.whole(level, now_ms)), default=None), self.damage(level, now_ms))
            for level in Level
            if self._divisions(level, now_ms)
        }

    def levels(self, now_ms: int) -> list[VerifiedLevel]:
        """The levels to be shown, the highest first: a lower one only if it was verified later.

        One that was never verified as a whole is shown only with damage.
        """
        found: list[VerifiedLevel] = []
        since = -1
        for level, (since_ms, damaged) in reversed(self.known(now_ms).items()):
            if damaged if since_ms is None else since_ms > since:
                found.append(VerifiedLevel(level, since_ms, damaged))
                since = max(since, since_ms or -1)
        return found

    def next_part(self, parts: int, now_ms: int) -> int:
        """The part of all bytes whose last verification is the oldest; without any record another one each day."""
        first = now_ms // _DAY_MS % parts

        def verified_at(part: int) -> int:
            found = self.part(Level.BYTES, part, parts)
            return found.at_ms if found is not None and found.at_ms <= now_ms else -1  # the future: a wrong clock

        return min(((first + step) % parts + 1 for step in range(parts)), key=verified_at)

    def updated(self, verified: Sequence[VerifiedPart]) -> VerificationRecord:
        """The record with newer verifications; without those of a later day that have found nothing, of a wrong clock.

        They would hide what is found before that day.
        """
        until_ms = max((one.at_ms for one in verified), default=0) + _DAY_MS
        before = (one for one in self.verified if one.damaged or one.at_ms <= until_ms)
        by_part = {(one.level, one.parts, one.part): one for one in (*before, *verified)}
        ordered = tuple(by_part[key] for key in sorted(by_part))
        return replace(self, verified=ordered)


RECORD = DocumentType("verification record", VERSION, VerificationRecord, OTHER_RELEASE, is_open=True, is_sealed=True)


def read_record(app_repository: ApplicationRepository) -> VerificationRecord:
    """The record of an application. Raises ``Invalid`` if another release has written it."""
    return _pointer(app_repository).read()


def verified_before(app_repository: ApplicationRepository) -> VerificationRecord:
    """The record of an application; an empty one if another release, or nobody, has written it."""
    try:
        return read_record(app_repository)
    except Invalid:
        return VerificationRecord("", "", 0)


def record_verified(app_repository: ApplicationRepository, verified: Sequence[VerifiedPart]) -> VerificationRecord:
    """Add verifications to the record of an application; the new record."""
    return _pointer(app_repository).change(lambda record: record.updated(verified))


def _pointer(app_repository: ApplicationRepository) -> RecordPointer[VerificationRecord]:
    return RecordPointer(app_repository, app_repository.names.verified, RECORD)
