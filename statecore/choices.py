"""Settings with a fixed set of values, given as enum members or by their text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from statecore.errors import Invalid

_Choice = TypeVar("_Choice", bound=StrEnum)


def enum_value(enum_type: type[_Choice], given: Any, setting: str) -> _Choice:
    """The enum member for a setting; other text is refused, never defaulted."""
    try:
        return enum_type(given)
    except ValueError as error:
        raise Invalid(
            f"{setting} cannot be {given!r}.",
            code="setting-invalid",
            action=f"Give one of {', '.join(f'{enum_type.__name__}.{one.name}' for one in enum_type)}.",
            setting=setting,
        ) from error
