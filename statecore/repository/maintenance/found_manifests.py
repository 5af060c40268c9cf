"""The manifests of an application in its repository, whatever the head names; a repair of the head decides by them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.repository.application_repository import FOREIGN_MANIFEST, ApplicationRepository
from statecore.repository.layout import printable
from statecore.repository.manifest import MANIFEST, Manifest
from statecore.repository.snapshot_verification import CONCURRENT_REQUESTS


class ExcludedSnapshot(NamedTuple):
    """A manifest, or a snapshot, that the new head does not name."""

    snapshot: str  # its id, from the manifest's name
    why: str  # the reason
    # the code of an error, or not-named, older, deleted, copy, superseded (another one was published instead),
    # not-connected, collected, other-branch
    code: str


class FoundManifest(NamedTuple):
    """A manifest and its hex SHA-256."""

    manifest: Manifest
    sha256: str

    @property
    def order(self) -> tuple[int, int, str, str]:
        one = self.manifest
        return one.epoch, one.generation, one.created_at, one.snapshot


def find_manifests(
    app_repository: ApplicationRepository,
) -> tuple[dict[str, FoundManifest], list[ExcludedSnapshot], list[Invalid]]:
    """Manifests of this application by snapshot, newest first; the others; the errors of those from elsewhere.

    Raises ``Invalid`` if one may not be read, or is of another release: nothing can be decided without it.
    """
    layout = app_repository.names
    listed = [blob.name for blob in app_repository.blobs.list(layout.manifests)]
    names = [name for name in listed if layout.kind_of(name) == "manifests"]
    left_out = [
        ExcludedSnapshot(
            printable(name.removeprefix(layout.manifests)), "its name is that of no manifest", "blob-name-invalid"
        )
        for name in listed
        if layout.kind_of(name) != "manifests"
    ]
    found: list[FoundManifest] = []
    foreign: list[Invalid] = []
    with ThreadPoolExecutor(CONCURRENT_REQUESTS, "statecore-verify") as pool:
        for name, content in zip(names, pool.map(app_repository.listed_content, names), strict=True):
            snapshot = _snapshot_of_name(app_repository, name)
            if content is None:
                left_out.append(ExcludedSnapshot(snapshot, "it was deleted during the inspection", "deleted"))
                continue
            manifest = _decoded(app_repository, name, content)
            if isinstance(manifest, Invalid):
                left_out.append(ExcludedSnapshot(snapshot, manifest.what, manifest.code))
                if manifest.code == FOREIGN_MANIFEST:
                    foreign.append(manifest)
                continue
            if app_repository.names.manifest(manifest.snapshot) != name:
                left_out.append(
                    ExcludedSnapshot(snapshot, f"it is a copy of the manifest of {manifest.snapshot}", "copy")
                )
                continue
            found.append(FoundManifest(manifest, sha256(content).hexdigest()))
    found.sort(key=lambda one: one.order, reverse=True)
    return {one.manifest.snapshot: one for one in found}, left_out, foreign


def readable_manifest(app_repository: ApplicationRepository, name: str) -> Manifest | None:
    """The manifest in a blob; ``None`` if it is not there, damaged, or not of this application.

    Raises ``Invalid`` if it may not be read, or is of another release: it may be a snapshot that counts.
    """
    content = app_repository.listed_content(name)
    if content is None:
        return None
    found = _decoded(app_repository, name, content)
    return None if isinstance(found, Invalid) else found


def _decoded(app_repository: ApplicationRepository, name: str, content: bytes) -> Manifest | Invalid:
    """A manifest, or what is wrong if it is damaged or foreign. Raises ``Invalid`` for one of another release."""
    try:
        manifest = MANIFEST.decode(content)
    except Invalid as error:
        if MANIFEST.seal_holds(content):
            raise app_repository.newer_manifest_error(name, error) from error
        return error
    try:
        app_repository.check_own(manifest)
    except Invalid as error:
        return error
    manifest.needs.check_readable(f"The manifest {name}")
    return manifest


def _snapshot_of_name(app_repository: ApplicationRepository, name: str) -> str:
    """The snapshot id in a manifest's name."""
    return name.removeprefix(app_repository.names.manifests).removesuffix(".json")
