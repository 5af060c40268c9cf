"""Small line plots as SVG, without a plotting library: panels side by side, one line a series.

Panels share their labels and their legend where they do not bring their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#1b6ca8", "#c8553d", "#4c956c", "#7d5ba6")
WIDTH, HEIGHT = 380, 260
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 34, 74


@dataclass(frozen=True)
class Panel:
    """One plot.

    Attributes:
        title: above it, with the unit.
        series: values by name, one for each label.
        logarithmic: each line of the grid is ten times the one below; values must be above 0.
        labels: of its own, with a legend of its own.
    """

    title: str
    series: Mapping[str, Sequence[float]]
    logarithmic: bool = False
    labels: Sequence[str] = ()


def plot(labels: Sequence[str], panels: Sequence[Panel]) -> str:
    """The panels as one SVG document."""
    names = list(dict.fromkeys(name for panel in panels if not panel.labels for name in panel.series))
    bottom = HEIGHT + 26 + (14 if any(panel.labels for panel in panels) else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(panels)}" height="{bottom}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH * len(panels)}" height="{bottom}" fill="white"/>',
    ]
    for at, panel in enumerate(panels):
        own = list(panel.series)
        drawn = [*_panel(panel.labels, panel, own), *_legend(own, 2)] if panel.labels else _panel(labels, panel, names)
        parts += [f'<g transform="translate({at * WIDTH},0)">', *drawn, "</g>"]
    return "\n".join([*parts, *_legend(names, len(names)), "</svg>", ""])


def _legend(names: Sequence[str], columns: int) -> list[str]:
    parts: list[str] = []
    for at, name in enumerate(names):
        x, y = LEFT + at % columns * 150, HEIGHT + 6 + at // columns * 16
        parts += [
            f'<rect x="{x}" y="{y}" width="12" height="4" fill="{_colour(at)}"/>',
            f'<text x="{x + 18}" y="{y + 6}">{escape(name)}</text>',
        ]
    return parts


def _panel(labels: Sequence[str], panel: Panel, names: Sequence[str]) -> list[str]:
    values = [value for series in panel.series.values() for value in series]
    grid = _decades(min(values), max(values)) if panel.logarithmic else _quarters(max(values))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(at: int) -> float:
        return LEFT + wide * at / max(1, len(labels) - 1)

    def y(value: float) -> float:
        scale = math.log10 if panel.logarithmic else float
        share = (scale(value) - scale(grid[0])) / (scale(grid[-1]) - scale(grid[0]))
        return TOP + high * (1 - share)

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>']
    for value in grid:
        parts += [
            f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{LEFT + wide}" y2="{y(value):.1f}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>',
        ]
    for at, label in enumerate(labels):
        turned = f"rotate(-40 {x(at):.1f} {TOP + high + 16})"
        parts.append(
            f'<text x="{x(at):.1f}" y="{TOP + high + 16}" text-anchor="end" transform="{turned}">{escape(label)}</text>'
        )
    for name, series in panel.series.items():
        colour = _colour(names.index(name))
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in enumerate(series))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(at):.1f}" cy="{y(one):.1f}" r="2.5" fill="{colour}"/>' for at, one in enumerate(series)
        ]
    return parts


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def _quarters(greatest: float) -> list[float]:
    """From 0 in four steps to the next of 1, 2, 4, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(greatest)) if greatest > 0 else 1.0
    top = next(power * step for step in (1, 2, 4, 8, 10) if greatest <= power * step)
    return [top * step / 4 for step in range(5)]


def _decades(least: float, greatest: float) -> list[float]:
    """The powers of ten around the values."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(greatest))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]
