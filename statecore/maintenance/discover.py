"""Writes the first spec of an application, from what can be seen of it, and says what had to be guessed.

Topics alone do not tell subtopology numbers, so the text of ``Topology.describe()`` or a state directory is needed;
with both, the text says what there is and the directory says the kinds. What cannot be known is written as ``?``, which
``restore`` refuses until a person decides: a plain and a timestamped changelog look alike, and a store that is built as
the wrong one is read without an error, wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange, TopicDescription
from statecore.changelog.reader import ChangelogReader
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import RETAINED_KINDS, WINDOWED_KINDS, StoreKind
from statecore.formats.segments import SHORTEST_INTERVAL_MS
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.evidence import conclude, of_name, of_topic, versioned_history, window_retention
from statecore.maintenance.survey import FoundStore, survey
from statecore.maintenance.topology import Subtopology, parse_topology
from statecore.runtime.state_directory import StateDirectory
from statecore.spec.duration import format_duration
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.spec.reader import default_changelog

_CHECKED_FOR_MARKERS = 8
_GENERATED = re.compile(r"STATE-STORE-[0-9]{10}$")


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
    declared = drafts.of_topology(subtopologies) if subtopologies is not None else drafts.of_directory()
    if not declared:
        raise NotFound(
            f"No store of {application_id} was found in {' or '.join(_sources(state_dir, subtopologies))}.",
            action="Check the application id, and that topology or state directory are those of this application.",
            application_id=application_id,
        )
    described = cluster.describe_topics({draft.changelog for draft in declared} & topics)
    declared = _distinct(declared, notes)
    every = [_decided(draft, described.get(draft.changelog), notes) for draft in declared]
    stores = [store for store in every if not store.is_global]
    global_stores = [store for store in every if store.is_global]
    _note_leftovers(application_id, stores, topics, notes)
    guarantee = processing_guarantee or _guarantee(cluster, stores, described, notes)
    if any(store.kind is StoreKind.UNKNOWN for store in every):
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


class _Draft(NamedTuple):
    """A store before its kind is decided: where it is, and what there is to decide by."""

    name: str
    subtopology: int
    changelog: str
    topology: str | None = None
    found: FoundStore | None = None
    processors: frozenset[str] = frozenset()
    in_memory: str = ""
    reprocess: bool = False


class _Drafts:
    """Stores as far as topology, state directory and the names of topics tell them."""

    def __init__(self, application_id: str, topics: set[str], found: list[FoundStore], notes: Notes) -> None:
        self.application_id, self.topics, self.notes = application_id, topics, notes
        self.found = found
        self.by_name = {store.name: store for store in found}
        self.tasks = {store.subtopology for store in found}

    def of_directory(self) -> list[_Draft]:
        """Stores that have a directory; those in memory cannot be seen."""
        drafts = []
        for store in self.found:
            topic = self._topic(store.name, set(), store)
            if topic is not None:
                drafts.append(_Draft(store.name, store.subtopology, topic, store.topology, store))
                if store.subtopology < 0:
                    self._note_global(store.name)
        self.notes.general.append("Written from a state directory: stores that are only in memory are not in it.")
        return drafts

    def of_topology(self, subtopologies: list[Subtopology]) -> list[_Draft]:
        """Stores that the topology names."""
        drafts: list[_Draft] = []
        for subtopology in subtopologies:
            for name, sources in subtopology.stores.items():
                if subtopology.is_global:
                    drafts += self._global(subtopology, name, sources)
                    continue
                found = self.by_name.get(name)
                topic = self._topic(name, sources, found)
                if topic is not None:
                    processors = frozenset(subtopology.processors[name])
                    memory = self._in_memory(name, subtopology.number)
                    named = found.topology if found is not None else None
                    drafts.append(_Draft(name, subtopology.number, topic, named, found, processors, memory))
        for name in sorted(self.by_name.keys() - {draft.name for draft in drafts}):
            self.notes.general.append(f"{name} has a state directory but is not in the topology: left out.")
        return drafts

    def _global(self, subtopology: Subtopology, name: str, sources: set[str]) -> list[_Draft]:
        if not sources:
            self.notes.general.append(f"Global store {name} was left out: its source topic is not to be seen.")
            return []
        own = not subtopology.may_be_global_table(name)
        if own:
            self.notes.add(name, "filled by a processor of the application (Topology.addGlobalStore): restore refuses "
                                 "it, Kafka Streams rebuilds it")  # fmt: skip
        else:
            self._note_global(name)
        return [_Draft(name, -1, min(sources), found=self.by_name.get(name), reprocess=own)]

    def _note_global(self, name: str) -> None:
        if not _GENERATED.search(name):  # a name that only globalTable generates
            self.notes.add(name, "taken for a globalTable; add 'reprocess: true' if addGlobalStore fills it")

    def _in_memory(self, name: str, subtopology: int) -> str:
        """Why a store is taken to be in memory; empty when it is not."""
        found = self.by_name.get(name)
        if found is not None and found.subtopology != subtopology:
            self.notes.add(name, f"the state directory has it in subtopology {found.subtopology}: another version?")
        if found is not None:
            return ""
        if name.startswith("KTABLE-SUPPRESS-STATE-STORE-"):
            return "in memory by its name"
        if subtopology in self.tasks:
            return "in memory, because its tasks have a directory and it has none; unless it was added since"
        return ""

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


def _distinct(drafts: list[_Draft], notes: Notes) -> list[_Draft]:
    """One store of a name in a subtopology's number, which is all that a spec can hold; the others are said."""
    kept: dict[tuple[int, str], _Draft] = {}
    for draft in drafts:
        first = kept.setdefault((draft.subtopology, draft.name), draft)
        if first is not draft:
            notes.general.append(
                f"{draft.name} of topology {draft.topology} was left out: topology {first.topology} has one of that "
                "name in a subtopology of that number; write a second spec for it."
            )
    return list(kept.values())


