"""Wall and CPU seconds by stage of work.

The clocks are injected. CPU time is by default that of the whole process, because native code has threads of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.progress import Clock


class Stopwatch:
    """Accumulates time per stage; always in exactly one stage."""

    def __init__(self, stage: str, *, clock: Clock = time.monotonic, cpu_clock: Clock = time.process_time) -> None:
        self._stage = stage
        self._clock, self._cpu_clock = clock, cpu_clock
        self._wall: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._since, self._cpu_since = clock(), cpu_clock()

    @contextmanager
    def on(self, stage: str) -> Iterator[None]:
        """Switch to another stage for the ``with`` block."""
        interrupted = self._stage
        self._switch(stage)
        try:
            yield
        finally:
            self._switch(interrupted)

    @property
    def wall(self) -> dict[str, float]:
        self._switch(self._stage)
        return dict(self._wall)

    @property
    def cpu(self) -> dict[str, float]:
        self._switch(self._stage)
        return dict(self._cpu)

    def _switch(self, stage: str) -> None:
        now, cpu_now = self._clock(), self._cpu_clock()
        self._wall[self._stage] = self._wall.get(self._stage, 0.0) + now - self._since
        self._cpu[self._stage] = self._cpu.get(self._stage, 0.0) + cpu_now - self._cpu_since
        self._since, self._cpu_since, self._stage = now, cpu_now, stage
