"""The repository of one application: its head, its snapshots, and the files that these name.

Everything is verified by a hash as it is read: the head holds the hash of each manifest, a manifest those of its task
manifests, a task manifest those of all files. "Does not exist" and "could not be read" are always different errors.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from statecore.documents import Document
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.base import DEFAULT_RETRIES, Blobs, RetryPolicy
from statecore.objectstore.pointers import SWAP_TRIES, Pointers
from statecore.repository.blob_verification import parallel_map
from statecore.repository.head import OTHER_HEAD_RELEASE, Head, ReadHead, SnapshotEntry, decoded_head, encoded_head
from statecore.repository.layout import APPLICATIONS, Layout, is_application_id
from statecore.repository.manifest import (
    MANIFEST,
    TASK_MANIFEST,
    Extent,
    Manifest,
    TaskManifest,
    TaskManifestReference,
    verified_content,
)
from statecore.repository.repository import Repository, open_repository
from statecore.repository.task_manifest_documents import decompress
from statecore.repository.task_manifest_validation import check_names, check_structure
from statecore.words import shortened_list

FOREIGN_MANIFEST = "manifest-foreign"  # Code of the error of a manifest from elsewhere


class ReadTaskManifest(NamedTuple):
    """A task manifest: the typed value, the whole JSON, and its bytes in the blob."""

    manifest: TaskManifest
    raw: Mapping[str, Any]
    document: bytes


class ApplicationRepository:
    """The snapshots of one application in a repository."""

    def __init__(self, repository: Repository, application_id: str) -> None:
        self.repository = repository
        self.application_id = application_id
        # names of its blobs and pointers; new ones as the head last read asks
        self.names = Layout(application_id, hash_in_name=self._hash_in_name)

    @staticmethod
    def open(url: str, application_id: str, retries: RetryPolicy = DEFAULT_RETRIES) -> ApplicationRepository:
        """Open the repository at a URL; ``retries`` bounds how long its server may let this process wait."""
        return ApplicationRepository(open_repository(url, retries), application_id)

    @property
    def url(self) -> str:
        """The repository's URL, as it can be given again."""
        return self.repository.object_store.url

    @property
    def blobs(self) -> Blobs:
        return self.repository.object_store.blobs

    @property
    def pointers(self) -> Pointers:
        return self.repository.object_store.pointers

    def _hash_in_name(self, sha256: str) -> str:
        return self.blobs.hash_in_name(sha256)

    def read_head(self) -> ReadHead | None:
        """The head; ``None`` where nothing of the application was ever published."""
        found = self.pointers.read(self.names.head)
        if found is None:
            return None
        document = decoded_head(found.content, self.repository.descriptor.id, self.application_id, self.rebuild_advice)
        self.names = Layout(self.application_id, document.value.collection, self._hash_in_name)
        return ReadHead(document.value, document.raw, found.version)

    def read_existing_head(self) -> ReadHead:
        """The head of an application that must have snapshots."""
        found = self.read_head()
        if found is None or not found.head.snapshots:
            raise self._none()
        return found

    def head(self) -> Head:
        """The head of an application that must have snapshots."""
        return self.read_existing_head().head

    def reread_head(self) -> ReadHead:
        """The head of an application that had one a moment ago."""
        found = self.read_head()
        if found is None:
            raise self.lost_head_error()
        return found

    def change_head(self, change: Callable[[Head], Head], effect: str = "nothing was changed") -> Head:
        """Swap the head for what ``change`` makes of it; read it again whenever another job swapped it first.

        ``effect`` says in the error what was done until then. Returns the head that is there now.
        """
        for _ in range(SWAP_TRIES):
            read = self.reread_head()
            wanted = change(read.head)
            if wanted == read.head:
                return wanted
            if self.pointers.swap(self.names.head, encoded_head(wanted, read.raw), read.version) is not None:
                return wanted
        raise self.contended_error(effect, SWAP_TRIES)

    def check_needs(self, head: Head | None) -> None:
        """Refuse with ``Invalid`` to change what a newer release has to write, by the descriptor or the head."""
        self.repository.descriptor.needs.check_writable(f"The repository at {self.url}")
        if head is not None:
            head.needs.check_writable(f"The head of {self.application_id}")

    def check_writable(self) -> None:
        """Put and delete an empty blob, so that missing rights fail before hours of work."""
        self.repository.check_primary()
        name = f"{self.names.staging('rights')}/{uuid.uuid4().hex}"
        self.blobs.put_if_absent(name, b"")
        self.blobs.delete(name)

    def lost_head_error(self) -> Corrupted:
        """The error for a missing head of an application with snapshots that it had named."""
        return Corrupted(
            f"The head of {self.application_id} in {self.url} is missing, although there are snapshots that it had "
            "named.",
            code="head-missing",
            action=self.rebuild_advice,
            application_id=self.application_id,
            repository=self.url,
        )

    def contended_error(self, effect: str, tries: int) -> Retryable:
        """The error for a head that others swapped before each try; ``effect`` says what was done until then."""
        return Retryable(
            f"The head of {self.application_id} in {self.url} was swapped by other jobs {tries} times in turn; "
            f"{effect}.",
            code="head-contended",
            action="Run it again when fewer jobs publish to this application.",
            application_id=self.application_id,
            repository=self.url,
        )

    def _none(self) -> NotFound | Corrupted:
        there = [name for name in self.applications() if name != self.application_id]
        others = f" It has snapshots of {shortened_list(there)}." if there else " The repository has no snapshots."
        lost = self.pointers.read(self.names.head) is None
        if lost and self.has_lost_head():
            return self.lost_head_error()
        manifests = next(self.names.listed(self.blobs, "manifests"), None) is not None
        is_unnamed = manifests and lost
        action = (
            "Its head is missing although there is a manifest. Rebuild it; without --apply the command only shows the "
            f"plan: {self.repair_command} --apply"
            if is_unnamed
            else "Check the application id and the repository, or publish a snapshot first (statecore restore, "
            "statecore checkpoint or statecore backup with --repository)."
        )
        return NotFound(
            f"There is no snapshot of {self.application_id} in {self.url}.{others}",
            code="head-not-found" if is_unnamed else "snapshots-not-found",
            action=action,
            repository=self.url,
            application_id=self.application_id,
            applications=there,
        )

    @property
    def repair_command(self) -> str:
        """The command that rebuilds the head."""
        return self._command("repo", "repair-head")

    @property
    def rebuild_advice(self) -> str:
        """What an operator does about a head that is missing or damaged."""
        if self.repository.is_replica:
            return f"Copy again, which puts the head of its source there: {self._copy_command}"
        return (
            "Rebuild it from the manifests, then run this again; without --apply the command only shows the plan: "
            f"{self.repair_command} --apply"
        )

    @property
    def _copy_command(self) -> str:
        source = self.repository.descriptor.copy_of
        command = shlex.join(["statecore", "repo", "copy", "--repository", source, "--to", self.url])
        return f"{command}{self.repository.key_advice}"

    @property
    def list_command(self) -> str:
        return self._command("repo", "snapshots")

    def unpin_command(self, snapshot: str) -> str:
        """The command that removes a pin."""
        return self._command("repo", "unpin", snapshot)

    @property
    def forget_command(self) -> str:
        """The command that forgets a snapshot by name."""
        return self._command("repo", "forget") + " --snapshot ID --apply"

    @property
    def fallback_advice(self) -> str:
        """What an operator can do about damaged files of a snapshot."""
        if self.repository.is_replica:
            return self._replica_advice
        return (
            f"List the snapshots ({self.list_command}) and take one that is intact. Publish a new one (statecore "
            "backup of an instance that has the data, or statecore restore --from none, with --repository). Older ones "
            "that need a damaged file may stay damaged until the retention drops them, or until they are forgotten: "
            f"{self.forget_command}. And check the object store."
        )

    @property
    def document_advice(self) -> str:
        """What an operator can do about a damaged manifest or task manifest of a snapshot."""
        if self.repository.is_replica:
            return self._replica_advice
        return (
            f"List the snapshots ({self.list_command}) and take an older one. Remove the damaged ones from the head "
            f"({self.repair_command} --apply); if none is intact, publish a new one then (statecore restore --from "
            "none, or statecore backup, with --repository). And check the object store."
        )

    @property
    def _replica_advice(self) -> str:
        return (
            f"Take it from the primary, {self.repository.descriptor.copy_of}, meanwhile. Delete the damaged blob "
            f"here, and copy again, which puts what is missing: {self._copy_command}"
        )

    def _command(self, *words: str) -> str:
        where = ("--repository", self.url, "--application-id", self.application_id)
        return shlex.join(["statecore", *words, *where])

    def has_lost_head(self) -> bool:
        """Whether a head is missing that must have existed.

        Raises ``Invalid`` if a manifest may not be read, or is of another release: nobody knows then.
        """
        return self._had_head() and self.pointers.read(self.names.head) is None  # a first job may have published

    def _had_head(self) -> bool:
        """Whether there is anything that is only written after a head."""
        if next(self.names.listed(self.blobs, "garbage"), None) is not None:
            return True
        if any(self._is_later_manifest(blob.name) for blob in self.names.listed(self.blobs, "manifests")):
            return True
        return any(self.pointers.read(name) is not None for name in (self.names.retention, self.names.verified))

    def _is_later_manifest(self, name: str) -> bool:
        """Whether a manifest was made for another head than the first one."""
        content = self.listed_content(name)
        try:
            found = None if content is None else MANIFEST.read_intact(content)
        except Invalid as error:
            raise self.newer_manifest_error(name, error) from error
        if found is None:
            return False
        found.value.needs.check_readable(f"The manifest {name}")
        return found.value.generation > 1

    def newer_manifest_error(self, name: str, error: Invalid) -> StatecoreError:
        """The error for a whole manifest that this release cannot read, whatever names it."""
        return error.restated(
            f"The blob {name} in {self.url} is of another release, and may be a snapshot that counts. {error.what}",
            action=OTHER_HEAD_RELEASE,
            blob=name,
            application_id=self.application_id,
            repository=self.url,
        )

    def listed_content(self, name: str) -> bytes | None:
        """The content of a blob that was listed; ``None`` if it was deleted since, or no blob of ours has that name."""
        try:
            return self.blobs.get(name)
        except NotFound:
            return None
        except Invalid as error:
            if error.code == "blob-name-invalid":
                return None
            raise

    def is_unpublished(self) -> bool:
        """Whether no job has published yet; false if that cannot be told, so that who uses it says why."""
        try:
            return self.pointers.read(self.names.head) is None and not self.has_lost_head()
        except Invalid:
            return False

    def applications(self) -> list[str]:
        """Ids of the applications that the repository has files of."""
        return applications_in(self.repository)

    def manifest(self, entry: SnapshotEntry) -> Document[Manifest]:
        name, what = self.names.manifest(entry.snapshot), f"The manifest of snapshot {entry.snapshot}"
        try:
            content = self.blobs.get(name)
        except NotFound as error:
            raise self._missing(what, name, self.document_advice, snapshot=entry.snapshot) from error
        where = {"snapshot": entry.snapshot, "repository": self.url, "blob": name}
        found = MANIFEST.read(verified_content(content, entry.sha256, what, self.document_advice, **where))
        found.value.needs.check_readable(what)
        self.check_own(found.value)
        return found

    def check_own(self, manifest: Manifest) -> None:
        """Refuse a manifest of another repository or application with ``Invalid``."""
        if (manifest.repository_id, manifest.application_id) != (self.repository.descriptor.id, self.application_id):
            raise Invalid(
                f"The manifest of snapshot {manifest.snapshot} in {self.url} is of {manifest.application_id} in the "
                f"repository {manifest.repository_id}, and this is {self.repository.descriptor.id}.",
                code=FOREIGN_MANIFEST,
                action="It was copied here. " + self.document_advice,
                snapshot=manifest.snapshot,
                application_id=self.application_id,
                repository_id=self.repository.descriptor.id,
                found_application_id=manifest.application_id,
                found_repository_id=manifest.repository_id,
            )

    def task_manifests(self, references: Sequence[TaskManifestReference]) -> dict[str, ReadTaskManifest]:
        """Task manifests by task; those of one blob are read in one request, several blobs at once."""
        by_blob: dict[str, list[TaskManifestReference]] = {}
        for reference in references:
            by_blob.setdefault(reference.extent.blob, []).append(reference)
        together = list(by_blob.values())
        found: dict[str, ReadTaskManifest] = {}
        for of, (low, content) in zip(together, parallel_map(self._read_together, together), strict=True):
            for reference in of:
                at = reference.extent.start - low
                document = content[at : at + reference.extent.bytes]
                what = f"The task manifest of {reference.task}"
                where: dict[str, Any] = {"task": reference.task, "repository": self.url, "blob": reference.extent.blob}
                document = verified_content(document, reference.sha256, what, self.document_advice, **where)
                read = TASK_MANIFEST.read(decompress(document, what, self.document_advice, **where))
                check_names(read.value, self.names.root)
                check_structure(read.value, self.document_advice)
                task_manifest = read.value.as_of(reference.read_at_ms, reference.delete_retention_ms)
                found[reference.task] = ReadTaskManifest(task_manifest, read.raw, document)
        return found

    def _read_together(self, references: Sequence[TaskManifestReference]) -> tuple[int, bytes]:
        """The bytes that span task manifests of one blob, and the offset of the first of them."""
        low = min(reference.extent.start for reference in references)
        high = max(reference.extent.start + reference.extent.bytes for reference in references)
        extent = Extent(references[0].extent.blob, low, high - low)
        what, task = f"The task manifest of {references[0].task}", references[0].task
        return low, self.read(extent, what, action=self.document_advice, task=task)

    @contextmanager
    def read_to_publish(self) -> Iterator[None]:
        """Wrap what a publication reads of the newest snapshot: damage there blocks every publication."""
        try:
            yield
        except Corrupted as error:
            raise error.restated(
                error.what,
                action="Check the object store, remove the damaged snapshot from the head "
                f"({self.repair_command} --apply), and run this again.",
                goes_on=True,
            ) from error

    def read(self, extent: Extent, what: str, *, action: str | None = None, **context: Any) -> bytes:
        """Read the bytes of an extent, without verifying them; ``action`` is for one that is no file."""
        try:
            with self.named_in_errors():
                return self.blobs.get(extent.blob, extent.start, extent.start + extent.bytes)
        except NotFound as error:
            raise self._missing(what, extent.blob, action or self.fallback_advice, **context) from error

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Add ``repository`` to the context of errors: a fetch from several then knows which one refused."""
        try:
            yield
        except StatecoreError as error:
            error.context["repository"] = self.url
            raise

    def _missing(self, what: str, blob: str, action: str, **context: Any) -> Corrupted:
        return Corrupted(
            f"{what} is missing: {self.url} has no blob {blob}.",
            code="blob-missing",
            action=action,
            **context,
            repository=self.url,
            blob=blob,
        )


def published_in(repository: Repository) -> list[str]:
    """Ids of the applications that have, or had, a head: not those whose first job is running, or was killed."""
    return [
        name for name in applications_in(repository) if not ApplicationRepository(repository, name).is_unpublished()
    ]


def applications_in(repository: Repository) -> list[str]:
    """Ids of the applications that a repository has files of, sorted; a directory that cannot be one is left out."""
    return sorted(filter(is_application_id, repository.object_store.blobs.directories(APPLICATIONS)))
