"""Lists applications and snapshots of a repository, with what is damaged.

Damage is part of the answer, so damage of one snapshot hides no other. A read that fails otherwise ends the listing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.images.model import StoreDigest
from statecore.repository.application_repository import ApplicationRepository, applications_in
from statecore.repository.content_digests import saved_digests
from statecore.repository.head import Head, SnapshotEntry
from statecore.repository.layout import NEWEST
from statecore.repository.manifest import Manifest, StoreSnapshot, TaskManifestReference
from statecore.repository.repository import Repository
from statecore.repository.snapshot_verification import (
    CONCURRENT_REQUESTS,
    Damage,
    SnapshotVerification,
    TaskManifestKey,
    VerifiedSnapshot,
    key_of,
)

_MANY = 10


class ApplicationView(NamedTuple):
    """An application in a repository."""

    application_id: str
    head: Head | None  # its head; None where nothing was published, or the head cannot be used
    # why the head, or the newest manifest that it names, cannot be used; None where they can
    error: StatecoreError | None


class TaskView(NamedTuple):
    """A task of a snapshot."""

    reference: TaskManifestReference  # its entry in the manifest
    stores: tuple[StoreSnapshot, ...]  # its stores; empty where its task manifest is damaged
    damage: Damage | None  # what is wrong with its task manifest


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot in detail."""

    entry: SnapshotEntry  # its entry in the head
    manifest: Manifest | None  # its manifest; None where that is damaged
    damage: Damage | None  # what is wrong with the manifest
    tasks: tuple[TaskView, ...]
    contents: dict[str, StoreDigest]  # known content digests of its stores, by identity


def list_applications(repository: Repository) -> list[ApplicationView]:
    """Every application that a repository has files of, by name."""
    app_repositories = [ApplicationRepository(repository, name) for name in applications_in(repository)]
    with ThreadPoolExecutor(CONCURRENT_REQUESTS, "statecore-verify") as pool:
        return list(pool.map(list_application, app_repositories))


def list_application(app_repository: ApplicationRepository) -> ApplicationView:
    """View of one application; a missing, lost or damaged head is part of the answer."""
    name = app_repository.application_id
    try:
        found = app_repository.read_head()
        if found is None:
            is_lost = app_repository.has_lost_head()
            return ApplicationView(name, None, app_repository.lost_head_error() if is_lost else None)
    except (Corrupted, Invalid) as error:
        return ApplicationView(name, None, error)
    return ApplicationView(name, found.head, _trouble_of_newest(app_repository, found.head))


def _trouble_of_newest(app_repository: ApplicationRepository, head: Head) -> StatecoreError | None:
    """Why the newest snapshot cannot be a base of the next; ``None`` where it can, or there is none."""
    try:
        if head.newest is not None:
            app_repository.manifest(head.newest)
    except (Corrupted, Invalid) as error:
        return error
    return None


def require_snapshots(repository: Repository, views: Sequence[ApplicationView]) -> None:
    """Raise ``NotFound`` where a repository has neither snapshots nor anything damaged."""
    if any(view.error is not None or (view.head is not None and view.head.newest) for view in views):
        return
    begun = ", ".join(view.application_id for view in views)
    raise NotFound(
        f"There is no snapshot in {repository.object_store.url}. "
        + (f"Files of {begun} exist, and nothing was published." if begun else "It is empty."),
        code="snapshots-not-found",
        action="Publish one first (statecore restore, statecore checkpoint or statecore backup with --repository).",
        repository=repository.object_store.url,
    )


def list_snapshots(
    app_repository: ApplicationRepository,
    head: Head,
    advance: Callable[[], None] = lambda: None,
    *,
    space_usage: bool = False,
) -> list[VerifiedSnapshot]:
    """The snapshots that a head names, newest first, with damage of their manifests and task manifests."""
    with SnapshotVerification(app_repository, count_file_bytes=space_usage) as verification:
        found = verification.snapshots(head.snapshots, advance)
        return held_bytes(found, verification.file_bytes) if space_usage else found


def entry_of(app_repository: ApplicationRepository, head: Head, snapshot: str) -> SnapshotEntry:
    """The head's entry of a snapshot, by id or :data:`statecore.repository.layout.NEWEST`."""
    entry = head.newest if snapshot == NEWEST else head.entry(snapshot)
    if entry is not None:
        return entry
    there = [one.snapshot for one in head.snapshots]
    more = f" and {len(there) - _MANY} older ones" if len(there) > _MANY else ""
    raise NotFound(
        f"{app_repository.application_id} has no snapshot {snapshot!a} in {app_repository.url}. It has "
        f"{', '.join(there[:_MANY])}{more}.",
        code="snapshot-not-found",
        action="Name one of these, or 'newest'.",
        application_id=app_repository.application_id,
        repository=app_repository.url,
        snapshot=snapshot,
    )


def describe_snapshot(app_repository: ApplicationRepository, head: Head, snapshot: str) -> SnapshotView:
    """One snapshot in detail, by id or :data:`statecore.repository.layout.NEWEST`."""
    entry = entry_of(app_repository, head, snapshot)
    with SnapshotVerification(app_repository) as verification:
        (verified,) = verification.snapshots([entry])
        if verified.manifest is None:
            return SnapshotView(entry, None, verified.damage[""], (), {})
        manifest = verified.manifest.value
        whole = app_repository.task_manifests(
            [reference for reference in manifest.task_manifests if reference.task not in verified.damage]
        )
    tasks = tuple(
        TaskView(
            reference,
            () if reference.task in verified.damage else whole[reference.task].manifest.stores,
            verified.damage.get(reference.task),
        )
        for reference in manifest.task_manifests
    )
    return SnapshotView(entry, manifest, None, tasks, _contents(app_repository, tasks))


def _contents(app_repository: ApplicationRepository, tasks: Sequence[TaskView]) -> dict[str, StoreDigest]:
    """Content digests of stores, from their task manifests or saved ones."""
    stores = [store for task in tasks for store in task.stores]
    known = {store.identity: content for store in stores if (content := store.content) is not None}
    asked = sorted({store.identity for store in stores if not store.restored_by_kafka_streams} - known.keys())
    return known | saved_digests(app_repository, asked)


Files = Mapping[str, int]  # Bytes of files, by hash


def held_bytes(found: Sequence[VerifiedSnapshot], files: Mapping[TaskManifestKey, Files]) -> list[VerifiedSnapshot]:
    """Add to each snapshot the bytes of the files that no newer one names; 0 for the newest.

    Each file counts once, at the newest snapshot that names it, so the sum over all but the newest is what the
    repository has beyond the newest state. An older snapshot may name some of these files as well.

    Returns:
        The snapshots; with ``None`` where the bytes are unknown, because this one or a newer one is damaged.
    """
    counted: set[str] = set()
    seen: set[TaskManifestKey] = set()
    held: list[VerifiedSnapshot] = []
    is_known = True
    for number, one in enumerate(found):
        is_known = is_known and not one.damage and one.manifest is not None
        if one.manifest is None or not is_known:
            held.append(one)
            continue
        new = {key_of(reference) for reference in one.manifest.value.task_manifests} - seen
        seen |= new
        total = 0
        for reference in new:
            for digest, size in files[reference].items():
                total += 0 if digest in counted else size
                counted.add(digest)
        held.append(one._replace(held_bytes=total if number else 0))
    return held
