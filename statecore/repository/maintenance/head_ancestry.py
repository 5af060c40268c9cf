"""Whether a later head goes on with an earlier one, or is of another branch: the bucket was set back, and jobs went on.

Heads are replaced, so only manifests show it. Each has the snapshot that was the newest before it, and the epoch and
generation of the head that it was made for::

    later head ──▶ generation 31, previous 30 ──▶ ... ──▶ generation 28, previous 27: the earlier head's newest one
    later head ──▶ generation 31, previous 30 ──▶ ... ──▶ generation 25, which the earlier head, of 27, does not name

A head forgets snapshots, but their manifests stay until a collection deletes them: so the chain from its oldest new
snapshot down tells where it comes from, however many it has forgotten. In a primary it is broken only if a collection
has deleted manifests of this chain, so after the earlier head. Such a collection, which has raised the number in the
head, deletes what the head has forgotten of the earlier one, too: its absence says nothing then. A replica, also one
that was promoted, has only the manifests that its heads named when they were copied. It takes no head of another branch
itself, so where its chain goes further back than what it has, nothing contradicts it. A manifest in the chain that is
damaged is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import NamedTuple

from statecore.errors import NotFound
from statecore.objectstore.base import Blob
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import parallel_map
from statecore.repository.head import Head
from statecore.repository.maintenance.found_manifests import readable_manifest
from statecore.repository.manifest import Manifest

EPOCHS_OF_PROMOTION = 1000
"""By how much a promotion raises the epoch of each head: more than a primary is repaired between two copies."""


class Ancestry(StrEnum):
    """How a later head relates to an earlier one."""

    CONTINUES = "continues"  # it goes on with it
    FORGOTTEN = "forgotten"  # nothing contradicts that, and what would show it is deleted
    OTHER_BRANCH = "other branch"


class _Link(NamedTuple):
    """A manifest in the chain."""

    order: tuple[int, int]
    previous: str | None


def ancestry(app_repository: ApplicationRepository, head: Head, before: Head) -> Ancestry:
    """Whether a head of an application goes on with ``before``, which is of a lesser order.

    A repair, which begins an epoch, may leave out the newest snapshots, or name what was forgotten: then the manifest
    of the newest one in the object store shows that the repair knew it. A promotion decides nothing of the kind: such a
    manifest may be of a copy that was killed.
    """
    newest, is_promoted = before.newest, head.epoch - before.epoch >= EPOCHS_OF_PROMOTION
    is_repaired = head.epoch != before.epoch and not is_promoted
    if newest is None:
        return Ancestry.CONTINUES
    is_named = head.entry(newest.snapshot) is not None
    if is_repaired and (is_named or _has_blob(app_repository, app_repository.names.manifest(newest.snapshot))):
        return Ancestry.CONTINUES
    named = {entry.snapshot for entry in before.snapshots}
    links = (
        _link_of(app_repository.manifest(entry).value)
        for entry in reversed(head.snapshots)
        if entry.snapshot not in named
    )
    first = next((link for link in links if link.order > before.order or not is_repaired), None)
    if first is None:
        is_same = head.newest is not None and head.newest.snapshot == newest.snapshot
        return Ancestry.CONTINUES if is_same else Ancestry.OTHER_BRANCH
    found = _followed(app_repository, first, newest.snapshot, named, before)
    if found is not Ancestry.FORGOTTEN:
        return found
    if is_named:
        return Ancestry.CONTINUES
    may_lack = app_repository.repository.is_replica or is_promoted or head.collection > before.collection
    return Ancestry.FORGOTTEN if may_lack else Ancestry.OTHER_BRANCH


def _followed(
    app_repository: ApplicationRepository, link: _Link, newest: str, named: Set[str], before: Head
) -> Ancestry:
    """Where the chain from a link down comes from; ``FORGOTTEN`` if it is broken."""
    later: Mapping[str, _Link] | None = None
    if link.order <= before.order:
        return Ancestry.OTHER_BRANCH
    while link.previous != newest:
        if link.previous is None or link.previous in named:
            return Ancestry.OTHER_BRANCH
        if later is None:
            later = _later_links(app_repository, newest)
        name = app_repository.names.manifest(link.previous)
        found = later.get(link.previous) or _link(app_repository, name)
        if found is None and _has_blob(app_repository, name):  # it is damaged
            below = [one for one in later.values() if before.order < one.order < link.order]
            if not below:
                return Ancestry.CONTINUES
            found = max(below, key=lambda one: one.order)
        if found is None:
            return Ancestry.FORGOTTEN
        if not before.order < found.order < link.order:
            return Ancestry.OTHER_BRANCH
        link = found
    return Ancestry.CONTINUES


def _later_links(app_repository: ApplicationRepository, snapshot: str) -> Mapping[str, _Link]:
    """The links of all manifests that were made after one, by their ids, which begin with the time; many at once."""
    prefix, name = app_repository.names.manifests, app_repository.names.manifest(snapshot)
    listed = app_repository.names.listed(app_repository.blobs, "manifests")
    blobs: list[Blob] = [blob for blob in listed if blob.name > name]
    links = parallel_map(lambda blob: _link(app_repository, blob.name), blobs)
    found = zip(blobs, links, strict=True)
    return {blob.name.removeprefix(prefix).removesuffix(".json"): link for blob, link in found if link is not None}


def _link(app_repository: ApplicationRepository, name: str) -> _Link | None:
    """The link of a manifest; ``None`` if it is not there, or damaged."""
    manifest = readable_manifest(app_repository, name)
    return None if manifest is None else _link_of(manifest)


def _link_of(manifest: Manifest) -> _Link:
    return _Link(manifest.order, manifest.previous)


def _has_blob(app_repository: ApplicationRepository, name: str) -> bool:
    try:
        app_repository.blobs.head(name)
    except NotFound:
        return False
    return True
