"""Make a new plan: query the cluster, check every precondition, choose the bases, and freeze the offsets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from statecore.changelog.cluster import Cluster
from statecore.changelog.groups import committed_offsets
from statecore.changelog.model import LogOffsets, OffsetRange, TopicDescription
from statecore.changelog.record_density import PartitionShape
from statecore.changelog.size_estimate import SizeEstimate, estimate_sizes
from statecore.errors import NotFound
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import BaseCandidates, Key, Younger
from statecore.jobs.bases.choice import NO_BASES, ChosenBases, Cost, choose
from statecore.jobs.planning.estimate import DiskNeed, disk_need, estimate_of
from statecore.jobs.planning.plan import (
    PlanRequest,
    ReadPlan,
    is_restored_by_kafka_streams,
    make_plan,
)
from statecore.jobs.planning.plan_warnings import notes_of
from statecore.jobs.planning.selection import check_partitions, select_stores
from statecore.spec.model import ApplicationSpec, StoreSpec, is_source, task_of

POLL_INTERVAL = 0.5


class NewPlan(NamedTuple):
    """A new plan.

    Attributes:
        read_at_ms: broker time just before the ends were read, in ms since the epoch; ``None`` if the brokers gave
            no time.
        cluster_id: of the cluster that was asked; empty if its brokers have none.
    """

    plan: ReadPlan
    notes: tuple[str, ...]
    disk: DiskNeed
    chosen: ChosenBases
    topics: Mapping[str, TopicDescription]
    read_at_ms: int | None
    cluster_id: str


def plan_reads(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: PlanRequest,
    *,
    parallelism: Callable[[], int],
    candidates: BaseCandidates | None = None,
    cost: Cost | None = None,
    only: Callable[[Key], bool] = lambda _: True,
    versioned_ms: int | None = None,
    builds: bool = True,
    ends: Mapping[TopicPartition, int] = MappingProxyType({}),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> NewPlan:
    """Describe the topics once, check all preconditions, and freeze the plan.

    Under exactly-once an open transaction keeps the last stable offset below the log end. The job waits up to
    ``request.transaction_wait`` seconds for transactions in changelogs that it reads, then notes the tail left to the
    application.
    """
    isolation = spec.processing_guarantee.isolation
    stores = select_stores(spec, request.stores, request.partitions)
    read_at_ms = cluster.time_ms()
    topics = cluster.describe_topics(sorted({store.changelog for store in stores}))
    wanted = {
        store: kept
        for store, parts in check_partitions(stores, topics, request.partitions).items()
        if (kept := [part for part in parts if only(_key(store, part))])
    }
    read = {
        store: parts for store, parts in wanted.items() if not is_restored_by_kafka_streams(store, request.versioned)
    }
    offsets = cluster.log_offsets(_partitions(wanted))
    deadline = clock() + request.transaction_wait
    while (open_ones := _open_transactions(spec, offsets, _partitions(read), ends)) and clock() < deadline:
        sleep(POLL_INTERVAL)
        offsets = {**offsets, **cluster.log_offsets(open_ones)}
    reused = _partitions({store: parts for store, parts in wanted.items() if is_source(spec, store)})
    sources = consumed_sources(cluster, spec, {part: offsets[part] for part in reused})
    logs = {part: log.until(ends.get(part)) for part, log in {**offsets, **sources}.items()}
    chosen = NO_BASES
    if candidates is not None:
        versioned = {_key(store, part) for store, parts in read.items() if store.kind.is_versioned for part in parts}
        changelogs = _changelogs(read)
        if versioned_ms is None:  # rebuilt from all records
            changelogs = {key: parts for key, parts in changelogs.items() if key not in versioned}
        else:
            now_ms = int(time.time() * 1000) if read_at_ms is None else read_at_ms
            candidates = Younger(candidates, versioned, now_ms - versioned_ms)
        stops = {part: log.end(isolation) for part, log in logs.items()}
        chosen = choose(changelogs, candidates, topics, offsets, stops, cluster.epoch_ends, cost)
    workers = parallelism()
    budget = request.memory_budget
    weights = SizeEstimate({}, 0)

    def shapes(spans: Collection[OffsetRange]) -> Mapping[TopicPartition, PartitionShape]:
        nonlocal weights
        tails = [span for span in spans if span.start > logs[span.topic_partition].log_start]
        whole = [span for span in spans if span not in tails]
        known = (
            estimate_sizes(cluster, whole, workers, budget, complete=request.plan_only)
            if whole
            else SizeEstimate({}, 0)
        )
        of_tails = {span.topic_partition: PartitionShape.of_offsets(span) for span in tails}
        weights = SizeEstimate({**known.shapes, **of_tails}, known.log_bytes)
        return weights.shapes

    plan = make_plan(
        spec,
        wanted,
        topics,
        logs,
        parallelism=workers,
        memory_budget=budget,
        versioned=request.versioned,
        shapes=shapes,
        epochs={part: log.leader_epoch for part, log in offsets.items()},
        bases=chosen.bases,
        log_ends={part: log.end(isolation) for part, log in offsets.items()},
        is_timed=read_at_ms is not None,
    )
    notes = notes_of(cluster, spec, plan, request)
    disk = disk_need(plan, weights, workers, budget)
    if request.plan_only:
        notes = (*notes, estimate_of(plan, weights, disk if builds else None, budget))
    return NewPlan(plan, notes, disk, chosen, topics, read_at_ms, cluster.cluster_id())


def _key(store: StoreSpec, partition: int) -> Key:
    return task_of(store, partition), store.name


def _changelogs(stores: Mapping[StoreSpec, Sequence[int]]) -> dict[Key, frozenset[TopicPartition]]:
    """The changelog partitions of each store of each task."""
    found: dict[Key, set[TopicPartition]] = defaultdict(set)
    for store, numbers in stores.items():
        for number in numbers:
            found[_key(store, number)].add(TopicPartition(store.changelog, number))
    return {key: frozenset(parts) for key, parts in found.items()}


def _partitions(wanted: Mapping[StoreSpec, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(store.changelog, partition) for store, parts in wanted.items() for partition in parts]


def _open_transactions(
    spec: ApplicationSpec,
    offsets: Mapping[TopicPartition, LogOffsets],
    read: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> Sequence[TopicPartition]:
    """Partitions whose wanted records are held back by an open transaction."""
    if not spec.processing_guarantee.is_exactly_once:
        return []
    return [part for part in read if offsets[part].last_stable < offsets[part].until(ends.get(part)).log_end]


def consumed_sources(
    cluster: Cluster, spec: ApplicationSpec, offsets: Mapping[TopicPartition, LogOffsets]
) -> dict[TopicPartition, LogOffsets]:
    """Source topics that are changelogs, up to the offsets that the application has committed.

    Raises:
        NotFound: nothing is committed within the log of one that has records (``committed-offset-missing``).
    """
    committed = committed_offsets(cluster, spec.application_id, offsets)
    _refuse_unknown_progress(spec, {part: (log, committed[part]) for part, log in offsets.items()})
    return {part: log.consumed(committed[part]) for part, log in offsets.items()}


def _refuse_unknown_progress(
    spec: ApplicationSpec, sources: Mapping[TopicPartition, tuple[LogOffsets, int | None]]
) -> None:
    """Refuse source topics without a usable committed offset: an empty store would be wrong."""
    unknown = {
        str(part): f"{part} ({'nothing committed' if committed is None else f'committed {committed}'}, records from "
        f"{log.log_start} to {log.log_end})"
        for part, (log, committed) in sorted(sources.items())
        if log.log_end > log.log_start and (committed is None or committed < log.log_start)
    }
    if unknown:
        raise NotFound(
            f"The consumer group {spec.application_id} has committed no offset within the log of "
            + "; ".join(unknown.values())
            + ": a store restored from a source topic ends at the group's committed offset.",
            code="committed-offset-missing",
            action="Check the application id and that the group's offsets have not expired; if the application never "
            "ran, there is nothing to restore; otherwise leave the store out with --store.",
            group=spec.application_id,
            partitions=list(unknown),
        )
