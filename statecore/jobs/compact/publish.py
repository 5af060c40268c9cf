"""Publish the task manifests of a compaction; the rows of stores do not change, so their digests are carried over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from statecore import __version__
from statecore.errors import StatecoreError
from statecore.images.digest import combined
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import save_digest, saved_digests
from statecore.repository.manifest import StoreSnapshot, TaskManifest
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.rebase import Compaction, rebase_compaction

MergedRuns = Mapping[str, Sequence[Compaction]]
"""Merged runs, by task."""


def publish_compaction(
    repository: ApplicationRepository,
    publication: Publication,
    task_manifests: Mapping[str, TaskManifest],
    merged_runs: MergedRuns,
    *,
    carries_digests: bool,
) -> Published | None:
    """Publish the compacted tasks, and if asked digests of their stores; ``None`` if rebasing leaves nothing."""

    def made(_: TaskManifest | None, theirs: TaskManifest) -> TaskManifest | None:
        found = rebase_compaction(merged_runs[theirs.task], theirs)
        return found and replace(found, stores=tuple(map(_with_digest, found.stores)))

    mine = [one for task in merged_runs if (one := made(None, task_manifests[task])) is not None]
    if not mine:
        return None
    if carries_digests:
        _carry_over(repository, task_manifests, mine)
    return publication.publish(mine, drops_other_tasks=False, rebase=made, checks_blobs_hourly=True)


def _carry_over(
    repository: ApplicationRepository, before: Mapping[str, TaskManifest], made: Sequence[TaskManifest]
) -> None:
    """Save known digests of stores under their new identities, if possible."""
    earlier = {(one.task, store.store): store.identity for one in before.values() for store in one.stores}
    new = {
        earlier[one.task, store.store]: store.identity for one in made for store in one.stores if store.content is None
    }
    with suppress(StatecoreError):
        for identity, content in saved_digests(repository, sorted(new)).items():
            save_digest(repository, new[identity], content, __version__)


def _with_digest(store: StoreSnapshot) -> StoreSnapshot:
    """A store with its digest if its runs give it: each is a whole database, and none has expired."""
    of = store.segmentation if store.kind.is_segmented else None
    if store.content is not None or (store.kind.is_segmented and (of is None or store.stream_time is None)):
        return store
    first = 0 if of is None else of.first_live(store.stream_time or 0)
    for database in store.databases:
        if database.base or len(database.runs) != 1 or (database.segment is not None and database.segment < first):
            return store
    content = combined(*(database.runs[0].run.content for database in store.databases))
    return replace(store, rows=content.rows, bytes=content.bytes, digest=content.digest)
