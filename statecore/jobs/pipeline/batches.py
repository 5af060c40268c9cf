"""Batches of tasks for an engine, largest first, and their progress; small ranges and small stores share one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from statecore.errors import Retryable, StatecoreError
from statecore.jobs.engine.protocol import Failure, ResultT, TaskT, Workers
from statecore.progress import Progress

_BATCHES_EACH = 4
_BATCH_OFFSETS = 200_000
"""Offsets that make a batch worth the cost of starting it in Spark."""

POLL_INTERVAL = 0.5
"""Seconds between two reports of progress."""


def batched(tasks: Sequence[TaskT], sizes: Sequence[int], parallelism: int) -> list[list[TaskT]]:
    """Group tasks into batches, in their order: a large task alone, small ones together.

    With Spark a batch costs tens of milliseconds, and a connection to the brokers as much again; reading a hundred
    records takes one. There are several batches per worker, so that no worker is idle at the end. A single worker gets
    all small tasks at once, and their runs share one pack.
    """
    most = -(-len(tasks) // (_BATCHES_EACH * parallelism)) if parallelism > 1 else len(tasks)
    batches: list[list[TaskT]] = []
    room = 0
    for task, size in zip(tasks, sizes, strict=True):
        if not batches or size > room or len(batches[-1]) >= most:
            batches.append([])
            room = _BATCH_OFFSETS
        batches[-1].append(task)
        room -= size
    return batches


def batched_alone(tasks: Sequence[TaskT], parallelism: int) -> list[list[TaskT]]:
    """Large tasks: a batch each."""
    return batched(tasks, [_BATCH_OFFSETS] * len(tasks), parallelism)


def batched_by_bytes(tasks: Iterable[TaskT], bytes_of: Callable[[TaskT], int], most: int) -> Iterator[list[TaskT]]:
    """Group tasks, in their order, into batches of at most so many bytes, or of one task that has more."""
    batch: list[TaskT] = []
    size = 0
    for task in tasks:
        if batch and size + bytes_of(task) > most:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += bytes_of(task)
    if batch:
        yield batch


def run_batches(
    workers: Workers,
    batches: Sequence[Sequence[TaskT]],
    work: Callable[[Sequence[TaskT]], list[ResultT | Failure]],
    doing: str,
) -> list[ResultT]:
    """The results of all batches, or the error of the first task that failed permanently."""
    if not batches:
        return []
    answers = workers.run(work, batches, doing)
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    if failures:
        # A permanent error explains more than one that a retry would cure.
        raise min((failure.to_error() for failure in failures), key=lambda error: isinstance(error, Retryable))
    return [answer for answer in answers if not isinstance(answer, Failure)]


class StageProgress:
    """Reports the progress of batches while they run elsewhere, also if nothing has changed.

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
