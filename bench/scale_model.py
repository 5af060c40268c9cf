"""What a restore of a very large changelog is made of: the plan, its tasks, and what they cost.

The plan is the product's own: ``plan_ranges`` cuts partitions into ranges, ``slices_to_merge`` says which runs of a
partition have to be merged. What a record and a row cost is measured (``Costs``); what a cluster and an object store
can do is assumed (``Cluster``), and so is that keys are drawn evenly: of ``n`` records over ``k`` keys,
``k (1 - e^(-n/k))`` rows are left.

There are three stages, with the object store between them:

1. *read*: a task for each range reads it from the broker that leads the partition, keeps the last write of each key,
   writes a run and puts it into the store.
2. *merge*: partitions whose runs Kafka Streams would rewrite have them merged, in slices of keys: a task gets its slice
   of the runs, merges it and puts the result. Where nothing has to be merged there is no such stage.
3. *fetch*: the instances of the application get the runs of their partitions, compare the hashes and build the images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.sharing import Course, Hosts, Phase, simulate
from statecore.changelog.model import OffsetRange
from statecore.changelog.ranges import plan_ranges
from statecore.changelog.record_density import PartitionShape
from statecore.images.read_amplification import slices_to_merge

MICRO, MEGA, GIGA, TERA = 1e-6, 1e6, 1e9, 1e12
STORE = "object store"
PART_BYTES = 64 * MEGA
"""What one request puts or gets."""
RECORD_BYTES = 16 + 100
"""Of a record's key and value."""
SLICE_BYTES = 1 * GIGA
"""Of the runs that one task merges, at most."""


@dataclass(frozen=True)
class Costs:
    """What was measured, on two virtual cores: CPU seconds of one core, and bytes.

    Attributes:
        read: of a record: fetch, CRC, decompression, columns.
        collect: of a record whose key is in memory: its last write.
        collect_spilled: of a record where nearly all keys are on the disk.
        write: of a row of a run that was in memory: sort, SST file, hash.
        write_spilled: of a row where nearly all were on the disk.
        merge: of a row of the runs that are merged and added up.
        image: of a row of the runs of an image: hash, ingest, commit.
        log_bytes: of a record in the log.
        row_bytes: of a row in a run.
        memory_bytes: of a row in memory, while its last write is looked for.
        start: seconds of a job before its first task and after its last one.
        streams: of a record, where Kafka Streams restores it.
    """

    read: float = (0.030 + 0.188) * MICRO
    collect: float = 0.072 * MICRO
    collect_spilled: float = 0.397 * MICRO
    write: float = 0.932 * MICRO
    write_spilled: float = 1.198 * MICRO
    merge: float = 0.32 * MICRO
    image: float = 0.194 * MICRO
    log_bytes: float = 62.8
    row_bytes: float = 135.0
    memory_bytes: float = 260.0
    start: float = 2.6
    streams: float = 4.48 * MICRO


@dataclass(frozen=True)
class Workload:
    """The changelog.

    Attributes:
        log_bytes: as it lies on the leaders of its partitions, compressed.
        partitions: how many.
        overwrites: share of the records whose key comes again, as in ``bench.shapes``.
        skew: the n-th largest partition is ``n ** -skew`` times the largest.
    """

    log_bytes: float = 1 * TERA
    partitions: int = 200
    overwrites: float = 0.75
    skew: float = 0.0

    def sizes(self, costs: Costs) -> list[int]:
        """Records of each partition."""
        weights = np.arange(1, self.partitions + 1, dtype=np.float64) ** -self.skew
        return [int(one) for one in weights / weights.sum() * self.log_bytes / costs.log_bytes]


EXECUTORS = Hosts(100, 4, 195 * MEGA, 400 * MEGA, straggling=0.05, losses=0.05)
INSTANCES = Hosts(20, 4, 195 * MEGA, 400 * MEGA)


