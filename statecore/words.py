"""Counts, sizes, offsets and lists in messages.

A count has separators of thousands; an offset has none, because one searches for it in other output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WARNING = "warning: "
"""Start of a note that asks for something to be done; other notes need nothing."""

_OFFSETS_SHOWN = 4
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shortened_list(names: Sequence[str], most: int = 12) -> str:
    """A comma-separated list, shortened: the first names, and the number of further ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def number_of(count: int, name: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def note_line(note: str) -> str:
    """A note of a report as a line: ``note: ...`` or ``warning: ...``."""
    return note if note.startswith(WARNING) else f"note: {note}"


def known_number(count: int | None) -> str:
    """``1,234``, or ``unknown``."""
    return "unknown" if count is None else f"{count:,}"


def offset_list(offsets: Iterable[int]) -> str:
    """``1234, unknown, ...``: an offset below 0 is unknown."""
    words = ["unknown" if offset < 0 else str(offset) for offset in offsets]
    return ", ".join(words[:_OFFSETS_SHOWN]) + (", ..." if len(words) > _OFFSETS_SHOWN else "")


def format_bytes(count: float) -> str:
    """``3 GiB``: a size, rounded to a whole number of its largest unit."""
    for unit in _BYTE_UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} {_BYTE_UNITS[-1]}"
