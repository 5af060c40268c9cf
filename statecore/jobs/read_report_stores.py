"""Build report entries from the results of the tasks that read changelogs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from statecore.jobs.bases.base import Key
from statecore.jobs.job import Job
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.version_tasks import VersionResult
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.read_report import ReadReport, StoreReport


def job_report(
    job: Job,
    plan: ReadPlan | None,
    read: ReadResult,
    images: Mapping[Key, ImageResult] = MappingProxyType({}),
    *,
    parts: Mapping[Key, Sequence[PartitionPlan]] = MappingProxyType({}),
    **fields: Any,
) -> ReadReport:
    """Report of a job that has read changelogs; ``parts`` are partitions of stores that differ from the plan's."""
    stores = {} if plan is None else plan.stores
    return ReadReport(
        **asdict(job.attempt),
        plan_id="" if plan is None else plan.plan_id,
        processing_guarantee=str(job.spec.processing_guarantee),
        seconds=job.phases.elapsed,
        phases=dict(job.phases.wall),
        stores=tuple(
            store_report(parts.get(key, of), read.runs.get(key, ()), images.get(key), read.versions.get(key))
            for key, of in sorted(stores.items())
        ),
        work=work_of(read.runs, images),
        cpu=cpu_of(read.runs, images)
        | {name: round(job.phases.cpu[name], 3) for name in job.phases.cpu.keys() & {"place"}},
        ran_on=job.ran_on,
        **fields,
    )


def store_report(
    parts: Sequence[PartitionPlan],
    read: Sequence[RangeResult],
    built: ImageResult | None,
    rows: VersionResult | None = None,
) -> StoreReport:
    """Report entry of one store of one task: of one partition, or of a global store's whole topic."""
    image = None if built is None else built.image
    content = None if image is None else image.content
    runs = [run for result in read for run in result.runs] if rows is None else list(rows.runs)
    seen, one = [result.statistics for result in read], parts[0]
    return StoreReport(
        task=one.task,
        store=one.store,
        partition=-1 if one.is_global else one.partition,
        kind=str(one.kind),
        changelog=one.topic,
        start=sum(part.start for part in parts),
        end=sum(part.end for part in parts),
        committed_offset=sum(part.committed_offset for part in parts),
        records=sum(each.records for each in seen),
        tombstones=sum(each.tombstones for each in seen),
        null_keys=sum(each.null_keys for each in seen),
        aborted=sum(each.aborted for each in seen),
        rows=-1 if content is None else content.rows,
        bytes=-1 if content is None else content.bytes,
        file_bytes=sum(run.file_bytes for run in runs) if image is None else image.file_bytes,
        digest="" if content is None else content.digest,
        runs=sum(len(result.runs) for result in read),
        seconds=round(sum(result.seconds for result in read) + (0.0 if built is None else built.seconds), 3),
        tail_left=sum(part.tail_left for part in parts),
        max_timestamp=max((each.max_timestamp for each in seen), default=-1),
        offsets={str(part.topic_partition): part.committed_offset for part in parts},
        stream_time=max((result.stream_time for result in read), default=-1),
        segments=0 if image is None else image.segments,
        expired=(0 if image is None else image.expired) + sum(result.expired for result in read),
        restored_by_kafka_streams=one.restored_by_kafka_streams,
        base=one.base,
    )


def work_of(
    runs: Mapping[tuple[str, str], Sequence[RangeResult]], images: Mapping[tuple[str, str], ImageResult]
) -> dict[str, float]:
    """Wall seconds of all tasks, summed by stage."""
    ranges = [one.phases for results in runs.values() for one in results]
    return _added_up(ranges, sum(built.seconds for built in images.values()))


def cpu_of(
    runs: Mapping[tuple[str, str], Sequence[RangeResult]], images: Mapping[tuple[str, str], ImageResult]
) -> dict[str, float]:
    """CPU seconds of all tasks, summed by stage."""
    ranges = [one.cpu for results in runs.values() for one in results]
    return _added_up(ranges, sum(built.cpu for built in images.values()))


def _added_up(ranges: Sequence[Mapping[str, float]], image: float) -> dict[str, float]:
    stages = ("fetch", "decode", "collect", "write")
    added = {stage: sum(one.get(stage, 0.0) for one in ranges) for stage in stages}
    return {stage: round(seconds, 3) for stage, seconds in {**added, "image": image}.items()}
