"""Reads the head, the newest snapshot and its task manifests for a publication, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from statecore.documents import Document
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.head import ReadHead
from statecore.repository.manifest import Manifest, TaskManifestReference


class HeadState(NamedTuple):
    """The head and the newest snapshot at one time."""

    head: ReadHead | None
    manifest: Document[Manifest] | None

    @property
    def references(self) -> dict[str, TaskManifestReference]:
        return (
            {}
            if self.manifest is None
            else {reference.task: reference for reference in self.manifest.value.task_manifests}
        )

    @property
    def epoch(self) -> int:
        """The head's epoch; 0 where there is none."""
        return 0 if self.head is None else self.head.head.epoch

    @property
    def generation(self) -> int:
        """The head's generation; 0 where there is none."""
        return 0 if self.head is None else self.head.head.generation


class HeadReader:
    """Reads the head, and each task manifest once (cached by document hash in ``known``)."""

    def __init__(self, app_repository: ApplicationRepository) -> None:
        self._app_repository = app_repository
        self.known: dict[str, ReadTaskManifest] = {}

    def read(self) -> HeadState:
        """Read the head and the newest manifest."""
        head = self._app_repository.read_head()
        newest = None if head is None else head.head.newest
        with self._app_repository.read_to_publish():
            return HeadState(head, None if newest is None else self._app_repository.manifest(newest))

    def task_manifests(self, references: Iterable[TaskManifestReference]) -> Mapping[str, ReadTaskManifest]:
        """Task manifests by task; those in one blob are read in one request."""
        wanted = list(references)
        with self._app_repository.read_to_publish():
            found = self._app_repository.task_manifests([one for one in wanted if one.sha256 not in self.known])
        self.known |= {one.sha256: found[one.task] for one in wanted if one.task in found}
        return {one.task: self._as_known(one) for one in wanted}

    def _as_known(self, reference: TaskManifestReference) -> ReadTaskManifest:
        read = self.known[reference.sha256]
        return read._replace(manifest=read.manifest.as_of(reference.read_at_ms, reference.delete_retention_ms))
