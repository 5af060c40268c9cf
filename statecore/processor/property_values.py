"""Values of Kafka's configuration as its ``ConfigDef`` reads them: a text, trimmed, or what a program gives."""

from __future__ import annotations

import re
from collections.abc import Mapping

from statecore.errors import Invalid

_WHOLE = re.compile(r"[+-]?[0-9]+")


def whole_number(properties: Mapping[str, object], name: str, default: int) -> int:
    """The whole number under a name, or the default where it is absent.

    Raises:
        Invalid: there is something else.
    """
    value = properties.get(name)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise Invalid(f"{name} is {value!r}, which is no whole number.", action="Correct it.", setting=name)


def text(properties: Mapping[str, object], name: str, default: str | None = None) -> str:
    """The text under a name, trimmed, or the default where it is absent.

    Raises:
        Invalid: it is absent and has no default, is empty, or is no text.
    """
    value = properties.get(name, default)
    if isinstance(value, str) and value.strip():
        return value.strip()
    what = "is missing" if value is None else f"is {value!r}, which is no name"
    raise Invalid(f"{name} {what}.", action="Set it.", setting=name)
