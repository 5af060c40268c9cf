"""The offsets of the runs that a builder cuts."""

from __future__ import annotations

from dataclasses import replace

from statecore.images.model import RunFile, RunOrigin


class RunRanges:
    """Knows how far a builder has read, and where its last run of each database ended; see :class:`Run` for what the
    range of a run means.

    Args:
        start: the offset that the builder begins at.
        origin: what the rows are of.

    Attributes:
        next: the offset after the last one that was read.
        runs: the runs that were cut, in the order they are applied.
    """

    def __init__(self, start: int, origin: RunOrigin) -> None:
        self.next = start
        self.runs: list[RunFile] = []
        self._start = start
        self._origin = origin
        self._ends: dict[int | None, int] = {}

    def wrote(self, segment: int | None) -> bool:
        """Whether a run of this database was cut."""
        return segment in self._ends

    def add(self, run: RunFile, stream_time: int) -> None:
        """Take a run that was written of all that was read since the one before it in its database.

        Args:
            run: the run, of a segment where its store has some.
            stream_time: greatest time seen so far in ms; -1 without one.
        """
        start = self._ends.get(run.segment, self._start)
        cut = replace(run, start=start, end=self.next, stream_time=stream_time)
        self.runs.append(self._origin.of(cut))
        self._ends[run.segment] = self.next
