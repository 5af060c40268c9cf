"""Decides a store's kind and times from all evidence, and lists open questions for a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from statecore.changelog.cleanup_policy import cleanup_policies
from statecore.changelog.model import TopicDescription
from statecore.discover.changelog_sample import Sample
from statecore.discover.directory_stores import DirectoryStore
from statecore.discover.kind_evidence import (
    Conclusion,
    conclude,
    evidence_of_format,
    evidence_of_name,
    evidence_of_topic,
    is_created_by_dsl,
    listed,
    possible_kinds,
    versioned_history,
    window_retention,
)
from statecore.discover.spec_draft import Draft, Notes, OpenStore
from statecore.errors import Invalid
from statecore.formats.kinds import RETAINED_KINDS, WINDOWED_KINDS, StoreKind
from statecore.formats.segments import SHORTEST_INTERVAL_MS
from statecore.spec.model import UNKNOWN_CHANGELOG, StoreSpec
from statecore.spec.units import format_duration


@dataclass(frozen=True)
class Decision:
    """The decision about a store.

    Attributes:
        store: its spec, with ``?`` for open fields.
        default_format: whether its kind assumes the default ``dsl.store.format``.
    """

    store: StoreSpec
    default_format: bool = False


def decide_kind(
    draft: Draft,
    topic: TopicDescription | None,
    sample: Callable[[TopicDescription], Sample],
    notes: Notes,
    *,
    answered_kind: StoreKind | None = None,
    dsl_store_format: str | None = None,
) -> Decision:
    """Decide the kind and times of a store."""
    changelog = draft.changelog.topic
    store = StoreSpec(draft.name, StoreKind.IN_MEMORY, draft.subtopology, changelog, reprocess=draft.reprocess)
    if draft.in_memory:
        notes.add(draft.name, draft.in_memory)
        return Decision(store)
    if answered_kind is StoreKind.CUSTOM:  # no file or topic can confirm or contradict it
        store = replace(store, kind=answered_kind)
        if store.is_undecided:
            notes.open.append(
                OpenStore(draft.name, draft.subtopology, (answered_kind,), draft.changelog.candidates, ())
            )
        return Decision(store)
    found = draft.found
    if found is not None and (found.error or found.detection.unopenable):
        notes.add(draft.name, found.detection.unopenable or "its directory could not be read")
    if found is not None and found.detection.unopenable and answered_kind is None:
        store = replace(store, kind=StoreKind.UNKNOWN)
        notes.open.append(OpenStore(draft.name, draft.subtopology, (), draft.changelog.candidates, ()))
        return Decision(store)
    own_topic = topic if topic is not None and not store.is_global and changelog.endswith("-changelog") else None
    by_dsl = is_created_by_dsl(draft.name, draft.processors)
    evidence = list(found.detection.evidence) if found is not None else []
    evidence += evidence_of_name(draft.name, draft.processors)
    evidence += evidence_of_format(draft.name, draft.processors, dsl_store_format)
    by_topic = evidence_of_topic(own_topic) if own_topic is not None else []
    concluded = conclude([*evidence, *by_topic], by_dsl=by_dsl)
    seen = _observations(found, own_topic)
    if concluded.kind is StoreKind.UNKNOWN and own_topic is not None:
        sampled = sample(own_topic)
        if sampled.suppressed:
            notes.add(draft.name, "in memory, because its changelog's records are those of suppress")
            return Decision(store)
        seen.append(f"{sampled.records:,} of its records")
        evidence += [sampled.evidence] if sampled.records and sampled.kinds else []
        concluded = conclude([*evidence, *by_topic], by_dsl=by_dsl)
    if answered_kind is not None:
        _check_given(draft.name, answered_kind, possible_kinds([*evidence, *by_topic]), seen)
        concluded = Conclusion(answered_kind, frozenset({answered_kind}), ())
    for remark in concluded.remarks:
        notes.add(draft.name, remark)
    store = _with_times(replace(store, kind=concluded.kind), own_topic, found, notes)
    if not store.is_undecided:
        return Decision(store, concluded.default_format and dsl_store_format is None)
    kinds = tuple(sorted(concluded.possible_kinds)) if store.kind is StoreKind.UNKNOWN else (store.kind,)
    changelogs = draft.changelog.candidates if changelog == UNKNOWN_CHANGELOG else ()
    notes.open.append(OpenStore(draft.name, draft.subtopology, kinds, changelogs, tuple(seen)))
    return Decision(store)


def _check_given(store: str, given: StoreKind, left: frozenset[StoreKind], seen: list[str]) -> None:
    if given not in left:
        raise Invalid(
            f"Store {store} was given the kind {given}, but the evidence ({'; '.join(seen) or 'its name'}) shows "
            f"{listed(left)}.",
            code="kind-mismatch",
            action="Give one of these, or correct the written spec by hand.",
            store=store,
            kind=str(given),
        )


def _observations(found: DirectoryStore | None, topic: TopicDescription | None) -> list[str]:
    seen = ["its directory"] if found is not None else []
    return seen + ([f"cleanup.policy {','.join(sorted(cleanup_policies(topic)))}"] if topic is not None else [])


def _with_times(
    store: StoreSpec, topic: TopicDescription | None, found: DirectoryStore | None, notes: Notes
) -> StoreSpec:
    """Set the retention from the changelog's configuration, and the segment interval if it is not the default."""
    if store.kind is not StoreKind.UNKNOWN and store.kind not in RETAINED_KINDS:
        return store
    setting = "min.compaction.lag.ms" if store.kind.is_versioned else "retention.ms"
    retention = None
    if topic is not None:
        retention = versioned_history(topic) if store.kind.is_versioned else window_retention(topic)
    if retention is None:
        if store.kind in RETAINED_KINDS and store.is_logged:
            notes.add(store.name, "its retention is unknown: add 'retention' as the application has it")
        return store
    derived = f"is derived from its topic's {setting}"
    interval = found.segment_interval(store.kind, retention) if found is not None else None
    if interval is not None and store.kind in WINDOWED_KINDS and interval > SHORTEST_INTERVAL_MS:
        # Suppliers accept no interval of their own: another interval means the topic had another retention.
        derived = f"is derived from its segments of {format_duration(interval)}, which contradict its topic's {setting}"
        retention, interval = 2 * interval, None
    elif interval is not None:
        derived += f", and segment_interval {format_duration(interval)} from its segments, which do not fit it"
    notes.add(store.name, f"retention {format_duration(retention)} {derived}; check it")
    return replace(store, retention_ms=retention, segment_interval_ms=interval)
