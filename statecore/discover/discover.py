"""Writes the first spec of an application from its topics, topology and state directory, with notes on guesses.

Topics alone do not show subtopology numbers, so a topology or a state directory is needed; with both, the topology has
the stores and the directory their kinds. The topology is the text of ``Topology.describe()``, or the brokers'
description of a streams group (:mod:`statecore.discover.topology`). Unknown kinds are written as ``?``, which
``restore`` refuses until a person decides: a plain and a timestamped changelog look alike, and a store built as the
wrong one is read wrongly, without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import committed_offsets
from statecore.changelog.model import IsolationLevel, OffsetRange, TopicDescription
from statecore.changelog.reader import ChangelogReader
from statecore.changelog.streams_groups import StreamsGroup
from statecore.discover.answers import NO_ANSWERS, Answers
from statecore.discover.changelog_sample import Sample, sample_changelog
from statecore.discover.directory_stores import DirectoryStore, find_directory_stores
from statecore.discover.kind_inference import Decision, decide_kind
from statecore.discover.spec_draft import DraftFactory, Notes, OpenStore
from statecore.discover.topology import GroupTopology, Subtopology, parse_topology, topology_of
from statecore.errors import Invalid, NotFound
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.statedir.state_directory import StateDirectory

_CHECKED_FOR_MARKERS = 8
_DEFAULT_FORMAT = (
    "Stores that the DSL created and named itself are written in the default format. An application with "
    "dsl.store.format=HEADERS opens them too, restores nothing and converts rows that it touches."
)


class Discovery(NamedTuple):
    """A discovered spec, and the notes to it."""

    spec: ApplicationSpec
    notes: Notes


def discover(
    cluster: Cluster,
    application_id: str,
    *,
    state_dir: Path | None = None,
    topology_text: str | None = None,
    topology_source: str = "The topology",
    group: StreamsGroup | None = None,
    processing_guarantee: ProcessingGuarantee | None = None,
    transactional_state_stores: bool = False,
    kafka_declared: Mapping[str, Any] | None = None,
    dsl_store_format: str | None = None,
    answers: Answers = NO_ANSWERS,
    ask: Callable[[Sequence[OpenStore]], Answers] | None = None,
    reader: ChangelogReader | None = None,
) -> Discovery:
    """Find the stores of an application."""
    if state_dir is None and topology_text is None and group is None:
        raise Invalid(
            "Neither a topology nor a state directory was given; topics alone do not show subtopology numbers.",
            code="option-missing",
            action="Give --topology with the text of Topology.describe(), or --state-dir, or both.",
        )
    of_group = GroupTopology()
    if topology_text is None and group is not None:
        of_group = topology_of(group, required=state_dir is None)
    subtopologies = of_group.subtopologies if topology_text is None else parse_topology(topology_text, topology_source)
    found = find_directory_stores(StateDirectory(state_dir, application_id)) if state_dir is not None else []
    topics = set(cluster.list_topics())
    store_decisions = _StoreDecisions(cluster, application_id, topics, found, subtopologies, dsl_store_format, reader)
    notes, decisions = store_decisions.decide(answers)
    if not decisions:
        raise NotFound(
            f"No store of {application_id} was found in {' or '.join(_sources(state_dir, subtopologies))}.",
            code="application-without-stores",
            action="Check the application id, and that topology or state directory are those of this application.",
            application_id=application_id,
        )
    _refuse_unknown(cluster, application_id, topics, found, subtopologies)
    if notes.open and ask is not None:
        notes, decisions = store_decisions.decide(answers.merged(ask(notes.open)))
    every = [decision.store for decision in decisions]
    notes.general[:0] = of_group.remarks
    stores = [store for store in every if not store.is_global]
    global_stores = [store for store in every if store.is_global]
    _note_leftovers(application_id, stores, topics, notes)
    guarantee = processing_guarantee or _guarantee(
        reader or ChangelogReader(cluster), cluster, stores, store_decisions.described, notes
    )
    shown = any(store.transactional for store in found)
    if shown and not transactional_state_stores:
        notes.add("transactional_state_stores", "as the directory shows; use the application's own setting")
    notes.general += notes.questions
    if any(decision.default_format for decision in decisions):
        notes.general.append(_DEFAULT_FORMAT)
    spec = ApplicationSpec(
        application_id=application_id,
        bootstrap_servers=cluster.bootstrap_servers,
        processing_guarantee=guarantee,
        stores=tuple(sorted(stores, key=lambda store: (store.subtopology, store.name))),
        global_stores=tuple(sorted(global_stores, key=lambda store: store.name)),
        source="<discovered>",
        kafka_declared=dict(kafka_declared or {}),
        transactional_state_stores=transactional_state_stores or shown,
    )
    return Discovery(spec, notes)


class _StoreDecisions:
    def __init__(
        self,
        cluster: Cluster,
        application_id: str,
        topics: set[str],
        found: list[DirectoryStore],
        subtopologies: list[Subtopology] | None,
        dsl_store_format: str | None,
        reader: ChangelogReader | None,
    ) -> None:
        self.reader = reader
        self.cluster, self.application_id, self.topics = cluster, application_id, topics
        self.found, self.subtopologies, self.dsl_store_format = found, subtopologies, dsl_store_format
        self.described: dict[str, TopicDescription] = {}
        self.samples: dict[str, Sample] = {}

    def decide(self, answers: Answers) -> tuple[Notes, list[Decision]]:
        """Decide all stores with these answers; returns the notes and the decisions."""
        notes = Notes()
        drafts = DraftFactory(self.application_id, self.topics, self.found, notes, answers)
        parts = self.subtopologies
        declared = drafts.of_topology(parts) if parts is not None else drafts.of_directory()
        if declared:
            answers.check({draft.name for draft in declared}, self.topics)
        named = {draft.changelog.topic for draft in declared} & self.topics
        self.described |= self.cluster.describe_topics(named - self.described.keys())
        decisions = [
            decide_kind(
                draft,
                self.described.get(draft.changelog.topic),
                self._sample,
                notes,
                answered_kind=answers.kinds.get(draft.name),
                dsl_store_format=self.dsl_store_format,
            )
            for draft in declared
        ]
        return notes, decisions

    def _sample(self, topic: TopicDescription) -> Sample:
        if topic.name not in self.samples:
            self.samples[topic.name] = sample_changelog(self.cluster, topic, self.reader)
        return self.samples[topic.name]


def _refuse_unknown(
    cluster: Cluster,
    application_id: str,
    topics: set[str],
    found: list[DirectoryStore],
    subtopologies: list[Subtopology] | None,
) -> None:
    """Raise ``NotFound`` if the cluster has no internal topic, store topic or committed offset of the application."""
    of_stores = {topic for store in found for topic in store.topics}
    if of_stores & topics or any(topic.startswith(f"{application_id}-") for topic in topics):
        return
    sources = {topic for part in subtopologies or () for above in part.stores.values() for topic in above} & topics
    parts = [TopicPartition(name, at) for name, one in cluster.describe_topics(sources).items()
             for at in range(one.partitions)]  # fmt: skip
    if not any(offset is not None for offset in committed_offsets(cluster, application_id, parts).values()):
        raise NotFound(
            f"{cluster.bootstrap_servers} has nothing of an application {application_id}: no topic {application_id}-…, "
            "and no offset that its group has committed.",
            code="application-not-found",
            action="Check the application id, upper and lower case too, and that this is its cluster.",
            application_id=application_id,
        )


def _sources(state_dir: Path | None, subtopologies: list[Subtopology] | None) -> list[str]:
    return ([str(state_dir)] if state_dir is not None else []) + (["the topology"] if subtopologies is not None else [])


def _note_leftovers(application_id: str, stores: list[StoreSpec], topics: set[str], notes: Notes) -> None:
    known = {store.changelog for store in stores} | {topic for one in notes.open for topic in one.changelogs}
    for topic in sorted(topics - known):
        if topic.startswith(f"{application_id}-") and topic.endswith("-changelog"):
            notes.general.append(f"No store was found for the topic {topic}: it may be of a longer application id, in "
                                 "memory, of another machine, or left over.")  # fmt: skip


def _guarantee(
    reader: ChangelogReader,
    cluster: Cluster,
    stores: list[StoreSpec],
    topics: Mapping[str, TopicDescription],
    notes: Notes,
) -> ProcessingGuarantee:
    """Exactly-once if a changelog ends with a transaction marker, which only that setting writes."""
    partitions = [
        TopicPartition(store.changelog, partition)
        for store in stores
        if store.changelog.endswith("-changelog") and store.changelog in topics
        for partition in range(topics[store.changelog].partitions)
    ]
    offsets = cluster.log_offsets(partitions)
    filled = [part for part in partitions if offsets[part].log_end > offsets[part].log_start]
    if any(offsets[part].last_stable < offsets[part].log_end for part in filled):
        return ProcessingGuarantee.EXACTLY_ONCE_V2  # a transaction is open right now
    for part in filled[:_CHECKED_FOR_MARKERS]:
        end = offsets[part].log_end
        last = OffsetRange(part.topic, part.partition, end - 1, end)
        if sum(len(batch) for batch in reader.read(last, IsolationLevel.READ_UNCOMMITTED)) == 0:
            return ProcessingGuarantee.EXACTLY_ONCE_V2
    seen = "no changelog ends with a transaction's marker" if filled else "the changelogs are empty"
    notes.add("processing_guarantee", f"a guess, as {seen}; use the application's own setting")
    return ProcessingGuarantee.AT_LEAST_ONCE
