"""Checks that files inherited from the previous snapshot exist; the publishing job has no copies of them.

Where files of inherited tasks are missing the job publishes all the same, because its own tasks are worth more
published than not; warnings name the tasks that cannot be fetched any more, and how to restore them. A job that appends
a tail names the runs of its base too, without having these files; so its own task manifests are checked as well, and
once an hour, because a request for each blob every few minutes would cost more than the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.blob_verification import existing_blobs, parallel_map
from statecore.repository.manifest import StoreSnapshot, TaskManifestReference

_MANY = 20


def missing_blob_warnings(
    app_repository: ApplicationRepository,
    references: Sequence[TaskManifestReference],
    stores: Mapping[str, Sequence[StoreSnapshot]],
    known: Mapping[str, ReadTaskManifest],
) -> tuple[str, ...]:
    """Warnings about missing inherited files."""
    if not references and not any(stores.values()):
        return ()
    try:
        damage = _damage(app_repository, references, stores, known)
    except StatecoreError as error:
        return (
            "The files of the tasks that were inherited from the previous snapshot could not be checked: "
            f"{error.what} What this job built is published.",
        )
    if not damage:
        return ()
    tasks = sorted(damage)
    named = ", ".join(tasks[:_MANY]) + (f" and {len(tasks) - _MANY} others" if len(tasks) > _MANY else "")
    return (
        f"Tasks {named} were inherited from the previous snapshot and cannot be fetched: {damage[tasks[0]]} What "
        "this job built is published. Publish these tasks again: statecore backup on an instance that has them, "
        "or statecore restore --from none of the whole application; and check which process deletes from the object "
        "store.",
    )


def _damage(
    app_repository: ApplicationRepository,
    references: Sequence[TaskManifestReference],
    stores: Mapping[str, Sequence[StoreSnapshot]],
    known: Mapping[str, ReadTaskManifest],
) -> dict[str, str]:
    """The first damage found, by task."""
    by_blob: dict[str, list[TaskManifestReference]] = {}
    damage: dict[str, str] = {}
    inherited = {task: list(found) for task, found in stores.items()}
    for reference in references:
        if (read := known.get(reference.sha256)) is not None:
            inherited[reference.task] = list(read.manifest.stores)
        else:
            by_blob.setdefault(reference.extent.blob, []).append(reference)
    for whole, wrong in parallel_map(lambda together: _read(app_repository, together), list(by_blob.values())):
        inherited |= whole
        damage |= wrong
    named = {extent.blob for found in inherited.values() for store in found for _, extent in store.extents}
    there = existing_blobs(app_repository.blobs, named, app_repository.names.root)
    for task, found in inherited.items():
        for store in found:
            for _, extent in store.extents:
                blob = there.get(extent.blob)
                if blob is None or blob.size < extent.start + extent.bytes:
                    why = "is missing" if blob is None else f"has {blob.size} bytes and should have more"
                    damage.setdefault(task, f"the blob {extent.blob} of store {store.store} of task {task} {why}.")
    return damage


def _read(
    app_repository: ApplicationRepository, together: Sequence[TaskManifestReference]
) -> tuple[dict[str, list[StoreSnapshot]], dict[str, str]]:
    """Stores of task manifests in one blob, by task; and damage, by task."""
    try:
        return {task: list(read.manifest.stores) for task, read in app_repository.task_manifests(together).items()}, {}
    except (Corrupted, Invalid) as error:
        if len(together) == 1:
            return {}, {together[0].task: error.what}
    inherited: dict[str, list[StoreSnapshot]] = {}
    damage: dict[str, str] = {}
    for reference in together:
        found, wrong = _read(app_repository, [reference])
        inherited |= found
        damage |= wrong
    return inherited, damage
