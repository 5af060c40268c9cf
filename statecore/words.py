"""Counts and lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def shortened_list(names: Sequence[str], most: int = 12) -> str:
    """A comma-separated list, shortened: the first names, and the number of further ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def number_of(count: int, name: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
