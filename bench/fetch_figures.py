"""What publish and fetch took beside Kafka Streams and boto3 alone, and the tables of it in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bench.s3_request_log import KINDS

GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Round:
    """What was measured once of one size of state.

    Attributes:
        records: of the changelog.
        state_bytes: on disk of the stores that a restore placed.
        files: of the snapshot.
        file_bytes: of them together.
        streams: seconds of Kafka Streams' own restore, its start left out.
        alone: seconds of ``statecore restore``, the whole command, without a repository.
        with_s3: of the same with one in S3.
        with_directory: of the same with one in a directory.
        alone_mb: peak memory of the process tree of the first, MiB.
        with_s3_mb: of the second.
        with_directory_mb: of the third.
        copied: bytes that the third wrote beyond those that the first wrote.
        linked: bytes in the directory that the stores have, too, as the same files.
        put: seconds of ``put_files``.
        put_objects: of plain uploads of the same files, a request for each.
        upload_files: of plain uploads of them in parts.
        fetch: seconds of ``statecore fetch``, the whole command.
        inside: of them from the moment when it knows its snapshot to its report, without interpreter and imports.
        phases: seconds of its phases.
        fetch_mb: peak memory of its process tree, MiB.
        started: seconds of what Kafka Streams restores on what was fetched, its start left out.
        started_records: that it restored.
        get_objects: seconds of plain downloads of the same blobs.
        running: seconds from the start of the JVM to RUNNING on what was fetched.
        published_by: requests of the restore with a repository in S3, by kind.
        fetched_by: requests of the fetch, by kind.
    """

    records: int
    state_bytes: int
    files: int
    file_bytes: int
    streams: float
    alone: float
    with_s3: float
    with_directory: float
    alone_mb: float
    with_s3_mb: float
    with_directory_mb: float
    copied: int
    linked: int
    put: float
    put_objects: float
    upload_files: float
    fetch: float
    inside: float
    phases: Mapping[str, float]
    fetch_mb: float
    started: float
    started_records: int
    get_objects: float
    running: float
    published_by: Mapping[str, int]
    fetched_by: Mapping[str, int]


@dataclass(frozen=True)
class Requests:
    """What an object store was asked for something.

    Attributes:
        what: was done.
        asked: how many requests of each kind.
    """

    what: str
    asked: Mapping[str, int]


def middle(rounds: Sequence[Round]) -> Round:
    """The medians of several rounds of one size, figure by figure."""

    def of(values: Sequence[float]) -> float:
        return statistics.median(values)

    found: dict[str, Any] = {}
    for name in (one.name for one in fields(Round)):
        values = [getattr(one, name) for one in rounds]
        found[name] = {key: of([one[key] for one in values]) for key in values[0]} if _maps(values[0]) else of(values)
    return Round(**found)


def _maps(value: object) -> bool:
    return isinstance(value, Mapping)


def size_tables(sizes: Mapping[float, Sequence[Round]]) -> str:
    """The tables of all sizes, by gigabytes of state, each the medians of its rounds."""
    medians = {size: middle(rounds) for size, rounds in sizes.items()}
    return "\n".join(
        [
            _table(
                "**To RUNNING, Kafka Streams' own start left out** (goal: 15 times less at 2 GB)",
                medians,
                {
                    "records": lambda one: f"{one.records / 1e6:.1f} M",
                    "on disk": lambda one: _megabytes(one.state_bytes),
                    "Kafka Streams, 2 threads": lambda one: _seconds(one.streams),
                    "fetch, whole command": lambda one: _seconds(one.fetch),
                    "Kafka Streams restores on that": _started,
                    "×": lambda one: f"{one.streams / (one.fetch + one.started):.1f}",
                    "phases of the fetch": lambda one: _phases(one.phases),
                    "JVM to RUNNING on that": lambda one: _seconds(one.running),
                },
            ),
            _table(
                "**Restore with a repository, 2 processes, whole command** (goal: at most 1.2 times; nothing copied "
                "into a directory)",
                medians,
                {
                    "without": lambda one: _seconds(one.alone),
                    "S3": lambda one: _seconds(one.with_s3),
                    "× S3": lambda one: f"{one.with_s3 / one.alone:.2f}",
                    "directory": lambda one: _seconds(one.with_directory),
                    "× directory": lambda one: f"{one.with_directory / one.alone:.2f}",
                    "snapshot": lambda one: f"{one.files:g} files, {_megabytes(one.file_bytes)}",
                    "of it files of the state, too": lambda one: _megabytes(one.linked),
                    "written beyond a restore without": lambda one: _megabytes(one.copied),
                },
            ),
            _table(
                "**Against boto3 alone** (goal: 80 % of its rate)",
                medians,
                {
                    "publish": lambda one: _rate(one, one.put),
                    "an object a request": lambda one: _rate(one, one.put_objects),
                    "of that": lambda one: f"{one.put_objects / one.put:.0%}",
                    "`upload_file`": lambda one: _rate(one, one.upload_files),
                    "of it": lambda one: f"{one.upload_files / one.put:.0%}",
                    "download phase": lambda one: _rate(one, one.phases["download"]),
                    "plain downloads": lambda one: _rate(one, one.get_objects),
                    "of them": lambda one: f"{one.get_objects / one.phases['download']:.0%}",
                    "fetch without interpreter, of them": lambda one: f"{one.get_objects / one.inside:.0%}",
                    "whole command, of them": lambda one: f"{one.get_objects / one.fetch:.0%}",
                },
            ),
            _table(
                "**Peak memory of the process tree** (goal: flat)",
                medians,
                {
                    "fetch": lambda one: f"{one.fetch_mb:,.0f} MiB",
                    "restore with S3": lambda one: f"{one.with_s3_mb:,.0f} MiB",
                    "restore with a directory": lambda one: f"{one.with_directory_mb:,.0f} MiB",
                    "restore without": lambda one: f"{one.alone_mb:,.0f} MiB",
                },
            ),
        ]
    )


def requests_table(rows: Sequence[Requests]) -> str:
    """What the object store was asked, by kind."""
    lines = [
        "**Requests to the object store, of all processes**\n",
        f"| | {' | '.join(KINDS)} | together |",
        "|---|" + "---:|" * (len(KINDS) + 1),
    ]
    for row in rows:
        counts = [f"{row.asked[kind]:g}" for kind in KINDS]
        lines.append(f"| {row.what} | {' | '.join(counts)} | {sum(row.asked.values()):g} |")
    return "\n".join([*lines, ""])


def requests_of(sizes: Mapping[float, Sequence[Round]]) -> list[Requests]:
    """The rows of the sizes."""
    found = []
    for size, rounds in sizes.items():
        one = middle(rounds)
        found.append(Requests(f"restore with S3, {size:g} GB in 4 store partitions", one.published_by))
        found.append(Requests(f"fetch, {size:g} GB in 4 store partitions", one.fetched_by))
    return found


def _table(title: str, medians: Mapping[float, Round], columns: Mapping[str, Callable[[Round], str]]) -> str:
    lines = [f"{title}\n", f"| state | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for size, one in medians.items():
        lines.append(f"| {size:g} GB | {' | '.join(cell(one) for cell in columns.values())} |")
    return "\n".join([*lines, ""])


def _started(one: Round) -> str:
    return f"{one.started_records:,.0f} records, {_seconds(one.started)}"


def _phases(phases: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in phases.items())


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _rate(one: Round, seconds: float) -> str:
    return f"{_seconds(seconds)}, {one.file_bytes / 1e6 / seconds:,.0f} MB/s"
