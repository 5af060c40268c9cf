"""Parses and formats durations of a spec: ``90s``, ``10m``, ``24h``, ``7d``; milliseconds in code."""

from __future__ import annotations

import re

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")

_MAX_MS = (1 << 63) - 1

EXPECTED = "a duration such as 90s, 10m, 24h or 7d"
"""Description of a duration in error messages."""


def parse_duration(text: str) -> int | None:
    """Milliseconds of ``<number><unit>`` with the units ms, s, m, h, d; ``None`` if invalid or too long."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    milliseconds = int(match[1]) * _UNITS[match[2]]
    return milliseconds if milliseconds <= _MAX_MS else None


def format_duration(milliseconds: int) -> str:
    """The shortest text that :func:`parse_duration` reads back exactly; ``86400000`` is ``24h``, not ``1d``.

    A single day stays in hours, the usual way to write retentions; two days and more are in days.
    """
    for unit in ("d", "h", "m", "s"):
        size = _UNITS[unit]
        if milliseconds % size == 0 and (unit != "d" or milliseconds >= 2 * size):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
