"""Progress of a stage, reported while its tasks run elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from statecore.errors import StatecoreError
from statecore.progress import Progress

POLL_INTERVAL = 0.5


class StageProgress:
    """Reports the progress of a stage while it runs, also if nothing has changed.

    Attributes:
        seen: amount reported so far.
    """

    def __init__(self, done: Callable[[], int], progress: Progress) -> None:
        self.seen = 0
        self._done = done
        self._progress = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StageProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_INTERVAL):
            with suppress(StatecoreError, OSError):  # otherwise this thread would end, and progress stand still
                done = self._done()
                self._progress.advance(max(0, done - self.seen))
                self.seen = max(done, self.seen)
