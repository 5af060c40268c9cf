"""Ranges of changelogs that workers read: the task of one, and its result, which a later attempt finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.documents import DocumentType
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.images.model import BaseDatabases, Run
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.run_publisher import ApplicationAddress
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.objectstore.base import Blobs
from statecore.repository.manifest import Extent


@dataclass(frozen=True)
class ClusterSettings:
    """Connection to the brokers. Sent through the engine's own channels, never in arguments or configuration.

    Attributes:
        kafka: client settings with kafka-python's names, secrets resolved.
        timeout: seconds without progress after which a broker counts as unreachable.
    """

    bootstrap_servers: str
    kafka: Mapping[str, Any] = field(repr=False)
    timeout: float


@dataclass(frozen=True)
class RangeTask:
    """Read one offset range of one store into runs.

    Attributes:
        topic_id: id of the topic when the plan was made; a recreated topic is refused.
        below: databases of the store that may have rows before this range; in others deletes are dropped.
        segmentation: retention and interval of the store's segments, if it has any.
        repository: where its runs are published; ``None`` for nowhere.
        stream_time: greatest row time in ms of the store's base; -1 without one.
    """

    cluster: ClusterSettings
    place: StagingPlace
    task: str
    store: str
    kind: StoreKind
    offset_range: OffsetRange
    topic_id: str
    isolation: IsolationLevel
    below: BaseDatabases
    memory_budget: int
    segmentation: Segmentation | None = None
    repository: ApplicationAddress | None = None
    stream_time: int = -1

    @property
    def where(self) -> str:
        return str(self.place)

    @property
    def name(self) -> str:
        return staging.result_name(self.task, self.store, self.offset_range)

    @property
    def is_replayed(self) -> bool:
        """Whether its runs contain records from which rows are built later; only the rows are published."""
        return self.kind.is_versioned


@dataclass(frozen=True)
class RangeResult:
    """The runs of one range, and statistics of the read.

    Attributes:
        runs: in offset order.
        phases: that time by stage: ``fetch`` (network, brokers), ``decode`` (CRC, decompression, columns), ``collect``
            (last write per key), ``write`` (sort, SST).
        stream_time: greatest time of a row in ms if rows expire, tombstones and dropped rows included; else -1.
        expired: rows that were not written because they had expired by that time.
        extents: where the runs are in a repository, in their order; none if they were not published.
    """

    task: str
    store: str
    offset_range: OffsetRange
    runs: tuple[Run, ...]
    statistics: ReadStatistics
    seconds: float
    phases: Mapping[str, float]
    cpu: Mapping[str, float]
    stream_time: int = -1
    expired: int = 0
    extents: tuple[Extent, ...] = ()

    @property
    def name(self) -> str:
        return staging.result_name(self.task, self.store, self.offset_range)


RANGE_RESULT = DocumentType(
    "result of a range", 5, RangeResult, "No action needed: the range is read again.", is_sealed=True
)


def finished_range(task: RangeTask, blobs: Blobs) -> RangeResult | None:
    """Result of an earlier attempt after hashing every run; an incomplete one is deleted."""
    result = staging.load_result(blobs, task.name, RANGE_RESULT)
    if result is None:
        return None
    if result.offset_range == task.offset_range and _is_kept(task, blobs, result) and _is_published(task, result):
        return result
    forget_range(blobs, result)
    return None


def _is_kept(task: RangeTask, blobs: Blobs, result: RangeResult) -> bool:
    if task.repository is not None and not task.is_replayed and not task.place.keeps_runs:
        return True  # only in the repository
    return all(staging.is_whole(blobs, run) for run in result.runs)


def _is_published(task: RangeTask, result: RangeResult) -> bool:
    if task.repository is None or task.is_replayed:
        return True
    if len(result.extents) != len(result.runs):
        return False
    return task.repository.holds((run.sha256, extent) for run, extent in zip(result.runs, result.extents, strict=True))


def forget_range(blobs: Blobs, result: RangeResult) -> None:
    """Delete the blobs of a range, its result first."""
    staging.forget(blobs, [result.name], [run.sha256 for run in result.runs])
