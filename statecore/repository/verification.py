"""What is damaged in snapshots: each part and each blob is looked at once, however many snapshots name it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from statecore.documents import Document
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Extent, Manifest, TaskManifest, TaskManifestReference, extents_of

Damage = Corrupted | Invalid
"""Bytes that are not what was written, or what this release cannot read."""

AT_ONCE = 8


class VerifiedSnapshot(NamedTuple):
    """A snapshot, as it was found.

    Attributes:
        entry: what the head says of it.
        manifest: its manifest; ``None`` where that is damaged.
        damage: what is wrong, by task; by ``""`` what is wrong with the manifest.
        held_bytes: bytes of the files that it names and no newer one does; ``None`` where nobody has asked for that, or
            nobody can tell (:mod:`statecore.repository.space_usage`).
    """

    entry: SnapshotEntry
    manifest: Document[Manifest] | None
    damage: dict[str, Damage]
    held_bytes: int | None = None


PartKey = tuple[str, Extent]
"""A part, whatever a manifest says of it besides: its hash, and where it lies."""


def key_of(reference: TaskManifestReference) -> PartKey:
    """The part that a manifest refers to."""
    return reference.sha256, reference.extent


class Verification:
    """Looks at snapshots; a context manager, because it looks at several things at once.

    Args:
        shelf: where they are.
        files: whether their files are looked at, too: that each is there and as long as it should be.
        named: whether it is remembered which files each part names.
        tolerated: which errors are damage; any other ends the examination.

    Attributes:
        named: bytes of the files that each part names, by hash, where that is remembered.
    """

    def __init__(
        self,
        shelf: ApplicationRepository,
        *,
        files: bool = False,
        named: bool = False,
        tolerated: tuple[type[Damage], ...] = (Corrupted, Invalid),
    ) -> None:
        self._shelf, self._files, self._named, self._tolerated = shelf, files, named, tolerated
        self.named: dict[PartKey, dict[str, int]] = {}
        self._parts: dict[PartKey, Damage | None] = {}
        self._sizes: dict[str, int | None] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, "statecore-look")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def snapshots(
        self, entries: Sequence[SnapshotEntry], advance: Callable[[], None] = lambda: None
    ) -> list[VerifiedSnapshot]:
        """Snapshots that a head names, in their order.

        Raises:
            Retryable: nobody could look.
            Invalid: the same, where it is not tolerated.
        """
        found = []
        for entry, (manifest, damage) in zip(entries, self._pool.map(self._manifest, entries), strict=True):
            wrong = {"": damage} if damage is not None else {} if manifest is None else self.damage(manifest.value)
            found.append(VerifiedSnapshot(entry, manifest, wrong))
            advance()
        return found

    def _manifest(self, entry: SnapshotEntry) -> tuple[Document[Manifest] | None, Damage | None]:
        try:
            return self._shelf.manifest(entry), None
        except self._tolerated as error:
            return None, error

    def damage(self, manifest: Manifest) -> dict[str, Damage]:
        """What is wrong with the parts of a manifest, and with the files that they name, by task.

        Raises:
            Retryable: nobody could look.
            Invalid: the same, where it is not tolerated.
        """
        by_blob: dict[str, list[TaskManifestReference]] = {}
        for reference in manifest.parts:
            if key_of(reference) not in self._parts:
                by_blob.setdefault(reference.extent.blob, []).append(reference)
        for together in self._pool.map(self._read, by_blob.values()):
            self._look_at_files([found for _, found in together if isinstance(found, TaskManifest)])
            for reference, found in together:
                if self._named and isinstance(found, TaskManifest):
                    files = extents_of([found]).items()
                    self.named[key_of(reference)] = {digest: extent.bytes for digest, extent in files}
                self._parts[key_of(reference)] = self._lacking(found) if isinstance(found, TaskManifest) else found
        return {part.task: wrong for part in manifest.parts if (wrong := self._parts[key_of(part)]) is not None}

    def _read(
        self, together: Sequence[TaskManifestReference]
    ) -> list[tuple[TaskManifestReference, TaskManifest | Damage]]:
        """Parts that lie in one blob: at once, and each alone where one of them is damaged."""
        try:
            found = self._shelf.parts(together)
            return [(reference, found[reference.task].part) for reference in together]
        except self._tolerated as error:
            if len(together) == 1:
                return [(together[0], error)]
            return [one for reference in together for one in self._read([reference])]

    def _look_at_files(self, parts: Iterable[TaskManifest]) -> None:
        if not self._files:
            return
        named = {extent.blob for part in parts for store in part.stores for _, extent in store.extents}
        unseen = sorted(named - self._sizes.keys())
        self._sizes.update(zip(unseen, self._pool.map(self._size, unseen), strict=True))

    def _size(self, blob: str) -> int | None:
        with suppress(NotFound):
            return self._shelf.blobs.head(blob).size
        return None

    def _lacking(self, part: TaskManifest) -> Damage | None:
        """The first file of a part that is not there."""
        if not self._files:
            return None
        for store in part.stores:
            for _, extent in store.extents:
                size = self._sizes[extent.blob]
                if size is None or size < extent.start + extent.bytes:
                    why = "is missing" if size is None else f"has {size} bytes"
                    return Corrupted(
                        f"A file of store {store.store} of task {part.task} is not there: the blob {extent.blob} "
                        f"{why}, and the file ends at {extent.start + extent.bytes}.",
                        code="blob-missing" if size is None else "blob-truncated",
                        action=self._shelf.instead,
                        blob=extent.blob,
                        task=part.task,
                        store=store.store,
                        expected=extent.start + extent.bytes,
                        found=size,
                    )
        return None
