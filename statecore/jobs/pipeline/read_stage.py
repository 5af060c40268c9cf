"""Stage one of a job: read the changelogs of a plan into runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from statecore.jobs.bases.base import Base, Key
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Workers
from statecore.jobs.pipeline.range_tasks import ClusterSettings, RangeResult
from statecore.jobs.pipeline.run_sink import ApplicationAddress
from statecore.jobs.pipeline.stages import publish_rows, read_runs
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.jobs.pipeline.version_tasks import VersionResult
from statecore.jobs.planning.plan import RestorePlan


class ReadResult(NamedTuple):
    """Results of the tasks that read changelogs.

    Attributes:
        runs: (task, store) → results of its ranges, in the order they are applied.
        versions: (task, store) → the rows of versioned stores, if published.
    """

    runs: Mapping[Key, tuple[RangeResult, ...]]
    versions: Mapping[Key, VersionResult]


NOTHING_READ = ReadResult({}, {})


def cluster_settings(context: JobContext[Any]) -> ClusterSettings:
    """How workers connect to the brokers."""
    return ClusterSettings(context.spec.bootstrap_servers, context.spec.kafka, context.timeout)


def read_changelogs(
    context: JobContext[Any],
    workers: Workers,
    plan: RestorePlan,
    bases: Mapping[Key, Base],
    place: StagingPlace,
    *,
    uploads: bool,
) -> ReadResult:
    """Read the ranges of a plan; ``uploads`` if the runs go into the repository."""
    settings, budget, progress = cluster_settings(context), context.request.memory_budget, context.progress
    address = ApplicationAddress(context.repository.url, context.application_id) if uploads else None
    runs = read_runs(workers, plan, settings, place, budget, progress, address, bases)
    return ReadResult(runs, publish_rows(workers, plan, runs, place, address, budget, progress))
