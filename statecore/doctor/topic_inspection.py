"""Findings of a state directory that need the brokers: whether its offsets belong to the existing logs.

The directory is inspected before the brokers are asked, so that offsets of a running application do not seem to be past
the end. A few requests cover all partitions; then single logs are read, one partition after the other, where that can
decide something and time is left (:mod:`statecore.doctor.store_logs`).

Brokers that cannot be asked are an error. Questions that they cannot decide are in ``undecided``.
"""

from __future__ import annotations

import statecore.extras.pipeline

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import all_committed_offsets, committed_offsets
from statecore.changelog.model import TopicDescription
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.doctor.changelog_comparison import ReadLimits
from statecore.doctor.checks.damage import check_grace_buffer
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import Inspection
from statecore.doctor.logged_store_offsets import LoggedStoreOffsets, logged_store_offsets
from statecore.doctor.store_logs import StoreLogs
from statecore.doctor.topic_findings import (
    AbsentStore,
    BrokerAnswers,
    blame_checkpoint_file,
    existing_partitions,
    findings_beyond_stores,
    findings_of_absent,
    findings_of_offsets,
    findings_of_positions,
    grown_inputs,
    source_partitions,
)
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.progress import NullProgress, Progress
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, ProcessingGuarantee, is_source

_FETCH_BYTES = 1 << 20


class TopicsInspection(NamedTuple):
    """Result of inspecting the topics of a directory.

    Attributes:
        undecided: a sentence for each question that could not be decided, with its stores.
    """

    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]


