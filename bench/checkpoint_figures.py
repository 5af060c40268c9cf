"""What checkpoints took, and the tables of it in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.s3_request_log import KINDS

MILLION = 1_000_000
APPLICATIONS, DAYS, HOURS = 50, 30, 24
CHECKPOINTS = 288
"""Of a day, one every five minutes."""
PRICES: Mapping[str, float] = {
    "PUT": 5e-6,
    "POST": 5e-6,
    "GET": 4e-7,
    "HEAD": 4e-7,
    "LIST": 5e-6,
    "DELETE": 0.0,
}
"""Dollars of a request at S3's list price, by the kinds of ``bench.s3_request_log``."""


@dataclass(frozen=True)
class Work:
    """What one job took.

    Attributes:
        wall: seconds.
        cpu: CPU seconds of all its processes.
        records: that it read.
        read: bytes that came from the brokers.
        put: bytes that went to the object store, of requests and what they carry.
        got: bytes that came from it, likewise.
        asked: requests to it, by kind.
        phases: wall seconds of its phases.
    """

    wall: float
    cpu: float
    records: int
    read: int
    put: int
    got: int
    asked: Mapping[str, int]
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Step:
    """One checkpoint of many, and the compaction after it, if one was due.

    Attributes:
        asked: requests to the object store, by kind.
        put: bytes that went there.
        got: bytes that came from there.
        seconds: it took.
        changed: bytes of the runs that it made.
        compacted: bytes of the runs that the compaction made; ``None`` without one.
        is_idle: whether nothing was new.
        is_first_of_hour: whether it published, and nothing had been in the hour of the clock.
        runs: of the database that has the most, afterwards.
        state: bytes of all files that the newest snapshot names.
    """

    asked: Mapping[str, int]
    put: int
    got: int
    seconds: float
    changed: int
    compacted: int | None
    is_idle: bool
    is_first_of_hour: bool
    runs: int
    state: int


@dataclass(frozen=True)
class Fetched:
    """A fetch of a snapshot, and what Kafka Streams makes of it.

    Attributes:
        wall: seconds of the whole command.
        inside: of them without interpreter and imports.
        runs: of the snapshot's database that has the most.
        named: bytes of all runs of the snapshot.
        placed: bytes of the files that hold rows, in the state directory.
        records: that Kafka Streams has restored on it.
        rewritten: bytes of those files that are no more when Kafka Streams has run.
    """

    wall: float
    inside: float
    runs: int
    named: int
    placed: int
    records: int
    rewritten: int


