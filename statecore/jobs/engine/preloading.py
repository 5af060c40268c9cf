"""Modules that every task needs, imported before the first task arrives."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

WITHOUT_THREADS = (
    "statecore.changelog.batch_scan",
    "statecore.images.kernels.kernel",
    "kafka.net.manager",
    "kafka.protocol.consumer",
)
"""Modules that start no thread: a process that has loaded them may be forked."""

ALL = (
    "statecore.jobs.pipeline.range_tasks",
    "statecore.jobs.pipeline.image_tasks",
    "statecore.changelog.reader",
    "statecore.images.image",
    "statecore.images.runs",
    *WITHOUT_THREADS,
)
"""All modules; pyarrow, which they import, starts a thread."""


def preload(modules: Iterable[str]) -> None:
    """Import modules, and load their compiled kernels."""
    for name in modules:
        warm = getattr(importlib.import_module(name), "warm", None)
        if warm is not None:
            warm()
