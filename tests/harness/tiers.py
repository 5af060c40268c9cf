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
    return _kept(cases, by, lambda places: (places[0], places[len(places) // 2], places[-1]))


def one_of(cases: Iterable[Any], by: Callable[[Any], Any] = lambda _: None) -> list[Any]:
    """Parameters of a test, as of ``three_of``: the first of each group; the others have the mark ``full``."""
    return _kept(cases, by, lambda places: {places[0]})


def _kept(cases: Iterable[Any], by: Callable[[Any], Any], choose: Callable[[list[int]], Iterable[int]]) -> list[Any]:
    """The cases, of which those that are not chosen have the mark ``full``."""
    found = [case if isinstance(case, _PARAMETERS) else _parameters(case) for case in cases]
    groups: dict[Any, list[int]] = {}
    for place, case in enumerate(found):
        groups.setdefault(by(case.values), []).append(place)
    kept = {place for places in groups.values() for place in choose(places)}
    return [
        case if place in kept else pytest.param(*case.values, marks=(*case.marks, pytest.mark.full), id=case.id)
        for place, case in enumerate(found)
    ]


def first_of(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the first; the others have the mark ``full``. ``cases`` as of ``three_of``."""
    first, *others = [case if isinstance(case, _PARAMETERS) else _parameters(case) for case in cases]
    return [first, *(pytest.param(*one.values, marks=(*one.marks, pytest.mark.full), id=one.id) for one in others)]


def rest_full(first: Any, *others: Any) -> list[Any]:
    """Parameters of a test: the first case, and the others with the mark ``full``."""
    kept, *rest = one_of([first, *others])
    return [kept, *(one for one in rest if one.values != kept.values)]


_PARAMETERS = type(pytest.param())


def _parameters(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
