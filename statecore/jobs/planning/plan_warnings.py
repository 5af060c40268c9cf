"""Notes and warnings about a valid plan, shown with the plan and in the report."""

from __future__ import annotations

from statecore.changelog.cluster import Cluster
from statecore.discover.kind_evidence import evidence_of_topic, listed
from statecore.formats.kinds import StoreKind
from statecore.jobs.planning.plan import PlanRequest, ReadPlan
from statecore.spec.model import ApplicationSpec, StoreSpec, default_changelog
from statecore.words import WARNING


def notes_of(cluster: Cluster, spec: ApplicationSpec, plan: ReadPlan, request: PlanRequest) -> tuple[str, ...]:
    """All notes about a plan; those that ask for something begin with ``warning: ``."""
    exactly_once = spec.processing_guarantee.is_exactly_once
    notes = [
        f"{part.topic}-{part.partition}: an open transaction held the end at {part.end} for "
        f"{request.transaction_wait:g} s; the application will restore the tail up to {part.log_end} itself "
        f"({part.tail_left} offsets)."
        for part in plan.partitions
        if part.tail_left > 0 and exactly_once and request.transaction_wait  # expected without a wait
    ]
    planned = {part.store for part in plan.partitions}
    notes += [
        f"Global store {store.name!r} was left out: {_why_left_out(store)}; Kafka Streams restores it itself."
        for store in spec.global_stores
        if store.name not in planned and not request.stores
    ]
    notes += [*_not_logged(spec, plan), *_logged_after_all(cluster, spec, plan), *_in_memory(spec, plan)]
    history = sorted({part.store for part in plan.partitions if part.restored_by_kafka_streams})
    if history:
        notes.append(
            f"Restored by Kafka Streams: {', '.join(history)}. Changelogs of versioned stores are not read, and "
            "empty databases are placed; Kafka Streams restores them from the start of their changelogs when the "
            "application starts, because queries of the past work only on stores that it has restored. (To skip "
            "this and do without the past, set versioned to latest, --versioned latest; docs/restore.md says what "
            "that costs.)"
        )
    notes += contradictions(cluster, spec, plan)
    undeclared = undeclared_changelogs(cluster, spec)
    if undeclared:
        consequence = (
            "WIPES every rebuilt task that has such a store and restores it whole (exactly-once, and no offset of the "
            "store); declare the store in the spec and restore again before the application starts"
            if exactly_once
            else "restores it itself, from the start; declare the store in the spec to have it restored here"
        )
        notes.append(
            f"{WARNING}No store of the spec has the changelog {', '.join(undeclared)}. If that is a store of this "
            f"application's topology, Kafka Streams {consequence}. (An old topic, or one of an application whose id "
            f"begins with {spec.application_id}-, can be ignored.)"
        )
    return tuple(notes)


def _not_logged(spec: ApplicationSpec, plan: ReadPlan) -> list[str]:
    """Note on the unlogged stores in tasks that are rebuilt."""
    names = [store.name for store in _of_rebuilt_tasks(spec, plan) if not store.is_logged]
    if not names:
        return []
    return [
        f"The application does not log {', '.join(sorted(names))} (changelog: none): kept if the task has a directory, "
        "else Kafka Streams creates it empty."
    ]


def _of_rebuilt_tasks(spec: ApplicationSpec, plan: ReadPlan) -> list[StoreSpec]:
    """The declared stores of the subtopologies whose tasks are rebuilt."""
    rebuilt = {store for part in plan.partitions for store in spec.stores_of(part.task)}
    return [store for store in spec.stores if store in rebuilt]


def _logged_after_all(cluster: Cluster, spec: ApplicationSpec, plan: ReadPlan) -> list[str]:
    """Note on stores declared as not logged whose default changelog exists."""
    there = set(cluster.list_topics())
    found = {
        store.name: topic
        for store in _of_rebuilt_tasks(spec, plan)
        if not store.is_logged and (topic := default_changelog(spec.application_id, store.name)) in there
    }
    if not found:
        return []
    names, topics = ", ".join(sorted(found)), ", ".join(sorted(found.values()))
    if spec.processing_guarantee.is_exactly_once:
        consequence = "WIPES every rebuilt task that lacks it and restores it whole (exactly-once, and no offset of it)"
    else:
        consequence = "restores it itself, from the start"
    return [
        f"{WARNING}The spec says that the application does not log {names}, but {topics} exists. If it is logged, "
        f"Kafka Streams {consequence}; remove 'changelog: none' from the spec. (An old topic can be ignored.)"
    ]


def _in_memory(spec: ApplicationSpec, plan: ReadPlan) -> list[str]:
    """Under exactly-once, note on stores declared as in-memory: if one is persistent, its task is wiped."""
    names = sorted(store.name for store in _of_rebuilt_tasks(spec, plan) if store.kind is StoreKind.IN_MEMORY)
    if not names or not spec.processing_guarantee.is_exactly_once:
        return []
    return [
        f"{WARNING}Nothing is placed for {', '.join(names)} (kind in-memory). If it is on disk, Kafka Streams WIPES "
        "every rebuilt task that has it and restores it whole (exactly-once, and no offset of the store); declare its "
        "kind, custom for a persistent store of the application's own class."
    ]


def _why_left_out(store: StoreSpec) -> str:
    if store.is_filled_by_processor:
        return "the application fills it through its own processor"
    if store.kind is StoreKind.CUSTOM:
        return "it is of the application's own class"
    return "it is in memory" if store.kind is StoreKind.IN_MEMORY else "only some partitions were asked for"


def undeclared_changelogs(cluster: Cluster, spec: ApplicationSpec) -> list[str]:
    """Topics named like a changelog of the application that belong to no declared store."""
    declared = {store.changelog for store in (*spec.stores, *spec.global_stores)}
    unlogged = [store for store in spec.stores if not store.is_logged]  # they have a note of their own
    declared |= {default_changelog(spec.application_id, one.name) for one in unlogged}
    return [
        topic
        for topic in cluster.list_topics()
        if topic.startswith(f"{spec.application_id}-") and topic.endswith("-changelog") and topic not in declared
    ]


def contradictions(cluster: Cluster, spec: ApplicationSpec, plan: ReadPlan) -> list[str]:
    """Notes on stores whose changelog is configured like that of another kind; configurations can be changed."""
    own = {
        store.name: store.changelog
        for store in spec.stores
        if store.changelog == default_changelog(spec.application_id, store.name)
    }
    kinds = {part.store: part.kind for part in plan.partitions if own.get(part.store) == part.topic}
    topics = cluster.describe_topics(sorted(own[store] for store in kinds))
    return [
        f"{WARNING}Store {store!r} is declared as {kind}, but its changelog {own[store]} is configured (cleanup.policy "
        f"{topics[own[store]].configs.get('cleanup.policy')}) as that of {listed(one.kinds)}. If the kind is wrong, "
        "the rebuilt store contains wrong data: compare it with the topology."
        for store, kind in sorted(kinds.items())
        for one in evidence_of_topic(topics[own[store]])
        if kind not in one.kinds
    ]
