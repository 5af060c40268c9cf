"""Rewrites packs of which most is garbage; a collection deletes a pack only when all of its files are.

Small files that are put together share a pack, and die one by one: compaction replaces the runs of busy stores, and an
idle one keeps the whole pack for ever. So its files are put again, in a pack of their own, and a publication names them
there::

    the newest snapshot names      a, in a pack of a, b, c, d ──▶ a, in a pack of a
    older snapshots name           a, c in the old pack, until retention drops them; then it is garbage

That is a publication like any other: of files with new names, by a snapshot of the same rows and ends. What another job
has published meanwhile stays, with its files moved. Packs of pinned snapshots are left alone, because they stay anyway.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.errors import Corrupted
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import existing_blobs
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.head import Origin
from statecore.repository.incoming_file import scratch_directory
from statecore.repository.manifest import Extent, StoredDatabase, TaskManifest, TaskManifestReference
from statecore.repository.publish.publication import Publication
from statecore.repository.publish.upload import PACK_BYTES, LocalFile, put_files
from statecore.repository.recorded_spec import recorded_spec

MAX_UNUSED = 0.2
"""Garbage in packs above which they are rewritten, as a share of the bytes that snapshots need."""

_MOST_BYTES = 1 << 30  # That one run puts again; the next one goes on

Moved = Mapping[tuple[str, str], Extent]
"""Where a file is now, by its hash and its old pack."""


@dataclass(frozen=True)
class RepackReport:
    """Packs that were rewritten, or of a plan, that would be."""

    packs: int = 0
    bytes: int = 0  # of these packs
    needed_bytes: int = 0  # of the files of the newest snapshot in them, which are put again
    snapshot: str | None = None  # that names them at their new places; None of a plan, and without any
    damaged: tuple[str, ...] = ()  # packs that are left alone, because a file in them is damaged
    warnings: tuple[str, ...] = ()  # of the publication of that snapshot


class Repacker:
    """Rewrites the packs of one application.

    Args:
        max_unused: see :data:`MAX_UNUSED`.
        min_unused_bytes: garbage in packs below which nothing is rewritten.
    """

    def __init__(
        self,
        app_repository: ApplicationRepository,
        *,
        max_unused: float = MAX_UNUSED,
        min_unused_bytes: int = PACK_BYTES,
        progress: Progress | None = None,
        faults: FaultPoints = NO_FAULTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app_repository, self._max_unused, self._min_unused_bytes = app_repository, max_unused, min_unused_bytes
        self._progress, self._faults, self._clock = progress or NullProgress(), faults, clock

    def plan(self) -> RepackReport:
        """What :meth:`run` would do. Nothing is changed."""
        return self._report(self._chosen())

    def run(self) -> RepackReport:
        """Rewrite packs, if that is worth it. Raises ``Corrupted`` if a snapshot that counts cannot be read."""
        chosen = self._chosen()
        if not chosen:
            return RepackReport()
        app_repository = self._app_repository
        newest = app_repository.head().snapshots[0]
        publication = Publication(
            app_repository,
            recorded_spec(app_repository.manifest(newest).value),
            request=f"repack-{uuid.uuid4().hex}",
            origin=Origin.COMPACTION,
            clock=self._clock,
            faults=self._faults,
        )
        there = publication.task_manifests()
        with scratch_directory("statecore-repack-") as directory:
            moved, damaged = self._put_again(there.values(), chosen, directory)
        report = replace(self._report({name: one for name, one in chosen.items() if name not in damaged}))
        mine = [one for task_manifest in there.values() if (one := _moved(task_manifest, moved)) is not None]
        report = replace(report, damaged=tuple(sorted(damaged)))
        if not mine:
            return report
        published = publication.publish(
            mine, drops_other_tasks=False, rebase=lambda _, theirs: _moved(theirs, moved), checks_blobs_hourly=True
        )
        if published is None:
            return report
        return replace(report, snapshot=published.snapshot, warnings=published.warnings)

    def _report(self, chosen: Mapping[str, _Pack]) -> RepackReport:
        return RepackReport(
            len(chosen), sum(one.bytes for one in chosen.values()), sum(one.needed_bytes for one in chosen.values())
        )

    def _chosen(self) -> dict[str, _Pack]:
        """The packs to rewrite, by name; those with the greatest share of garbage first."""
        app_repository = self._app_repository
        if app_repository.repository.is_replica:
            return {}
        head, seen = app_repository.head(), dict[str, set[tuple[str, Extent]]]()
        live, newest, pinned = set[Extent](), set[Extent](), set[str]()
        self._progress.phase("read packs", len(head.snapshots), "snapshots")
        for number, entry in enumerate(head.snapshots):
            references = app_repository.manifest(entry).value.task_manifests
            new = [one for one in references if one.sha256 not in seen]
            for read, reference in _read(app_repository, new):
                seen[reference.sha256] = {one for store in read.stores for one in store.extents}
            extents = {extent for one in references for _, extent in seen[one.sha256]}
            live |= extents
            newest |= set() if number else extents
            pinned |= {extent.blob for extent in extents} if entry.pinned else set()
            self._progress.advance()
        self._progress.done()
        prefix = f"{app_repository.names.root}packs/"
        names = {extent.blob for extent in newest if extent.blob.startswith(prefix)} - pinned
        found = existing_blobs(app_repository.blobs, names, prefix)
        used, needed = _bytes_in(names, live), _bytes_in(names, newest)
        packs = {name: _Pack(blob.size, used[name], needed[name]) for name, blob in found.items()}
        unused = sum(one.unused for one in packs.values())
        limit = max(self._max_unused * sum(extent.bytes for extent in live), self._min_unused_bytes)
        chosen: dict[str, _Pack] = {}
        for name, pack in sorted(packs.items(), key=lambda one: (-one[1].unused / max(one[1].bytes, 1), one[0])):
            put = sum(one.needed_bytes for one in chosen.values())
            if unused <= limit or 2 * pack.unused < pack.bytes or (chosen and put + pack.needed_bytes > _MOST_BYTES):
                break
            chosen[name] = pack
            unused -= pack.unused
        return chosen

    def _put_again(
        self, task_manifests: Collection[TaskManifest], chosen: Collection[str], directory: Path
    ) -> tuple[Moved, set[str]]:
        """Put the files of the newest snapshot in these packs again: where they are now, and packs with damage."""
        by_pack: dict[str, dict[str, Extent]] = defaultdict(dict)
        for task_manifest in task_manifests:
            for store in task_manifest.stores:
                for digest, extent in store.extents:
                    if extent.blob in chosen:
                        by_pack[extent.blob][digest] = extent
        damaged, files = set(), dict[str, LocalFile]()
        self._progress.phase("rewrite packs", len(by_pack), "packs")
        for pack, extents in sorted(by_pack.items()):
            wanted = [
                RemoteFile(digest, extent, f"A file in {pack}", {"blob": pack}) for digest, extent in extents.items()
            ]
            try:
                download(self._app_repository, wanted, directory)
            except Corrupted:  # a fetch says so, too, and repo verify where it is needed
                damaged.add(pack)
                continue
            for digest, extent in extents.items():
                files[digest] = LocalFile(directory / FILES / digest, digest, extent.bytes)
            self._progress.advance()
        put = put_files(self._app_repository.blobs, self._app_repository.names, list(files.values())) if files else []
        where = dict(zip(files, put, strict=True))
        self._progress.done()
        whole = {name: extents for name, extents in by_pack.items() if name not in damaged}
        return {(digest, name): where[digest] for name, extents in whole.items() for digest in extents}, damaged


@dataclass(frozen=True)
class _Pack:
    bytes: int
    used_bytes: int  # by any snapshot
    needed_bytes: int  # by the newest

    @property
    def unused(self) -> int:
        return self.bytes - self.used_bytes


def _read(
    app_repository: ApplicationRepository, references: Collection[TaskManifestReference]
) -> list[tuple[TaskManifest, TaskManifestReference]]:
    read = app_repository.task_manifests(list(references))
    return [(read[one.task].manifest, one) for one in references]


def _bytes_in(names: Collection[str], extents: Collection[Extent]) -> dict[str, int]:
    found = dict.fromkeys(names, 0)
    for extent in extents:
        if extent.blob in found:
            found[extent.blob] += extent.bytes
    return found


def _moved(task_manifest: TaskManifest, moved: Moved) -> TaskManifest | None:
    """The stores of a task whose files were moved; ``None`` without any."""
    stores = []
    for store in task_manifest.stores:
        databases = tuple(_with_moved(database, moved) for database in store.databases)
        if databases != store.databases:
            stores.append(replace(store, databases=databases))
    return TaskManifest(task_manifest.task, tuple(stores)) if stores else None


def _with_moved(database: StoredDatabase, moved: Moved) -> StoredDatabase:
    return replace(
        database,
        runs=tuple(
            replace(one, extent=moved.get((one.run.sha256, one.extent.blob), one.extent)) for one in database.runs
        ),
        base=tuple(replace(one, extent=moved.get((one.sha256, one.extent.blob), one.extent)) for one in database.base),
    )