@dataclass(frozen=True)
class Cluster:
    """What is assumed of the machines around, bytes a second where nothing else is said.

    Attributes:
        executors: which read and merge; each is a host with local disk.
        instances: of the application, which fetch.
        budget: ``--memory-budget`` of a task, bytes.
        brokers: among which the partitions are spread evenly.
        broker: what one broker can read and send besides its own work.
        quota: what a quota of the client (``consumer_byte_rate``) allows on each broker; none where it is infinite.
        store: of the object store, over all.
        connections: of one task's connections to the object store together.
        most_ranges: of one partition, whatever they take of memory; none where the planner says how many.
        range_cut: where given, every partition is cut into so many ranges, whatever the planner says.
    """

    executors: Hosts = EXECUTORS
    instances: Hosts = INSTANCES
    budget: float = 2 * 2**30
    brokers: int = 12
    broker: float = 250 * MEGA
    quota: float = math.inf
    store: float = 20 * GIGA
    connections: float = 4 * 90 * MEGA
    most_ranges: int | None = None
    range_cut: int = 0

    @property
    def shared(self) -> Mapping[str, float]:
        """What all hosts share, by name."""
        names = {f"broker {number}": min(self.broker, self.quota) for number in range(self.brokers)}
        return names | {STORE: self.store}


@dataclass(frozen=True)
class Plan:
    """The tasks of the three stages.

    Attributes:
        read: a task for each range.
        merge: a task for each slice of keys.
        fetch: a task for each partition, the largest first.
        run_bytes: of the runs that the first stage puts.
        merged_bytes: of those that the second one puts.
        fetched_bytes: of those that the instances get.
    """

    read: Sequence[Sequence[Phase]]
    merge: Sequence[Sequence[Phase]]
    fetch: Sequence[Sequence[Phase]]
    run_bytes: float
    merged_bytes: float
    fetched_bytes: float

    @property
    def puts(self) -> float:
        """Requests that put, at 64 MB."""
        return (self.run_bytes + self.merged_bytes) / PART_BYTES + len(self.read) + len(self.merge)

    @property
    def gets(self) -> float:
        """Requests that get, at 64 MB."""
        return (self.merged_bytes + self.fetched_bytes) / PART_BYTES + len(self.merge) + len(self.fetch)


@dataclass(frozen=True)
class Outcome:
    """One restore.

    Attributes:
        plan: what was done.
        courses: of the stages, by name, in order.
        start: seconds besides.
    """

    plan: Plan
    courses: Mapping[str, Course]
    start: float

    @property
    def seconds(self) -> float:
        """From the start of the job until every instance has its state."""
        return self.start + sum(course.seconds for course in self.courses.values())

    @property
    def executor_seconds(self) -> float:
        """How long the executors are there."""
        return self.start + self.courses["read"].seconds + self.courses["merge"].seconds

    def busiest(self, stage: str) -> tuple[str, float]:
        """The resource that was used most in a stage, and its share over the stage; of brokers the busiest one's."""
        course = self.courses[stage]
        names = course.spans[0].busy if course.spans else ()
        share, name = max(((course.busy(name), name) for name in names), default=(0.0, ""))
        return ("brokers" if name.startswith("broker") else name), share


def distinct(records: float, keys: float) -> float:
    """Keys that so many records have, drawn evenly from so many."""
    return keys * -math.expm1(-records / keys) if keys else 0.0