class Brokers:
    """Asks the brokers about an inspected directory, for :func:`statecore.doctor.diagnosis.diagnose_directory`."""

    def __init__(
        self,
        bootstrap_servers: str,
        spec: ApplicationSpec | None,
        guarantee: ProcessingGuarantee | None = None,
        *,
        timeout: float = 30.0,
        compare_time: float = 60.0,
        patient: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._servers, self._spec, self._guarantee, self._patient = bootstrap_servers, spec, guarantee, patient
        self._timeout, self._compare_time, self._progress = timeout, compare_time, progress or NullProgress()
        self.failed: StatecoreError | None = None

    def __call__(self, inspection: Inspection) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Findings by the topics, and undecided questions. Raises as :func:`inspect_topics`."""
        kafka = {} if self._spec is None else self._spec.kafka
        self._progress.phase(f"ask the brokers at {self._servers}")
        try:
            inspected = inspect_topics(
                inspection,
                self._servers,
                kafka,
                spec=self._spec,
                guarantee=self._guarantee,
                timeout=self._timeout,
                compare_time=self._compare_time,
            )
            self._progress.done()
            return inspected
        except StatecoreError as error:
            self._progress.done("failed")
            if not self._patient:
                error.action = f"{error.action} Or run without brokers: --offline."
                raise
            self.failed = error
            return (), (f"The brokers could not be asked: [{error.code}] {error}",)


def inspect_topics(
    inspection: Inspection,
    bootstrap_servers: str,
    kafka: Mapping[str, Any] = {},
    *,
    spec: ApplicationSpec | None = None,
    guarantee: ProcessingGuarantee | None = None,
    timeout: float = 30.0,
    compare_time: float = 60.0,
    clock: Callable[[], float] = time.time,
) -> TopicsInspection:
    """Compare the offsets of a directory with the topics, and for ``compare_time`` seconds its rows."""
    stores = logged_store_offsets(inspection, spec)
    absent = [] if spec is None else _absent_stores(inspection, spec)
    guarantee = guarantee if spec is None else spec.processing_guarantee
    with Cluster(bootstrap_servers, kafka, timeout=timeout) as cluster:
        answers = query_brokers(cluster, inspection.application_id, stores, [one.partition for one in absent])
        answers, denied = _with_group(cluster, inspection, stores, answers)
        alone = [one for store in stores if (one := store.without_file) is not None]
        reader = ChangelogReader(cluster, ReaderOptions(fetch_bytes=_FETCH_BYTES, stall_timeout=timeout))
        logs = StoreLogs(reader, answers, guarantee, ReadLimits(time.monotonic() + compare_time), int(clock() * 1000))
        found = _compare(stores, logs)
        if alone:
            found = blame_checkpoint_file(found, alone, _compare(alone, logs))
        found += _restored_buffers(inspection, found)
        found += findings_of_absent(absent, answers.topics)
        found += findings_beyond_stores(stores, answers, absent)
        ahead = {(one.task, one.partition) for one in found if one.code == "source-ahead"}
        positions = {of: last for of, last in _positions(inspection).items() if of not in ahead}
        of_inputs, unknown = findings_of_positions(positions, answers)
        found += of_inputs
    return TopicsInspection(tuple(found), (*logs.undecided, *denied, *unknown))


def _with_group(
    cluster: Cluster, inspection: Inspection, stores: Sequence[LoggedStoreOffsets], answers: BrokerAnswers
) -> tuple[BrokerAnswers, list[str]]:
    """The answers with what the group has committed and its topics, and sentences about what is not known.

    A running application may not have committed yet.
    """
    if inspection.holder is not None or not any(store.known and not store.is_global for store in stores):
        return answers, []
    try:
        answers = replace(answers, group=all_committed_offsets(cluster, inspection.application_id))
    except Invalid as error:
        return answers, [f"Whether the application's group has committed offsets is not known: {error}"]
    group = answers.group or {}
    try:
        more = _described(cluster, {partition.topic for partition in group} - answers.topics.keys())
    except Invalid:  # this client may not describe the inputs
        return answers, []
    topics = {**answers.topics, **more}
    inputs = [one for one in group if one.topic in topics and one.partition < topics[one.topic].partitions]
    try:
        # Also of those that were asked before: what the group has committed since may be after that end.
        logs = cluster.log_offsets(sorted(inputs))
    except (Invalid, NotFound, Retryable) as error:
        return answers, [f"Whether the application's group is within its inputs is not known: {error}"]
    answers = replace(answers, topics=topics, logs={**answers.logs, **logs})
    return answers, grown_inputs(stores, answers)


def _positions(inspection: Inspection) -> dict[tuple[str, TopicPartition], int]:
    """Task and input partition → greatest offset that a store has applied.

    Of a store that was not closed it may be ahead of what the application has committed.
    """
    found: dict[tuple[str, TopicPartition], int] = {}
    for view in inspection.stores:
        if view.task == GLOBAL or view.in_use or not (view.closed or view.transactional):
            continue
        for one in view.readable:
            for topic, offsets in one.state.position.items():
                for number, offset in offsets.items():
                    at = view.task, TopicPartition(topic, number)
                    found[at] = max(offset, found.get(at, offset))
    return found


def _absent_stores(inspection: Inspection, spec: ApplicationSpec) -> list[AbsentStore]:
    """The declared stores with a changelog of which an inspected task has no directory, such as stores in memory."""
    there = {(view.task, view.store) for view in inspection.stores}
    return [
        AbsentStore(task, store, of.partition_of(store.changelog), is_source(spec, store))
        for task in sorted(inspection.whole_tasks)
        if (of := TaskId.match(task)) is not None and not of.is_global
        for store in spec.stores_of(task)
        if store.is_logged
        and not store.is_undecided
        and store.changelog != UNKNOWN_CHANGELOG
        and (task, store.name) not in there
    ]


def _compare(stores: Sequence[LoggedStoreOffsets], logs: StoreLogs) -> list[Finding]:
    """Findings by the offsets, and by the logs themselves where offsets fit."""
    answers = logs.answers
    named = {(store.task, store.store): store for store in stores}
    found = [
        logs.with_rows(named[one.task, one.store], one) for one in findings_of_offsets(stores, answers, logs.guarantee)
    ]
    reported = {(one.task, one.store, one.partition) for one in found if one.partition is not None}
    for store in stores:
        for partition in store.known:
            if partition in answers.logs and (store.task, store.store, partition) not in reported:
                found += logs.findings(store, partition)
    return found


_OUT_OF_RANGE = frozenset({"offset-past-end", "offset-before-start"})
"""With such an offset of one store Kafka Streams restores all stores of its task from nothing, whatever the guarantee.
"""


def _restored_buffers(inspection: Inspection, found: Sequence[Finding]) -> list[Finding]:
    """Findings of grace buffers that the next start restores because the log of some store lacks its offset."""
    restored = {one.task for one in found if one.code in _OUT_OF_RANGE}
    return [
        finding
        for view in inspection.stores
        if view.task in restored and not any(one.code == "grace-buffer-miskeyed" for one in view.findings)
        for finding in check_grace_buffer(view, is_wiped=True)
    ]


def query_brokers(
    cluster: Cluster,
    application_id: str,
    stores: Sequence[LoggedStoreOffsets],
    absent: Sequence[TopicPartition],
) -> BrokerAnswers:
    """Ask the brokers about all topics that some stores name, and those of ``absent`` stores."""
    named = (partition for store in stores for partition in store.partitions)
    topics = _described(cluster, {partition.topic for partition in (*named, *absent)})
    asked = existing_partitions(stores, topics)
    logs = cluster.log_offsets(asked)
    return BrokerAnswers(topics, logs, committed_offsets(cluster, application_id, source_partitions(stores, asked)))


def _described(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicDescription]:
    wanted = set(names)
    try:
        return cluster.describe_topics(wanted)
    except NotFound as error:
        there = wanted - set(error.context["topics"])
    return cluster.describe_topics(there)
