"""Rebuilds of a repair: the restore of each, and what it replaced.

The request id of the restore is that of the repair with a suffix, so a retry continues with what it has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

from statecore.doctor.repair_plan import Rebuild
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.job import Job
from statecore.jobs.read_report import ReadReport
from statecore.jobs.repair.rebuild_plan import repository_for
from statecore.jobs.repair.report import RebuiltStores
from statecore.jobs.restore.request import CHEAPEST, NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.statedir.replaced_tasks import replaced_in
from statecore.statedir.state_directory import StateDirectory


def rebuild(job: Job, engine: Engine, directory: StateDirectory, one: Rebuild, planned: RebuiltStores) -> RebuiltStores:
    """Rebuild stores of some tasks by a restore that replaces them, below the lock of the repair."""
    before, repair = set(replaced_in(directory)), job.context.request
    repository = repository_for(one, repair.repository)
    job.say(f"{', '.join(one.stores)} in {', '.join(one.tasks)}: to be rebuilt")
    request = RestoreRequest(
        spec_path=repair.spec_path,
        state_dir=repair.state_dir,
        stores=one.stores,
        partitions=one.partitions,
        replace=True,
        repository=repository,
        start_from=NOTHING if repository is None else CHEAPEST,
        request_id=f"{repair.request_id}-{_name_of(one)}",
        owner=repair.owner,
        timeout=repair.timeout,
    )
    report = run_restore(
        request, engine, job.progress, faults=job.faults, say=job.say, repairs=True, shared_directory=directory
    )
    assert isinstance(report, ReadReport)
    job.faults.reach("repair.after-rebuild")
    kept = ", ".join(str(path) for path in replaced_in(directory) if path not in before)
    rows = sum(max(store.rows, 0) for store in report.stores)  # -1 for stores restored by Kafka Streams
    bases = tuple(sorted({store.base for store in report.stores} - {""}))
    return replace(planned, rows=rows, bases=bases, kept=kept, seconds=report.seconds)


def _name_of(one: Rebuild) -> str:
    """A stable name for stores and tasks, so that a retry finds what was read for them."""
    return hashlib.sha256(repr((one.stores, one.tasks)).encode()).hexdigest()[:8]


def kept_by_others(directory: StateDirectory, ours: Collection[str]) -> list[str]:
    """Replaced directories that other jobs keep, or a killed attempt of this one."""
    return [str(path) for path in replaced_in(directory) if str(path) not in ours]
