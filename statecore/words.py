"""How things are counted and listed in sentences for people."""

from __future__ import annotations

from collections.abc import Sequence


def some_of(names: Sequence[str], most: int = 12) -> str:
    """Names in a line: the first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def number_of(count: int, name: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
