"""When the newest snapshot was known to be complete, after a checkpoint; and the metrics that say so."""

from __future__ import annotations

from statecore.errors import StatecoreError
from statecore.jobs.attempt import parsed_time
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.planning.planned_tails import RESUMED_NOTE
from statecore.jobs.read_report import ReadReport
from statecore.metrics import CheckpointMetrics
from statecore.repository.application_repository import ApplicationRepository


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
