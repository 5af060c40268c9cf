"""Verifies all snapshots that the head of an application names, up to a level (``statecore repo verify``).

Each document is read once, and each blob at most once, however many snapshots name it. Damage is part of the answer,
so damage of one file hides no other. Which tasks, stores and snapshots need a damaged file is found afterwards, by
reading the task manifests again: most runs find none, and no more than the files has to be in memory. What the head
does not name any more by then is no damage, because a collection may have deleted it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError, worst_of
from statecore.objectstore.base import RESTORE_ARCHIVED
from statecore.progress import NullProgress, Progress, progress_of_each
from statecore.repository.application_repository import ApplicationRepository, applications_in
from statecore.repository.blob_verification import NamedFile, existing_blobs, is_archive_refusing, parallel_map
from statecore.repository.encryption import KEY_DOCUMENT_NAME
from statecore.repository.head import Head
from statecore.repository.key_document import check_key_document
from statecore.repository.listing import ApplicationView, list_application
from statecore.repository.maintenance.blob_reading import damaged_files
from statecore.repository.maintenance.garbage import hash64
from statecore.repository.maintenance.reverted_head import check_not_reverted, check_pins
from statecore.repository.maintenance.verification_record import (
    Level,
    VerificationRecord,
    VerifiedPart,
    record_verified,
    verified_before,
)
from statecore.repository.manifest import TaskManifest
from statecore.repository.repository import Repository
from statecore.repository.snapshot_verification import (
    Damage,
    SnapshotVerification,
    TaskManifestKey,
    VerifiedSnapshot,
    key_of,
)
from statecore.words import number_of

MOST_PARTS = 1000
SUBSET_PATTERN = r"^([1-9][0-9]{0,3})?/[1-9][0-9]{0,3}$"
_NAMED = 20


class Subset(NamedTuple):
    """A part of the blobs, by a hash of their names: all runs with the same number of parts divide them equally."""

    part: int | None = 1  # from 1 on; None for that whose last verification is the oldest
    parts: int = 1

    @classmethod
    def parse(cls, text: str) -> Subset | None:
        """``2/7``, or ``/7`` for the part whose turn it is; ``None`` if the text is neither."""
        if re.fullmatch(SUBSET_PATTERN, text) is None:
            return None
        part, _, parts = text.partition("/")
        found = cls(int(part) if part else None, int(parts))
        return found if found.parts <= MOST_PARTS and (found.part or 1) <= found.parts else None

    def has(self, blob: str) -> bool:
        assert self.part is not None
        return hash64(blob) % self.parts == self.part - 1


ALL = Subset()


@dataclass(frozen=True)
class FoundDamage:
    """Damage of a document, or of the files that a store has in a blob."""

    error: Damage  # what is wrong, and what to do
    level: Level  # at which it was found
    blob: str
    task: str = ""  # empty for a head or a manifest, and the next two for every document
    store: str = ""
    segment: int | None = None  # None also where the store has none
    snapshots: tuple[str, ...] = ()  # those that need it, newest first; of a head none is known
    intact: str | None = None  # the newest snapshot in which no damage of the task was found; None if there is none

    def to_json(self) -> dict[str, Any]:
        error = self.error.to_json()
        return {
            **{name: error[name] for name in ("error", "code", "what", "action")},
            "level": self.level.value,
            "blob": self.blob,
            "task": self.task or None,
            "store": self.store or None,
            "segment": self.segment,
            "snapshots": list(self.snapshots),
            "intact_snapshot": self.intact,
        }


@dataclass(frozen=True)
class DamageGroup:
    """Damage of one blob, which stores of the same snapshots need."""

    damaged: tuple[FoundDamage, ...]

    @property
    def first(self) -> FoundDamage:
        return self.damaged[0]

    @property
    def what(self) -> str:
        """What is wrong; of several stores the first is named."""
        others = len(self.damaged) - 1
        more = f" So {'does' if others == 1 else 'do'} {number_of(others, 'other store partition')}." if others else ""
        return self.first.error.what + more


@dataclass
class VerificationReport:
    """What was verified of an application."""

    repository: str
    application_id: str
    level: Level
    part: int = 1  # of the bytes
    parts: int = 1
    began_ms: int = 0
    newest: str | None = None
    snapshots: int = 0
    blobs: int = 0  # that have the files of these snapshots
    bytes: int = 0  # of these files
    read_blobs: int = 0
    read_bytes: int = 0
    damaged: list[FoundDamage] = field(default_factory=list)
    intact: str | None = None  # the newest snapshot without damage
    record: VerificationRecord | None = None  # as it is now; None if it could not be replaced
    not_recorded: str = ""  # why not
    # since when each level was verified, and the damage that is known, also where it could not be recorded
    known: dict[Level, tuple[int | None, int]] = field(default_factory=dict)
    problem: StatecoreError | None = None  # what ended it early: nothing is known of the rest

    @property
    def errors(self) -> list[StatecoreError]:
        """Damage, and what ended it early."""
        return [*(one.error for one in self.damaged), *([] if self.problem is None else [self.problem])]

    @property
    def exit_code(self) -> int:
        """0 without damage and problem, else that of the worst, as of ``repo snapshots``."""
        return worst_of(error.exit_code for error in self.errors)

    @property
    def groups(self) -> list[DamageGroup]:
        """The damage by blob: a pack has files of many stores."""
        found = groupby(self.damaged, lambda one: (one.error.code, one.blob, one.snapshots))
        return [DamageGroup(tuple(group)) for _, group in found]

    def check(self) -> None:
        """Raise an error that says what is damaged, if anything is, or what ended the verification early."""
        if self.problem is not None:
            raise self.problem
        if not self.damaged:
            return
        first, groups = self.damaged[0].error, self.groups
        # one of another release, or one that may not be read, is not damaged
        begin = f"{self.application_id} is damaged: " if isinstance(first, Corrupted) else ""
        lines = [f"{begin}{groups[0].what}", *(one.what for one in groups[1:_NAMED])]
        if len(groups) > _NAMED:
            lines.append(f"And {len(groups) - _NAMED} more (statecore repo verify --json).")
        raise first.restated(
            "\n".join(lines),
            repository=self.repository,
            application_id=self.application_id,
            damaged=len(self.damaged),
            intact_snapshot=self.intact,
        )

    def to_json(self) -> dict[str, Any]:
        names = ("snapshots", "newest", "blobs", "bytes", "read_blobs", "read_bytes")
        return {
            "application_id": self.application_id,
            "level": self.level.value,
            "part": self.part,
            "parts": self.parts,
            "began_ms": self.began_ms,
            **{name: getattr(self, name) for name in names},
            "intact_snapshot": self.intact,
            "damaged": [one.to_json() for one in self.damaged],
            "not_recorded": self.not_recorded or None,
            "problem": None if self.problem is None else self.problem.to_json(),
            "exit_code": self.exit_code,
        }


def verify_applications(
    repository: Repository,
    application_id: str | None,
    level: Level,
    subset: Subset = ALL,
    progress: Progress | None = None,
) -> Iterator[VerificationReport]:
    """Verify an application, or all that have snapshots. Raises ``NotFound`` if there are none.

    Of all, one that cannot be verified has a report that says why, and the next ones are verified. Of a named one the
    error is raised.
    """
    if application_id is not None:
        app_repository = ApplicationRepository(repository, application_id)
        report = _verified(app_repository, level, subset, progress)
        if report is None:
            app_repository.head()  # says why there is none
            raise _no_snapshots(repository)
        yield report
        return
    found = 0
    for name, named in progress_of_each(applications_in(repository), progress or NullProgress()):
        app_repository = ApplicationRepository(repository, name)
        try:
            report = _verified(app_repository, level, subset, named)
        except StatecoreError as error:
            named.done("failed")
            report = VerificationReport(app_repository.url, name, level, problem=error)
        if report is not None:
            found += 1
            yield report
    if not found:
        raise _no_snapshots(repository)


def _verified(
    app_repository: ApplicationRepository, level: Level, subset: Subset, progress: Progress | None
) -> VerificationReport | None:
    """The verification of an application; ``None`` if it has no snapshot."""
    view = list_application(app_repository)
    if view.error is None and (view.head is None or not view.head.snapshots):
        return None
    return Verifier(app_repository, level, subset, progress).run(view)


def _no_snapshots(repository: Repository) -> NotFound:
    return NotFound(
        f"There is no snapshot in {repository.object_store.url}.",
        code="snapshots-not-found",
        action="Publish one first (statecore restore, statecore checkpoint or statecore backup with --repository).",
        repository=repository.object_store.url,
    )


class Verifier:
    """Verifies one application up to a level; ``subset`` divides what the level ``bytes`` reads."""

    def __init__(
        self,
        app_repository: ApplicationRepository,
        level: Level,
        subset: Subset = ALL,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app_repository, self._level, self._subset = app_repository, level, subset
        self._progress, self._clock = progress or NullProgress(), clock
        self._files: set[NamedFile] = set()
        self._damaged: dict[NamedFile, tuple[str, Level]] = {}  # code, and the level that has found it

    def run(self, view: ApplicationView) -> VerificationReport:
        """Verify, and record it. Raises ``Retryable`` if the repository could not be read."""
        app_repository, now_ms = self._app_repository, int(self._clock() * 1000)
        report = VerificationReport(app_repository.url, app_repository.application_id, self._level, began_ms=now_ms)
        if view.head is None:
            assert isinstance(view.error, Damage)
            report.damaged.append(FoundDamage(view.error, Level.DOCUMENTS, app_repository.names.head))
            report.not_recorded = "The head cannot be used."
            report.known = self._known_without_head(now_ms)
            return report
        if self._level is Level.BYTES:
            part, report.parts = self._subset
            report.part = part or verified_before(app_repository).next_part(report.parts, now_ms)
        report.snapshots, report.newest = len(view.head.snapshots), view.head.snapshots[0].snapshot
        verified = self._documents(view.head)
        above = [*self._key_document(), *self._reverted(view.head)]
        self._blobs(report)
        self._attribute(report, verified)
        report.damaged[:0] = above
        self._write_record(report, view.head)
        return report

    def _known_without_head(self, now_ms: int) -> dict[Level, tuple[int | None, int]]:
        """What was known before, with one damage more at each level that was to be verified."""
        known = self._record_before().known(now_ms)
        before = {level: known.get(level, (None, 0)) for level in self._level.included}
        return known | {level: (since_ms, damaged + 1) for level, (since_ms, damaged) in before.items()}

    def _reverted(self, head: Head) -> list[FoundDamage]:
        """A head that has gone back to an older version, which is whole, or of which that cannot be told."""
        try:
            check_pins(self._app_repository, head, check_not_reverted(self._app_repository, head))
        except (Corrupted, Invalid) as error:
            return [FoundDamage(error, Level.DOCUMENTS, self._app_repository.names.head)]
        return []

    def _key_document(self) -> list[FoundDamage]:
        """The second copy of the data key, which only the loss of the first one would miss."""
        repository = self._app_repository.repository
        try:
            if repository.descriptor.encryption is not None:
                check_key_document(repository.object_store)
        except Corrupted as error:
            return [FoundDamage(error, Level.DOCUMENTS, KEY_DOCUMENT_NAME)]
        return []

    def _documents(self, head: Head) -> list[VerifiedSnapshot]:
        self._progress.phase("documents", len(head.snapshots), "snapshots")
        with SnapshotVerification(self._app_repository, found=self._add_files) as verification:
            found = verification.snapshots(head.snapshots, self._progress.advance)
        self._progress.done()
        return found

    def _add_files(self, task_manifest: TaskManifest) -> None:
        for store in task_manifest.stores:
            self._files.update(NamedFile(sha256, extent) for sha256, extent in store.extents)

    def _blobs(self, report: VerificationReport) -> None:
        names = {one.extent.blob for one in self._files}
        report.blobs, report.bytes = len(names), sum(one.extent.bytes for one in self._files)
        if Level.FILES in self._level.included:
            self._sizes(names)
        if self._level is Level.BYTES:
            self._bytes(report)

    def _sizes(self, names: set[str]) -> None:
        self._progress.phase("sizes", len(names), "blobs")
        blobs = self._app_repository.blobs
        found = existing_blobs(blobs, names, self._app_repository.names.root)
        archived = sorted(blob.name for blob in found.values() if blob.is_archived)
        refused = dict(zip(archived, parallel_map(partial(is_archive_refusing, blobs), archived), strict=True))
        for one in self._files:
            blob = found.get(one.extent.blob)
            if blob is None:
                self._damaged[one] = ("blob-missing", Level.FILES)
            elif refused.get(blob.name):
                self._damaged[one] = ("blob-archived", Level.FILES)
            elif blob.size < one.extent.start + one.extent.bytes:
                self._damaged[one] = ("blob-truncated", Level.FILES)
        self._progress.advance(len(names))
        self._progress.done()

    def _bytes(self, report: VerificationReport) -> None:
        part = Subset(report.part, report.parts)
        chosen = [one for one in self._files if one not in self._damaged and part.has(one.extent.blob)]
        report.read_blobs = len({one.extent.blob for one in chosen})
        report.read_bytes = sum(one.extent.bytes for one in chosen)
        self._progress.phase("bytes", report.read_bytes, "bytes")
        for one, code in damaged_files(self._app_repository.blobs, chosen, self._progress.advance).items():
            self._damaged[one] = (code, Level.BYTES)
        self._progress.done()

    def _attribute(self, report: VerificationReport, verified: Sequence[VerifiedSnapshot]) -> None:
        """Which tasks, stores and snapshots need what is damaged."""
        if not self._damaged and not any(one.damage for one in verified):
            report.intact = report.newest
            return
        named = self._still_named(verified)
        users = _users(named)
        places: dict[_Place, list[str]] = {}  # the snapshots that need it
        errors: dict[_Place, Damage] = {}
        hurt: set[tuple[str, str]] = set()  # snapshots and the tasks in them that are damaged; "" is a manifest
        for one in named:
            for task, error in one.damage.items():
                reference = None if one.manifest is None else one.manifest.value.reference(task)
                names = self._app_repository.names
                blob = names.manifest(one.entry.snapshot) if reference is None else reference.extent.blob
                place = _Place(Level.DOCUMENTS, error.code, blob, task)
                errors[place] = self._with_remedy(error)
                places.setdefault(place, []).append(one.entry.snapshot)
                hurt.add((one.entry.snapshot, task))
        if self._damaged:
            for key, place in self._damaged_places(named):
                places.setdefault(place, []).extend(users[key])
                hurt.update((snapshot, place.task) for snapshot in users[key])
        order = {one.entry.snapshot: number for number, one in enumerate(named)}
        whole = (one.entry.snapshot for one in named if not any(of == one.entry.snapshot for of, _ in hurt))
        report.intact = next(whole, None)
        for place, needing in places.items():
            snapshots = tuple(sorted(set(needing), key=order.__getitem__))
            intact = next((one for one in order if not hurt & {(one, place.task), (one, "")}), None)
            error = errors.get(place) or self._file_error(place, is_newest=order[snapshots[0]] == 0)
            where = (place.level, place.blob, place.task, place.store, place.segment)
            report.damaged.append(FoundDamage(error, *where, snapshots, intact))
        report.damaged.sort(key=lambda one: (order[one.snapshots[0]], one.blob, one.task, one.store))

    def _still_named(self, verified: Sequence[VerifiedSnapshot]) -> list[VerifiedSnapshot]:
        """Those that the head names now; a collection may have deleted what only others needed."""
        read = self._app_repository.read_head()
        now = set() if read is None else {entry.sha256 for entry in read.head.snapshots}
        return [one for one in verified if one.entry.sha256 in now]

    def _damaged_places(self, named: Sequence[VerifiedSnapshot]) -> Iterator[tuple[TaskManifestKey, _Place]]:
        """Where damaged files are needed, by the task manifest that names them."""
        seen: set[TaskManifestKey] = set()
        self._progress.phase("attribute", len(named), "snapshots")
        for one in named:
            references = () if one.manifest is None else one.manifest.value.task_manifests
            new = [each for each in references if each.task not in one.damage and key_of(each) not in seen]
            read = self._app_repository.task_manifests(new)
            for reference in new:
                seen.add(key_of(reference))
                for store in read[reference.task].manifest.stores:
                    for database in store.databases:
                        for sha256, extent in database.extents:
                            found = self._damaged.get(NamedFile(sha256, extent))
                            if found is not None:
                                code, level = found
                                place = _Place(level, code, extent.blob, reference.task, store.store, database.segment)
                                yield key_of(reference), place
            self._progress.advance()
        self._progress.done()

    def _with_remedy(self, error: Damage) -> Damage:
        """The error of a document; one of another release says itself what to do."""
        if isinstance(error, Invalid):
            return error
        action = (
            self._app_repository.fallback_advice
            if self._app_repository.repository.is_replica
            else (
                "Let the head leave out the snapshots that cannot be read; without --apply the command only shows the "
                f"plan: {self._app_repository.repair_command} --apply"
            )
        )
        return Corrupted(error.what, code=error.code, action=action, **error.context)

    def _file_error(self, place: _Place, *, is_newest: bool) -> Damage:
        segment = "" if place.segment is None else f", segment {place.segment},"
        needed = f"The blob {place.blob}, which store {place.store} of task {place.task}{segment} needs,"
        where = {"blob": place.blob, "task": place.task, "store": place.store, "segment": place.segment}
        if place.code == "blob-archived":
            return Invalid(
                f"{needed} is archived and cannot be read.", code=place.code, action=RESTORE_ARCHIVED, **where
            )
        stay = (
            "may stay damaged until the retention drops them, or until they are forgotten: "
            f"{self._app_repository.forget_command}."
        )
        wrong = {"blob-missing": "is missing", "blob-truncated": "is too short"}.get(place.code, "is damaged")
        return Corrupted(
            f"{needed} {wrong}.",
            code=place.code,
            action=self._app_repository.fallback_advice
            if self._app_repository.repository.is_replica
            else (
                f"Publish task {place.task} again: statecore backup with --repository {self._app_repository.url} on an "
                "instance that has it, or statecore restore --from none of the whole application. Older snapshots that "
                f"need it {stay} And check the object store."
            )
            if is_newest
            else f"The newest snapshot does not need it, so instances can start. The older ones {stay} Check the "
            "object store.",
            **where,
        )

    def _write_record(self, report: VerificationReport, head: Head) -> None:
        assert report.newest is not None
        verified = []
        for level in self._level.included:
            part, parts = (report.part, report.parts) if level is Level.BYTES else (1, 1)
            of_part = Subset(part, parts)
            damaged = sum(one.level in level.included and of_part.has(one.blob) for one in report.damaged)
            verified.append(VerifiedPart(level.value, part, parts, report.began_ms, report.newest, damaged))
        try:
            self._app_repository.check_needs(head)
            report.record = record_verified(self._app_repository, verified)
        except StatecoreError as error:  # the answer is worth more than its record, which needs the right to write
            report.not_recorded = error.what
        record = report.record or self._record_before().updated(verified)
        report.known = record.known(report.began_ms)

    def _record_before(self) -> VerificationRecord:
        try:
            return verified_before(self._app_repository)
        except StatecoreError:
            return VerificationRecord("", "", 0)


class _Place(NamedTuple):
    """Where something damaged is needed."""

    level: Level
    code: str
    blob: str
    task: str
    store: str = ""
    segment: int | None = None


def _users(verified: Sequence[VerifiedSnapshot]) -> Mapping[TaskManifestKey, list[str]]:
    """The snapshots that name each task manifest."""
    found: dict[TaskManifestKey, list[str]] = {}
    for one in verified:
        for reference in () if one.manifest is None else one.manifest.value.task_manifests:
            found.setdefault(key_of(reference), []).append(one.entry.snapshot)
    return found
