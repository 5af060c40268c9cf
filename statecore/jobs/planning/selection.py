"""Select which declared stores and partitions a restore covers, and refuse everything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, StoreSpec
from statecore.statedir.store_places import suggest_names
from statecore.words import number_of


def unadvanceable_stores(stores: Sequence[StoreSpec], names: Sequence[str]) -> tuple[str, ...]:
    """Names of versioned stores, which no tail advances because their rows depend on every record."""
    stays = sorted(store.name for store in stores if store.kind.is_versioned)
    if stays and (names or len(stays) == len(stores)):
        raise Invalid(
            f"Versioned stores are not advanced: {', '.join(stays)}. Their rows depend on every record.",
            code="versioned-store-not-advanced",
            action="Leave them out, or restore them (statecore restore --replace --store NAME --versioned latest).",
            stores=stays,
        )
    return tuple(stays)


def select_stores(
    spec: ApplicationSpec, names: Sequence[str] = (), partitions: Sequence[int] = ()
) -> tuple[StoreSpec, ...]:
    """The declared stores to restore: those named, or all that can be.

    Left out unless named: in-memory stores (not on disk), stores that the application does not log, global stores
    filled by a processor, and, if only some partitions are wanted, all global stores. Left out always: stores of custom
    classes.
    """
    every = (*spec.stores, *spec.global_stores)
    declared = {store.name: store for store in every}
    unknown = [name for name in names if name not in declared]
    if unknown:
        raise NotFound(
            f"{spec.source} declares no store {', '.join(map(repr, unknown))} for application {spec.application_id!r}"
            f"{suggest_names(unknown[0], declared)}",
            code="store-not-declared",
            action="Name stores of the spec, or add the missing ones to it.",
            stores=unknown,
        )
    if names:
        wanted = tuple(store for store in every if store.name in names)
    else:
        wanted = tuple(
            store for store in every if not (store.is_global and (partitions or store.is_filled_by_processor))
        )
    custom = [store.name for store in wanted if store.kind is StoreKind.CUSTOM]
    if names and custom:
        raise Invalid(
            f"{spec.source} declares {', '.join(map(repr, custom))} as a store of the application's own class (kind "
            "custom), whose format is unknown.",
            code="kind-unsupported",
            action="Leave it out with --store: it stays as it is, and Kafka Streams restores it if it has no files or "
            "no offset.",
            stores=custom,
        )
    wanted = tuple(store for store in wanted if store.kind not in (StoreKind.IN_MEMORY, StoreKind.CUSTOM))
    unlogged = [store.name for store in wanted if not store.is_logged]
    if names and unlogged:
        raise Invalid(
            f"{spec.source} declares {', '.join(map(repr, unlogged))} as not logged (changelog: none), so there is no "
            "topic to rebuild it from.",
            code="store-not-logged",
            action="Leave it out with --store: it stays as it is, and Kafka Streams creates an empty one if there is "
            "none.",
            stores=unlogged,
        )
    wanted = tuple(store for store in wanted if store.is_logged)
    refuse_undecided(spec, [store for store in wanted if store.is_undecided])
    reprocessed = [store for store in wanted if store.is_filled_by_processor]
    if reprocessed:
        raise Invalid(
            "The application fills "
            + ", ".join(
                f"global store {store.name!r} (kind {store.kind}, topic {store.changelog})" for store in reprocessed
            )
            + " through its own processor, so its rows cannot be derived from the topic.",
            code="store-filled-by-processor",
            action="Leave it out with --store, and let Kafka Streams rebuild it.",
            stores=[store.name for store in reprocessed],
        )
    if not wanted:
        raise Invalid(
            f"{spec.source} declares no store that can be restored for application {spec.application_id!r}.",
            code="no-restorable-store",
            action="Declare the stores below 'subtopologies'; `statecore discover` writes them.",
        )
    return wanted


def refuse_undecided(spec: ApplicationSpec, stores: Sequence[StoreSpec]) -> None:
    """Refuse stores whose kind or changelog is undecided. Raises ``Invalid``."""
    kinds = [store for store in stores if store.kind is StoreKind.UNKNOWN]
    changelogs = [store for store in stores if store.changelog == UNKNOWN_CHANGELOG]
    if not stores:
        return
    said, do = [], []
    if kinds:
        said.append(
            f"The kind of {_listed(kinds)} is undecided in {spec.source}: plain and timestamped changelogs look alike, "
            "and a wrong kind gives wrong data."
        )
        do.append("Replace each '?' by the store's kind, as the application declares it.")
    if changelogs:
        said.append(
            f"The changelog of {_listed(changelogs)} is undecided in {spec.source}: their default topic does not "
            "exist, and another topic would give wrong data."
        )
        do.append(
            "Write 'changelog: none' for a store that the application does not log (withLoggingDisabled), or the "
            "topic that it is restored from (the source topic of a table under topology.optimization, or of "
            "addReadOnlyStateStore)."
        )
    raise Invalid(
        " ".join(said),
        code="spec-undecided",
        action=" ".join(do),
        stores=[store.name for store in stores],
        kinds=[store.name for store in kinds],
        changelogs=[store.name for store in changelogs],
    )


def _listed(stores: Sequence[StoreSpec]) -> str:
    return ", ".join(f"store {store.name!r} (line {store.line})" for store in stores)


def check_partitions(
    stores: Sequence[StoreSpec], topics: Mapping[str, TopicDescription], partitions: Sequence[int] = ()
) -> dict[StoreSpec, tuple[int, ...]]:
    """Which partitions of each store are to be restored; equally many for all changelogs of a subtopology."""
    groups: dict[int, list[StoreSpec]] = defaultdict(list)
    for store in stores:
        if not store.is_global:
            groups[store.subtopology].append(store)
    for number, members in groups.items():
        counts = {store.changelog: topics[store.changelog].partitions for store in members}
        if len(set(counts.values())) > 1:
            raise Invalid(
                f"The changelogs of subtopology {number} differ in their number of partitions: "
                + ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
                + ".",
                code="partition-count-mismatch",
                action="Correct the subtopology of these stores in the spec, or the topic that was created by hand.",
                subtopology=number,
                partitions=counts,
            )
    wanted = {
        store: tuple(
            part
            for part in range(topics[store.changelog].partitions)
            if store.is_global or not partitions or part in partitions
        )
        for store in stores
    }
    absent = [
        part for part in partitions if not any(part in found for store, found in wanted.items() if not store.is_global)
    ]
    if absent:
        most = max((topics[store.changelog].partitions for store in stores if not store.is_global), default=0)
        raise Invalid(
            f"No changelog of the chosen stores has partition {', '.join(map(str, absent))}: "
            f"they have {'at most ' if most else ''}{number_of(most, 'partition')}.",
            code="partition-unknown",
            action=f"Choose partitions from 0 to {most - 1}." if most else "Leave the partitions out.",
            partitions=absent,
            partition_count=most,
        )
    return wanted
