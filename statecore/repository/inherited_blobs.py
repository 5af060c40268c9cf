"""Whether what a snapshot takes over from the one before is there: whoever publishes has none of these files.

A job that has made some tasks publishes them beside the others as they are. Where files of these are gone, what it has
made is published all the same, because it is worth more there than not; but nobody can fetch the others any more, and
whoever reads its last words is told so, and by what they come back. Names and sizes are looked at, each blob once.

A job that puts a tail above runs that are there names these too, and has not their files; so it looks at its own parts
as well, and once an hour, because a request for each blob every few minutes would cost more than the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.blob_verification import each, sizes
from statecore.repository.manifest import StoreSnapshot, TaskManifestReference

_MANY = 20


def warnings_of(
    shelf: ApplicationRepository,
    references: Sequence[TaskManifestReference],
    stores: Mapping[str, Sequence[StoreSnapshot]],
    known: Mapping[str, ReadTaskManifest],
) -> tuple[str, ...]:
    """What is to be said of all that a snapshot takes over; nothing where it is there.

    Args:
        shelf: where the snapshot is.
        references: the parts of tasks that are taken over whole.
        stores: the stores that are taken over, by the task that others of it were made of.
        known: parts that were read a moment ago, by the hash of their documents.
    """
    if not references and not any(stores.values()):
        return ()
    try:
        damage = _damage(shelf, references, stores, known)
    except StatecoreError as error:
        return (
            "Nobody could look whether the files of the tasks that were taken over from the snapshot before are there: "
            f"{error.what} What this job made is published.",
        )
    if not damage:
        return ()
    tasks = sorted(damage)
    named = ", ".join(tasks[:_MANY]) + (f" and {len(tasks) - _MANY} others" if len(tasks) > _MANY else "")
    return (
        f"Tasks {named} were taken over from the snapshot before, and nobody can fetch them: {damage[tasks[0]]} What "
        "this job made is published. Publish these tasks again: statecore snapshot on an instance that has them, or "
        "statecore restore --from none of the whole application; and look who deletes from the object store.",
    )


def _damage(
    shelf: ApplicationRepository,
    references: Sequence[TaskManifestReference],
    stores: Mapping[str, Sequence[StoreSnapshot]],
    known: Mapping[str, ReadTaskManifest],
) -> dict[str, str]:
    """What is wrong, by task."""
    by_blob: dict[str, list[TaskManifestReference]] = {}
    damage: dict[str, str] = {}
    taken = {task: list(found) for task, found in stores.items()}
    for reference in references:
        if (read := known.get(reference.sha256)) is not None:
            taken[reference.task] = list(read.part.stores)
        else:
            by_blob.setdefault(reference.extent.blob, []).append(reference)
    for whole, wrong in each(lambda together: _read(shelf, together), list(by_blob.values())):
        taken |= whole
        damage |= wrong
    named = {extent.blob for found in taken.values() for store in found for _, extent in store.extents}
    there = sizes(shelf.blobs, named, shelf.names.root)
    for task, found in taken.items():
        for store in found:
            for _, extent in store.extents:
                size = there.get(extent.blob)
                if size is None or size < extent.start + extent.bytes:
                    why = "is missing" if size is None else f"has {size} bytes and should have more"
                    damage.setdefault(task, f"the blob {extent.blob} of store {store.store} of task {task} {why}.")
    return damage


def _read(
    shelf: ApplicationRepository, together: Sequence[TaskManifestReference]
) -> tuple[dict[str, list[StoreSnapshot]], dict[str, str]]:
    """The stores of parts that lie in one blob, by task, and what is wrong with those that cannot be read."""
    try:
        return {task: list(read.part.stores) for task, read in shelf.parts(together).items()}, {}
    except (Corrupted, Invalid) as error:
        if len(together) == 1:
            return {}, {together[0].task: error.what}
    taken: dict[str, list[StoreSnapshot]] = {}
    damage: dict[str, str] = {}
    for reference in together:
        found, wrong = _read(shelf, [reference])
        taken |= found
        damage |= wrong
    return taken, damage
