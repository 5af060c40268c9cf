"""Parses and formats amounts of memory: ``512m``, ``512MiB``, ``2g``, ``65536``."""

from __future__ import annotations

import re

PATTERN = "^[1-9][0-9]*([kKmMgG]([iI][bB]?|[bB])?)?$"
"""A number of bytes, or of KiB, MiB, GiB, abbreviated to one letter; also used in JSON schemas."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int | None:
    """Bytes of ``512m``; ``None`` for text that ``PATTERN`` does not match."""
    if not re.fullmatch(PATTERN.strip("^$"), text):
        return None
    digits = text.rstrip("kKmMgGiIbB")
    return int(digits) * _UNITS[text[len(digits) :][:1].lower()]


def format_size(size: int) -> str:
    """Format bytes for :func:`parse_size`, in the largest exact unit: ``512m``."""
    unit = max((letter for letter, count in _UNITS.items() if size % count == 0), key=lambda letter: _UNITS[letter])
    return f"{size // _UNITS[unit]}{unit}"
