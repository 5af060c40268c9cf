"""Plan of a compaction: adjacent runs of one database and changelog partition that are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from statecore.repository.download import RemoteFile
from statecore.repository.manifest import StoredRun
from statecore.repository.publish.rebase import Compaction


@dataclass(frozen=True)
class Merge:
    """Runs of one database that become one.

    Attributes:
        inputs: adjacent runs, in the order they are applied.
        is_lowest: whether they are the lowest, so that deletes can be dropped.
    """

    task: str
    store: str
    segment: int | None
    inputs: tuple[StoredRun, ...]
    is_lowest: bool

    @property
    def name(self) -> str:
        segment = "" if self.segment is None else f", segment {self.segment}"
        return f"store {self.store!r} of task {self.task}{segment}"

    @property
    def bytes(self) -> int:
        return sum(stored.run.file_bytes for stored in self.inputs)

    @property
    def wanted(self) -> Iterator[RemoteFile]:
        whose = {"task": self.task, "store": self.store}
        for stored in self.inputs:
            yield RemoteFile(stored.run.sha256, stored.extent, f"A run of {self.name}", whose)

    def into(self, output: StoredRun | None) -> Compaction:
        runs = tuple(stored.run for stored in self.inputs)
        return Compaction(self.store, self.segment, runs, output, self.is_lowest)
