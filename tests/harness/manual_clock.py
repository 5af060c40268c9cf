"""A clock that only a test moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class ManualClock:
    """Seconds, in place of ``time.monotonic`` or ``time.time``."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now
