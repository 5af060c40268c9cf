"""Which cases of a large table run in ``make test``, and which in ``make test-full`` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def three_of(cases: Iterable[Any], by: Callable[[Any], Any] = lambda _: None) -> list[Any]:
    """Parameters of a test: the first, the middle and the last of each group; the others have the mark ``full``.

    Args:
        cases: values, or a tuple of values or ``pytest.param`` each, in the order in which a job reaches them.
        by: what the values of a case are grouped by.
    """
    found = [_case(case) for case in cases]
    groups: dict[Any, list[int]] = {}
    for place, case in enumerate(found):
        groups.setdefault(by(case.values), []).append(place)
    kept = {places[number] for places in groups.values() for number in (0, len(places) // 2, -1)}
    return [
        case if place in kept else pytest.param(*case.values, marks=(*case.marks, pytest.mark.full), id=case.id)
        for place, case in enumerate(found)
    ]


def rest_full(first: Any, *others: Any) -> list[Any]:
    """Parameters of a test: the first case, and the others with the mark ``full``; a tuple has several values."""
    kept, *rest = map(_case, (first, *others))
    full = [pytest.param(*one.values, marks=(*one.marks, pytest.mark.full), id=one.id) for one in rest]
    return [kept, *(one for one in full if one.values != kept.values)]


_PARAMETERS = type(pytest.param())


def _case(given: Any) -> Any:
    if isinstance(given, _PARAMETERS):
        return given
    return pytest.param(*given) if isinstance(given, tuple) else pytest.param(given)
