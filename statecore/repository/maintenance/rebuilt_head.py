"""A head made of manifests: which of them it names, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from statecore.formats.integers import min_known
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head, Retention, SnapshotEntry
from statecore.repository.maintenance.found_manifests import FoundManifest
from statecore.repository.manifest import Manifest, new_bytes
from statecore.repository.retention import newest_put_at, retained_entries


def newest_of(
    usable: Mapping[str, FoundManifest], manifests: Mapping[str, FoundManifest], before: Head | None
) -> FoundManifest | None:
    """The manifest that the new head begins with, of usable ones, newest first; ``before`` is one that has gone back.

    Where jobs have published for that head since, so that the newest one does not go on with it, that of the two that
    was made last, although others have greater generations.
    """
    newest = next(iter(usable.values()), None)
    named = () if before is None else (usable.get(entry.snapshot) for entry in before.snapshots)
    of_head = next((found for found in named if found is not None), None)
    if newest is None or of_head is None or _goes_on(newest, of_head, manifests):
        return newest
    return max(newest, of_head, key=lambda one: one.manifest.created_at)


def _goes_on(later: FoundManifest, earlier: FoundManifest, manifests: Mapping[str, FoundManifest]) -> bool:
    """Whether an earlier manifest is a predecessor of a later one, or that one."""
    following: FoundManifest | None = later
    while following is not None and following.order > earlier.order:
        previous = following.manifest.previous
        found = None if previous is None else manifests.get(previous)
        following = found if found is not None and found.order < following.order else None
    return following == earlier


def chain_of(usable: Mapping[str, FoundManifest], manifests: Mapping[str, FoundManifest]) -> list[FoundManifest]:
    """The newest manifest and its predecessors, newest first; both arguments are sorted newest first."""
    chain: list[FoundManifest] = []
    following = next(iter(usable.values()), None)
    unusable = manifests.keys() - usable.keys()  # readable, and damaged below
    while following is not None:
        chain.append(following)
        last, previous = following, following.manifest.previous
        seen = {last.manifest.snapshot}
        while previous is not None and previous in unusable - seen:
            seen.add(previous)
            last, previous = manifests[previous], manifests[previous].manifest.previous
        if previous is None:
            break
        limit = min(last.order, chain[-1].order)
        following = usable.get(previous)
        if following is None or following.order >= limit:  # the predecessor of one that cannot be read is unknown
            before = (one for one in usable.values() if one.order < limit)
            following = next((one for one in before if one.order[:2] < last.order[:2]), None)
    return chain


def with_pinned(chain: Sequence[FoundManifest], pinned: Sequence[FoundManifest]) -> list[FoundManifest]:
    """A chain with the pinned manifests that are not in it, also of a generation that it has: of another branch."""
    found = {one.manifest.snapshot: one for one in (*chain, *pinned)}
    return sorted(found.values(), key=lambda one: one.order, reverse=True)


def with_pins_of_branches(chain: Sequence[FoundManifest], pinned: Sequence[FoundManifest]) -> list[FoundManifest]:
    """A chain with the pinned manifests of all branches, which may have its generations; its first stays the first."""
    if all(one in chain for one in pinned):
        return [*chain]
    found = {one.manifest.snapshot: one for one in (*chain[1:], *pinned) if one not in chain[:1]}
    return [*chain[:1], *sorted(found.values(), key=lambda one: one.manifest.created_at, reverse=True)]


def head_entries(
    app_repository: ApplicationRepository, chain: Sequence[FoundManifest], pins: Mapping[str, str], keep: Retention
) -> tuple[tuple[SnapshotEntry, ...], list[str]]:
    """Head entries for a chain; and the snapshots that retention leaves out."""
    before = {one.manifest.snapshot: older.manifest for one, older in pairwise(chain)}
    found = {one.manifest.snapshot: one.manifest for one in chain}
    entries = [
        SnapshotEntry(
            one.manifest.snapshot,
            one.sha256,
            one.manifest.identity,
            one.manifest.created_at,
            min_known(reference.read_at_ms for reference in one.manifest.task_manifests),
            one.manifest.request_id,
            one.manifest.origin,
            len(one.manifest.task_manifests),
            one.manifest.file_bytes,
            new_bytes=0,
            pinned=one.manifest.snapshot in pins,
            note=pins.get(one.manifest.snapshot, ""),
        )
        for one in chain
    ]
    kept = tuple(
        replace(entry, new_bytes=_new_bytes(app_repository, found[entry.snapshot], before.get(entry.snapshot)))
        for entry in retained_entries(entries, keep, newest_put_at(app_repository, entries, keep))
    )
    return kept, sorted(found.keys() - {entry.snapshot for entry in kept})


def _new_bytes(app_repository: ApplicationRepository, manifest: Manifest, before: Manifest | None) -> int:
    """Bytes of the files that the snapshot before it does not name."""
    older = {} if before is None else {reference.task: reference for reference in before.task_manifests}
    changed = [
        reference
        for reference in manifest.task_manifests
        if reference.task not in older or older[reference.task].sha256 != reference.sha256
    ]

    now, known = (
        app_repository.task_manifests(changed),
        app_repository.task_manifests([older[reference.task] for reference in changed if reference.task in older]),
    )
    return new_bytes([read.manifest for read in now.values()], [read.manifest for read in known.values()])


def next_head(
    app_repository: ApplicationRepository,
    entries: tuple[SnapshotEntry, ...],
    manifests: Iterable[FoundManifest],
    known: Mapping[str, int],
    collection: int,
    before: Head | None = None,
) -> Head:
    """A head with the next epoch and generation above all known."""
    found = [one.manifest for one in manifests]
    epoch = max([known.get("epoch", 0), *(one.epoch for one in found)])
    generation = max([known.get("generation", 0), *(one.generation for one in found)])
    return Head(
        app_repository.repository.descriptor.id,
        app_repository.application_id,
        epoch + 1,
        generation + 1,
        entries,
        collection,
        *((before.collection_began_ms, before.keep, before.needs) if before else ()),
    )