def planned(work: Workload, cluster: Cluster, costs: Costs) -> Plan:
    """The plan of a restore, with what each task of it costs."""
    sizes = work.sizes(costs)
    wholes = [OffsetRange("changelog", number, 0, size) for number, size in enumerate(sizes)]
    slots = cluster.executors.count * cluster.executors.cores
    if cluster.range_cut:
        ranges = plan_ranges(wholes, cluster.range_cut * len(wholes), most=cluster.range_cut)
    else:
        shapes = {
            whole.topic_partition: PartitionShape(whole, (float(whole.end),), float(whole.end * RECORD_BYTES))
            for whole in wholes
        }
        if cluster.most_ranges is None:
            ranges = plan_ranges(wholes, slots, shapes, memory_budget=int(cluster.budget))
        else:
            ranges = plan_ranges(wholes, slots, shapes, most=cluster.most_ranges)
    runs_of: dict[int, list[tuple[int, int, float]]] = {}
    read = []
    for one in ranges:
        records = one.end - one.start
        rows = _rows(records, sizes[one.partition], work)
        runs_of.setdefault(one.partition, []).append((one.start, records, rows))
        read.append(_read_task(one.partition, records, rows, cluster, costs))
    merge: list[Sequence[Phase]] = []
    fetch: list[tuple[float, Sequence[Phase]]] = []
    run_bytes = merged_bytes = fetched_bytes = 0.0
    for partition, runs in runs_of.items():
        runs.sort()
        each = [rows for _, _, rows in runs]
        left = list(each)
        for group in reversed(slices_to_merge([int(rows * costs.row_bytes) for rows in each])):
            records = sum(records for _, records, _ in runs[group])
            together = _rows(records, sizes[partition], work)
            merge += _merge_tasks(sum(each[group]), together, cluster, costs)
            merged_bytes += together * costs.row_bytes
            left[group] = [together]
        run_bytes += sum(each) * costs.row_bytes
        fetched_bytes += sum(left) * costs.row_bytes
        fetch.append((sum(left), _fetch_task(sum(left), cluster, costs)))
    fetch.sort(key=lambda one: -one[0])
    return Plan(read, merge, [task for _, task in fetch], run_bytes, merged_bytes, fetched_bytes)


def restored(work: Workload, cluster: Cluster, costs: Costs, seed: int = 1) -> Outcome:
    """Simulate a restore."""
    plan = planned(work, cluster, costs)
    random = np.random.default_rng(seed)
    courses = {
        "read": simulate(plan.read, cluster.executors, cluster.shared, random),
        "merge": simulate(plan.merge, cluster.executors, {STORE: cluster.store}, random),
        "fetch": simulate(plan.fetch, replace(cluster.instances, losses=0.0), {STORE: cluster.store}, random),
    }
    return Outcome(plan, courses, costs.start)


def _rows(records: float, of_partition: int, work: Workload) -> float:
    """Rows that are left of some records of a partition."""
    return distinct(records, of_partition * (1 - work.overwrites)) if work.overwrites else records


def _read_task(partition: int, records: int, rows: float, cluster: Cluster, costs: Costs) -> list[Phase]:
    spilled = 1 - min(1.0, cluster.budget / max(1.0, rows * costs.memory_bytes))
    collect = costs.collect + spilled * (costs.collect_spilled - costs.collect)
    write = costs.write + spilled * (costs.write_spilled - costs.write)
    # The scratch file is written once and half of it anew, and read as often; the run is written once and read once.
    scratch, run = 1.5 * spilled * records * costs.row_bytes, rows * costs.row_bytes
    log = records * costs.log_bytes
    broker = {f"broker {partition % cluster.brokers}": log}
    return [
        Phase(records * (costs.read + collect), network=log, disk=scratch, shared=broker),
        Phase(rows * write, disk=scratch + run),
        Phase(0.0, network=run, disk=run, shared={STORE: run}, alone=cluster.connections),
    ]


def _merge_tasks(rows: float, together: float, cluster: Cluster, costs: Costs) -> list[list[Phase]]:
    slices = math.ceil(rows * costs.row_bytes / SLICE_BYTES)
    old, new = rows * costs.row_bytes / slices, together * costs.row_bytes / slices
    task = [
        Phase(0.0, network=old, disk=old, shared={STORE: old}, alone=cluster.connections),
        Phase(rows * costs.merge / slices, disk=old + new),
        Phase(0.0, network=new, disk=new, shared={STORE: new}, alone=cluster.connections),
    ]
    return [task] * slices


def _fetch_task(rows: float, cluster: Cluster, costs: Costs) -> list[Phase]:
    size = rows * costs.row_bytes
    return [Phase(rows * costs.image, network=size, disk=size, shared={STORE: size}, alone=cluster.connections)]
