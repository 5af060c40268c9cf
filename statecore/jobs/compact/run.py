"""The fold: runs of a snapshot that lie side by side become one, so that a database has few of them.

Order of things, and why a kill at any moment is harmless::

    look      head, manifest, parts           nothing is changed
    plan      which runs are merged           by their sizes (statecore.images.compaction_policy)
    merge     brought, merged, put            files that nobody names: garbage, or what a retry finds by hash
    publish   parts, manifest, head           a snapshot of its own, of the same rows and the same ends

**It is a publication like any other**, and nobody waits for it. Where others have published meanwhile it is decided
database by database: where the merged runs still stand side by side theirs is replaced, else the database is left as
it is (:func:`statecore.repository.rebase.folded`). A checkpoint that lands in between is thereby kept, and of two folds
at once one does the work for nothing.

**What a store holds stays**, so what is known of it is carried over. Where all of a store has become one run of each
database that run tells it, and nobody has to read a row.
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
from statecore.images.compaction_policy import FOLD, CompactionSettings
from statecore.images.digest import EMPTY, combined
from statecore.images.model import StoreDigest
from statecore.jobs.compact.merge import BATCH_BYTES, Merged, Merger
from statecore.jobs.compact.plan import Merge, planned_merges
from statecore.jobs.compact.report import CompactedRuns, CompactionOutcome, CompactionReport
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import keep_content, known_contents
from statecore.repository.manifest import StoreSnapshot, TaskManifest
from statecore.repository.publication import Publication, Published
from statecore.repository.rebase import Compaction, folded
from statecore.spec.model import ApplicationSpec

ORIGIN = "fold"
"""What manifests of folds name as their origin."""

Folds = Mapping[str, Sequence[Compaction]]
"""What was merged, by task."""


def run_compact(
    shelf: ApplicationRepository,
    spec: ApplicationSpec,
    *,
    plan_only: bool = False,
    asks_contents: bool = True,
    settings: CompactionSettings = FOLD,
    batch_bytes: int = BATCH_BYTES,
    scratch: Path | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
    faults: FaultPoints = NO_FAULTS,
    clock: Callable[[], float] = time.time,
) -> CompactionReport:
    """Fold the newest snapshot of an application, where that is due.

    Args:
        shelf: where its snapshots are.
        spec: the application as it is declared.
        plan_only: say what would be merged, and change nothing.
        asks_contents: ask what the stores hold that are folded, where the snapshot does not say it: a request for each.
            Whoever has published that snapshot a moment ago need not, because nobody can have read it.
        settings: when runs are merged.
        batch_bytes: bytes of runs that are brought at once.
        scratch: where files are while they are merged; ``None`` for ``TMPDIR``.
        progress: told how far it is.
        say: told what an operator should read.
        faults: points at which tests let the process die.
        clock: seconds since the epoch.

    Raises:
        NotFound: the application has no snapshot.
        Corrupted, Invalid, Retryable, Capacity, Fenced: see :class:`Publication` and :class:`Merger`. Files of runs
            that are damaged are a finding, and no error.
    """
    began = time.monotonic()
    progress = progress or NullProgress()
    request = f"{ORIGIN}-{uuid.uuid4().hex}"
    publication = Publication(shelf, spec, request=request, origin=ORIGIN, clock=clock, faults=faults)
    newest = publication.newest or shelf.manifest(shelf.head().snapshots[0]).value
    parts = publication.parts()
    merges = planned_merges(parts.values(), spec, settings)
    report = CompactionReport(shelf.url, shelf.application_id, CompactionOutcome.NOT_DUE, newest.snapshot)
    if not merges or plan_only:
        outcome = CompactionOutcome.PLANNED if merges else CompactionOutcome.NOT_DUE
        runs = tuple(_row(one, None) for one in merges)
        return replace(report, outcome=outcome, folded=runs, seconds=time.monotonic() - began)
    faults.reach("fold.after-plan")
    progress.phase("fold", sum(one.bytes for one in merges), "bytes")
    with tempfile.TemporaryDirectory(prefix="statecore-fold-", dir=scratch, ignore_cleanup_errors=True) as directory:
        merged = Merger(shelf, Path(directory), progress.advance, faults, batch_bytes).run(merges)
    progress.done()
    for finding in merged.findings:
        say(finding)
    faults.reach("fold.after-files")
    published = _published(shelf, publication, parts, _by_task(merges, merged), asks_contents=asks_contents)
    for warning in () if published is None else published.warnings:
        say(warning)
    return replace(
        report,
        outcome=CompactionOutcome.NOTHING_LEFT if published is None else CompactionOutcome.PUBLISHED,
        snapshot=None if published is None else published.snapshot,
        made=None if published is None else published.made,
        folded=tuple(
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
    shelf: ApplicationRepository,
    publication: Publication,
    parts: Mapping[str, TaskManifest],
    folds: Folds,
    *,
    asks_contents: bool,
) -> Published | None:
    """The snapshot with the folds; ``None`` where nothing is left of them."""

    def made(_: TaskManifest | None, theirs: TaskManifest) -> TaskManifest | None:
        part = folded(folds[theirs.task], theirs)
        return part and replace(part, stores=tuple(map(_told, part.stores)))

    mine = [part for task in folds if (part := made(None, parts[task])) is not None]
    if not mine:
        return None
    if asks_contents:
        _carry_over(shelf, parts, mine)
    return publication.publish(mine, whole=False, rebase=made, hourly=True)


def _carry_over(shelf: ApplicationRepository, before: Mapping[str, TaskManifest], made: Sequence[TaskManifest]) -> None:
    """Keep what is known of stores under their new identities; in vain where nobody can look or write."""
    earlier = {(part.task, store.store): store.identity for part in before.values() for store in part.stores}
    new = {
        earlier[part.task, store.store]: store.identity
        for part in made
        for store in part.stores
        if store.content is None
    }
    with suppress(StatecoreError):
        for identity, content in known_contents(shelf, sorted(new)).items():
            keep_content(shelf, new[identity], content, __version__)


def _told(store: StoreSnapshot) -> StoreSnapshot:
    """A store with what it holds, where its runs tell that: each is all of a database, and none has expired."""
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


def _by_task(merges: Sequence[Merge], merged: Merged) -> Folds:
    found: dict[str, list[Compaction]] = defaultdict(list)
    for number, output in merged.outputs.items():
        found[merges[number].task].append(merges[number].into(output))
    return found


def _bytes(merged: Merged, number: int) -> int | None:
    """Bytes that a merge has left; ``None`` of one that was left out."""
    if number not in merged.outputs:
        return None
    output = merged.outputs[number]
    return 0 if output is None else output.run.file_bytes


def _row(merge: Merge, left: int | None, *, is_damaged: bool = False) -> CompactedRuns:
    return CompactedRuns(merge.task, merge.store, merge.segment, len(merge.inputs), merge.bytes, left, is_damaged)
