"""What the contenders of the benchmark took, and the tables of it in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MILLION = 1_000_000
STREAMS = "Kafka Streams, 2 threads"
STATECORE = "statecore"
WITHOUT_SPARK = "statecore, 2 processes"
CEILING = "ceiling: bare sockets, 2 processes"


@dataclass(frozen=True)
class Figure:
    """One run of one contender.

    Attributes:
        contender: who.
        with_startup: seconds until the state is usable, from the start of the process.
        without_startup: seconds of the work alone.
        cpu: CPU seconds of the whole process tree.
        peak_mb: its peak memory.
        phases: seconds of each phase, where there are any.
        work: seconds of all tasks added up, by what they did, where there are any.
        work_cpu: their CPU seconds.
        state_mb: MiB on disk of what was restored, where that is said.
    """

    contender: str
    with_startup: float
    without_startup: float
    cpu: float
    peak_mb: float
    phases: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    work_cpu: Mapping[str, float] = field(default_factory=dict)
    state_mb: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of a comparison.

    Attributes:
        name: of what was restored.
        records: of its changelog.
        figures: all runs of all contenders.
    """

    name: str
    records: int
    figures: Sequence[Figure]


def size_table(records: int, figures: Sequence[Figure], disk: float) -> str:
    """One size: every contender, where the time went, and how near that is to the ceiling.

    ``disk`` is the bytes a second that the disk takes.
    """
    lines = [
        f"**{records / MILLION:g} million records** (16 + 100 bytes, {records / 4 / MILLION:g} M keys, 4 partitions, "
        "lz4)\n",
        "| | with start-up | × | without start-up | × | records/s, with start-up | CPU, whole tree | peak memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    medians = by_contender(figures)
    ours = medians[STATECORE]
    for name, one in medians.items():
        lines.append(
            f"| {name} | {one.with_startup:.1f} s | {one.with_startup / ours.with_startup:.2f} "
            f"| {one.without_startup:.1f} s | {one.without_startup / ours.without_startup:.2f} "
            f"| {records / one.with_startup:,.0f} | {one.cpu:.1f} s = {_micro(one.cpu, records)} µs/record "
            f"| {one.peak_mb:,.0f} MiB |"
        )
    bare = medians[CEILING]
    own = {name: one for name, one in medians.items() if name in (STATECORE, WITHOUT_SPARK)}
    shares = "; ".join(
        f"{name} {bare.without_startup / one.without_startup:.0%} without start-up and "
        f"{bare.without_startup / one.with_startup:.0%} with it"
        for name, one in own.items()
    )
    return "\n".join(
        [
            *lines,
            *(f"\n{name}: {_spent(one, records)}" for name, one in own.items()),
            f"\nOf the ceiling's records a second: {shares}. The disk takes {disk / MILLION:,.0f} MB/s in sequence, "
            f"fsync included: {ours.state_mb:,.0f} MiB of state would take it {ours.state_mb * 2**20 / disk:.1f} s.\n",
        ]
    )


def comparison(title: str, column: str, rows: Sequence[Row]) -> str:
    """Many changelogs: statecore on both engines beside Kafka Streams, and what a record costs against the first row.

    Each × says how many times as long Kafka Streams takes, with start-up and without. The work of the tasks is that
    under Spark.
    """
    lines = [
        f"{title}\n",
        f"| {column} | records | {STREAMS} | {STATECORE} | × | × without start-up | {WITHOUT_SPARK} | × "
        "| × without start-up | work of the tasks | against the first | CPU, whole tree: Kafka Streams | "
        "statecore | 2 processes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    first = 0.0
    for row in rows:
        medians = by_contender(row.figures)
        theirs, ours = medians.get(STREAMS), (medians[STATECORE], medians[WITHOUT_SPARK])
        work = sum(ours[0].work.values()) / row.records * MILLION
        first = first or work
        cells = [row.name, f"{row.records / MILLION:g} M", f"{theirs.with_startup:.1f} s" if theirs else ""]
        for one in ours:
            cells += [f"{one.with_startup:.1f} s", *(_times(theirs, one) if theirs else ("", ""))]
        cells += [f"{work:.2f} µs/record", f"{work / first:.2f}"]
        cells += [f"{_micro(one.cpu, row.records)} µs/record" if one else "" for one in (theirs, *ours)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def by_contender(figures: Sequence[Figure]) -> dict[str, Figure]:
    """The medians of each contender's runs, in the order of the first ones."""
    names = dict.fromkeys(figure.contender for figure in figures)
    return {name: _median([figure for figure in figures if figure.contender == name]) for name in names}


def _median(figures: Sequence[Figure]) -> Figure:
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    return Figure(
        figures[0].contender,
        middle([figure.with_startup for figure in figures]),
        middle([figure.without_startup for figure in figures]),
        middle([figure.cpu for figure in figures]),
        middle([figure.peak_mb for figure in figures]),
        {name: middle([figure.phases[name] for figure in figures]) for name in figures[0].phases},
        {name: middle([figure.work[name] for figure in figures]) for name in figures[0].work},
        {name: middle([figure.work_cpu[name] for figure in figures]) for name in figures[0].work_cpu},
        middle([figure.state_mb for figure in figures]),
    )


def _times(theirs: Figure, ours: Figure) -> tuple[str, str]:
    return (
        f"{theirs.with_startup / ours.with_startup:.2f}",
        f"{theirs.without_startup / ours.without_startup:.2f}",
    )


def _spent(one: Figure, records: int) -> str:
    """Where the time went: the phases, and all tasks added up."""
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in one.phases.items())
    work = ", ".join(
        f"{name} {seconds:.1f} s = {_micro(seconds, records)} µs/record ({_micro(one.work_cpu[name], records)} CPU)"
        for name, seconds in one.work.items()
    )
    return f"phases {phases}. Inside the tasks, added up: {work}."


def put_between(page: Path, marker: str, text: str) -> None:
    """Put a text into a page, in place of all that stands between ``<!-- marker -->`` and ``<!-- /marker -->``.

    Raises:
        ValueError: the page does not have both.
    """
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise ValueError(f"{page} has no {begin} with {end} after it")
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


def _micro(seconds: float, records: int) -> str:
    return f"{seconds / records * MILLION:.2f}"
