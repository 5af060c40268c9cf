"""What every job does around its own steps: it writes down its try, times its phases, and waits for its workers.

A job is a class over :class:`Job` that has the steps of its own (:mod:`statecore.jobs.restore.run`). Where it has a
state directory it runs under the lock of the application's, and its files lie there; else they lie in the repository
(:mod:`statecore.jobs.job_files`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from statecore.documents import encoded
from statecore.errors import Invalid, StatecoreError
from statecore.faults import FaultInjected, FaultPoints
from statecore.jobs.attempt import Attempt
from statecore.jobs.engine import Question, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.job_files import JobHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, REPORT_SUFFIX
from statecore.jobs.restore.report import RanOn
from statecore.jobs.restore.request import OfSpec
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec, parse_spec
from statecore.stopwatch import Stopwatch


@dataclass(frozen=True)
class Surroundings:
    """What a job is given besides its request.

    Attributes:
        spec: the application.
        home: where the files of its request and its staging lie.
        progress: told how far the job is.
        faults: points at which tests let the process die.
        say: told what an operator should read at once, line by line.
    """

    spec: ApplicationSpec
    home: JobHome
    progress: Progress
    faults: FaultPoints
    say: Callable[[str], None]


class Job:
    """One try of a request that freezes a plan.

    Args:
        around: application, home, and who is told.
        request_id: the request; a retry under it finds the plan.
        state_dir: Kafka Streams' ``state.dir``, as the request names it; empty without one.
        doing: what is being done, to follow "while" in an error: ``stores were restored in /d``.

    Attributes:
        report_suffix: of the report's file.
        home: where the plan is frozen, and beside it the report and the word of the last try.
        attempt: this try.
        phases: wall seconds of each phase that has ended, in order.
        cpu: CPU seconds of this process in each of them.
        brokers: what the brokers advertise, ``host:port`` each; workers are asked whether they reach them.
        ran_on: where the tasks run, once the workers were asked.
        taken_up: whether the plan is one that an earlier try had frozen.
        keeps_word: whether the word of the try stays when it fails without a plan: what it began is to be gone on with.
        began: ``time.monotonic()`` when this try began.
    """

    report_suffix: ClassVar[str] = REPORT_SUFFIX

    def __init__(self, around: Surroundings, *, request_id: str, state_dir: str, doing: str) -> None:
        self.spec, self.home = around.spec, around.home
        self.progress, self.faults, self.say = around.progress, around.faults, around.say
        self.doing = doing
        self.attempt = Attempt.begin(around.spec.application_id, state_dir, request_id)
        self.phases: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.brokers: list[str] = []
        self.ran_on = RanOn()
        self.taken_up = False
        self.began = time.monotonic()
        self.keeps_word = False
        self._reached = ""

    @contextmanager
    def attempted(self) -> Iterator[None]:
        """Around all steps: a failure that leaves a plan behind is kept beside it, for whoever looks what became of it.

        The word of the try is taken away when it succeeds, because the report says the same and more.
        """
        try:
            yield
        except FaultInjected:
            raise
        except Exception as error:
            said = as_statecore_error(error, self.doing)
            with suppress(OSError, StatecoreError):
                if self.home.read(PLAN_SUFFIX) is not None:
                    self.save(ATTEMPT_SUFFIX, self.attempt.failed(said.to_json(), self._reached))
                elif not self.keeps_word:
                    self.home.forget(ATTEMPT_SUFFIX)
            raise
        with suppress(StatecoreError):
            self.home.forget(ATTEMPT_SUFFIX)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around the steps of a phase: reports say how long it took, or that the try failed in it."""
        watch = Stopwatch(name)
        self._reached = name
        yield
        self.phases[name], self.cpu[name] = watch.wall[name], watch.cpu[name]

    def save(self, suffix: str, document: Mapping[str, Any]) -> None:
        """Write a document beside the plan, durable and complete or not at all."""
        self.home.save(suffix, encoded(document))

    def wait_for(
        self, workers: Workers, plan_id: str, shared: Callable[[], Path | None], kafka: Mapping[str, Any]
    ) -> None:
        """The phases ``start`` and ``check``: workers are there, and every one of them could take part.

        A new plan that is refused here is not kept; what an earlier try has read is, because a refusal of the engine's
        settings or hosts says nothing of it.

        Args:
            workers: the engine's.
            plan_id: the plan.
            shared: asked, once the workers are there, for the directory that they have to share with this process.
            kafka: the client settings with which they will read.
        """
        with nullcontext() if self.taken_up else self.nothing_left_of_the_invalid(plan_id):
            with self.phase("start"):
                self.progress.phase(f"wait for {workers.called}")
                workers.parallelism()
                self.progress.done()
            with self.phase("check"):
                self.ran_on = workers.check(Question.of(shared(), self.spec.bootstrap_servers, self.brokers, kafka))
                self.say(str(self.ran_on))

    @contextmanager
    def nothing_left_of_the_invalid(self, plan_id: str) -> Iterator[None]:
        """What was refused (a record that fits no store of the kind) will be again: nothing is kept for a retry."""
        try:
            yield
        except Invalid:
            self.home.discard(plan_id)
            self.home.forget(PLAN_SUFFIX)
            raise

    def finish(self, plan_id: str, report: Mapping[str, Any]) -> None:
        """After the last step: delete what was staged, say the last word, and sweep what nobody will retry.

        The work is done by then, so a report that cannot be written is no failure. The staging goes first, because a
        full disk has room for the report then.
        """
        self.home.discard(plan_id)
        with suppress(OSError, StatecoreError):
            self.save(self.report_suffix, report)
        self.home.sweep()


def nobody(line: str) -> None:
    """Hears nothing."""


def spec_of(request: OfSpec) -> ApplicationSpec:
    """The spec that a request names or carries.

    Raises:
        Invalid: it is no spec, or cannot be read.
        NotFound: there is no file at its path.
    """
    if request.spec is not None:
        return parse_spec(request.spec, request.spec_source)
    return load_spec(Path(request.spec_path or ""))
