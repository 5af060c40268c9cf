"""Workers that a job has already, as the engine of a job within it."""

from __future__ import annotations

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.protocol import Started
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee

SPEC = ApplicationSpec("app", "", ProcessingGuarantee.AT_LEAST_ONCE, ())


def test_a_job_within_a_job_has_its_workers_and_does_not_let_them_go() -> None:
    with InProcessEngine().start("outer", SPEC) as workers:
        inner = Started(workers)
        assert inner.expected(SPEC) == 1
        for _ in range(2):
            with inner.start("inner", SPEC) as same:
                assert same is workers
            assert workers.run(list, [[1], [2]], "") == [1, 2]
