"""Integers as Kafka and Kafka Streams store them: limits, and conversion of other libraries' numbers."""

from __future__ import annotations

import re
from operator import index
from typing import Any

INT32_MAX = (1 << 31) - 1  # Largest partition number, count or sequence
INT64_MAX = (1 << 63) - 1  # Largest offset or time
_TEXT = re.compile(r"[+-]?[0-9]+")


def whole_number(value: Any, *, text: bool = False) -> int | None:
    """A plain ``int``; ``None`` for a float or bool. ``text`` accepts digits in white space, as ``ConfigDef`` does."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if text and _TEXT.fullmatch(value.strip()) else None
    try:
        return int(index(value))
    except TypeError:
        return None
