"""Logs retries of S3 requests: botocore retries for minutes without any output."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN = 10.0


class RetryNotes:
    """Logs a warning before a retry, at most every ten seconds."""

    def __init__(self, attempts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts, self._clock = attempts, clock
        self._next = clock()
        self._one_at_a_time = threading.Lock()

    def __call__(
        self, *, response: Any, endpoint: Any, operation: Any, attempts: int, caught_exception: Any, **_: Any
    ) -> None:
        """Handle botocore's event ``needs-retry``, sent after each try."""
        status = 0 if response is None else response[0].status_code
        if attempts >= self._attempts or (caught_exception is None and status < 500 and status != 429):
            return
        with self._one_at_a_time:
            if self._clock() < self._next:
                return
            self._next = self._clock() + _SECONDS_BETWEEN
        why = str(caught_exception or f"status {status}").rstrip(".")
        _log.warning(
            "%s: retrying %s (%d of %d): %s.", endpoint.host, operation.name, attempts + 1, self._attempts, why
        )
