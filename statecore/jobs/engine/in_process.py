"""Engine for small work: this process alone, which has loaded everything already."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from statecore.jobs.engine.preloading import preload
from statecore.jobs.engine.protocol import PROCESSES, Failure, RanOn, ResultT, TaskT, WorkerRequirements
from statecore.spec.model import ApplicationSpec

SMALL_BYTES = 64 << 20
"""Bytes of work below which a job does it alone, because workers take longer to start."""


@dataclass(frozen=True)
class InProcessEngine:
    """Runs jobs in this process, its only worker.

    Attributes:
        preloaded: modules that are loaded in the background until there is work.
    """

    preloaded: tuple[str, ...] = ()

    options = ()

    def expected(self, spec: ApplicationSpec) -> int:  # noqa: ARG002
        return 1

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[InProcessWorkers]:  # noqa: ARG002
        loading = threading.Thread(target=_load, args=(self.preloaded,), name="statecore-preload")
        loading.start()
        try:
            yield InProcessWorkers(loading)
        finally:
            loading.join()


def _load(modules: tuple[str, ...]) -> None:
    with suppress(Exception):  # the import that needs them will report the error
        preload(modules)


class InProcessWorkers:
    """This process as the only worker."""

    def __init__(self, loading: threading.Thread) -> None:
        self._loading = loading

    @property
    def name(self) -> str:
        return ""

    def parallelism(self) -> int:
        return 1

    def are_local(self) -> bool:
        return True

    def check(self, required: WorkerRequirements) -> RanOn:  # noqa: ARG002
        return RanOn(PROCESSES, 1, (socket.gethostname(),))

    def run(
        self,
        work: Callable[[Sequence[TaskT]], list[ResultT | Failure]],
        batches: Sequence[Sequence[TaskT]],
        doing: str,  # noqa: ARG002
    ) -> list[ResultT | Failure]:
        self._loading.join()
        answers: list[ResultT | Failure] = []
        for batch in batches:
            answers += work(batch)
            if any(isinstance(answer, Failure) for answer in answers):
                break
        return answers
