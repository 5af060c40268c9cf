"""The phases of a job: how long each took, and which was reached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.stopwatch import Stopwatch


class Phases:
    """Times the phases of one attempt.

    Attributes:
        wall: seconds of each phase that has ended.
        cpu: CPU seconds of this process in each of them.
        reached: the last phase that began; empty before the first.
    """

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.reached = ""
        self._began = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around the steps of a phase."""
        watch = Stopwatch(name)
        self.reached = name
        yield
        self.wall[name], self.cpu[name] = watch.wall[name], watch.cpu[name]

    @property
    def elapsed(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self._began
