"""Input of stage two: a store of one task, and the runs and bases it is built of.

Restores and fetches differ only in where the runs were made. Bases are snapshots of directories that Kafka Streams
wrote, or such directories themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from statecore.filesystem import FileState
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, StoreDigest
from statecore.jobs.bases.base_database import BaseDirectory, BaseFiles


@dataclass(frozen=True)
class AppliedRuns:
    """Runs from one source: an offset range that was read, or a snapshot.

    Attributes:
        runs: in the order they are applied.
        stream_time: greatest time of a row in them, in ms, if rows expire; else -1.
        result: the blob that names these runs, deleted with them if one is damaged, so that they are not reused;
            ``None`` if there is none.
    """

    runs: tuple[Run, ...]
    stream_time: int = -1
    result: str | None = None


@dataclass(frozen=True)
class StoreToBuild:
    """One store of one task, and what its image is built of.

    Attributes:
        offsets: by changelog partition the offset to commit with the data.
        parts: its runs, in the order they are applied.
        segmentation: retention and interval of the store's segments, if it has any.
        bases: databases below the runs, if any.
        size: amount of work, about as many records.
        hashed: state of files when they were downloaded and hashed, by hash.
        content: digest of the rows, if known.
        is_counted: whether all rows of runs are read to find an unknown digest.
        scans_bases: the same for the rows of bases.
    """

    task: str
    store: str
    kind: StoreKind
    offsets: Mapping[TopicPartition, int]
    parts: tuple[AppliedRuns, ...] = ()
    segmentation: Segmentation | None = None
    bases: tuple[BaseFiles | BaseDirectory, ...] = ()
    size: int = 0
    hashed: Mapping[str, FileState | None] = field(default_factory=dict)
    content: StoreDigest | None = None
    is_counted: bool = True
    scans_bases: bool = False

    @property
    def runs(self) -> Iterator[Run]:
        return (run for part in self.parts for run in part.runs)

    @property
    def results(self) -> tuple[str, ...]:
        """The blobs that name its runs."""
        return tuple(part.result for part in self.parts if part.result is not None)

    @property
    def base_hashes(self) -> Iterator[str]:
        return (sha256 for base in self.bases if isinstance(base, BaseFiles) for sha256 in base.files.values())

    @property
    def stream_time(self) -> int:
        """Greatest time of a row in ms; -1 without one."""
        return max((part.stream_time for part in self.parts), default=-1)

    @property
    def first_segment(self) -> int:
        """The first segment that has not expired; 0 without segments."""
        of = self.segmentation
        return 0 if of is None else of.first_live(self.stream_time)
