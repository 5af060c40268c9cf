"""The manifests of an application in its repository, whatever the head names; a repair of the head decides by them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, NamedTuple

from statecore.documents import DocumentType, parse_json
from statecore.errors import Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.layout import printable
from statecore.repository.manifest import MANIFEST, Manifest
from statecore.repository.snapshot_verification import CONCURRENT_REQUESTS

FOREIGN = "blob-name-invalid"
"""Code of what lies among the manifests under another name than theirs."""


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
) -> tuple[dict[str, FoundManifest], list[ExcludedSnapshot], list[str]]:
    """Readable manifests of this application by snapshot, newest first; the others; ids of other repositories found."""
    layout = app_repository.names
    listed = [blob.name for blob in app_repository.blobs.list(layout.manifests)]
    names = [name for name in listed if layout.kind_of(name) == "manifests"]
    left_out = [
        ExcludedSnapshot(printable(name.removeprefix(layout.manifests)), "its name is that of no manifest", FOREIGN)
        for name in listed
        if layout.kind_of(name) != "manifests"
    ]
    found: list[FoundManifest] = []
    others: set[str] = set()
    with ThreadPoolExecutor(CONCURRENT_REQUESTS, "statecore-verify") as pool:
        for name, content in zip(names, pool.map(lambda name: _content(app_repository, name), names), strict=True):
            snapshot = _snapshot_of_name(app_repository, name)
            if content is None:
                left_out.append(ExcludedSnapshot(snapshot, "it was deleted during the inspection", "deleted"))
                continue
            refuse_other_release(MANIFEST, content)
            try:
                manifest = MANIFEST.decode(content)
                if manifest.repository_id != app_repository.repository.descriptor.id:
                    others.add(manifest.repository_id)
                app_repository.check_own(manifest)
            except Invalid as error:
                left_out.append(ExcludedSnapshot(snapshot, error.what, error.code))
                continue
            manifest.needs.check_readable(f"The manifest of snapshot {snapshot}")
            if app_repository.names.manifest(manifest.snapshot) != name:
                left_out.append(
                    ExcludedSnapshot(snapshot, f"it is a copy of the manifest of {manifest.snapshot}", "copy")
                )
                continue
            found.append(FoundManifest(manifest, sha256(content).hexdigest()))
    found.sort(key=lambda one: one.order, reverse=True)
    return {one.manifest.snapshot: one for one in found}, left_out, sorted(others)


def readable_manifest(app_repository: ApplicationRepository, name: str) -> Manifest | None:
    """The manifest in a blob; ``None`` if it is not there, cannot be read, or is not of this application."""
    try:
        manifest = MANIFEST.decode(app_repository.blobs.get(name))
        app_repository.check_own(manifest)
    except (Invalid, NotFound):
        return None
    return manifest


def _snapshot_of_name(app_repository: ApplicationRepository, name: str) -> str:
    """The snapshot id in a manifest's name."""
    return name.removeprefix(app_repository.names.manifests).removesuffix(".json")


def _content(app_repository: ApplicationRepository, name: str) -> bytes | None:
    try:
        return app_repository.blobs.get(name)
    except NotFound:
        return None


def refuse_other_release(kind: DocumentType[Any], content: bytes) -> None:
    """Refuse with ``Invalid`` an intact document of another version, rather than decide without it."""
    if kind.seal_holds(content):
        kind.check_version(parse_json(content))
