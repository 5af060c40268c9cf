"""Plan of the rebuilds of a repair: the logs that they read, and doubts that need a person's approval."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from statecore.doctor.checks.stray_files import IGNORED
from statecore.doctor.finding_catalog import Repair
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView
from statecore.doctor.logged_store_offsets import database_paths
from statecore.doctor.repair_plan import Rebuild
from statecore.formats.kinds import WINDOWED_KINDS
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.store_places import declared_at

_EMPTY, _MISSING = "which has no record", "which does not exist"
_SHORTENED = "whose first records were deleted"
_OF_ANOTHER_LOG = frozenset({"offset-past-end", "partition-unknown", "topic-recreated"})
_MISPLACED = "segment-misplaced"
_SPEC_MAY_BE_WRONG = {
    _MISPLACED: "each of its tasks has segments with the name of another time. If its retention in the spec is wrong, "
    "a rebuild gives all segments names that the application does not look for.",
    "kind-mismatch": "it is of another kind in each of its tasks. If its kind in the spec is wrong, a rebuild replaces "
    "rows that are right by rows that the application cannot read, or reads wrongly.",
}
"""Findings that show a wrong spec where all tasks of a store have them, and the doubt about a rebuild then."""

_ROWS_DIFFER = "rows-differ"
"""Either the store or its log is wrong, and a backup of the directory may have the same rows."""


def logs_of(
    spec: ApplicationSpec,
    rebuilds: Sequence[Rebuild],
    application: Path,
    stores: Sequence[StoreView],
    timeout: float,
    compare_time: float,
) -> Mapping[Rebuild, tuple[str, ...]]:
    """Descriptions of the logs of each rebuild; they change only if a topic is recreated, emptied or shortened.

    Args:
        application: the directory of its tasks.
        stores: the stores in it.
        compare_time: how long rows may be looked for in logs whose first records were deleted, in seconds.
    """
    if not rebuilds:
        return {}
    databases = {(view.task, view.store): database_paths(application, view) for view in stores}
    from statecore.changelog.cluster import Cluster
    from statecore.changelog.reader import ChangelogReader, ReaderOptions
    from statecore.doctor.changelog_comparison import ReadLimits
    from statecore.doctor.deleted_records import is_row_deleted

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
        reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=timeout))
        limits = ReadLimits(time.monotonic() + compare_time)
        shortened = {
            (one, at)
            for (one, _), of in partitions.items()
            for at in of
            for task, store in _stores_of(spec, one, at)
            if is_row_deleted(
                reader, at, logs[at], store.kind, _retention_ms(store), databases.get((task, store.name), ()), limits
            )
        }

    def descriptions(one: Rebuild, topic: str) -> Iterator[str]:
        if topic not in existing:
            yield f"{topic}, {_MISSING}"
        for at in partitions.get((one, topic), ()):
            is_empty = logs[at].log_start == logs[at].log_end
            lacks = f", {_EMPTY}" if is_empty else f", {_SHORTENED}" if (one, at) in shortened else ""
            yield f"{at} of topic {described[topic].topic_id}{lacks}"

    return {one: tuple(log for topic in of for log in descriptions(one, topic)) for one, of in topics.items()}


def _declared(spec: ApplicationSpec, rebuild: Rebuild) -> Iterator[tuple[str, StoreSpec]]:
    """The logged stores of a rebuild, with their tasks."""
    for task in rebuild.tasks:
        for name in rebuild.stores:
            if (store := declared_at(spec, task, name)) is not None and store.is_logged:
                yield task, store


def _topics(spec: ApplicationSpec, rebuild: Rebuild) -> tuple[str, ...]:
    return tuple(sorted({store.changelog for _, store in _declared(spec, rebuild)}))


def _stores_of(spec: ApplicationSpec, rebuild: Rebuild, at: TopicPartition) -> Iterator[tuple[str, StoreSpec]]:
    """The stores of a rebuild that are rebuilt from a partition, with their tasks."""
    for task, store in _declared(spec, rebuild):
        if store.changelog == at.topic and TaskId.parse(task).partition in (None, at.partition):
            yield task, store


def _retention_ms(store: StoreSpec) -> int | None:
    """The retention of rows whose records expire, too; ``None`` for a store whose changelog is only compacted."""
    return store.retention_ms if store.kind in WINDOWED_KINDS else None


def doubts_about(
    rebuild: Rebuild, logs: Iterable[str], findings: Sequence[Finding], stores: Sequence[StoreView]
) -> tuple[str, ...]:
    """Reasons for a person to check a rebuild before it is done, one sentence each; none if nothing can be lost.

    Args:
        findings: all of the directory.
        stores: all that were inspected.
    """
    names, every = ", ".join(rebuild.stores), tuple(logs)
    empty = [log for log in every if log.endswith((_EMPTY, _MISSING))]
    what = f"{names}: it is"
    if len(empty) < len(every):  # other partitions have records
        what = f"the part of {names} that is"
    nothing = [f"No rows would remain of {what} rebuilt from {log}." for log in empty]
    shortened = [
        f"Rows of {names} may have no record any more: they would be lost with a rebuild from {log}."
        for log in every
        if log.endswith(_SHORTENED)
    ]
    found = [one for one in findings if one.task in rebuild.tasks and one.store in rebuild.stores]
    explained = {(one.task, one.store) for one in found if one.repair is Repair.REBUILD and one.code != _ROWS_DIFFER}
    others = [
        f"{one.task}/{one.store}: {one.what.rstrip('.')}."
        for one in found
        if one.code in _OF_ANOTHER_LOG or (one.code == _ROWS_DIFFER and (one.task, one.store) not in explained)
    ]
    of_spec = [
        f"{name}: {doubt}"
        for name in rebuild.stores
        for code, doubt in _SPEC_MAY_BE_WRONG.items()
        if _is_of_every_task(code, name, rebuild, findings, stores)
    ]
    kinds = [
        f"{name}: each of its tasks has it in {place}, where a store of the declared kind is not. If its kind in the "
        "spec is wrong, a rebuild takes the place of a sound store."
        for name in rebuild.stores
        if (place := _other_place(name, rebuild, findings, stores))
    ]
    return (*nothing, *shortened, *of_spec, *kinds, *others)


def _other_place(name: str, rebuild: Rebuild, findings: Sequence[Finding], stores: Sequence[StoreView]) -> str:
    """The directory that a store has in all its tasks, if it is the place of another kind; else empty."""
    subtopology = TaskId.parse(rebuild.tasks[0]).subtopology
    own = (one for one in stores if one.store == name and TaskId.parse(one.task).subtopology == subtopology)
    if any(database.rows != 0 for one in own for database in one.databases):
        return ""
    notes = (one for one in findings if (one.code, one.store) == ("store-undeclared", name))
    return next(
        (str(one.evidence[IGNORED]) for one in notes if one.task in rebuild.tasks and IGNORED in one.evidence), ""
    )


def _is_of_every_task(
    code: str, name: str, rebuild: Rebuild, findings: Sequence[Finding], stores: Sequence[StoreView]
) -> bool:
    """Whether all tasks in which a store has rows have a finding, so that the spec may be wrong and the store right.

    A database that was placed wrongly is one of a single task. Where there is one task, findings of segments count if
    all segments with rows have them.
    """
    subtopology = TaskId.parse(rebuild.tasks[0]).subtopology
    rows = {
        one.task: {database.name for database in one.databases if database.rows}
        for one in stores
        if one.store == name and one.rows and TaskId.parse(one.task).subtopology == subtopology
        if code != _MISPLACED or one.kind in WINDOWED_KINDS
    }
    found: dict[str, set[str]] = {}
    for one in findings:
        if one.code == code and one.store == name and one.task in rows:
            found.setdefault(one.task, set()).update([one.segment] if one.segment else rows[one.task])
    return (
        bool(rows)
        and found.keys() == rows.keys()
        and (len(rows) > 1 or all(found[task] >= rows[task] for task in rows))
    )


def repository_for(rebuild: Rebuild, repository: str | None) -> str | None:
    """The repository whose snapshots a rebuild may start from; ``None`` if it reads the changelogs alone."""
    return None if _ROWS_DIFFER in rebuild.codes else repository
