"""Task checkpoints: offsets written beside the stores, on a commit, once the checkpoint interval has elapsed (KIP-116).

A processor's loop commits its stores at ``commit.interval.ms`` through :meth:`TaskCheckpointer.commit`; a standby task
asks :class:`CheckpointPolicy` in each round. No timer and no thread writes one, so the effective interval is a multiple
of the commit interval, and a task that does not commit writes none until it is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import CHECKPOINT_AGE, CHECKPOINT_LATENCY, CHECKPOINTS, NO_METRICS, Metrics, Timer
from statecore.progress import Clock
from statecore.spec.model import CHECKPOINT_INTERVAL, DEFAULT_CHECKPOINT_INTERVAL_MS
from statecore.tasks.property_values import number
from statecore.tasks.task_offsets import AdoptedOffsets, TaskOffsets

INTERVAL_PROPERTY = CHECKPOINT_INTERVAL
DEFAULT_INTERVAL_MS = DEFAULT_CHECKPOINT_INTERVAL_MS  # Five minutes; docs/offset-files.md measures why


@dataclass(frozen=True)
class CheckpointSettings:
    """The interval of task checkpoints.

    Attributes:
        interval_ms: ``statestore.checkpoint.interval.ms``: least milliseconds between two task checkpoints; 0 is one
            at every commit.

    Raises:
        Invalid: the interval is negative.
    """

    interval_ms: int = DEFAULT_INTERVAL_MS

    def __post_init__(self) -> None:
        if self.interval_ms < 0:
            raise _invalid(self.interval_ms)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> CheckpointSettings:
        """The settings in an application's properties, with defaults.

        Raises:
            Invalid: the value is not a number of milliseconds.
        """
        return cls(number(properties, INTERVAL_PROPERTY, DEFAULT_INTERVAL_MS))


class CheckpointPolicy:
    """Tells whether a task checkpoint is due, by a monotonic clock in seconds."""

    def __init__(self, settings: CheckpointSettings, clock: Clock = time.monotonic) -> None:
        self._interval = settings.interval_ms / 1000
        self._clock = clock
        self._last = clock()

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint, or since :meth:`restart`."""
        return self._clock() - self._last

    @property
    def due(self) -> bool:
        """Whether the interval has elapsed."""
        return self.age >= self._interval

    def restart(self) -> None:
        """Begin the interval now: a checkpoint was written, or the stores were opened."""
        self._last = self._clock()


class TaskCheckpointer:
    """Opens and closes the stores of a task, and writes their offsets when a task checkpoint is due.

    Args:
        offsets: the task's stores and files.
        settings: the interval.
        clock: seconds, monotonic.
        metrics: gets the checkpoints and their age.
        task: the tag ``task-id``; by default the directory's name (``0_1``, ``global``).
    """

    def __init__(
        self,
        offsets: TaskOffsets,
        settings: CheckpointSettings | None = None,
        *,
        clock: Clock = time.monotonic,
        metrics: Metrics = NO_METRICS,
        task: str | None = None,
    ) -> None:
        self._offsets = offsets
        self._policy = CheckpointPolicy(settings or CheckpointSettings(), clock)
        self._clock = clock
        self._metrics = metrics
        self._tags = {"task-id": task or offsets.directory.name}
        self._end: Callable[[], None] | None = None

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint, or since the stores were opened."""
        return self._policy.age

    def open(self, *, ignore_foreign: bool = False) -> AdoptedOffsets:
        """Open the stores and adopt older offsets; see :meth:`TaskOffsets.open`. The interval begins."""
        taken = self._offsets.open(ignore_foreign=ignore_foreign)
        self._policy.restart()
        if self._end is None:
            self._end = self._metrics.observe(CHECKPOINT_AGE, lambda: self._policy.age, self._tags)
        return taken

    def commit(self, offsets: Mapping[str, Mapping[TopicPartition, int | None]]) -> bool:
        """Commit stores of the task, and write a checkpoint when it is due.

        Args:
            offsets: offsets to commit, by store; see :meth:`TaskOffsets.commit`.

        Returns:
            Whether a checkpoint was written.

        Raises:
            StatecoreError: see :meth:`TaskOffsets.commit` and :meth:`committed`.
        """
        self._offsets.commit(offsets)
        return self.committed()

    def committed(self) -> bool:
        """Write a checkpoint when it is due; call this after every commit that did not go through :meth:`commit`.

        A store that was reset below the file's offset does not wait for the interval; still, a process that dies
        between that commit and this call leaves a file that is ahead. :meth:`commit` lowers the file first.

        Returns:
            Whether a checkpoint was written.

        Raises:
            Invalid: a file cannot be written; the commit stands, and the next one tries again.
            Capacity: the disk is full; likewise.
        """
        if not self._policy.due and not self._offsets.must_be_lowered():
            return False
        watch = Timer(self._clock)
        self._offsets.checkpoint()
        self._policy.restart()
        self._metrics.record(CHECKPOINT_LATENCY, watch.ms, self._tags)
        self._metrics.add(CHECKPOINTS, 1, self._tags)
        return True

    def close(self) -> None:
        """Close the stores and write the final offsets; see :meth:`TaskOffsets.close`."""
        if self._end is not None:
            self._end()
            self._end = None
        self._offsets.close()


def _invalid(value: object) -> Invalid:
    return Invalid(
        f"{INTERVAL_PROPERTY} is {value!r}, which is not a number of milliseconds.",
        code="setting-invalid",
        action="Give 0 (a checkpoint at every commit) or more.",
        setting=INTERVAL_PROPERTY,
    )
