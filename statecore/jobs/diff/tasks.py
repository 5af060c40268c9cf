"""A comparison as an engine's workers do it: a store of one task after the other, its databases where they lie."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.images.model import Segmentation
from statecore.jobs.diff.report import Only, StoreDiff, verdict_of
from statecore.jobs.engine import Failure
from statecore.jobs.failures import as_statecore_error
from statecore.stopwatch import Stopwatch

_TOLD_SECONDS = 1.0


@dataclass(frozen=True)
class DiffSide:
    """A store on one side.

    Attributes:
        directory: the store's directory, which a worker has to see; empty where this side has none.
        databases: by the start of the segment in ms, or ``None``.
        offsets: what the application would go by.
        position: greatest offsets seen.
        file_bytes: bytes of its databases.
    """

    directory: str
    databases: Mapping[int | None, str]
    offsets: Mapping[str, int]
    position: Mapping[str, int]
    file_bytes: int


@dataclass(frozen=True)
class DiffTask:
    """Compare a store of one task.

    Attributes:
        number: of the task; its file in ``told`` is called so.
        task: Kafka Streams' task id, or ``global``.
        store: its name.
        kind: its kind.
        here: the side that is looked at.
        reference: what it is held against.
        examples: rows of each difference that are kept.
        segmentation: where given, segments that have expired by it are left out.
        told: a directory where it says how far it is, if the driver can see that.
    """

    number: int
    task: str
    store: str
    kind: StoreKind
    here: DiffSide
    reference: DiffSide
    examples: int
    segmentation: Segmentation | None
    told: str

    @property
    def file_bytes(self) -> int:
        """Bytes of the files of both sides."""
        return self.here.file_bytes + self.reference.file_bytes


def compare_batch(tasks: Sequence[DiffTask]) -> list[StoreDiff | Failure]:
    """Compare stores, up to the first that cannot be."""
    found: list[StoreDiff | Failure] = []
    for task in tasks:
        doing = f"store {task.store!r} of task {task.task} was compared"
        try:
            found.append(_compare(task))
        except Exception as error:
            found.append(Failure(as_statecore_error(error, doing, task=task.task, store=task.store).to_json()))
            break
    return found


def _compare(task: DiffTask) -> StoreDiff:
    from statecore.jobs.diff.store_diff import compare_stores

    for side in (task.here, task.reference):
        if side.directory and not Path(side.directory).is_dir():
            raise Invalid(
                f"{socket.gethostname()} does not see {side.directory}.",
                code="directory-not-shared",
                action="Have the directories that are compared on a file system that all executors share with the "
                "driver, or compare on this machine (--engine processes).",
                task=task.task,
                store=task.store,
                path=side.directory,
            )
    watch = Stopwatch("compare", cpu_clock=time.thread_time)
    compared = compare_stores(
        task.kind,
        {segment: Path(path) for segment, path in task.here.databases.items()},
        {segment: Path(path) for segment, path in task.reference.databases.items()},
        examples=task.examples,
        segmentation=task.segmentation,
        read=_teller(task),
    )
    _tell(task, task.file_bytes)
    here, reference = task.here, task.reference
    return StoreDiff(
        task=task.task,
        store=task.store,
        kind=str(task.kind),
        verdict=verdict_of(compared.counts, here.offsets, reference.offsets),
        offsets=here.offsets,
        reference_offsets=reference.offsets,
        position=here.position,
        reference_position=reference.position,
        only=Only.BOTH if here.directory and reference.directory else Only.HERE if here.directory else Only.REFERENCE,
        compared=compared,
        seconds=round(watch.wall["compare"], 3),
        cpu=round(watch.cpu["compare"], 3),
    )


def _teller(task: DiffTask) -> Callable[[int], None]:
    """Says now and then how many bytes were read, and never more than there are in files."""
    total, next_at = 0, time.monotonic() + _TOLD_SECONDS

    def read(count: int) -> None:
        nonlocal total, next_at
        total += count
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _TOLD_SECONDS
            _tell(task, min(total, task.file_bytes))

    return read


def _tell(task: DiffTask, count: int) -> None:
    with suppress(OSError):  # it is for people who wait, and for nothing else
        Path(task.told, str(task.number)).write_text(str(count))


def told(directory: Path) -> int:
    """Bytes that all tasks have read so far."""
    total = 0
    for file in directory.iterdir():
        with suppress(OSError, ValueError):
            total += int(file.read_text())
    return total
