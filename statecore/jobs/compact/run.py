"""Compaction: adjacent runs of a snapshot are merged into one, so that a database has few of them.

The phases, and why a kill at any time is harmless::

    inspect   head, manifest, task manifests          nothing is changed
    plan      which runs are merged                   by their sizes (statecore.images.compaction_policy)
    merge     downloaded, merged, uploaded            unreferenced files: garbage, or reused by a retry by hash
    publish   task manifests, manifest, head          a snapshot of its own, with the same rows and ends

**It is a publication like any other**, and no job waits for it. If another job has published meanwhile, each database
is rebased separately: if the merged runs are still adjacent there, they are replaced, else the database is left as it
is (:func:`statecore.repository.rebase.rebase_compaction`). So a checkpoint published in between is kept, and of two
concurrent compactions one has no effect.

**The rows of a store do not change**, so its known digest is carried over. If each database of a store has become one
run, the runs give the digest, and no row has to be read.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from statecore import __version__
from statecore.errors import StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.segments import first_live_segment
from statecore.images.compaction_policy import DEFAULT_SETTINGS, CompactionSettings
from statecore.images.digest import EMPTY, combined
from statecore.images.model import StoreDigest
from statecore.jobs.compact.merge import BATCH_BYTES, Merged, Merger
from statecore.jobs.compact.plan import Merge, planned_merges
from statecore.jobs.compact.report import CompactedRuns, CompactionOutcome, CompactionReport
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import save_digest, saved_digests
from statecore.repository.manifest import StoreSnapshot, TaskManifest
from statecore.repository.publication import Publication, Published
from statecore.repository.rebase import Compaction, rebase_compaction
from statecore.spec.model import ApplicationSpec

ORIGIN = "compaction"
"""Origin in the manifests of compactions."""

MergedRuns = Mapping[str, Sequence[Compaction]]
"""Merged runs, by task."""


def run_compact(
    repository: ApplicationRepository,
    spec: ApplicationSpec,
    *,
    plan_only: bool = False,
    asks_contents: bool = True,
    settings: CompactionSettings = DEFAULT_SETTINGS,
    batch_bytes: int = BATCH_BYTES,
    scratch: Path | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
    faults: FaultPoints = NO_FAULTS,
    clock: Callable[[], float] = time.time,
) -> CompactionReport:
    """Compact the newest snapshot of an application, if due."""
    began = time.monotonic()
    progress = progress or NullProgress()
    request = f"{ORIGIN}-{uuid.uuid4().hex}"
    publication = Publication(repository, spec, request=request, origin=ORIGIN, clock=clock, faults=faults)
    newest = publication.newest or repository.manifest(repository.head().snapshots[0]).value
    parts = publication.task_manifests()
    merges = planned_merges(parts.values(), spec, settings)
    report = CompactionReport(repository.url, repository.application_id, CompactionOutcome.NOT_DUE, newest.snapshot)
    if not merges or plan_only:
        outcome = CompactionOutcome.PLANNED if merges else CompactionOutcome.NOT_DUE
        runs = tuple(_row(one, None) for one in merges)
        return replace(report, outcome=outcome, compacted=runs, seconds=time.monotonic() - began)
    faults.reach("compact.after-plan")
    progress.phase("compact", sum(one.bytes for one in merges), "bytes")
    with tempfile.TemporaryDirectory(prefix="statecore-compact-", dir=scratch, ignore_cleanup_errors=True) as directory:
        merged = Merger(repository, Path(directory), progress.advance, faults, batch_bytes).run(merges)
    progress.done()
    for finding in merged.findings:
        say(finding)
    faults.reach("compact.after-files")
    published = _published(repository, publication, parts, _by_task(merges, merged), asks_contents=asks_contents)
    for warning in () if published is None else published.warnings:
        say(warning)
    return replace(
        report,
        outcome=CompactionOutcome.NOTHING_LEFT if published is None else CompactionOutcome.PUBLISHED,
        snapshot=None if published is None else published.snapshot,
        created_at=None if published is None else published.created_at,
        compacted=tuple(
            _row(one, _bytes(merged, number), is_damaged=number in merged.damaged) for number, one in enumerate(merges)
        ),
        tasks=0 if published is None else len(published.made_tasks),
        brought_bytes=merged.brought_bytes,
        written_bytes=merged.written_bytes,
        findings=tuple(merged.findings),
        warnings=() if published is None else published.warnings,
        seconds=time.monotonic() - began,
    )


def _published(
    repository: ApplicationRepository,
    publication: Publication,
    parts: Mapping[str, TaskManifest],
    merged_runs: MergedRuns,
    *,
    asks_contents: bool,
) -> Published | None:
    """Publish the compacted tasks; ``None`` if nothing is left of them after rebasing."""

    def made(_: TaskManifest | None, theirs: TaskManifest) -> TaskManifest | None:
        part = rebase_compaction(merged_runs[theirs.task], theirs)
        return part and replace(part, stores=tuple(map(_with_digest, part.stores)))

    mine = [part for task in merged_runs if (part := made(None, parts[task])) is not None]
    if not mine:
        return None
    if asks_contents:
        _carry_over(repository, parts, mine)
    return publication.publish(mine, whole=False, rebase=made, hourly=True)


def _carry_over(
    repository: ApplicationRepository, before: Mapping[str, TaskManifest], made: Sequence[TaskManifest]
) -> None:
    """Save known digests of stores under their new identities, if possible."""
    earlier = {(part.task, store.store): store.identity for part in before.values() for store in part.stores}
    new = {
        earlier[part.task, store.store]: store.identity
        for part in made
        for store in part.stores
        if store.content is None
    }
    with suppress(StatecoreError):
        for identity, content in saved_digests(repository, sorted(new)).items():
            save_digest(repository, new[identity], content, __version__)


def _with_digest(store: StoreSnapshot) -> StoreSnapshot:
    """A store with its digest if its runs give it: each is a whole database, and none has expired."""
    of = store.segmentation if store.kind.is_segmented else None
    if store.content is not None or (store.kind.is_segmented and (of is None or store.stream_time is None)):
        return store
    first = 0 if of is None else first_live_segment(store.stream_time or 0, of.retention_ms, of.interval_ms)
    content = StoreDigest(0, 0, EMPTY)
    for database in store.databases:
        if database.base or len(database.runs) != 1 or (database.segment is not None and database.segment < first):
            return store
        run = database.runs[0].run
        content = combined(content, StoreDigest(run.rows, run.bytes, run.digest))
    return replace(store, rows=content.rows, bytes=content.bytes, digest=content.digest)


def _by_task(merges: Sequence[Merge], merged: Merged) -> MergedRuns:
    found: dict[str, list[Compaction]] = defaultdict(list)
    for number, output in merged.outputs.items():
        found[merges[number].task].append(merges[number].into(output))
    return found


def _bytes(merged: Merged, number: int) -> int | None:
    """Bytes of a merge's output; ``None`` if it was left out."""
    if number not in merged.outputs:
        return None
    output = merged.outputs[number]
    return 0 if output is None else output.run.file_bytes


def _row(merge: Merge, left: int | None, *, is_damaged: bool = False) -> CompactedRuns:
    return CompactedRuns(merge.task, merge.store, merge.segment, len(merge.inputs), merge.bytes, left, is_damaged)