def _decided(draft: _Draft, topic: TopicDescription | None, notes: Notes) -> StoreSpec:
    """The store with its kind and times, as far as everything together tells them; what was guessed is noted."""
    store = StoreSpec(draft.name, StoreKind.IN_MEMORY, draft.subtopology, draft.changelog, topology=draft.topology,
                      reprocess=draft.reprocess)  # fmt: skip
    if draft.in_memory:
        notes.add(draft.name, draft.in_memory)
        return store
    found = draft.found
    if found is not None and (found.trouble or found.seen.strange):
        notes.add(draft.name, found.seen.strange or "its directory could not be read")
    if found is not None and found.seen.strange:
        return replace(store, kind=StoreKind.UNKNOWN)
    own_topic = topic if topic is not None and draft.changelog.endswith("-changelog") else None
    evidence = list(found.seen.evidence) if found is not None else []
    evidence += of_name(draft.name, draft.processors)
    evidence += of_topic(own_topic) if own_topic is not None else []
    kind, _, remarks = conclude(evidence)
    for remark in remarks:
        notes.add(draft.name, remark)
    return _with_times(replace(store, kind=kind), own_topic, found, notes)


def _with_times(store: StoreSpec, topic: TopicDescription | None, found: FoundStore | None, notes: Notes) -> StoreSpec:
    """Retention, which the changelog's configuration tells, and the segment interval where it is not the usual one."""
    if store.kind is not StoreKind.UNKNOWN and store.kind not in RETAINED_KINDS:
        return store
    setting = "min.compaction.lag.ms" if store.kind.is_versioned else "retention.ms"
    retention = None
    if topic is not None:
        retention = versioned_history(topic) if store.kind.is_versioned else window_retention(topic)
    if retention is None:
        if store.kind in RETAINED_KINDS:
            notes.add(store.name, "its retention is not to be seen: add 'retention' as the application has it")
        return store
    derived = f"is derived from its topic's {setting}"
    interval = found.segment_interval(store.kind, retention) if found is not None else None
    if interval is not None and store.kind in WINDOWED_KINDS and interval > SHORTEST_INTERVAL_MS:
        # Suppliers take no interval of their own: another interval means another retention than the topic was made for.
        derived = f"is derived from its segments of {format_duration(interval)}, which contradict its topic's {setting}"
        retention, interval = 2 * interval, None
    elif interval is not None:
        derived += f", and segment_interval {format_duration(interval)} from its segments, which do not fit it"
    notes.add(store.name, f"retention {format_duration(retention)} {derived}; check it")
    return replace(store, retention_ms=retention, segment_interval_ms=interval)


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
