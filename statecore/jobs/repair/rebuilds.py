"""Rebuilds of a repair: the logs they read, doubts that need a person's approval, and what killed attempts left.

A rebuild replaces local state by what the brokers have. Another cluster may have topics of the same names, and a topic
may have been emptied. So a repair plan names the topic ids, its id changes with them, and a rebuild that would lose
rows is done only if that exact plan was approved.

The plan id changes with the directory, so the rest of a plan has another id. The attempt file
(:mod:`statecore.jobs.directory_change`) therefore records what was approved, and a later attempt that would do only a
part of that continues under the same approval.

A rebuild is a restore whose request id is that of the repair with a suffix (:mod:`statecore.jobs.repair.run`). A repair
that is run again inspects the directory anew, may rebuild other stores, and has another request id; so it deletes the
staged rebuilds of killed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.doctor.findings import Finding
from statecore.doctor.repair_plan import Rebuild
from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.history.directory_changes import UnfinishedChange, unfinished_changes
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.planning.request_files import ATTEMPT_SUFFIX, PLAN_SUFFIX, load_plan
from statecore.jobs.repair.report import RebuiltStores, RepairedTask
from statecore.jobs.restore.resume import frozen_plan
from statecore.spec.model import ApplicationSpec
from statecore.statedir.journal import read_record
from statecore.statedir.store_places import declared_at
from statecore.statedir.work_directory import PLANS

_EMPTY, _MISSING = "which has no record", "which does not exist"
_OF_ANOTHER_LOG = frozenset({"offset-past-end", "partition-unknown", "topic-recreated"})


def logs_of(spec: ApplicationSpec, rebuilds: Sequence[Rebuild]) -> Mapping[Rebuild, tuple[str, ...]]:
    """Descriptions of the logs of each rebuild; they change only if a topic is recreated or emptied."""
    if not rebuilds:
        return {}
    from statecore.changelog.cluster import Cluster

    topics = {one: _topics(spec, one) for one in rebuilds}
    with Cluster(spec.bootstrap_servers, spec.kafka) as cluster:
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
    others = [
        f"{one.task}/{one.store}: {one.what.rstrip('.')}."
        for one in findings
        if one.code in _OF_ANOTHER_LOG and one.task in rebuild.tasks and one.store in rebuild.stores
    ]
    return (*nothing, *others)


_PLAN = "plan"


def plan_record(plan_id: str, repaired: Iterable[RepairedTask], rebuilt: Iterable[RebuiltStores]) -> dict[str, Any]:
    """What an attempt file records of a plan: its id, repairs, rebuilds and logs."""
    of_rebuilds = list(rebuilt)
    return {
        _PLAN: {
            "id": plan_id,
            "repaired": [[task.task, step] for task in repaired for step in task.steps],
            "rebuilt": [[task, store] for one in of_rebuilds for task in one.tasks for store in one.stores],
            "logs": [log for one in of_rebuilds for log in one.logs],
        }
    }


def approved_record(
    attempts: Iterable[UnfinishedChange], approved: str, rest: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The record of the approved plan, if an attempt has begun it and only a part of it remains; otherwise ``None``."""
    for one in attempts:
        try:
            plan = read_report(one.file).get(_PLAN)
        except ReportError:
            continue
        if isinstance(plan, dict) and plan.get("id") == approved and _is_part(rest[_PLAN], plan):
            return {_PLAN: plan}
    return None


def _is_part(rest: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    return all(_among(rest[name], plan.get(name) or ()) for name in ("repaired", "rebuilt", "logs"))


def _among(some: Sequence[Any], every: Sequence[Any]) -> bool:
    return all(one in every for one in some)


def discard_placed(work: Path) -> None:
    """Delete the staging of a restore that was killed after its last swap; ``work`` is ``.statecore``."""
    record = read_record(work)
    if record is None or not record.request_id:
        return
    home = DirectoryHome(work, work, record.request_id)
    frozen = frozen_plan(home)
    placed = {entry.task for entry in (*record.tasks, *record.earlier)}
    if frozen is not None and frozen.plan.plan_id and {part.task for part in frozen.plan.partitions} <= placed:
        home.discard(frozen.plan.plan_id)


def discard_rebuilds(work: Path, job: str, keep: str = "") -> None:
    """Delete the staged rebuilds of killed attempts."""
    killed_requests = {one.attempt.request_id for one in unfinished_changes(work) if one.job == job} - {keep}
    for file in (work / PLANS).glob(f"*{PLAN_SUFFIX}"):
        with suppress(Invalid, OSError):
            frozen = load_plan(file)
            if frozen is None or not frozen.plan.plan_id or frozen.request_id.rpartition("-")[0] not in killed_requests:
                continue
            home = DirectoryHome(work, work, frozen.request_id)
            home.discard(frozen.plan.plan_id)
            for suffix in (ATTEMPT_SUFFIX, PLAN_SUFFIX):
                home.forget(suffix)
