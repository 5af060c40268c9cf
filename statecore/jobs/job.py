"""One attempt of a job: records it, times the phases, waits for the workers, keeps plan and report.

A job is a subclass of :class:`Job` with its own steps, such as ``restore/job.py``. With a state directory it
runs under the application's lock, and its files are there; else they are in the repository (``job_home.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

from statecore.documents import encode_json
from statecore.errors import Fenced, Invalid, StatecoreError
from statecore.faults import FaultInjected
from statecore.jobs.attempt import Attempt
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import RanOn, WorkerRequirements, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.job_home import JobHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, REPORT_SUFFIX
from statecore.repository.publish.conflicts import is_overtaken
from statecore.stopwatch import Stopwatch


class Phases:
    """Times the phases of one attempt.

    Attributes:
        wall: seconds of each phase that has ended.
        cpu: CPU seconds of this process in each of them.
        reached: the last phase that began; empty before the first.
    """

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.reached = ""
        self._began = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around the steps of a phase."""
        watch = Stopwatch(name)
        self.reached = name
        yield
        # A job that plans again goes through a phase twice.
        self.wall[name] = self.wall.get(name, 0.0) + watch.wall[name]
        self.cpu[name] = self.cpu.get(name, 0.0) + watch.cpu[name]

    @property
    def elapsed(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self._began


class Job:
    """One attempt of a request.

    Attributes:
        home: where plan, report and attempt file are kept.
        brokers: advertised addresses, ``host:port`` each; workers are asked whether they reach them.
        ran_on: where the tasks run, known after the workers were checked.
        is_resumed: whether an earlier attempt had frozen the plan.
        keeps_attempt_file: whether it stays after a failure without a plan: the changes it began have to be resumed.
    """

    report_suffix: ClassVar[str] = REPORT_SUFFIX

    def __init__(self, context: JobContext[Any], home: JobHome, doing: str) -> None:
        self.context, self.home, self.doing = context, home, doing
        self.spec, self.progress, self.faults, self.say = context.spec, context.progress, context.faults, context.say
        self.attempt = Attempt.begin(context.application_id, context.state_dir, context.request.request_id)
        self.phases = Phases()
        self.brokers: list[str] = []
        self.ran_on = RanOn()
        self.is_resumed = False
        self.keeps_attempt_file = False

    @contextmanager
    def attempted(self) -> Iterator[None]:
        """Around all steps: record a failure beside the plan, if there is one; a success has a report."""
        try:
            yield
        except FaultInjected:
            raise
        except Exception as error:
            failure = as_statecore_error(error, self.doing)
            with suppress(OSError, StatecoreError):
                if self.home.read(PLAN_SUFFIX) is not None:
                    self.save(ATTEMPT_SUFFIX, self.attempt.failed(failure.to_json(), self.phases.reached))
                elif not self.keeps_attempt_file:
                    self.home.forget(ATTEMPT_SUFFIX)
            raise
        with suppress(StatecoreError):
            self.home.forget(ATTEMPT_SUFFIX)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Around the steps of a phase: measures it, and names it in a failure."""
        return self.phases.phase(name)

    def save(self, suffix: str, document: Mapping[str, Any]) -> None:
        """Write a document beside the plan, durably and atomically."""
        self.home.save(suffix, encode_json(document))

    def wait_for(
        self,
        workers: Workers,
        plan_id: str,
        shared: Callable[[], Path | None],
        kafka: Mapping[str, Any],
        *,
        has_work: bool = True,
    ) -> None:
        """The phases ``start`` and ``check``: wait for the workers, and check that all of them can take part.

        A new plan that is refused here is deleted; a resumed one stays, because a refusal for the engine's settings or
        hosts does not concern what was read.
        """
        with nullcontext() if self.is_resumed else self.discarding_invalid(plan_id):
            with self.phase("start"):
                if workers.name:
                    self.progress.phase(f"wait for {workers.name}")
                workers.parallelism()
                self.progress.done()
            with self.phase("check"):
                self.ran_on = workers.check(
                    WorkerRequirements.of(shared(), self.spec.bootstrap_servers, self.brokers, kafka)
                )
                if has_work:
                    self.say(str(self.ran_on))

    @contextmanager
    def discarding_invalid(self, plan_id: str) -> Iterator[None]:
        """Delete plan and staging on ``Invalid``, such as a record that does not fit the kind: a retry fails, too."""
        try:
            yield
        except Invalid:
            self.home.discard(plan_id)
            self.home.forget(PLAN_SUFFIX)
            raise

    def plans_again(self, error: Fenced) -> bool:
        """Whether a new plan can publish what this one cannot, because other jobs have published meanwhile; says so."""
        if is_overtaken(error):
            self.say("Another job has published meanwhile, and has read up to other offsets: planning again.")
        return is_overtaken(error)

    def finish(self, plan_id: str, report: Mapping[str, Any]) -> None:
        """After the last step: delete the staging, save the report, and sweep old files.

        The work is done by then, so a report that cannot be written is no failure. The staging goes first, because that
        makes room on a full disk.
        """
        self.home.discard(plan_id)
        with suppress(OSError, StatecoreError):
            self.save(self.report_suffix, report)
        self.home.sweep()
