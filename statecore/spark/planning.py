"""From a request to a frozen plan: one look at the cluster, every precondition, and the plan file of a retry.

The plan of a request is kept under the request's id until the restore is over, so a retry (of Airflow, of a person)
reads the same ranges, reuses what was built, and gives the same digest::

    <application directory>/.statecore/plans/<request id>.json
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.images.plan import (
    PartitionPlan,
    RestorePlan,
    check_partitions,
    end_of,
    make_plan,
    select_stores,
)
from statecore.spark.request import RestoreRequest
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee

POLL_INTERVAL = 0.5


def plan_restore(
    cluster: Cluster,
    spec: ApplicationSpec,
    request: RestoreRequest,
    *,
    parallelism: Callable[[], int],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[RestorePlan, tuple[str, ...]]:
    """Look at the topics once, check all preconditions, and freeze the plan.

    Under exactly-once an open transaction keeps the last stable offset below the log end; the job waits for it, up to
    ``request.transaction_wait`` seconds, and then says which tail is left to the application.

    Args:
        cluster: where the topics are.
        spec: the application.
        request: what of it to restore.
        parallelism: tasks that Spark can run at once; asked for late, as Spark is starting meanwhile.
        clock: monotonic seconds.
        sleep: waits for seconds.

    Returns:
        The plan, and notes for the operator.

    Raises:
        Invalid: the request does not fit spec or topics.
        NotFound: a changelog topic does not exist.
        Retryable: no broker could be reached.
    """
    stores = select_stores(spec, request.stores)
    topics = cluster.describe_topics(sorted({store.changelog for store in stores}))
    tasks = check_partitions(stores, topics, request.partitions)
    wanted = [TopicPartition(store.changelog, partition) for store in stores for partition in tasks[store.subtopology]]
    offsets = cluster.log_offsets(wanted)
    deadline = clock() + request.transaction_wait
    while _open_transactions(spec, offsets) and clock() < deadline:
        sleep(POLL_INTERVAL)
        offsets = {**offsets, **cluster.log_offsets(_open_transactions(spec, offsets))}
    plan = make_plan(spec, stores, tasks, topics, offsets, parallelism=parallelism())
    return plan, _notes(spec, plan, request)


def _open_transactions(spec: ApplicationSpec, offsets: Mapping[TopicPartition, LogOffsets]) -> Sequence[TopicPartition]:
    if spec.processing_guarantee is not ProcessingGuarantee.EXACTLY_ONCE_V2:
        return []
    return [part for part, seen in offsets.items() if end_of(seen, spec.processing_guarantee) < seen.log_end]


def _notes(spec: ApplicationSpec, plan: RestorePlan, request: RestoreRequest) -> tuple[str, ...]:
    notes = [
        f"{part.topic}-{part.partition}: an open transaction kept the end at {part.end} for "
        f"{request.transaction_wait:g} s; the application will restore the tail up to {part.log_end} itself "
        f"({part.tail_left} offsets)."
        for part in plan.partitions
        if part.tail_left > 0 and spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    ]
    notes += [
        f"Global store {store.name!r} was left out: Kafka Streams restores it itself." for store in spec.global_stores
    ]
    return tuple(notes)


def check_unchanged(plan: RestorePlan, topics: Mapping[str, TopicDescription]) -> None:
    """Refuse a frozen plan whose topics are not what they were.

    Raises:
        Invalid: a topic was deleted and created again since the plan was made.
    """
    changed = sorted({part.topic for part in plan.partitions if topics[part.topic].topic_id != part.topic_id})
    if changed:
        raise Invalid(
            f"Topics were created anew since the plan was made: {', '.join(changed)}.",
            action="Start a new restore (under a new request id), which makes a new plan.",
            topics=changed,
        )


def plan_path(work_path: Path, request_id: str) -> Path:
    """Where the plan of a request is kept; by a hash, as Airflow's run ids hold characters that no file name should."""
    return work_path / "plans" / f"{hashlib.sha256(request_id.encode()).hexdigest()[:24]}.json"


def save_plan(path: Path, plan: RestorePlan, request: RestoreRequest) -> None:
    """Freeze the plan on disk, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    partial = path.with_name(f".{path.name}")
    with partial.open("w") as file:
        json.dump({"request_id": request.request_id, "plan": plan.to_json()}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_plan(path: Path) -> RestorePlan | None:
    """The frozen plan of a request, or ``None`` when it has none yet."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return RestorePlan.from_json(document["plan"])


def covers(plan: RestorePlan, spec: ApplicationSpec, request: RestoreRequest) -> bool:
    """Whether a frozen plan answers this request: same application, guarantee, stores with their kinds and topics."""
    if plan.application_id != spec.application_id or plan.processing_guarantee is not spec.processing_guarantee:
        return False
    asked = {(store.name, store.kind, store.changelog) for store in select_stores(spec, request.stores)}
    planned = {(part.store, part.kind, part.topic) for part in plan.partitions}
    partitions = {part.partition for part in plan.partitions}
    return asked == planned and (not request.partitions or set(request.partitions) == partitions)


def by_size(partitions: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """Largest first: the last tasks of a stage should be short ones."""
    return sorted(partitions, key=lambda part: (part.start - part.end, part.task, part.store))
