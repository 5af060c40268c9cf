"""Offset ranges of the runs that a builder writes."""

from __future__ import annotations

from dataclasses import replace

from statecore.images.model import RunFile, RunOrigin


class RunRanges:
    """Tracks how far a builder has read, and the end of its last run in each database; :class:`Run` explains ranges.

    Attributes:
        next: offset after the last record read.
        runs: runs written so far, in the order they are applied.
    """

    def __init__(self, start: int, origin: RunOrigin) -> None:
        self.next = start
        self.runs: list[RunFile] = []
        self._start = start
        self._origin = origin
        self._ends: dict[int | None, int] = {}

    def wrote(self, segment: int | None) -> bool:
        """Whether a run of this database was written."""
        return segment in self._ends

    def add(self, run: RunFile, stream_time: int) -> None:
        """Add a run with everything read since the previous run of its database."""
        start = self._ends.get(run.segment, self._start)
        ranged = replace(run, start=start, end=self.next, stream_time=stream_time)
        self.runs.append(self._origin.of(ranged))
        self._ends[run.segment] = self.next
