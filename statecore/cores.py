"""Number of cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores in this process's CPU affinity, which may be fewer than the machine has; at least one."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
