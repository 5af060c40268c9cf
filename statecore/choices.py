"""Settings that are one of a few values, given as such or by their text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from statecore.errors import Invalid

_Choice = TypeVar("_Choice", bound=StrEnum)


def chosen(among: type[_Choice], given: Any, setting: str) -> _Choice:
    """The value that was meant. A text of the same spelling must never count as another choice.

    Raises:
        Invalid: it is none of them.
    """
    try:
        return among(given)
    except ValueError as error:
        raise Invalid(
            f"{setting} cannot be {given!r}.",
            code="setting-invalid",
            action=f"Give one of {', '.join(f'{among.__name__}.{one.name}' for one in among)}.",
            setting=setting,
        ) from error
