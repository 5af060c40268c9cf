"""Build the report of a checkpoint, which is that of a restore without a state directory."""

from __future__ import annotations

from statecore.jobs.attempt import utc_now
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.checkpoint.tails import Tails
from statecore.jobs.pipeline.read_stage import NOTHING_READ
from statecore.jobs.restore.report import RestoreReport
from statecore.jobs.restore.report_stores import job_report
from statecore.repository.publication import Published


def checkpoint_report(
    job: CheckpointJob, tails: Tails | None, notes: tuple[str, ...], published: Published | None
) -> RestoreReport:
    """The report of a checkpoint, which had nothing to do without tails. Tells the operator the warnings."""
    warnings = () if published is None else published.warnings
    for warning in warnings:
        job.say(f"warning: {warning}")
    return job_report(
        job,
        None if tails is None else tails.planned.plan,
        NOTHING_READ if tails is None else tails.read,
        parts={} if tails is None else {key: (one.part,) for key, one in tails.compared.items()},
        notes=(*notes, *warnings),
        placed=False,
        finished=utc_now(),
        repository=job.repository.url,
        published=published,
    )
