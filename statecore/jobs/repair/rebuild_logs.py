"""What stores would be rebuilt from: the partitions of logs as they are now, and what makes a person look first.

A rebuild replaces what is there by what the brokers have. Brokers of another cluster may have topics of the same name,
and a topic may have been emptied; so the plan of a repair says of which topics it is, its id changes with them, and one
that would make less of a store than there was is done only when that very plan was approved.
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

_EMPTY, _NOWHERE = "which has no record", "which there is not"
_OF_ANOTHER_LOG = frozenset({"offset-past-end", "partition-unknown", "topic-recreated"})


def logs_of(spec: ApplicationSpec, rebuilds: Sequence[Rebuild]) -> Mapping[Rebuild, tuple[str, ...]]:
    """The logs of each rebuild in words that change only when a topic is made anew, or has no record any more.

    Args:
        spec: what is declared.
        rebuilds: what would be rebuilt.

    Raises:
        Retryable: the brokers did not answer.
        Invalid: they may not be asked.
    """
    if not rebuilds:
        return {}
    topics = {one: _topics(spec, one) for one in rebuilds}
    with Cluster(spec.bootstrap_servers, spec.kafka) as cluster:
        there = {topic for of in topics.values() for topic in of} & set(cluster.list_topics())
        described = cluster.describe_topics(there)
        partitions = {
            (one, topic): [
                TopicPartition(topic, number)
                for number in one.partitions or range(described[topic].partitions)
                if number < described[topic].partitions
            ]
            for one, of in topics.items()
            for topic in of
            if topic in there
        }
        logs = cluster.log_offsets({at for of in partitions.values() for at in of})

    def said(one: Rebuild, topic: str) -> Iterator[str]:
        if topic not in there:
            yield f"{topic}, {_NOWHERE}"
        for at in partitions.get((one, topic), ()):
            empty = f", {_EMPTY}" if logs[at].log_start == logs[at].log_end else ""
            yield f"{at} of topic {described[topic].topic_id}{empty}"

    return {one: tuple(log for topic in of for log in said(one, topic)) for one, of in topics.items()}


def _topics(spec: ApplicationSpec, rebuild: Rebuild) -> tuple[str, ...]:
    declared = (declared_at(spec, task, store) for task in rebuild.tasks for store in rebuild.stores)
    return tuple(sorted({one.changelog for one in declared if one is not None and one.is_logged}))


def doubts_about(rebuild: Rebuild, logs: Iterable[str], findings: Iterable[Finding]) -> tuple[str, ...]:
    """Why a person is to look at a rebuild before it is done, in a sentence each; none for one that only wins.

    Args:
        rebuild: it.
        logs: its logs, of :func:`logs_of`.
        findings: what was found in the directory.
    """
    stores, every = ", ".join(rebuild.stores), tuple(logs)
    empty = [log for log in every if log.endswith((_EMPTY, _NOWHERE))]
    what = f"{stores}: it is"
    if len(empty) < len(every):  # other partitions have records
        what = f"the part of {stores} that is"
    nothing = [f"Nothing would be left of {what} rebuilt from {log}." for log in empty]
    others = [
        f"{one.task}/{one.store}: {one.what.rstrip('.')}."
        for one in findings
        if one.code in _OF_ANOTHER_LOG and one.task in rebuild.tasks and one.store in rebuild.stores
    ]
    return (*nothing, *others)
