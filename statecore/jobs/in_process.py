"""The engine of little work: this process alone, which has loaded everything already."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from statecore.jobs.engine import Failure, Question, ResultT, TaskT
from statecore.jobs.report import PROCESSES, RanOn
from statecore.spec.model import ApplicationSpec


class InProcessEngine:
    """Jobs in this process. It is its own only worker."""

    def expected(self, spec: ApplicationSpec) -> int:  # noqa: ARG002
        """See :class:`statecore.jobs.engine.Engine`."""
        return 1

    @contextmanager
    def start(self, job: str, spec: ApplicationSpec) -> Iterator[InProcessWorkers]:  # noqa: ARG002
        """See :class:`statecore.jobs.engine.Engine`."""
        yield InProcessWorkers()


class InProcessWorkers:
    """This process."""

    @property
    def called(self) -> str:
        """See :class:`statecore.jobs.engine.Workers`."""
        return "nobody"

    def parallelism(self) -> int:
        """See :class:`statecore.jobs.engine.Workers`."""
        return 1

    def are_here(self) -> bool:
        """See :class:`statecore.jobs.engine.Workers`."""
        return True

    def check(self, question: Question) -> RanOn:  # noqa: ARG002
        """See :class:`statecore.jobs.engine.Workers`."""
        return RanOn(PROCESSES, 1, (socket.gethostname(),))

    def run(
        self,
        work: Callable[[Sequence[TaskT]], list[ResultT | Failure]],
        batches: Sequence[Sequence[TaskT]],
        doing: str,  # noqa: ARG002
    ) -> list[ResultT | Failure]:
        """See :class:`statecore.jobs.engine.Workers`."""
        answers: list[ResultT | Failure] = []
        for batch in batches:
            answers += work(batch)
            if any(isinstance(answer, Failure) for answer in answers):
                break
        return answers
