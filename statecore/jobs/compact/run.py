"""Compaction: adjacent runs of a snapshot are merged into one, so that a database has few of them.

The phases, and why a kill at any time is harmless::

    inspect   head, manifest, task manifests          nothing is changed
    plan      which runs are merged                   by their sizes (statecore.jobs.compact.policy)
    merge     downloaded, merged, uploaded            unreferenced files: garbage, or reused by a retry by hash
    publish   task manifests, manifest, head          a snapshot of its own, with the same rows and ends

**It is a publication like any other**, and no job waits for it. If another job has published meanwhile, each database
is rebased separately: if the merged runs are still adjacent there, they are replaced, else the database is left as it
is (:func:`statecore.repository.publish.rebase.rebase_compaction`). So a checkpoint published in between is kept, and of
two concurrent compactions one has no effect.

**The rows of a store do not change**, so its known digest is carried over. If each database of a store has become one
run, the runs give the digest, and no row has to be read.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from statecore.jobs.compact.merge import BATCH_BYTES, Merged, Merger
from statecore.jobs.compact.plan import Merge
from statecore.jobs.compact.planner import planned_merges
from statecore.jobs.compact.policy import DEFAULT_SETTINGS, CompactionSettings
from statecore.jobs.compact.publish import publish_compaction
from statecore.jobs.compact.report import CompactedRuns, CompactionOutcome, CompactionReport
from statecore.jobs.compact.request import CompactRequest
from statecore.jobs.context import JobContext
from statecore.jobs.failures import translated_errors
from statecore.progress import Progress
from statecore.repository.head import Origin
from statecore.repository.publish.publication import Publication
from statecore.repository.publish.rebase import Compaction


def run_compact(request: CompactRequest, progress: Progress | None = None, **opened: Any) -> CompactionReport:
    """Compact the newest snapshot of an application, if due; with ``request.plan_only`` the report says what is due."""
    with translated_errors(f"runs in {request.repository} were compacted"):
        context = JobContext.open(request, progress, **opened)
        return compact(context, plan_only=request.plan_only)


def compact(
    context: JobContext[Any],
    *,
    plan_only: bool = False,
    carries_digests: bool = True,
    settings: CompactionSettings = DEFAULT_SETTINGS,
    batch_bytes: int = BATCH_BYTES,
    scratch: Path | None = None,
) -> CompactionReport:
    """Compact the newest snapshot in the repository of a job, if due; ``carries_digests`` costs requests."""
    began = time.monotonic()
    repository, progress = context.repository, context.progress
    publication = Publication(
        repository,
        context.spec,
        request=f"{Origin.COMPACTION}-{uuid.uuid4().hex}",
        origin=Origin.COMPACTION,
        clock=context.clock,
        faults=context.faults,
    )
    newest = publication.newest or repository.manifest(repository.head().snapshots[0]).value
    task_manifests = publication.task_manifests()
    merges = planned_merges(task_manifests.values(), context.spec, settings)
    report = CompactionReport(repository.url, repository.application_id, CompactionOutcome.NOT_DUE, newest.snapshot)
    if not merges or plan_only:
        outcome = CompactionOutcome.PLANNED if merges else CompactionOutcome.NOT_DUE
        runs = tuple(_row(one, None) for one in merges)
        return replace(report, outcome=outcome, compacted=runs, seconds=time.monotonic() - began)
    context.faults.reach("compact.after-plan")
    progress.phase("compact", sum(one.bytes for one in merges), "bytes")
    with tempfile.TemporaryDirectory(prefix="statecore-compact-", dir=scratch, ignore_cleanup_errors=True) as directory:
        merged = Merger(repository, Path(directory), progress.advance, context.faults, batch_bytes).run(merges)
    progress.done()
    for finding in merged.findings:
        context.say(finding)
    context.faults.reach("compact.after-files")
    published = publish_compaction(
        repository, publication, task_manifests, _by_task(merges, merged), carries_digests=carries_digests
    )
    for warning in () if published is None else published.warnings:
        context.say(warning)
    return replace(
        report,
        outcome=CompactionOutcome.NOTHING_LEFT if published is None else CompactionOutcome.PUBLISHED,
        snapshot=None if published is None else published.snapshot,
        created_at=None if published is None else published.created_at,
        compacted=tuple(
            _row(one, _bytes(merged, number), is_damaged=number in merged.damaged) for number, one in enumerate(merges)
        ),
        tasks=0 if published is None else len(published.made_tasks),
        downloaded_bytes=merged.downloaded_bytes,
        written_bytes=merged.written_bytes,
        findings=tuple(merged.findings),
        warnings=() if published is None else published.warnings,
        seconds=time.monotonic() - began,
    )


def _by_task(merges: Sequence[Merge], merged: Merged) -> Mapping[str, Sequence[Compaction]]:
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
