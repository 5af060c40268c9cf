"""Runs the checks of many applications concurrently, so that one whose brokers hang does not delay the others."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from statecore.errors import Reason, Retryable, StatecoreError
from statecore.jobs.checkpoint.schedule import DueVerdict
from statecore.jobs.failures import as_statecore_error

CHECK_SECONDS = 30.0
"""Time limit for checking one application."""

AT_ONCE = 16
"""Applications that are checked concurrently."""


def check_all(
    checks: Mapping[str, Callable[[], DueVerdict]],
    *,
    at_once: int = AT_ONCE,
    timeout: float = CHECK_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, DueVerdict]:
    """Check many applications concurrently, none of which delays the others; returns the verdicts in the same order."""
    answers: queue.SimpleQueue[tuple[str, DueVerdict]] = queue.SimpleQueue()
    waiting, running = deque(checks), dict[str, float]()
    found: dict[str, DueVerdict] = {}

    def answer(name: str) -> None:
        answers.put((name, _verdict(name, checks[name])))

    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.popleft()
            running[name] = clock() + timeout
            # A daemon thread, so that a check that hangs does not delay the end of the process.
            threading.Thread(target=answer, args=(name,), name=f"check-{name}", daemon=True).start()
        try:
            name, verdict = answers.get(timeout=max(0.0, min(running.values()) - clock()))
        except queue.Empty:
            for late in [name for name, until in running.items() if until <= clock()]:
                del running[late]
                found[late] = _failed(_too_late(late, timeout))
        else:
            if running.pop(name, None) is not None:
                found[name] = verdict
    return {name: found[name] for name in checks}


def _verdict(name: str, check: Callable[[], DueVerdict]) -> DueVerdict:
    try:
        return check()
    except Exception as error:
        return _failed(as_statecore_error(error, f"it was checked whether a checkpoint of {name} is due"))


def _failed(error: StatecoreError) -> DueVerdict:
    return DueVerdict(True, Reason(error.what, error.code, **error.context), error)


def _too_late(name: str, timeout: float) -> Retryable:
    return Retryable(
        f"Checking whether a checkpoint of {name} is due took longer than {timeout:g} s.",
        code="due-check-timeout",
        action="Check its brokers and the repository. The check is repeated at the next tick.",
        application_id=name,
    )
