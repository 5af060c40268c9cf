"""Parses and formats durations (``90s``, ``24h``; milliseconds in code) and sizes (``512m``; bytes in code)."""

from __future__ import annotations

import re

_TIME_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")

_MAX_MS = (1 << 63) - 1

DURATION_EXPECTED = "a duration such as 90s, 10m, 24h or 7d"
"""Description of a duration in error messages."""


def parse_duration(text: str) -> int | None:
    """Milliseconds of ``<number><unit>`` with the units ms, s, m, h, d; ``None`` if invalid or too long."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    milliseconds = int(match[1]) * _TIME_UNITS[match[2]]
    return milliseconds if milliseconds <= _MAX_MS else None


def format_duration(milliseconds: int) -> str:
    """The shortest text that :func:`parse_duration` reads back; a day is ``24h``, two days are ``2d``."""
    for unit in ("d", "h", "m", "s"):
        size = _TIME_UNITS[unit]
        if milliseconds % size == 0 and (unit != "d" or milliseconds >= 2 * size):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


SIZE_PATTERN = "^[1-9][0-9]*([kKmMgG]([iI][bB]?|[bB])?)?$"
"""A number of bytes, or of KiB, MiB, GiB, abbreviated to one letter; also used in JSON schemas."""

_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int | None:
    """Bytes of ``512m``; ``None`` for text that ``SIZE_PATTERN`` does not match."""
    if not re.fullmatch(SIZE_PATTERN.strip("^$"), text):
        return None
    digits = text.rstrip("kKmMgGiIbB")
    return int(digits) * _SIZE_UNITS[text[len(digits) :][:1].lower()]


def format_size(size: int) -> str:
    """Format bytes for :func:`parse_size`, in the largest exact unit: ``512m``."""
    unit = max(
        (letter for letter, count in _SIZE_UNITS.items() if size % count == 0), key=lambda letter: _SIZE_UNITS[letter]
    )
    return f"{size // _SIZE_UNITS[unit]}{unit}"
