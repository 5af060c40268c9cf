"""Parses values of Kafka's configuration as its ``ConfigDef`` does: trimmed text, or a value of a program."""

from __future__ import annotations

from collections.abc import Mapping

from statecore.errors import Invalid
from statecore.formats.integers import whole_number


def number(properties: Mapping[str, object], name: str, default: int) -> int:
    """The whole number under a name, or the default where it is absent."""
    value = properties.get(name)
    if value is None:
        return default
    found = whole_number(value, text=True)
    if found is None:
        raise Invalid(
            f"{name} is {value!r}, which is not a whole number.",
            code="setting-invalid",
            action="Correct it.",
            setting=name,
        )
    return found


def text(properties: Mapping[str, object], name: str, default: str | None = None) -> str:
    """The trimmed text under a name, or the default where it is absent."""
    value = properties.get(name, default)
    if isinstance(value, str) and value.strip():
        return value.strip()
    what = "is missing" if value is None else f"is {value!r}, which is not a name"
    raise Invalid(f"{name} {what}.", code="setting-invalid", action="Set it.", setting=name)
