"""Selects the cases of a table that run in ``make test``; the others run in ``make test-full``."""

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


def those_of(cases: Iterable[tuple[Any, ...]], kept: Callable[..., bool]) -> list[Any]:
    """Parameters of a test, a tuple each, with the names of their values as id; the others have the mark ``full``.

    Args:
        cases: values that have a ``name``, or are their own.
        kept: whether a case stays in ``make test``, given its values.
    """
    return [
        pytest.param(
            *case,
            marks=() if kept(*case) else pytest.mark.full,
            id="-".join(str(getattr(one, "name", one)) for one in case),
        )
        for case in cases
    ]


def _kept(cases: Iterable[Any], by: Callable[[Any], Any], choose: Callable[[list[int]], Iterable[int]]) -> list[Any]:
    """The cases, of which those that are not chosen have the mark ``full``."""
    found: list[Any] = []
    for case in map(_parameters, cases):
        if case.values not in [other.values for other in found]:  # a list may begin with one of another list
            found.append(case)
    groups: dict[Any, list[int]] = {}
    for place, case in enumerate(found):
        groups.setdefault(by(case.values), []).append(place)
    kept = {place for places in groups.values() for place in choose(places)}
    return [
        case if place in kept else pytest.param(*case.values, marks=(*case.marks, pytest.mark.full), id=case.id)
        for place, case in enumerate(found)
    ]


_PARAMETERS = type(pytest.param())


def _parameters(case: Any) -> Any:
    if isinstance(case, _PARAMETERS):
        return case
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
