"""What the second stage is given: a store of one task, and what it is built of, wherever that comes from.

A restore that has read changelogs and a fetch from a repository differ in where the runs were made, and in nothing
else. Bases come from snapshots of directories that Kafka Streams wrote, or are such directories as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from statecore.filesystem import FileMoment
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, Segmentation, StoreDigest


@dataclass(frozen=True)
class AppliedRuns:
    """Runs that come from one place: an offset range that was read, or a snapshot.

    Attributes:
        runs: in the order they are applied.
        stream_time: the greatest time of a row that was seen there in ms, where rows expire; else -1.
        result: the blob that names these runs: taken away with them when one is damaged, so that nobody finds them
            again; ``None`` where there is none.
    """

    runs: tuple[Run, ...]
    stream_time: int = -1
    result: str | None = None


@dataclass(frozen=True)
class BaseFiles:
    """A database that lies below the runs, file by file.

    Attributes:
        segment: id of the segment that it is; ``None`` where the store has none.
        files: name in the database's directory → SHA-256, by which the file is found.
    """

    segment: int | None
    files: Mapping[str, str]


@dataclass(frozen=True)
class BaseDirectory:
    """A database that lies below the runs, in a directory that whoever builds the image can see: closed, and not opened
    by anybody until the image is built. Its files are linked and never written to.

    Attributes:
        segment: id of the segment that it is; ``None`` where the store has none.
        path: the directory.
        starts: by changelog partition the offset that the runs begin at. Nothing is built where it ends elsewhere.
    """

    segment: int | None
    path: str
    starts: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StoreToBuild:
    """One store of one task, and what its image is made of.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        kind: its kind.
        offsets: by changelog partition the offset to commit with the data.
        parts: its runs, in the order they are applied.
        segmentation: how the store is divided by time, if it is.
        bases: what lies below the runs, if anything does.
        size: how much work it is: about so many records.
        hashed: of files that were hashed as they came, what they were then, by their hash.
        content: what it holds, where that is known.
        is_counted: whether every row is read to find that out, where it is not.
    """

    task: str
    store: str
    kind: StoreKind
    offsets: Mapping[TopicPartition, int]
    parts: tuple[AppliedRuns, ...] = ()
    segmentation: Segmentation | None = None
    bases: tuple[BaseFiles | BaseDirectory, ...] = ()
    size: int = 0
    hashed: Mapping[str, FileMoment | None] = field(default_factory=dict)
    content: StoreDigest | None = None
    is_counted: bool = True

    @property
    def runs(self) -> Iterator[Run]:
        """All of its runs, in the order they are applied."""
        return (run for part in self.parts for run in part.runs)

    @property
    def results(self) -> tuple[str, ...]:
        """The blobs that name its runs."""
        return tuple(part.result for part in self.parts if part.result is not None)

    @property
    def base_hashes(self) -> Iterator[str]:
        """Hashes of the files below its runs, as far as they are found by them."""
        return (sha256 for base in self.bases if isinstance(base, BaseFiles) for sha256 in base.files.values())

    @property
    def stream_time(self) -> int:
        """The greatest time of a row in ms; -1 without one."""
        return max((part.stream_time for part in self.parts), default=-1)

    @property
    def first_segment(self) -> int:
        """The first segment that has not expired; 0 where there are none."""
        of = self.segmentation
        return 0 if of is None else first_live_segment(self.stream_time, of.retention_ms, of.interval_ms)
