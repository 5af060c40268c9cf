"""Verifies snapshots: each task manifest and each blob is checked once, however many snapshots name it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, Self

from statecore.documents import Document
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Extent, Manifest, TaskManifest, TaskManifestReference, extents_of

Damage = Corrupted | Invalid  # Bytes that were changed, or that this release cannot read
CONCURRENT_REQUESTS = 8


class VerifiedSnapshot(NamedTuple):
    """A verified snapshot."""

    entry: SnapshotEntry  # its entry in the head
    manifest: Document[Manifest] | None  # its manifest; None where that is damaged
    damage: dict[str, Damage]  # what is wrong, by task; that of the manifest under ""
    # bytes of the files that it names and no newer one does; None where they were not requested or are unknown
    # (statecore.repository.listing.held_bytes)
    held_bytes: int | None = None


TaskManifestKey = tuple[str, Extent]  # Identifies a task manifest: its hash and its extent


def key_of(reference: TaskManifestReference) -> TaskManifestKey:
    return reference.sha256, reference.extent


class SnapshotVerification:
    """Verifies snapshots with several threads; a context manager."""

    def __init__(
        self,
        app_repository: ApplicationRepository,
        *,
        files: bool = False,
        count_file_bytes: bool = False,
        tolerated: tuple[type[Damage], ...] = (Corrupted, Invalid),
        found: Callable[[TaskManifest], None] = lambda _: None,
    ) -> None:
        self._app_repository, self._files, self._named, self._tolerated = (
            app_repository,
            files,
            count_file_bytes,
            tolerated,
        )
        self._found = found  # called with each intact task manifest, once
        # recorded bytes of files, by hash, for each task manifest
        self.file_bytes: dict[TaskManifestKey, dict[str, int]] = {}
        self._task_manifests: dict[TaskManifestKey, Damage | None] = {}
        self._sizes: dict[str, int | None] = {}
        self._pool = ThreadPoolExecutor(CONCURRENT_REQUESTS, "statecore-verify")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def snapshots(
        self, entries: Sequence[SnapshotEntry], advance: Callable[[], None] = lambda: None
    ) -> list[VerifiedSnapshot]:
        """Verify snapshots that a head names, in their order."""
        found = []
        for entry, (manifest, damage) in zip(entries, self._pool.map(self._manifest, entries), strict=True):
            wrong = {"": damage} if damage is not None else {} if manifest is None else self.damage(manifest.value)
            found.append(VerifiedSnapshot(entry, manifest, wrong))
            advance()
        return found

    def _manifest(self, entry: SnapshotEntry) -> tuple[Document[Manifest] | None, Damage | None]:
        try:
            return self._app_repository.manifest(entry), None
        except self._tolerated as error:
            return None, error

    def damage(self, manifest: Manifest) -> dict[str, Damage]:
        """Damage of a manifest's task manifests, and of the files that they name, by task."""
        by_blob: dict[str, list[TaskManifestReference]] = {}
        for reference in manifest.task_manifests:
            if key_of(reference) not in self._task_manifests:
                by_blob.setdefault(reference.extent.blob, []).append(reference)
        for together in self._pool.map(self._read, by_blob.values()):
            self._check_files([found for _, found in together if isinstance(found, TaskManifest)])
            for reference, found in together:
                if isinstance(found, TaskManifest):
                    self._found(found)
                if self._named and isinstance(found, TaskManifest):
                    files = extents_of([found]).items()
                    self.file_bytes[key_of(reference)] = {digest: extent.bytes for digest, extent in files}
                self._task_manifests[key_of(reference)] = (
                    self._missing_file(found) if isinstance(found, TaskManifest) else found
                )
        return {
            reference.task: wrong
            for reference in manifest.task_manifests
            if (wrong := self._task_manifests[key_of(reference)]) is not None
        }

    def _read(
        self, together: Sequence[TaskManifestReference]
    ) -> list[tuple[TaskManifestReference, TaskManifest | Damage]]:
        """Read task manifests of one blob: together, or each alone where one is damaged."""
        try:
            found = self._app_repository.task_manifests(together)
            return [(reference, found[reference.task].manifest) for reference in together]
        except self._tolerated as error:
            if len(together) == 1:
                return [(together[0], error)]
            return [one for reference in together for one in self._read([reference])]

    def _check_files(self, task_manifests: Iterable[TaskManifest]) -> None:
        if not self._files:
            return
        named = {
            extent.blob
            for task_manifest in task_manifests
            for store in task_manifest.stores
            for _, extent in store.extents
        }
        unseen = sorted(named - self._sizes.keys())
        self._sizes.update(zip(unseen, self._pool.map(self._size, unseen), strict=True))

    def _size(self, blob: str) -> int | None:
        with suppress(NotFound):
            return self._app_repository.blobs.head(blob).size
        return None

    def _missing_file(self, task_manifest: TaskManifest) -> Damage | None:
        """The error for the first missing or truncated file of a task manifest."""
        if not self._files:
            return None
        for store in task_manifest.stores:
            for _, extent in store.extents:
                size = self._sizes[extent.blob]
                if size is None or size < extent.start + extent.bytes:
                    why = "is missing" if size is None else f"has {size} bytes"
                    return Corrupted(
                        f"A file of store {store.store} of task {task_manifest.task} is missing: the blob "
                        f"{extent.blob} {why}, and the file ends at {extent.start + extent.bytes}.",
                        code="blob-missing" if size is None else "blob-truncated",
                        action=self._app_repository.fallback_advice,
                        blob=extent.blob,
                        task=task_manifest.task,
                        store=store.store,
                        expected=extent.start + extent.bytes,
                        found=size,
                    )
        return None
