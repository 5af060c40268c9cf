"""Lists the changelog partitions that stores would be rebuilt from, and doubts that need a person's approval.

A rebuild replaces local state by what the brokers have. Another cluster may have topics of the same names, and a topic
may have been emptied. So a repair plan names the topic ids, its id changes with them, and a rebuild that would lose
rows is done only if that exact plan was approved.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable, Iterator, Mapping, Sequence

from statecore.changelog.cluster import Cluster
from statecore.doctor.findings import Finding
from statecore.doctor.repair_plan import Rebuild
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.statedir.store_places import declared_at

_EMPTY, _MISSING = "which has no record", "which does not exist"
_OF_ANOTHER_LOG = frozenset({"offset-past-end", "partition-unknown", "topic-recreated"})


def logs_of(spec: ApplicationSpec, rebuilds: Sequence[Rebuild]) -> Mapping[Rebuild, tuple[str, ...]]:
    """Descriptions of the logs of each rebuild; they change only if a topic is recreated or emptied."""
    if not rebuilds:
        return {}
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