def middle(works: Sequence[Work]) -> Work:
    """The one in the middle, by wall time; of two the shorter one."""
    return sorted(works, key=lambda one: one.wall)[(len(works) - 1) // 2]


def rebuild_table(rebuild: Work, rows: Mapping[str, Work]) -> str:
    """Checkpoints beside the rebuild that they spare: how many times less each takes.

    Args:
        rebuild: of the whole changelog.
        rows: the checkpoints, by what is said of them.
    """
    columns: dict[str, Callable[[Work], float]] = {
        "wall": lambda one: one.wall,
        "CPU": lambda one: one.cpu,
        "from the brokers": lambda one: one.read,
        "put": lambda one: one.put,
        "got": lambda one: one.got,
    }
    shown = {"wall": seconds, "CPU": seconds}
    heads = " | ".join(f"{name} | ×" if name != "got" else name for name in columns)
    lines = [f"| | records | {heads} | requests |", "|---|" + "---:|" * (2 * len(columns) + 1)]
    for name, one in {"full rebuild": rebuild, **rows}.items():
        cells = []
        for column, of in columns.items():
            cells.append(shown.get(column, megabytes)(of(one)))
            if column != "got":
                cells.append(times(of(rebuild), of(one)) if one.records else "")
        lines.append(f"| {name} | {one.records:,} | {' | '.join(cells)} | {requests(one.asked)} |")
    return "\n".join(lines) + "\n"


def cost_table(first: str, rows: Mapping[str, Work]) -> str:
    """What each of several checkpoints took.

    Args:
        first: the heading of what they differ in.
        rows: the checkpoints, by that.
    """
    lines = [
        f"| {first} | wall | CPU | from the brokers | put | got | requests | phases |",
        "|---|" + "---:|" * 6 + "---|",
    ]
    for name, one in rows.items():
        phases = ", ".join(f"{phase} {seconds(wall)}" for phase, wall in one.phases.items())
        lines.append(
            f"| {name} | {seconds(one.wall)} | {seconds(one.cpu)} | {megabytes(one.read)} | {megabytes(one.put)} "
            f"| {megabytes(one.got)} | {requests(one.asked)} | {phases} |"
        )
    return "\n".join(lines) + "\n"


def day_table(steps: Sequence[Step]) -> str:
    """What a day of checkpoints came to."""
    changed, compacted = sum(one.changed for one in steps), sum(one.compacted or 0 for one in steps)
    put, compactions = sum(one.put for one in steps), sum(one.compacted is not None for one in steps)
    runs = sorted(one.runs for one in steps)
    rows = {
        "checkpoints": f"{len(steps)}",
        "compactions": f"{compactions}, one for {len(steps) / compactions:.1f} checkpoints" if compactions else "none",
        "bytes of change (runs of checkpoints)": megabytes(changed),
        "runs of compactions": f"{megabytes(compacted)}, {compacted / changed:.2f} for a byte of change",
        "plans, parts, manifests, heads, and all that requests say": f"{megabytes(put - changed - compacted)}, "
        f"{(put - changed - compacted) / changed:.2f} for a byte of change",
        "put, in all": f"{megabytes(put)}, {put / changed:.2f} for a byte of change (goal: at most 6)",
        "got, in all": megabytes(sum(one.got for one in steps)),
        "runs of a database": f"{runs[len(runs) // 2]} in the middle, {runs[-1]} at most",
        "files of the newest snapshot": f"{megabytes(steps[0].state)} after the first, {megabytes(steps[-1].state)} "
        "after the last",
        "a checkpoint, with its compaction if any": f"{seconds(statistics.median(one.seconds for one in steps))}"
        f" in the middle, {seconds(max(one.seconds for one in steps))} at most",
        "requests": requests(total(steps)),
    }
    lines = [f"| {name} | {cell} |" for name, cell in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def price_table(small: Sequence[Step], share: float | None, partitions: int) -> str:
    """What checkpoints of many small store partitions ask of the object store, and what a month of that costs.

    Args:
        small: some of them, of every kind.
        share: compactions for each checkpoint over a day; ``None``: as among these.
        partitions: store partitions of the application.
    """
    busy = [one for one in small if not one.is_idle]
    kinds = {
        "nothing is new": [one for one in small if one.is_idle],
        "something is new in each": [one for one in busy if one.compacted is None and not one.is_first_of_hour],
        "the same, the first of its hour": [one for one in busy if one.compacted is None and one.is_first_of_hour],
        "the same, with a compaction": [one for one in busy if one.compacted is not None],
    }
    lines = [f"| a checkpoint of {partitions} store partitions | requests | price of a thousand |", "|---|---:|---:|"]
    priced: dict[str, float] = {}
    for name, of in kinds.items():
        if of:
            one = sorted(of, key=lambda one: price(one.asked))[(len(of) - 1) // 2]
            priced[name] = price(one.asked)
            lines.append(f"| {name} | {requests(one.asked)} | ${1000 * priced[name]:.3f} |")
    if len(priced) == len(kinds):
        idle, plain, first, compaction = priced.values()
        if share is None:
            share = len(kinds["the same, with a compaction"]) / len(busy)
        day = CHECKPOINTS * plain + HOURS * (first - plain) + CHECKPOINTS * share * (compaction - plain)
        lines.append(
            f"| **{APPLICATIONS} applications, a month, always something new in each, a compaction for "
            f"{times(1, share)} checkpoints** (goal: under $20) | | **${APPLICATIONS * DAYS * day:.2f}** |"
        )
        quiet = APPLICATIONS * DAYS * CHECKPOINTS * idle
        lines.append(f"| {APPLICATIONS} applications, a month, never anything new | | ${quiet:.2f} |")
    return "\n".join(lines) + "\n"


def fetch_table(fetched: Mapping[str, Fetched]) -> str:
    """Fetches of several snapshots of the same state; what the last one takes is what the others are compared with."""
    last = list(fetched.values())[-1]
    columns: dict[str, Callable[[Fetched], str]] = {
        "runs of a database": lambda one: f"{one.runs}",
        "bytes of runs": lambda one: megabytes(one.named),
        "fetch, whole command": lambda one: seconds(one.wall),
        "×": lambda one: f"{one.wall / last.wall:.2f}",
        "without interpreter": lambda one: seconds(one.inside),
        "× without": lambda one: f"{one.inside / last.inside:.2f}",
        "placed": lambda one: megabytes(one.placed),
        "Kafka Streams restores": lambda one: f"{one.records:,} records",
        "it rewrites": lambda one: megabytes(one.rewritten),
    }
    lines = [f"| snapshot | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for name, one in fetched.items():
        lines.append(f"| {name} | {' | '.join(cell(one) for cell in columns.values())} |")
    return "\n".join(lines) + "\n"


def total(steps: Sequence[Step]) -> dict[str, int]:
    """All requests of some checkpoints, by kind."""
    return {kind: sum(one.asked[kind] for one in steps) for kind in KINDS}


def price(asked: Mapping[str, int]) -> float:
    """Dollars of some requests, at S3's list price."""
    return sum(PRICES[kind] * asked[kind] for kind in KINDS)


def line_through(rows: Sequence[Work], of: Callable[[Work], float]) -> tuple[float, float]:
    """What a checkpoint takes of something however short its tail is, and what for a record besides: of all lines the
    one that is nearest to them (least squares).
    """
    found = statistics.linear_regression([one.records for one in rows], [of(one) for one in rows])
    return found.intercept, found.slope


def times(more: float, less: float) -> str:
    """How many times the one is the other."""
    return f"{more / less:,.1f}" if less else "∞"


def requests(asked: Mapping[str, int]) -> str:
    """Requests in words: ``5 PUT, 4 GET``."""
    return ", ".join(f"{asked[kind]:g} {kind}" for kind in KINDS if asked[kind]) or "none"


def seconds(wall: float) -> str:
    """Seconds, as people read them."""
    return f"{wall:.1f} s" if wall >= 10 else f"{wall:.2f} s"


def megabytes(size: float) -> str:
    """Bytes, as people read them."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} KB"
