"""Writes the first spec of an application, from what can be seen of it, and says what had to be guessed.

Topics alone do not tell subtopology numbers, so the text of ``Topology.describe()`` or a state directory is needed;
with both, the text says what there is and the directory says the kinds. What cannot be known is written as ``?``, which
``restore`` refuses until a person decides: a plain and a timestamped changelog look alike, and a store that is built as
the wrong one is read without an error, wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange, TopicDescription
from statecore.changelog.reader import ChangelogReader
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.survey import FoundStore, survey
from statecore.maintenance.topology import Subtopology, parse_topology
from statecore.runtime.state_directory import StateDirectory
from statecore.spec.duration import format_duration
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.spec.reader import default_changelog

DAY_MS = 86_400_000
"""What Kafka Streams adds to a retention for its changelog (``windowstore.changelog.additional.retention.ms``)."""

_CHECKED_FOR_MARKERS = 8


@dataclass
class Notes:
    """What a person should know of a discovered spec.

    Attributes:
        general: lines above everything.
        beside: comments by store name or top-level key.
    """

    general: list[str] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, remark: str) -> None:
        """Append a remark to what stands beside a name."""
        self.beside[name] = f"{self.beside[name]}; {remark}" if name in self.beside else remark


class Discovery(NamedTuple):
    """What was found: the spec, and the notes to it."""

    spec: ApplicationSpec
    notes: Notes


def discover(
    cluster: Cluster,
    application_id: str,
    *,
    state_dir: Path | None = None,
    topology_text: str | None = None,
    processing_guarantee: ProcessingGuarantee | None = None,
    kafka_declared: Mapping[str, Any] | None = None,
) -> Discovery:
    """Find the stores of an application.

    Args:
        cluster: where its topics are.
        application_id: its ``application.id``.
        state_dir: Kafka Streams' ``state.dir`` on this machine, or
        topology_text: what ``Topology.describe()`` prints; at least one of the two.
        processing_guarantee: the application's own; ``None`` looks whether its changelogs end with commit markers.
        kafka_declared: the client settings to write into the spec, ``${NAME}`` unexpanded.

    Raises:
        Invalid: neither source was given, or the text is no description.
        NotFound: the sources name no store.
        Retryable: no broker answered.
    """
    if state_dir is None and topology_text is None:
        raise Invalid(
            "Neither a topology nor a state directory was given; topics alone do not tell subtopology numbers.",
            action="Give --topology with the text of Topology.describe(), or --state-dir, or both.",
        )
    subtopologies = parse_topology(topology_text) if topology_text is not None else None
    found = survey(StateDirectory(state_dir, application_id)) if state_dir is not None else []
    topics = set(cluster.list_topics())
    notes = Notes()
    drafts = _Drafts(application_id, topics, found, notes)
    stores, global_stores = drafts.of_topology(subtopologies) if subtopologies is not None else drafts.of_directory()
    if not stores and not global_stores:
        raise NotFound(
            f"No store of {application_id} was found in {' or '.join(_sources(state_dir, subtopologies))}.",
            action="Check the application id, and that topology or state directory are those of this application.",
            application_id=application_id,
        )
    described = cluster.describe_topics({store.changelog for store in (*stores, *global_stores)} & topics)
    stores = [_with_times(store, described.get(store.changelog), notes) for store in stores]
    _note_leftovers(application_id, stores, topics, notes)
    guarantee = processing_guarantee or _guarantee(cluster, stores, described, notes)
    if any(store.kind is StoreKind.UNKNOWN for store in (*stores, *global_stores)):
        notes.general.append("Replace every '?' by the store's kind before restoring: nothing here tells it.")
    spec = ApplicationSpec(
        application_id=application_id,
        bootstrap_servers=cluster.bootstrap_servers,
        processing_guarantee=guarantee,
        stores=tuple(sorted(stores, key=lambda store: (store.subtopology, store.topology or "", store.name))),
        global_stores=tuple(sorted(global_stores, key=lambda store: store.name)),
        source="<discovered>",
        kafka_declared=dict(kafka_declared or {}),
    )
    return Discovery(spec, notes)


def _sources(state_dir: Path | None, subtopologies: list[Subtopology] | None) -> list[str]:
    return ([str(state_dir)] if state_dir is not None else []) + (["the topology"] if subtopologies is not None else [])


class _Drafts:
    """Stores as far as topology, state directory and the names of topics tell them."""

    def __init__(self, application_id: str, topics: set[str], found: list[FoundStore], notes: Notes) -> None:
        self.application_id, self.topics, self.notes = application_id, topics, notes
        self.found = {store.name: store for store in found}
        self.tasks = {store.subtopology for store in found}

    def of_directory(self) -> tuple[list[StoreSpec], list[StoreSpec]]:
        """Stores that have a directory; those in memory cannot be seen."""
        stores: list[StoreSpec] = []
        global_stores: list[StoreSpec] = []
        for store in self.found.values():
            topic = self._topic(store.name, set(), store)
            if topic is not None:
                draft = StoreSpec(store.name, self._kind(store.name), store.subtopology, topic, topology=store.topology)
                (global_stores if draft.is_global else stores).append(draft)
        self.notes.general.append("Written from a state directory: stores that are only in memory are not in it.")
        return stores, global_stores

    def of_topology(self, subtopologies: list[Subtopology]) -> tuple[list[StoreSpec], list[StoreSpec]]:
        """Stores that the topology names."""
        stores: list[StoreSpec] = []
        global_stores: list[StoreSpec] = []
        for subtopology in subtopologies:
            for name, sources in subtopology.stores.items():
                if subtopology.is_global:
                    topic = next(iter(sorted(sources)), None)
                    if topic is None:
                        self.notes.general.append(
                            f"Global store {name} was left out: its source topic is not to be seen."
                        )
                    else:
                        global_stores.append(StoreSpec(name, self._kind(name), -1, topic))
                    continue
                topic = self._topic(name, sources, self.found.get(name))
                if topic is not None:
                    stores.append(StoreSpec(name, self._kind(name), subtopology.number, topic))
                    self._compare(name, subtopology.number)
        for name in sorted(self.found.keys() - {store.name for store in (*stores, *global_stores)}):
            self.notes.general.append(f"{name} has a state directory but is not in the topology: left out.")
        return stores, global_stores

    def _compare(self, name: str, subtopology: int) -> None:
        found = self.found.get(name)
        if found is not None and found.subtopology != subtopology:
            self.notes.add(name, f"the state directory has it in subtopology {found.subtopology}: another version?")
        elif found is None and subtopology in self.tasks:
            self.notes.add(name, "has no directory though its tasks have one: in memory?")

    def _kind(self, name: str) -> StoreKind:
        found = self.found.get(name)
        if found is not None and found.trouble:
            self.notes.add(name, "its directory could not be read")
        if found is not None and found.kind is not StoreKind.UNKNOWN:
            return found.kind
        if name.startswith("KTABLE-SUPPRESS-STATE-STORE-"):
            self.notes.add(name, "in memory by its name")
            return StoreKind.IN_MEMORY
        return StoreKind.UNKNOWN

    def _topic(self, name: str, sources: set[str], found: FoundStore | None) -> str | None:
        """The topic a store is restored from, or ``None`` when there is none; guesses are noted."""
        topology = found.topology if found is not None else None
        usual = default_changelog(self.application_id, name, topology)
        named = sorted(found.topics & self.topics) if found is not None else []
        if len(named) == 1:
            return named[0]
        if usual in self.topics:
            return usual
        existing = sorted(sources & self.topics)
        if len(existing) == 1:
            self.notes.add(name, f"changelog is a guess: {usual} does not exist, {existing[0]} feeds it")
            return existing[0]
        self.notes.general.append(f"{name} was left out: {usual} does not exist, so it keeps no changelog.")
        return None


def _with_times(store: StoreSpec, topic: TopicDescription | None, notes: Notes) -> StoreSpec:
    """What the changelog's configuration tells: versioned stores, join windows, and retentions."""
    if topic is None or store.kind is StoreKind.IN_MEMORY:
        return store
    policies = {policy.strip() for policy in topic.configs.get("cleanup.policy", "").split(",")}
    lag = _milliseconds(topic, "min.compaction.lag.ms")
    plain = store.kind in (StoreKind.UNKNOWN, StoreKind.KEY_VALUE)
    if policies == {"compact"}:
        if plain and lag is not None and lag > DAY_MS:
            notes.add(store.name, "versioned by its topic's min.compaction.lag.ms, from which the retention is derived")
            return replace(store, kind=StoreKind.VERSIONED_KEY_VALUE, retention_ms=lag - DAY_MS)
        if store.kind is StoreKind.KEY_VALUE and "OUTERSHARED" in store.name:
            notes.add(store.name, "an outer join's list by its name")
            return replace(store, kind=StoreKind.LIST)
        return store
    retention = _milliseconds(topic, "retention.ms")
    if "delete" not in policies or retention is None or retention <= DAY_MS:
        return store
    kind = store.kind
    if kind is StoreKind.UNKNOWN and policies == {"delete"}:
        kind = StoreKind.JOIN_WINDOW
        notes.add(store.name, "a stream join's window, because its topic is not compacted")
    if kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE):
        return store
    notes.add(store.name, f"retention {format_duration(retention - DAY_MS)} is derived from its topic's retention.ms")
    return replace(store, kind=kind, retention_ms=retention - DAY_MS)


