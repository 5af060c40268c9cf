"""A fault point that runs an action, once."""

from __future__ import annotations

from collections.abc import Callable

from statecore.faults import FaultPoints


class FaultAction(FaultPoints):
    """Does something, once, when a point is reached.

    Args:
        point: the point.
        then: what is done.
    """

    def __init__(self, point: str, then: Callable[[], object]) -> None:
        self._point, self._then = point, then
        self._is_done = False

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self._point and not self._is_done:
            self._is_done = True
            self._then()
