"""Upload finished runs into a repository; nothing is visible until the driver publishes a snapshot.

A run is put under its hash once, by the task that made it. Small runs of all ranges of a batch share a pack, so the
results of these ranges, which say where their runs are, are put after the batch::

    range 1 ──▶ run of 200 MB ─────────────▶ files/ab/abc…        result 1 is put at once
    range 2 ──▶ run of 20 KB  ──┐
    range 3 ──▶ run of 40 KB  ──┴─▶ packs/def…                    results 2 and 3 are put when that is there
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from statecore.images.model import RunFile
from statecore.jobs.pipeline.repository_place import blobs_at
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import NamedFile, missing_files
from statecore.repository.layout import Layout, is_collected
from statecore.repository.manifest import Extent
from statecore.repository.publish.upload import PACK_BYTES, SMALL, LocalFile, put_files


@dataclass(frozen=True)
class ApplicationAddress:
    """Where the runs of an application are published.

    Attributes:
        url: the repository; credentials are found on each machine.
        collection: the collection number of its head when the attempt began.
    """

    url: str
    application_id: str
    collection: int

    @staticmethod
    def of(repository: ApplicationRepository) -> ApplicationAddress:
        return ApplicationAddress(repository.url, repository.application_id, repository.names.collection)

    def holds(self, runs: Iterable[tuple[str, Extent]]) -> bool:
        """Whether runs, given by hash, are where they should be; in a directory every byte is read.

        Those that an attempt before two collections has put do not count: they are deleted.
        """
        files = [NamedFile(*one) for one in runs]
        if any(is_collected(file.extent.blob, self.collection) for file in files):
            return False
        return not missing_files(blobs_at(self.url), files, read_limit=None)


class Publisher:
    """Publishes the runs of a batch: large ones at once, small ones together."""

    def __init__(self, address: ApplicationAddress, *, small: int = SMALL, pack_bytes: int = PACK_BYTES) -> None:
        self._blobs = blobs_at(address.url)
        self._names = Layout(address.application_id, address.collection, self._blobs.hash_in_name)
        self._waiting: list[tuple[Sequence[RunFile], Callable[[tuple[Extent, ...]], None]]] = []
        self._small, self._pack_bytes = small, pack_bytes
        self._waiting_bytes = 0
        self._extents: dict[str, Extent] = {}

    def publish(self, files: Sequence[RunFile], done: Callable[[tuple[Extent, ...]], None]) -> None:
        large = [file for file in files if file.file_bytes >= self._small]
        self._put(large)
        if len(large) == len(files):
            done(self._extents_of(files))
            return
        self._waiting.append((files, done))
        self._waiting_bytes += sum(file.file_bytes for file in files if file.file_bytes < self._small)
        if self._waiting_bytes >= self._pack_bytes:
            self.flush()

    @property
    def waits(self) -> bool:
        """Whether runs wait to share a pack."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Put all waiting runs, and call their callbacks."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._put([file for files, _ in waiting for file in files if file.sha256 not in self._extents])
        for files, done in waiting:
            done(self._extents_of(files))

    def _extents_of(self, files: Sequence[RunFile]) -> tuple[Extent, ...]:
        return tuple(self._extents[file.sha256] for file in files)

    def _put(self, files: Sequence[RunFile]) -> None:
        local = [LocalFile(file.path, file.sha256, file.file_bytes) for file in files]
        extents = put_files(self._blobs, self._names, local, small=self._small, pack_bytes=self._pack_bytes)
        self._extents |= dict(zip((file.sha256 for file in files), extents, strict=True))
