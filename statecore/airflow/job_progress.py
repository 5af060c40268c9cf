"""A job's progress in Airflow: a line in the task's log now and then, and the latest word in the task state store.

The log gets a line where a phase begins and ends and, between, at every tenth of it or every minute, whichever comes
first. The store gets the latest word at most once a second. Both speak before ``spark-submit`` is called: Spark takes
seconds to start, and a task that says nothing looks like one that hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from statecore.progress import rate_in_words, seconds_in_words

if TYPE_CHECKING:
    from airflow.sdk import Context

PROGRESS_KEY = "progress"
"""Key in the task state store under which the latest progress lies (task page, tab *Storage*; REST)."""

INTERVAL = 1.0
"""Seconds that an ``advance`` has to wait for: each word in the store is a request to the API server."""

LINE_INTERVAL = 60.0
"""Seconds after which the log gets a line, however little was done."""

STARTING = {"event": "begin", "phase": "starting Spark", "count": 0, "total": None, "unit": "", "seconds": 0.0}
"""The first word on a job, before the job can say one."""


class ProgressRecorder:
    """Writes a job's progress to the task state store and to the task's log.

    The store survives retries, so the page of a task that was retried shows the progress of the latest try. Progress
    is a courtesy: when it cannot be written, the job goes on, and the log says so once.

    Args:
        context: the task's context.
        log: the task's log.
        clock: seconds that never go back.
    """

    def __init__(self, context: Context, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = context.get("task_state_store")
        self._log = log
        self._clock = clock
        self._next = float("-inf")
        self._next_line = float("inf")
        self._tenth = 0

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Record one progress line; an ``advance`` that comes too soon after the last one is passed over."""
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
            self._log.warning("Progress cannot be recorded, the job goes on: %s", cause)


def _tenth(progress: Mapping[str, Any]) -> int:
    """How many tenths of the phase are done; 0 where nobody knows how much there is to do."""
    total = progress.get("total")
    return 10 * (progress.get("count") or 0) // total if total else 0


def sentence(progress: Mapping[str, Any]) -> str:
    """A progress line for a reader: ``read: 1,200 of 4,800 records (25 %) after 3.1 s, 387/s, 9.3 s left``."""
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
