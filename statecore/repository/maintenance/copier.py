"""Copies applications into a replica: what a head reaches, and last the head, byte for byte.

::

    read     the source's head, and what it reaches
    list     what the replica has; then what the source has
    copy     what the replica lacks, or has with another size; each blob is verified before it is put
    swap     the replica's head for that of the source; it only goes forward, on the same branch (head_ancestry.py)
    collect  put a list of what the replica has, the source has deleted, and no head will reach

So a reader of the replica finds everything that its head names. A killed copy leaves blobs, which the next one finds.
If something is missing and the source has another head by then, the copy begins again with that one.

A file that is damaged in the source is left out if only older snapshots need it: the replica lacks then what its source
lacks, and newer snapshots are not kept from it. If the newest snapshot needs it, the replica keeps its head.

A replica must not delete by its own judgement: its blobs have the names of the source, whose head may be rebuilt, and
name what it had forgotten. What the source has deleted it never names again
(:mod:`statecore.repository.maintenance.garbage`), so only that is listed, for ``repo prune``. If the source is a
replica, its own lists say what the primary has deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.objectstore.base import Blob
from statecore.objectstore.pointers import SWAP_TRIES, PointerValue
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import parallel_map
from statecore.repository.descriptor import RepositoryDescriptor, Role
from statecore.repository.head import Head, decoded_head
from statecore.repository.incoming_file import file_errors, scratch_directory
from statecore.repository.layout import hash_of, printable
from statecore.repository.maintenance.collection import Amount
from statecore.repository.maintenance.descriptor_change import change_descriptor
from statecore.repository.maintenance.divergence_record import is_diverged, record_diverged
from statecore.repository.maintenance.garbage import (
    GarbageRule,
    NameSet,
    reachable_names,
    read_lists,
    unnamed_manifests,
    write_list,
)
from statecore.repository.maintenance.head_ancestry import Ancestry, ancestry
from statecore.repository.manifest import Extent
from statecore.repository.publish.upload import put_verified
from statecore.repository.repository import Repository, check_descriptor_unchanged

PIECE_BYTES = 8 << 20  # Larger blobs pass through a temporary file
_AT_ONCE = 8
DIVERGED = "replica-diverged"
"""Code of the error if the source does not go on with the replica's head."""
_KEPT = "what was copied is kept"


class CopyOutcome(StrEnum):
    """What a copy of an application has done."""

    COPIED = "copied"  # the replica has the source's head now
    CURRENT = "current"  # it had it before
    AHEAD = "ahead"  # the source is a replica, too, and has an older head: another copy was made from its primary
    INCOMPLETE = "incomplete"  # it has it, without files of older snapshots that are damaged in the source
    EMPTY = "empty"  # the source has no head of the application
    FAILED = "failed"  # something is damaged in the source, or it was set back; the replica keeps its head


@dataclass(frozen=True)
class CopiedApplication:
    """Result of a copy of one application."""

    application_id: str
    outcome: CopyOutcome
    snapshots: int = 0  # that the source's head names
    needed: Amount = field(default_factory=Amount)  # what that head reaches
    copied: Amount = field(default_factory=Amount)  # what of it was copied now
    listed: Amount = field(
        default_factory=Amount
    )  # what the source has deleted, and repo prune will delete from the replica
    left_out: tuple[str, ...] = ()  # blobs that are damaged in the source, and that older snapshots need
    unknown: tuple[str, ...] = ()  # names in the replica that this release does not make; left alone
    error: StatecoreError | None = None  # the first one


def record_source(replica: Repository, source: Repository) -> str:
    """Make the descriptor of a replica name the repository that it was copied from; the URL of another one until now.

    Empty if it named that already. Raises ``Fenced`` if it is no replica any more.
    """
    url = source.object_store.url_without_key
    before = ""

    def change(found: RepositoryDescriptor) -> RepositoryDescriptor | None:
        nonlocal before
        before = found.copy_of
        return replace(found, copy_of=url) if found.role is Role.REPLICA else None

    if replica.descriptor.copy_of != url:
        change_descriptor(replica, change)
    return "" if before == url else before


class _ReadHead(NamedTuple):
    head: Head
    pointer: PointerValue


