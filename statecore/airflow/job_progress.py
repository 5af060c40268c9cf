"""Progress of a job in Airflow: lines in the task's log, and the latest progress in the task state store.

The log gets a line at the beginning and the end of a phase, and between them at every tenth or every minute, whichever
comes first. The store is updated at most once a second. Both are written before ``spark-submit`` is called, because
Spark takes seconds to start and the task should not look stuck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from statecore.progress import rate_in_words, seconds_in_words

if TYPE_CHECKING:
    from airflow.sdk import Context

PROGRESS_KEY = "progress"
"""Key of the latest progress in the task state store (task page, tab *Storage*; REST)."""

INTERVAL = 1.0
"""Seconds between two ``advance`` events that are recorded: each write is a request to the API server."""

LINE_INTERVAL = 60.0
"""Seconds after which the log gets a line, however little was done."""

STARTING = {"event": "begin", "phase": "starting Spark", "count": 0, "total": None, "unit": "", "seconds": 0.0}
"""The first progress event, before the job can report one."""


class ProgressRecorder:
    """Writes a job's progress to the task state store and to the task's log.

    The store survives retries and holds the progress of the latest try. If it cannot be written the job continues, and
    the log says so once.
    """

    def __init__(self, context: Context, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = context.get("task_state_store")
        self._log = log
        self._clock = clock
        self._next = float("-inf")
        self._next_line = float("inf")
        self._tenth = 0

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Record a progress event; an ``advance`` that comes too soon after the last one is skipped."""
        now, advances = self._clock(), progress.get("event") == "advance"
        if advances and now < self._next:
            return
        self._next = now + INTERVAL
        tenth = _tenth(progress)
        if not advances or tenth > self._tenth or now >= self._next_line:
            self._tenth = tenth if advances else 0
            self._next_line = now + LINE_INTERVAL
            self._log.info(sentence(progress))
        self._write(progress)

    def _write(self, progress: Mapping[str, Any]) -> None:
        if self._store is None:
            return
        try:
            self._store.set(PROGRESS_KEY, dict(progress))
        except Exception as cause:
            self._store = None
            self._log.warning("Progress cannot be recorded; the job continues: %s", cause)


def _tenth(progress: Mapping[str, Any]) -> int:
    """How many tenths of the phase are done; 0 if the total is not known."""
    total = progress.get("total")
    return 10 * (progress.get("count") or 0) // total if total else 0


def sentence(progress: Mapping[str, Any]) -> str:
    """A progress event as text: ``read: 1,200 of 4,800 records (25 %) after 3.1 s, 387/s, 9.3 s left``."""
    event, count, total = progress.get("event"), progress.get("count") or 0, progress.get("total")
    words = [f"{progress.get('phase', 'progress')}:"]
    if total is not None:
        words.append(f"{count:,} of {total:,}")
    elif count:
        words.append(f"{count:,}")
    elif event in ("begin", "done"):
        words.append({"begin": "begun", "done": "done"}[event])
    if (unit := progress.get("unit")) and (count or total is not None):
        words.append(str(unit))
    if total and event == "advance":
        words.append(f"({100 * count // total} %)")
    words.append(f"after {progress.get('seconds') or 0:.1f} s")
    if message := progress.get("message"):
        words.append(f"({message})")
    pace = []
    if event == "advance" and (rate := progress.get("rate")):
        pace.append(f"{rate_in_words(rate)}/s")
    if event == "advance" and (left := progress.get("left")) is not None:
        pace.append(f"{seconds_in_words(left)} left")
    return ", ".join([" ".join(words), *pace])