def _milliseconds(topic: TopicDescription, name: str) -> int | None:
    text = topic.configs.get(name, "")
    return int(text) if text.isdigit() else None


def _note_leftovers(application_id: str, stores: list[StoreSpec], topics: set[str], notes: Notes) -> None:
    known = {store.changelog for store in stores}
    for topic in sorted(topics - known):
        if topic.startswith(f"{application_id}-") and topic.endswith("-changelog"):
            notes.general.append(f"No store was found for the topic {topic}: it may be of a longer application id, in "
                                 "memory, of another machine, or left over.")  # fmt: skip


def _guarantee(
    cluster: Cluster, stores: list[StoreSpec], topics: Mapping[str, TopicDescription], notes: Notes
) -> ProcessingGuarantee:
    """Exactly-once when a changelog ends with the marker of a transaction, which only that setting writes."""
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
    reader = ChangelogReader(cluster)
    for part in filled[:_CHECKED_FOR_MARKERS]:
        end = offsets[part].log_end
        last = OffsetRange(part.topic, part.partition, end - 1, end)
        if sum(len(batch) for batch in reader.read(last, IsolationLevel.READ_UNCOMMITTED)) == 0:
            return ProcessingGuarantee.EXACTLY_ONCE_V2
    seen = "no changelog ends with a transaction's marker" if filled else "there is nothing in the changelogs"
    notes.add("processing_guarantee", f"a guess, as {seen}; take the application's own setting")
    return ProcessingGuarantee.AT_LEAST_ONCE
