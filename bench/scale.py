"""A changelog of one terabyte, restored by a hundred executors with an object store between the stages: a simulation.

::

    python -m bench.scale              prints the tables of docs/scale.md
    python -m bench.scale --write      puts them and the picture there

What a record and a row cost is measured, and ``MEASURED`` says where; all else is assumed (``bench.scale_model``). The
same seeds give the same tables, of which each row is the median of ``SEEDS`` simulations.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bench.plots import Panel, plot
from bench.scale_model import GIGA, MEGA, MICRO, TERA, Cluster, Costs, Outcome, Workload, restored
from bench.sharing import Hosts

DOCS = Path(__file__).parents[1] / "docs"
SEEDS = range(1, 10)
PROVISION = 120.0
"""Seconds for which executors are paid before they can work."""
HOST_HOUR, PUT, GET, GB_MONTH, CROSS_ZONE_GB = 0.24, 5e-6, 4e-7, 0.023, 0.02
"""Dollars: a host of 4 virtual cores, 16 GiB and a local disk; a request; storage; traffic between zones, both ends."""
CROSS_ZONE_SHARE = 2 / 3
"""Of the log that comes from another zone than the executor's, with three zones and no fetch from followers."""
PEERS = "`bench.restore` at 20 million records ([bench/README.md](../bench/README.md))"
SPILLED_SHARE = "two thirds of 6.1 million rows do not fit into 512 MiB ([bench/README.md](../bench/README.md))"
CHECKED = {20: 7.5, 100: 50.6}
"""Seconds that two processes took for so many million records (``bench.restore``, a machine without other work)."""
PROFILE = "`bench.stages --size 8`"
SPILLED = '`bench.stages --size 8 --options "--memory-budget 16m"`'
MEASURED: Mapping[str, tuple[str, float, str, str]] = {
    "read": ("fetch, CRC, decompression, columns", MICRO, "µs a record", PROFILE),
    "collect": ("last write of a key that is in memory", MICRO, "µs a record", PROFILE),
    "collect_spilled": ("the same with nearly all keys on disk", MICRO, "µs a record", SPILLED),
    "write": ("sort, SST file, hash", MICRO, "µs a row", PROFILE),
    "write_spilled": ("the same of rows that were on disk", MICRO, "µs a row", SPILLED),
    "merge": ("merge of eight runs, digest, image", MICRO, "µs a row", "`bench.merge_before_ingest`"),
    "image": ("hash, ingest, commit", MICRO, "µs a row", PROFILE),
    "log_bytes": ("a record in the log: 16 + 100 bytes, lz4", 1.0, "bytes", "`bench.changelog`"),
    "row_bytes": ("a row in a run", 1.0, "bytes", PROFILE),
    "memory_bytes": ("a row in memory while it is collected", 1.0, "bytes", SPILLED_SHARE),
    "start": ("start and end of a job under Spark", 1.0, "s", PEERS),
    "streams": ("Kafka Streams, whole process", MICRO, "µs a record", PEERS),
}
"""By the field of ``Costs``: what it is, its unit, and where it was measured."""

WORK, CLUSTER = Workload(), Cluster()
"""The base, of which every case differs in one thing."""


@dataclass(frozen=True)
class Case:
    """One row of a table.

    Attributes:
        name: what differs from the base.
        work: the changelog.
        cluster: the machines.
    """

    name: str
    work: Workload = WORK
    cluster: Cluster = CLUSTER


