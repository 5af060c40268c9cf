"""What can be read of a damaged head: numbers, pins, retention, needs. Never less is kept by it than without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from statecore.documents import parse_json
from statecore.repository.head import Retention
from statecore.repository.needs import NO_NEEDS, Needs

_GREATEST = 1 << 53  # Numbers that are not below this are ignored


def salvaged_numbers(content: bytes) -> dict[str, int]:
    """Epoch, generation and collection number, where readable."""
    document = _object(content)
    return {
        name: value
        for name in ("epoch", "generation", "collection")
        if type(value := document.get(name)) is int and 0 <= value < _GREATEST
    }


def salvaged_pins(content: bytes) -> dict[str, str]:
    """Pinned snapshots and their notes, where readable; one too many only keeps more."""
    entries = _object(content).get("snapshots")
    return {
        entry["snapshot"]: str(entry.get("note", ""))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping) and entry.get("pinned") is True and isinstance(entry.get("snapshot"), str)
    }


def salvaged_retention(content: bytes) -> Retention | None:
    """The retention, in no field less than by default; ``None`` where it cannot be read."""
    document, default = _object(content).get("keep"), Retention()
    if not isinstance(document, Mapping):
        return None
    numbers = {
        one.name: value
        for one in fields(Retention)
        if type(value := document.get(one.name)) is int and getattr(default, one.name) <= value < _GREATEST
    }
    return replace(default, **numbers)


def salvaged_needs(content: bytes) -> Needs:
    """The features that one has to know, where readable; one too many only refuses more."""
    document = _object(content).get("needs")
    if not isinstance(document, Mapping):
        return NO_NEEDS
    named = (document.get(one.name) for one in fields(Needs))
    return Needs(*(tuple(str(one) for one in each) if isinstance(each, list) else () for each in named))


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        document = parse_json(content)
    except ValueError:
        return {}
    return document if isinstance(document, Mapping) else {}
