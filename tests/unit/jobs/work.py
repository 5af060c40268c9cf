"""What the workers of the engine's tests are told to do; they import it by its name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from statecore.errors import Retryable
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline.merge_tasks import SliceResult, SliceTask, merge_slices

if TYPE_CHECKING:
    from statecore.images.key_table import Chunk
    from statecore.images.merge_reader import MergingRuns

PATIENCE = 60.0


def double(numbers: Sequence[int]) -> list[int | Failure]:
    return [2 * number for number in numbers]


def interrupts_blocked(batch: Sequence[int]) -> list[int | Failure]:
    """1 where this process has SIGINT blocked, which what it starts would inherit."""
    return [int(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))]


def meet(batch: Sequence[str]) -> list[int | Failure]:
    """The number of this process, once another one has come to the same place."""
    place = Path(batch[0])
    (place / str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE
    while len(list(place.iterdir())) < 2:
        if time.monotonic() > until:
            raise TimeoutError("nobody else came")
        time.sleep(0.01)
    return [os.getpid()]


def chat(batch: Sequence[str]) -> list[str | Failure]:
    print("a line on standard output")
    sys.stdout.flush()
    os.write(1, b"\xff" * 100)
    return list(batch)


def fail_at(batch: Sequence[int]) -> list[int | Failure]:
    if batch[0] == 1:
        return [Failure(Retryable("No broker.", code="test-error", action="Wait.").to_json())]
    return list(batch)


def die(batch: Sequence[int]) -> list[int | Failure]:
    os.kill(os.getpid(), batch[0])
    time.sleep(PATIENCE)
    return []


def merge_and_die(batch: Sequence[SliceTask]) -> list[SliceResult | Failure]:
    """Merge slices, and be killed when some rows of the first one that is not merged yet are written."""
    from statecore.images import merge_writer as merge
    from statecore.images.merge_reader import MergeLimits

    def some(merging: MergingRuns, keep_tombstones: bool) -> Iterator[Chunk]:
        merging.limits = MergeLimits(rows=64)
        for number, chunk in enumerate(chunks(merging, keep_tombstones)):
            if number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield chunk

    chunks = merge._chunks
    with mock.patch.object(merge, "_chunks", some):
        return merge_slices(batch)


def crash(batch: Sequence[int]) -> list[int | Failure]:
    ctypes.string_at(0)
    return list(batch)


def crash_in_a_kernel(batch: Sequence[int]) -> list[int | Failure]:
    from statecore.images.kernels import kernel

    kernel.run("xxh64", address=1, length=64, seed=0)
    return list(batch)


def leave(batch: Sequence[int]) -> list[int | Failure]:
    os._exit(batch[0])


def stumble(batch: Sequence[int]) -> list[int | Failure]:
    raise ZeroDivisionError(f"by {batch[0]}")


def stay(batch: Sequence[str]) -> list[int | Failure]:
    """Say who works, then work for long."""
    partial = Path(batch[0]).with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(batch[0])
    time.sleep(10 * PATIENCE)
    return []


def wait_for(path: Path) -> str:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return path.read_text()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def await_end(process: int) -> None:
    until = time.monotonic() + PATIENCE
    while is_running(process):
        assert time.monotonic() < until
        time.sleep(0.01)


def drive(mark: str) -> None:
    """A driver whose one worker works for long; for a process of its own."""
    from statecore.jobs.engine.processes import ProcessEngine
    from tests.unit.jobs.support import spec
    from tests.unit.jobs.work import stay as task  # by a name that the worker can import

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ProcessEngine(1, preloaded=()).start("test", spec()) as workers:
        workers.run(task, [[mark]], "a test ran")


if __name__ == "__main__":
    drive(sys.argv[1])
