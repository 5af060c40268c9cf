"""The last checkpoint of an application: when it was made, whether another followed, up to when it is complete.

The first two are read from the entries of its head; snapshots that a compaction made are no checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from statecore.errors import Reason, StatecoreError
from statecore.jobs.attempt import made_at_ms, parsed_time
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.jobs.read_report import ReadReport
from statecore.metrics import CheckpointMetrics
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Origin, SnapshotEntry
from statecore.spec.model import DEFAULT_CHECKPOINT_INTERVAL_MS

NO_SNAPSHOT = "none"
"""Stands for "no snapshot" in place of an id."""


def last_made(entries: Sequence[SnapshotEntry]) -> SnapshotEntry | None:
    """The newest snapshot that is no compaction; ``entries`` are newest first."""
    return next((one for one in entries if one.origin != Origin.COMPACTION), None)


def made_since(entries: Sequence[SnapshotEntry], last_snapshot: str | None) -> Reason | None:
    """Reason not to checkpoint if another job has made one since the check; ``None`` if none has."""
    last = last_made(entries)
    if last is None or last_snapshot in (None, last.snapshot):
        return None
    return Reason(
        f"Nothing was done: since this was found to be due, {last.snapshot} was made at {last.created_at}.",
        "made-by-another",
        snapshot=last.snapshot,
        created_at=last.created_at,
    )


def made_ms(entries: Sequence[SnapshotEntry], interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS) -> int | None:
    """When the newest snapshot that is no compaction was made, in ms since the epoch; ``None`` if there is none."""
    entry = last_made(entries)
    return None if entry is None else made_at_ms(entry.created_at, entry.read_at_ms, interval_ms)


def record_checkpoint(metrics: CheckpointMetrics, request: CheckpointRequest, report: object, interval_ms: int) -> None:
    """Set the metrics of a checkpoint that succeeded; a plan is none, and asking the repository takes time."""
    if metrics.is_exported and isinstance(report, ReadReport):
        metrics.record_success(complete_until(report, request), interval_ms / 1000)


def complete_until(report: ReadReport, request: CheckpointRequest) -> float | None:
    """When the newest snapshot was last known to be complete, in s since the epoch; ``None`` if unknown."""
    everything = report.plan_id and not (request.stores or request.partitions)
    behind = any(store.tail_left for store in report.stores)
    began = parsed_time(report.started)
    # The ends of the changelogs were read after the start, unless an earlier try had read them.
    if (
        report.published is None
        and everything
        and not behind
        and began is not None
        and RESUMED_NOTE not in report.notes
    ):
        return began.timestamp()
    try:
        newest = ApplicationRepository.open(request.repository, report.application_id).head().snapshots[0]
    except StatecoreError:  # the checkpoint has succeeded, and does not fail because of its metrics
        return None
    return None if newest.read_at_ms is None else newest.read_at_ms / 1000
