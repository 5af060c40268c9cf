"""What checkpoints took, and the tables of it in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.asked import KINDS

MILLION = 1_000_000


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
                cells.append(times(of(rebuild), of(one)))
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


def slope(rows: Sequence[Work], of: Callable[[Work], float]) -> tuple[float, float]:
    """What a checkpoint takes of something however short its tail is, and what for a record besides: the line nearest
    to them (least squares).
    """
    return tuple(reversed(statistics.linear_regression([one.records for one in rows], [of(one) for one in rows])))  # type: ignore[return-value]


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