class Copier:
    """Copies one application."""

    def __init__(
        self,
        source: ApplicationRepository,
        target: ApplicationRepository,
        *,
        progress: Progress | None = None,
        faults: FaultPoints = NO_FAULTS,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._source, self._target, self._names = source, target, source.names
        self._progress, self._faults, self._piece_bytes = progress or NullProgress(), faults, piece_bytes

    def run(self) -> CopiedApplication:
        """Copy. Damage in the source is a result; whatever a retry may cure is raised."""
        name = self._source.application_id
        try:
            read = self._source_head()
            for _ in range(SWAP_TRIES):
                if read is None:
                    if self._target.pointers.read(self._names.head) is not None:
                        raise self._source.lost_head_error()
                    return CopiedApplication(name, CopyOutcome.EMPTY)
                try:
                    done = self._copy(read)
                except Corrupted:
                    before, read = read, self._source_head()
                    if read is not None and read.pointer.content == before.pointer.content:
                        raise
                else:
                    if done is not None:
                        return done
                    before, read = read, self._source_head()
                    if read is not None and read.head.order <= before.head.order:
                        if self._is_behind(read.head):
                            return CopiedApplication(name, CopyOutcome.AHEAD, len(read.head.snapshots))
                        raise self._diverged(read.head)
        except (Corrupted, Invalid) as error:
            if error.code == DIVERGED:  # and the source has that head still: a collection, which changes it, misleads
                self._record_diverged()
            return CopiedApplication(name, CopyOutcome.FAILED, error=error)
        raise self._source.contended_error(_KEPT, SWAP_TRIES)

    def _source_head(self) -> _ReadHead | None:
        found = self._source.pointers.read(self._names.head)
        if found is not None:
            return _ReadHead(_decoded(self._source, found), found)
        if self._source.has_lost_head():
            raise self._source.lost_head_error()
        return None

    def _copy(self, read: _ReadHead) -> CopiedApplication | None:
        """Copy what a head needs, and then it; ``None`` if the replica has another head of its age, or a later one."""
        head = read.head
        head.needs.check_writable(f"The head of {head.application_id}")
        self._progress.phase("read snapshots", len(head.snapshots), "snapshots")
        wanted = dict.fromkeys(reachable_names(self._source, head, self._progress.advance))
        self._progress.phase("list", unit="blobs")
        there = {blob.name: blob for blob in self._target.blobs.list(self._names.root)}
        here = self._sizes_in_source(wanted.keys() | there.keys())  # after the target's: what it has came from there
        missing = [name for name in wanted if self._is_missing(name, here, there)]
        self._progress.phase("copy", sum(here.get(name, 0) for name in missing), "bytes")
        copied, left_out = self._copy_blobs(head, missing, here)
        self._progress.done()
        if left_out:
            self._check_left_out(read, left_out)
        self._faults.reach("copy.before-head")
        outcome = self._swap(read)
        self._faults.reach("copy.after-head")
        if outcome is None:
            return None
        in_source: Mapping[str, int] = {} if self._source.repository.is_replica else here
        gone = [blob for name, blob in there.items() if name not in wanted and name not in in_source]
        listed = self._list_deleted(head, gone)
        return CopiedApplication(
            head.application_id,
            CopyOutcome.INCOMPLETE if left_out else outcome,
            len(head.snapshots),
            _amount([here[name] for name in wanted if name in here]),
            _amount(copied),
            listed,
            tuple(sorted(left_out)),
            tuple(printable(name) for name in there if not self._names.kind_of(name)),
            next(iter(left_out.values()), None),
        )

    def _copy_blobs(
        self, head: Head, missing: Sequence[str], here: Mapping[str, int]
    ) -> tuple[list[int], dict[str, Corrupted]]:
        """Copy blobs; their sizes, and the errors of files that are damaged."""
        manifests = {self._names.manifest(entry.snapshot): entry.sha256 for entry in head.snapshots}
        left_out: dict[str, Corrupted] = {}

        def copy(name: str) -> int | None:
            try:
                return self._copy_blob(name, here.get(name), manifests.get(name), directory)
            except Corrupted as error:
                if self._names.kind_of(name) not in ("files", "packs"):
                    raise
                left_out[name] = error
                return None

        with scratch_directory("statecore-copy-") as directory:
            copied = parallel_map(copy, missing, _AT_ONCE)
        return [size for size in copied if size is not None], left_out

    def _check_left_out(self, read: _ReadHead, left_out: Mapping[str, Corrupted]) -> None:
        """Raise the error of a damaged file if the newest snapshot needs it, or the source has another head by now."""
        newest = set(reachable_names(self._source, replace(read.head, snapshots=read.head.snapshots[:1])))
        now = self._source_head()
        for name, error in left_out.items():
            if name in newest or now is None or now.pointer.content != read.pointer.content:
                raise error

    def _sizes_in_source(self, names: set[str]) -> dict[str, int]:
        return {blob.name: blob.size for blob in self._source.blobs.list(self._names.root) if blob.name in names}

    def _is_missing(self, name: str, here: Mapping[str, int], there: Mapping[str, Blob]) -> bool:
        if self._is_optional(name):
            return name in here and name not in there
        return name not in there or there[name].size != here.get(name, there[name].size)

    def _is_optional(self, name: str) -> bool:
        """Whether a name is that of a digest of a store, which is saved for some of them."""
        return self._names.kind_of(name) == "contents"

    def _copy_blob(self, name: str, size: int | None, digest: str | None, directory: Path) -> int:
        """Copy one blob, and return its bytes; ``digest`` is its SHA-256, by default the one in its name."""
        if self._is_optional(name):
            return self._copy_digest(name)
        if size is None:
            size = self._size(name)
        if size <= self._piece_bytes:
            content = self._read(name, 0, size)
            found = self._checked(name, sha256(content).hexdigest(), digest)
            put_verified(self._target.blobs, name, content, size, found)
            self._progress.advance(size)
        else:
            self._copy_large(name, size, digest, directory / uuid.uuid4().hex)
        self._faults.reach("copy.after-blob")
        return size

    def _copy_large(self, name: str, size: int, digest: str | None, path: Path) -> None:
        found = sha256()
        with file_errors(path, keeps=False):
            with path.open("xb") as file:
                for start in range(0, size, self._piece_bytes):
                    content = self._read(name, start, min(start + self._piece_bytes, size))
                    found.update(content)
                    file.write(content)
                    self._progress.advance(len(content))
        put_verified(self._target.blobs, name, path, size, self._checked(name, found.hexdigest(), digest))
        path.unlink()

    def _checked(self, name: str, found: str, digest: str | None) -> str:
        """The SHA-256 of what was read, if it is the expected one, by default that in the name."""
        is_right = found == digest if digest else self._source.blobs.hash_in_name(found) == hash_of(name)
        if not is_right:
            raise self._damaged(name)
        return found

    def _copy_digest(self, name: str) -> int:
        """Copy the digest of a store; readers verify its seal, and do without a damaged one."""
        try:
            content = self._source.blobs.get(name)
        except NotFound:
            return 0
        self._target.blobs.put_if_absent(name, content)
        self._progress.advance(len(content))
        return len(content)

    def _read(self, name: str, start: int, end: int) -> bytes:
        return self._source.read(Extent(name, start, end - start), "A blob that its head needs")

    def _size(self, name: str) -> int:
        try:
            return self._source.blobs.head(name).size
        except NotFound:
            self._read(name, 0, 1)  # raises that it is missing
            raise

    def _damaged(self, name: str) -> Corrupted:
        return Corrupted(
            f"The blob {name} in {self._source.url} is damaged: its SHA-256 differs from that recorded.",
            code="blob-damaged",
            action=self._source.fallback_advice,
            repository=self._source.url,
            blob=name,
        )

    def _diverged(self, head: Head) -> Corrupted:
        return Corrupted(
            f"The replica {self._target.url} has a head of {head.application_id} that its source {self._source.url} "
            f"does not have: the source's is of generation {head.generation} in epoch {head.epoch}. The replica keeps "
            "its head.",
            code=DIVERGED,
            action="The source was set back, by a restored bucket for example, or the replica was promoted. Find out "
            f"which is right. If it is the source, delete {self._names.head} in the replica and copy again: the other "
            "blobs are there already. If it is the replica, stop the jobs of the source and promote it (statecore repo "
            "promote-replica).",
            application_id=head.application_id,
            repository=self._source.url,
            replica=self._target.url,
        )

    def _swap(self, read: _ReadHead) -> CopyOutcome | None:
        """Swap in the source's head; ``None`` if the replica has another one of its age, or a later one."""
        head = read.head
        for _ in range(SWAP_TRIES):
            found = self._target.pointers.read(self._names.head)
            now = None if found is None else self._head_of_target(found)
            if now is None and self._target.pointers.read(self._names.head) != found:
                continue  # it was damaged on its way
            if found is not None and found.content == read.pointer.content:
                return CopyOutcome.CURRENT
            if now is not None and now.order >= head.order:
                return None
            if now is not None:
                self._check_ancestry(head, now)
            check_descriptor_unchanged(self._target.repository)  # after the head was read: see promotion
            version = None if found is None else found.version
            if self._target.pointers.swap(self._names.head, read.pointer.content, version) is not None:
                return CopyOutcome.COPIED
        raise self._target.contended_error(_KEPT, SWAP_TRIES)

    def _check_ancestry(self, head: Head, now: Head) -> None:
        """Raise ``Corrupted`` if a later head of the source does not go on with the replica's."""
        found = ancestry(self._source, head, now)
        if found is Ancestry.OTHER_BRANCH or (found is Ancestry.FORGOTTEN and is_diverged(self._target, now)):
            raise self._diverged(head)

    def _is_behind(self, head: Head) -> bool:
        """Whether a source that is a replica only lacks what the target has: its own heads never go back."""
        now = self._target_head()
        return self._source.repository.is_replica and now is not None and now.order > head.order

    def _record_diverged(self) -> None:
        now = self._target_head()
        if now is not None:
            record_diverged(self._target, now)

    def _target_head(self) -> Head | None:
        found = self._target.pointers.read(self._names.head)
        return None if found is None else self._head_of_target(found)

    def _head_of_target(self, found: PointerValue) -> Head | None:
        try:
            return _decoded(self._target, found)
        except Corrupted:
            return None  # the source has a better one

    def _list_deleted(self, head: Head, gone: Sequence[Blob]) -> Amount:
        """Put a list of what the source has deleted, and no other list has."""
        rule = GarbageRule(head, self._unnamed_manifests(head) if gone else {}, 0, 0)
        with scratch_directory("statecore-copy-") as directory:
            target, source = directory / "target", directory / "source"
            target.mkdir()
            source.mkdir()
            listed = read_lists(self._target, target) if gone else []
            known = NameSet(name for one in listed if one.header.epoch == head.epoch for name, _ in one.garbage)
            garbage = [blob for blob in gone if blob.name not in known and self._is_garbage(rule, blob)]
            garbage = self._deleted_in_source(head, garbage, source)
            name, path = write_list(self._target, head, garbage, directory)
            if garbage:
                self._target.blobs.put_if_absent(name, path)
                self._faults.reach("copy.after-list")
        return _amount([blob.size for blob in garbage])

    def _unnamed_manifests(self, head: Head) -> Mapping[str, tuple[int, int]]:
        """Those of the replica; none if one of them cannot be read, so that all stay: the head is copied already."""
        try:
            return unnamed_manifests(self._target, head)
        except Invalid:
            return {}

    def _is_garbage(self, rule: GarbageRule, blob: Blob) -> bool:
        return rule.is_garbage(blob, self._names.kind_of(blob.name))

    def _deleted_in_source(self, head: Head, garbage: Sequence[Blob], directory: Path) -> list[Blob]:
        """Which of these the source has deleted; of a replica its primary, as the lists of the replica say.

        A replica may lack what it never had: it was copied there from the primary, which still has it.
        """
        if self._source.repository.is_replica:
            wanted = {blob.name for blob in garbage}
            listed = read_lists(self._source, directory) if garbage else []
            deleted = {
                name for one in listed if one.header.epoch == head.epoch for name, _ in one.garbage if name in wanted
            }
            return [blob for blob in garbage if blob.name in deleted]
        return [blob for blob in garbage if not self._is_in_source(blob.name)]

    def _is_in_source(self, name: str) -> bool:
        """Whether the source has a blob; its listing may lack what is there."""
        try:
            self._source.blobs.head(name)
        except NotFound:
            return False
        return True


def _decoded(app_repository: ApplicationRepository, found: PointerValue) -> Head:
    repository_id = app_repository.repository.descriptor.id
    return decoded_head(
        found.content, repository_id, app_repository.application_id, app_repository.rebuild_advice
    ).value


def _amount(sizes: Sequence[int]) -> Amount:
    return Amount(len(sizes), sum(sizes))