def outcome(case: Case) -> Outcome:
    """The median of all seeds by the time it took."""
    found = [restored(case.work, case.cluster, Costs(), seed) for seed in SEEDS]
    return sorted(found, key=lambda one: one.seconds)[len(found) // 2]


def dollars(case: Case, found: Outcome) -> tuple[float, float, float]:
    """Executors, object store with a day of storage, and traffic between zones."""
    hours = (found.executor_seconds + PROVISION) / 3600
    plan = found.plan
    stored = (plan.run_bytes + plan.merged_bytes) / GIGA * GB_MONTH / 30
    traffic = case.work.log_bytes / GIGA * CROSS_ZONE_SHARE * CROSS_ZONE_GB
    return hours * case.cluster.executors.count * HOST_HOUR, plan.puts * PUT + plan.gets * GET + stored, traffic


def measured_table() -> str:
    """The inputs that were measured."""
    rows = ["| what | cost | where |", "|---|---:|---|"]
    costs = Costs()
    rows += [
        f"| {what} | {getattr(costs, name) / unit:.3g} {word} | {where} |"
        for name, (what, unit, word, where) in MEASURED.items()
    ]
    return "\n".join(rows)


def table(first: str, cases: Sequence[Case]) -> str:
    """What comes out of each case."""
    rows = [
        f"| {first} | ranges | runs put | merged, put again | fetched | read | merge | fetch | all | busiest while "
        "reading | executors | zones |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    for case in cases:
        found = outcome(case)
        plan, seconds = found.plan, {name: course.seconds for name, course in found.courses.items()}
        resource, share = found.busiest("read")
        executors, _, zones = dollars(case, found)
        rows.append(
            f"| {case.name} | {len(plan.read)} | {_tera(plan.run_bytes)} | {_tera(plan.merged_bytes)} "
            f"| {_tera(plan.fetched_bytes)} | {_minutes(seconds['read'])} | {_minutes(seconds['merge'])} "
            f"| {_minutes(seconds['fetch'])} | **{_minutes(found.seconds)}** | {resource} {share:.0%} "
            f"| {executors:.1f} $ | {zones:.1f} $ |"
        )
    return "\n".join(rows)


def cuts() -> list[Case]:
    """The plan as it is made, and with other numbers of ranges."""
    forced = [Case(f"into {cut}" if cut > 1 else "not at all", cluster=Cluster(range_cut=cut)) for cut in (1, 2, 3, 4)]
    return [Case("for all cores, as a job does"), *forced]


def sensitivity() -> Iterator[Case]:
    """One thing changed at a time."""
    base = CLUSTER
    yield Case("**base**")
    for count in (10, 20, 50, 200, 400):
        yield Case(f"{count} executors", cluster=executors(count))
    for count in (6, 24, 48):
        yield Case(f"{count} brokers", cluster=Cluster(brokers=count))
    for rate in (25, 50, 100):
        yield Case(f"quota of {rate} MB/s a broker", cluster=Cluster(quota=rate * MEGA))
    yield Case("quota of 25 MB/s, 10 executors", cluster=replace(executors(10), quota=25 * MEGA))
    for rate in (1, 2, 5):
        yield Case(f"object store {rate} GB/s in all", cluster=Cluster(store=rate * GIGA))
    for slow in (22.5, 90.0):
        yield Case(f"object store {slow:g} MB/s a task", cluster=Cluster(connections=slow * MEGA))
    for share in (0.0, 0.5, 0.95):
        yield Case(f"{share:.0%} overwrites" if share else "no overwrites", Workload(overwrites=share))
    for skew in (0.5, 1.0):
        yield Case(f"skew {skew:g}", Workload(skew=skew))
    yield Case("skew 1, up to 32 ranges each", Workload(skew=1.0), Cluster(most_ranges=32))
    for partitions in (24, 1000):
        yield Case(f"{partitions} partitions", Workload(partitions=partitions))
    yield Case("budget of 512 MiB a task", cluster=Cluster(budget=512 * 2**20))
    for share in (0.0, 0.2):
        yield Case(
            f"{share:.0%} stragglers", cluster=replace(base, executors=replace(base.executors, straggling=share))
        )
    for count in (10, 40):
        yield Case(f"{count} instances", cluster=replace(base, instances=replace(base.instances, count=count)))
    fast = replace(base.instances, network=1250 * MEGA, disk=1250 * MEGA)
    yield Case("instances with 10 Gbit/s", cluster=replace(base, instances=fast))
    twentieth = Workload(log_bytes=TERA / 20, partitions=10)
    yield Case("one instance of 20 lost: 50 GB", twentieth, replace(base, instances=replace(base.instances, count=1)))
    yield Case("the same with 10 Gbit/s", twentieth, replace(base, instances=replace(fast, count=1)))


def losses_table() -> str:
    """What lost executors cost, with runs in the object store and with runs on the executors' disks; means."""
    rows = [
        "| each executor is lost | executors lost | work thrown away | all | runs on the executors' disks: work thrown "
        "away | all |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, rate in (("never", 0.0), ("every 20 hours", 0.05), ("every hour", 1.0), ("every 15 minutes", 4.0)):
        cells: list[str] = []
        for durable in (True, False):
            hosts = replace(CLUSTER.executors, losses=rate, durable=durable)
            found = [restored(WORK, replace(CLUSTER, executors=hosts), Costs(), seed) for seed in SEEDS]
            courses = [course for one in found for course in one.courses.values()]
            if durable:
                cells.append(f"{sum(course.lost_hosts for course in courses) / len(found):.0f}")
            thrown = sum(course.lost_core_seconds for course in courses) / len(found) / 3600
            cells += [f"{thrown:.1f} core hours", _minutes(fmean(one.seconds for one in found))]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def executors(count: int, brokers: int = 12) -> Cluster:
    """The base with other numbers of executors and brokers."""
    return replace(CLUSTER, executors=replace(CLUSTER.executors, count=count), brokers=brokers)


def check_table() -> str:
    """What the model says of the machine that was measured on, beside what it took."""
    machine = Hosts(1, 2, network=TERA, disk=700 * MEGA)
    local = Cluster(
        machine, machine, budget=512 * 2**20, brokers=1, broker=TERA, store=TERA, connections=TERA, range_cut=1
    )
    rows = ["| records | simulated | measured |", "|---:|---:|---:|"]
    for millions, seconds in CHECKED.items():
        work = Workload(log_bytes=millions * 1e6 * Costs().log_bytes, partitions=4)
        found = restored(work, local, replace(Costs(), start=1.3))
        rows.append(f"| {millions} million | {found.seconds:.1f} s | {seconds} s |")
    return "\n".join(rows)


def words() -> str:
    """The figures of the base that the text speaks of."""
    case = Case("base")
    found, costs = outcome(case), Costs()
    work, cluster = case.work, case.cluster
    records = work.log_bytes / costs.log_bytes
    core_seconds = sum(phase.cpu for task in (*found.plan.read, *found.plan.merge) for phase in task)
    hosts, instances = cluster.executors, cluster.instances
    machines, store, zones = dollars(case, found)
    streams = records * costs.streams / (instances.count * instances.cores)
    return "\n".join(
        [
            "| floor | by | at least |",
            "|---|---|---:|",
            f"| processors | {core_seconds / 3600:.1f} core hours on {hosts.count * hosts.cores} cores "
            f"| {_minutes(core_seconds / hosts.count / hosts.cores)} |",
            f"| the executors' network | {_tera(work.log_bytes + found.plan.run_bytes)} at {hosts.count} × "
            f"{hosts.network / MEGA:.0f} MB/s | "
            f"{_minutes((work.log_bytes + found.plan.run_bytes) / hosts.count / hosts.network)} |",
            f"| the brokers | {_tera(work.log_bytes)} at {cluster.brokers} × {cluster.broker / MEGA:.0f} MB/s | "
            f"{_minutes(work.log_bytes / cluster.brokers / cluster.broker)} |",
            f"| the instances' network | {_tera(found.plan.fetched_bytes)} at {instances.count} × "
            f"{instances.network / MEGA:.0f} MB/s | "
            f"{_minutes(found.plan.fetched_bytes / instances.count / instances.network)} |",
            f"| **simulated** | read, merge, fetch, one after the other | **{_minutes(found.seconds)}** |",
            f"| Kafka Streams on the instances | {costs.streams / MICRO:.2f} µs a record on "
            f"{instances.count * instances.cores} cores, if it stayed what it is at 20 million | {_minutes(streams)} |",
            "",
            f"The base costs {machines:.2f} $ for executors, {store:.2f} $ for the object store (requests of 64 MB and "
            f"a day of storage) and {zones:.2f} $ for traffic between zones.",
        ]
    )


def picture() -> str:
    """What is busy when, and how long it takes by executors, brokers and quotas."""
    base = outcome(Case("base"))
    step = math.ceil(base.seconds / 16 / 30) * 30
    series: dict[str, list[float]] = {"brokers": [], "executors' network": [], "cores": [], "instances' network": []}
    labels = [f"{(at + 0.5) * step / 60:.3g}" for at in range(math.ceil(base.seconds / step))]
    for at in range(len(labels)):
        shares = _between(base, at * step, (at + 1) * step)
        for name, values in series.items():
            values.append(100 * shares.get(name, 0.0))
    counts, brokers = (10, 20, 50, 100, 200, 400), (6, 12, 24, 48)
    by_executors = {
        f"{one} brokers": [outcome(Case("", cluster=executors(count, one))).seconds / 60 for count in counts]
        for one in brokers
    }
    quotas = (25, 50, 100, 150, 200, 250)
    by_quota = {
        f"{one} brokers": [
            outcome(Case("", cluster=Cluster(brokers=one, quota=rate * MEGA))).seconds / 60 for rate in quotas
        ]
        for one in brokers
    }
    panels = [
        Panel("busy, % of all there is, by minute", series, labels=labels),
        Panel("minutes, by number of executors", by_executors, labels=[str(one) for one in counts]),
        Panel("minutes, by MB/s of a broker", by_quota, labels=[str(one) for one in quotas]),
    ]
    return plot((), panels)


def _between(found: Outcome, begin: float, end: float) -> dict[str, float]:
    """The share of each resource that is used in some seconds of a restore."""
    shares: dict[str, float] = {}
    now = found.start / 2
    for stage, course in found.courses.items():
        for span in course.spans:
            part = max(0.0, min(end, now + span.seconds) - max(begin, now)) / (end - begin)
            now += span.seconds
            brokers = [share for name, share in span.busy.items() if name.startswith("broker")]
            network = "instances' network" if stage == "fetch" else "executors' network"
            used = {network: span.busy["network"], "brokers": sum(brokers) / max(1, len(brokers))}
            if stage != "fetch":
                used["cores"] = span.busy["cores"]
            for name, share in used.items():
                shares[name] = shares.get(name, 0.0) + part * share
    return shares


def _tera(amount: float) -> str:
    return f"{amount / TERA:.2f} TB" if amount else "none"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds else "none"


def main() -> int:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put tables and picture into docs/scale.md")
    given = parser.parse_args()
    blocks = {
        "measured": measured_table(),
        "check": check_table(),
        "floors": words(),
        "cuts": table("each partition is cut", cuts()),
        "losses": losses_table(),
        "sensitivity": table("changed", list(sensitivity())),
    }
    print("\n\n".join(blocks.values()))
    if given.write:
        page = DOCS / "scale.md"
        text = page.read_text()
        for name, block in blocks.items():
            before, _, rest = text.partition(f"<!-- {name} -->")
            text = f"{before}<!-- {name} -->\n{block}\n<!-- /{name} -->{rest.partition(f'<!-- /{name} -->')[2]}"
        page.write_text(text)
        (DOCS / "scale.svg").write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
