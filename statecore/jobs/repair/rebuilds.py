"""Rebuilds of a repair: the logs that they read, doubts that need a person's approval, and the restore of each.

The request id of the restore is that of the repair with a suffix, so a retry continues with what it has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from statecore.doctor.finding_catalog import Repair
from statecore.doctor.findings import Finding
from statecore.doctor.repair_plan import Rebuild
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.job import Job
from statecore.jobs.read_report import ReadReport
from statecore.jobs.repair.report import RebuiltStores
from statecore.jobs.restore.request import CHEAPEST, NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spec.model import ApplicationSpec
from statecore.statedir.replaced_tasks import replaced_in
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import declared_at

_EMPTY, _MISSING = "which has no record", "which does not exist"
_OF_ANOTHER_LOG = frozenset({"offset-past-end", "partition-unknown", "topic-recreated"})
_ROWS_DIFFER = "rows-differ"
"""Either the store or its log is wrong, and a backup of the directory may have the same rows."""


def logs_of(spec: ApplicationSpec, rebuilds: Sequence[Rebuild], timeout: float) -> Mapping[Rebuild, tuple[str, ...]]:
    """Descriptions of the logs of each rebuild; they change only if a topic is recreated or emptied."""
    if not rebuilds:
        return {}
    from statecore.changelog.cluster import Cluster

    topics = {one: _topics(spec, one) for one in rebuilds}
    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=timeout) as cluster:
        existing = {topic for of in topics.values() for topic in of} & set(cluster.list_topics())
        described = cluster.describe_topics(existing)
        partitions = {
            (one, topic): [
                TopicPartition(topic, number)
                for number in one.partitions or range(described[topic].partitions)
                if number < described[topic].partitions
            ]
            for one, of in topics.items()
            for topic in of
            if topic in existing
        }
        logs = cluster.log_offsets({at for of in partitions.values() for at in of})

    def descriptions(one: Rebuild, topic: str) -> Iterator[str]:
        if topic not in existing:
            yield f"{topic}, {_MISSING}"
        for at in partitions.get((one, topic), ()):
            empty = f", {_EMPTY}" if logs[at].log_start == logs[at].log_end else ""
            yield f"{at} of topic {described[topic].topic_id}{empty}"

    return {one: tuple(log for topic in of for log in descriptions(one, topic)) for one, of in topics.items()}


def _topics(spec: ApplicationSpec, rebuild: Rebuild) -> tuple[str, ...]:
    declared = (declared_at(spec, task, store) for task in rebuild.tasks for store in rebuild.stores)
    return tuple(sorted({one.changelog for one in declared if one is not None and one.is_logged}))


def doubts_about(rebuild: Rebuild, logs: Iterable[str], findings: Iterable[Finding]) -> tuple[str, ...]:
    """Reasons for a person to check a rebuild before it is done, one sentence each; none if nothing can be lost."""
    stores, every = ", ".join(rebuild.stores), tuple(logs)
    empty = [log for log in every if log.endswith((_EMPTY, _MISSING))]
    what = f"{stores}: it is"
    if len(empty) < len(every):  # other partitions have records
        what = f"the part of {stores} that is"
    nothing = [f"No rows would remain of {what} rebuilt from {log}." for log in empty]
    found = [one for one in findings if one.task in rebuild.tasks and one.store in rebuild.stores]
    explained = {(one.task, one.store) for one in found if one.repair is Repair.REBUILD and one.code != _ROWS_DIFFER}
    others = [
        f"{one.task}/{one.store}: {one.what.rstrip('.')}."
        for one in found
        if one.code in _OF_ANOTHER_LOG or (one.code == _ROWS_DIFFER and (one.task, one.store) not in explained)
    ]
    return (*nothing, *others)


def repository_for(rebuild: Rebuild, repository: str | None) -> str | None:
    """The repository whose snapshots a rebuild may start from; ``None`` if it reads the changelogs alone."""
    return None if _ROWS_DIFFER in rebuild.codes else repository


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
