"""Integers as Kafka and Kafka Streams store them: limits, conversion of other libraries' numbers, unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def min_known(values: Iterable[int | None]) -> int | None:
    """The least value; ``None`` where one is unknown, or there is none."""
    known = list(values)
    return None if None in known else min((one for one in known if one is not None), default=None)
