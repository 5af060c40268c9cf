"""From what the tasks of a restore answered to what its report says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.jobs.image_tasks import ImageResult
from statecore.jobs.plan import PartitionPlan
from statecore.jobs.range_tasks import RangeResult
from statecore.jobs.report import StoreReport


def store_report(parts: Sequence[PartitionPlan], read: Sequence[RangeResult], built: ImageResult) -> StoreReport:
    """What is reported of one store of one task: of one partition, or of a global store's whole topic.

    Args:
        parts: the plan of its partitions.
        read: the ranges that were read for it; none of a store that is left to Kafka Streams.
        built: its image.
    """
    content = built.image.content
    if content is None:
        raise ValueError(f"the image of {parts[0].store} has a base, and runs alone tell what an image holds")
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
        rows=content.rows,
        bytes=content.bytes,
        file_bytes=built.image.file_bytes,
        digest=content.digest,
        runs=sum(len(result.runs) for result in read),
        seconds=round(sum(result.seconds for result in read) + built.seconds, 3),
        tail_left=sum(part.tail_left for part in parts),
        max_timestamp=max((each.max_timestamp for each in seen), default=-1),
        offsets=built.image.offsets,
        stream_time=max((result.stream_time for result in read), default=-1),
        segments=built.image.segments,
        expired=built.image.expired + sum(result.expired for result in read),
        left_to_restore=one.left_to_restore,
    )


def work_of(
    runs: Mapping[tuple[str, str], Sequence[RangeResult]], images: Mapping[tuple[str, str], ImageResult]
) -> dict[str, float]:
    """Wall seconds of all tasks added up, by what they did."""
    ranges = [one.phases for results in runs.values() for one in results]
    return _added_up(ranges, sum(built.seconds for built in images.values()))


def cpu_of(
    runs: Mapping[tuple[str, str], Sequence[RangeResult]], images: Mapping[tuple[str, str], ImageResult]
) -> dict[str, float]:
    """CPU seconds of all tasks added up, by what they did."""
    ranges = [one.cpu for results in runs.values() for one in results]
    return _added_up(ranges, sum(built.cpu for built in images.values()))


def _added_up(ranges: Sequence[Mapping[str, float]], image: float) -> dict[str, float]:
    stages = ("fetch", "decode", "collect", "write")
    added = {stage: sum(one.get(stage, 0.0) for one in ranges) for stage in stages}
    return {stage: round(seconds, 3) for stage, seconds in {**added, "image": image}.items()}
