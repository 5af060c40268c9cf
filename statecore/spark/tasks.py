"""What runs inside Spark's Python workers: read a range into runs, build the image of a store partition.

Both are idempotent and safe under retries, speculation and kills: each attempt works in a directory of its own and
renames it to its final name when it is complete, so a name that exists is a finished result, which a later attempt of
the same plan takes as it is::

    <staging>/<plan id>/runs/<task>/<store>/<start>-<end>/      run-00000.sst ... result.json
    <staging>/<plan id>/images/<task>/rocksdb/<store>/          the database
    <staging>/<plan id>/results/<task>/<store>.json             what the image holds
    <staging>/<plan id>/progress/<task>.<store>.<start>         offsets done so far, for the driver to add up
    <staging>/<plan id>/attempts/                               what is not complete yet

A task answers with its result or with the error that stopped it, as a value: Spark turns an exception into text, and
the operator needs its kind.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import KINDS, Capacity, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Image, Run

PROGRESS_INTERVAL = 0.5


@dataclass(frozen=True)
class ClusterSettings:
    """How a worker reaches the brokers. Travels inside Spark's own channels, never in arguments or configuration.

    Attributes:
        bootstrap_servers: ``host:port[,...]``.
        kafka: client settings with kafka-python's names, secrets resolved.
        timeout: seconds without progress after which a broker counts as unreachable.
    """

    bootstrap_servers: str
    kafka: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True)
class RangeTask:
    """Read one offset range of one store into runs.

    Attributes:
        cluster: where the changelog is.
        directory: ``<staging>/<plan id>``.
        task: Kafka Streams' task id.
        store: the store.
        kind: its kind.
        offset_range: what to read.
        topic_id: id of the topic when the plan was made; one created anew since is refused.
        isolation: how.
        first: whether this is the first range of its partition; then deletes have nothing to delete and are dropped.
        memory_budget: bytes of records to hold at once.
    """

    cluster: ClusterSettings
    directory: str
    task: str
    store: str
    kind: StoreKind
    offset_range: OffsetRange
    topic_id: str
    isolation: IsolationLevel
    first: bool
    memory_budget: int


@dataclass(frozen=True)
class RangeResult:
    """The runs of one range, and what the read saw.

    Attributes:
        task: Kafka Streams' task id.
        store: the store.
        offset_range: what was read.
        runs: in offset order.
        statistics: of the read.
        seconds: wall time of the task.
        phases: where that time went: ``read`` (network, decoding), ``collect`` (last write per key), ``write`` (sort,
            SST).
    """

    task: str
    store: str
    offset_range: OffsetRange
    runs: tuple[Run, ...]
    statistics: ReadStatistics
    seconds: float
    phases: Mapping[str, float]

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RangeResult:
        """Read a result back from ``result.json``."""
        return RangeResult(
            **{
                **document,
                "offset_range": OffsetRange(**document["offset_range"]),
                "runs": tuple(Run(**run) for run in document["runs"]),
                "statistics": ReadStatistics(**document["statistics"]),
            }
        )


@dataclass(frozen=True)
class ImageTask:
    """Build the database of one store partition from its runs.

    Attributes:
        directory: ``<staging>/<plan id>``.
        task: Kafka Streams' task id.
        store: the store.
        kind: its kind.
        changelog: topic and partition, the key of the committed offset.
        committed_offset: the offset to commit with the data.
        runs: all runs of the partition, in offset order.
    """

    directory: str
    task: str
    store: str
    kind: StoreKind
    changelog: TopicPartition
    committed_offset: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class ImageResult:
    """A finished image, and the seconds it took."""

    task: str
    store: str
    image: Image
    seconds: float


@dataclass(frozen=True)
class Failure:
    """An error that stopped a task, as a value; ``error`` is the JSON form of a ``StatecoreError``."""

    error: Mapping[str, Any]

    def to_error(self) -> StatecoreError:
        """The error, to be raised by the driver."""
        kind = KINDS.get(self.error["error"], StatecoreError)
        return kind(self.error["what"], action=self.error["action"], **self.error["context"])


TaskT = TypeVar("TaskT", RangeTask, ImageTask)
ResultT = TypeVar("ResultT", RangeResult, ImageResult)


def _answer(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failure:
    try:
        return work(task)
    except StatecoreError as error:
        return Failure(error.to_json())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return Failure(
            Capacity(
                f"The disk of {task.directory} ran full while store {task.store!r} of task {task.task} was built.",
                action="Free room there, or give a staging directory on a larger disk, and start the restore again.",
                task=task.task,
                store=task.store,
            ).to_json()
        )


def read_range(task: RangeTask) -> RangeResult | Failure:
    """Read a range into runs, unless an earlier attempt of the plan has."""
    return _answer(_read_range, task)


def build_store(task: ImageTask) -> ImageResult | Failure:
    """Build an image from its runs, unless an earlier attempt of the plan has."""
    return _answer(_build_store, task)


def _read_range(task: RangeTask) -> RangeResult:
    from statecore.changelog.cluster import Cluster
    from statecore.changelog.reader import ChangelogReader, ReaderOptions
    from statecore.images.runs import RunBuilder

    span = task.offset_range
    final = Path(task.directory, "runs", task.task, task.store, f"{span.start}-{span.end}")
    if (final / "result.json").exists():
        return RangeResult.from_json(json.loads((final / "result.json").read_text()))
    began = time.monotonic()
    attempt = _attempt_directory(task.directory)
    attempt.mkdir()
    try:
        builder = RunBuilder(task.kind, attempt, memory_budget=task.memory_budget, keep_tombstones=not task.first)
        progress = _ProgressFile(Path(task.directory, "progress", f"{task.task}.{task.store}.{span.start}"))
        collecting = 0.0
        with Cluster(task.cluster.bootstrap_servers, task.cluster.kafka, timeout=task.cluster.timeout) as cluster:
            reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=task.cluster.timeout))
            for batch in reader.read(span, task.isolation, topic_id=task.topic_id):
                before = time.monotonic()
                builder.add(batch)
                collecting += time.monotonic() - before
                progress.report(reader.statistics.position - span.start)
            statistics = reader.statistics
        progress.report(span.end - span.start, now=True)
        read_until = time.monotonic()
        runs = tuple(builder.finish())
        done = time.monotonic()
        phases = {"read": read_until - began - collecting, "collect": collecting, "write": done - read_until}
        result = RangeResult(task.task, task.store, span, runs, statistics, done - began, phases)
        result = _moved(result, final)
        _write_json(attempt / "result.json", asdict(result))
        _rename_unless_there(attempt, final)
        return result
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _moved(result: RangeResult, final: Path) -> RangeResult:
    """The result as it will be after the directory got its final name."""
    runs = tuple(Run(**{**asdict(run), "path": str(final / Path(run.path).name)}) for run in result.runs)
    return RangeResult(
        result.task, result.store, result.offset_range, runs, result.statistics, result.seconds, result.phases
    )


def _build_store(task: ImageTask) -> ImageResult:
    from statecore.images.image import build_image

    final = Path(task.directory, "images", task.task, "rocksdb", task.store)
    record = Path(task.directory, "results", task.task, f"{task.store}.json")
    if final.exists() and record.exists():
        document = json.loads(record.read_text())
        return ImageResult(task.task, task.store, Image(**document["image"]), document["seconds"])
    began = time.monotonic()
    attempt = _attempt_directory(task.directory)
    try:
        image = build_image(attempt, task.kind, task.runs, task.changelog, task.committed_offset)
        image = Image(**{**asdict(image), "path": str(final)})
        seconds = time.monotonic() - began
        # The record first: an image without one is built anew, a record without an image is not looked at.
        _write_json(record, {"image": asdict(image), "seconds": seconds})
        if final.exists():
            shutil.rmtree(final)
        _rename_unless_there(attempt, final)
        return ImageResult(task.task, task.store, image, seconds)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _attempt_directory(directory: str) -> Path:
    """A name that no other attempt has, in a directory that exists."""
    attempts = Path(directory, "attempts")
    attempts.mkdir(parents=True, exist_ok=True)
    return attempts / uuid.uuid4().hex


def _rename_unless_there(attempt: Path, final: Path) -> None:
    """Give a finished directory its final name; when another attempt was first, keep that one."""
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        attempt.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with partial.open("w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class _ProgressFile:
    """Tells the driver how far a range has come, through a small file it adds up with the others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._next = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)

    def report(self, offsets: int, *, now: bool = False) -> None:
        moment = time.monotonic()
        if moment < self._next and not now:
            return
        self._next = moment + PROGRESS_INTERVAL
        self._partial.write_text(str(offsets))
        self._partial.replace(self._path)
