"""Whole numbers as Kafka and Kafka Streams hold them: the greatest that fit, and what else is taken for one."""

from __future__ import annotations

import re
from operator import index
from typing import Any

INT32_MAX = (1 << 31) - 1
"""The greatest number of a partition, a count or a sequence."""

INT64_MAX = (1 << 63) - 1
"""The greatest offset or time."""

_TEXT = re.compile(r"[+-]?[0-9]+")


def whole_number(value: Any, *, text: bool = False) -> int | None:
    """The number as a plain ``int``, ``None`` for what is no whole number: a float, a truth value, other text.

    Args:
        value: a number of any library, NumPy's too.
        text: take a text of decimal digits with white space around it for a number, as Kafka's ``ConfigDef`` does.
    """
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
