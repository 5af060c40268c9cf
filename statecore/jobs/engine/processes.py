"""Engine without Spark: local processes, for small work, for tests, and without Java.

Workers are fresh interpreters (``worker.py``), never forks: a process forked from one that has used RocksDB hangs at
its first flush. They start at once and load what tasks need while the driver plans. Each gets one batch at a time over
a pipe::

    driver ── pickled (function, batch) ──▶ worker          8 bytes of length before each message, big-endian
           ◀── pickled answers ────────────

A worker ends when its pipe does, also in the middle of a task, so a killed driver leaves none behind. The signal that
ends a worker tells the cause: SIGKILL by the system means lack of memory, and a crash in machine code leaves a trace of
Python's ``faulthandler`` (:func:`statecore.jobs.failures.worker_died`).
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from statecore.cores import usable_cores
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.jobs.engine import preloading
from statecore.jobs.engine.protocol import PROCESSES, Engine, Failure, RanOn, ResultT, TaskT, WorkerRequirements
from statecore.jobs.failures import worker_died
from statecore.spec.model import ApplicationSpec

_LENGTH_BYTES = 8
_END_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessEngine:
    """Runs jobs in local processes.

    Attributes:
        processes: how many; ``None`` for one per usable core. Each may take the memory budget of the job.
        preloaded: modules that each of them loads while the driver plans.
    """

    processes: int | None = None
    preloaded: tuple[str, ...] = preloading.ALL

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise Invalid(
                f"{self.processes} is not a valid number of processes.",
                code="processes-invalid",
                action="Give at least 1, or leave the number out.",
            )

    @property
    def options(self) -> tuple[str, ...]:
        number = () if self.processes is None else ("--processes", str(self.processes))
        return ("--engine", "processes", *number)

    def expected(self, spec: ApplicationSpec) -> int:  # noqa: ARG002
        return self.processes or usable_cores()

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[ProcessWorkers]:  # noqa: ARG002
        with tempfile.TemporaryDirectory(prefix="statecore-workers-") as traces:
            workers = ProcessWorkers(self.processes or usable_cores(), Path(traces), self.preloaded)
            try:
                yield workers
            finally:
                workers.close()


def local_engine(engine: Engine) -> Engine:
    """The engine if it is local, else a local one."""
    return engine if isinstance(engine, ProcessEngine) else ProcessEngine()


class ProcessWorkers:
    """Local worker processes, until they are closed."""

    def __init__(self, count: int, traces: Path, preloaded: Sequence[str]) -> None:
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                self._workers.append(_Worker(traces / str(number), preloaded))
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return ""

    def are_local(self) -> bool:
        return True

    def parallelism(self) -> int:
        return len(self._workers)

    def check(self, required: WorkerRequirements) -> RanOn:  # noqa: ARG002  (they run where the driver runs)
        return RanOn(PROCESSES, len(self._workers), (socket.gethostname(),))

    def run(
        self, work: Callable[[Sequence[TaskT]], list[ResultT | Failure]], batches: Sequence[Sequence[TaskT]], doing: str
    ) -> list[ResultT | Failure]:
        left = deque(batches)
        answers: list[ResultT | Failure] = []
        stop = threading.Event()

        def employ(worker: _Worker) -> None:
            try:
                while not stop.is_set():
                    try:
                        batch = left.popleft()
                    except IndexError:
                        return
                    found = worker.ask(work, batch, doing)
                    answers.extend(found)
                    if any(isinstance(one, Failure) for one in found):
                        stop.set()
            except BaseException:
                stop.set()
                raise

        with ThreadPoolExecutor(len(self._workers), "statecore-worker") as pool:
            employed = [pool.submit(employ, worker) for worker in self._workers]
            try:
                done, _ = wait(employed)
            except BaseException:  # an interrupt: the threads end with their workers
                stop.set()
                self.close()
                raise
        errors = [error for one in done if (error := one.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, Retryable))
        return answers

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class _Worker:
    """One process and its pipe."""

    def __init__(self, trace: Path, preloaded: Sequence[str]) -> None:
        self._trace = trace
        # The driver's module path only; -P keeps the working directory out of it.
        path = os.pathsep.join(one or os.curdir for one in sys.path if isinstance(one, str))
        # Started with SIGINT blocked: until the worker ignores it, an interrupt would end it with a trace.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "statecore.jobs.engine.worker", str(trace), *preloaded],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ask(self, work: Callable[[Sequence[Any]], list[Any]], batch: Sequence[Any], doing: str) -> list[Any]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        answer: bytes | None = None
        with suppress(BrokenPipeError):
            send(to, (work, batch))
            answer = receive(back)
        if answer is None:
            raise self._death(doing)
        kind, value = pickle.loads(answer)
        if kind == "raised":
            raise StatecoreError(
                f"A defect of this program, while {doing}.",
                code="defect",
                action="Report it together with the trace.",
                trace=value,
            )
        return list(value)

    def _death(self, doing: str) -> StatecoreError:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        left = ""
        with suppress(OSError):
            left = self._trace.read_text(errors="replace").strip()
        return worker_died(doing, number=-code, left=left)

    def close(self) -> None:
        """Kill the process; unpublished work is lost."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # buffered data has no reader any more
                    pipe.close()


def send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message, pickled; ``None`` where the pipe ends."""
    length = int.from_bytes(head, "big") if len(head := pipe.read(_LENGTH_BYTES)) == _LENGTH_BYTES else None
    if length is None or len(data := pipe.read(length)) < length:
        return None
    return data
