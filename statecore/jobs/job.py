"""What every job does around its own steps: it writes down its try, times its phases, and waits for its workers.

A job is a class over :class:`Job` that has the steps of its own (:mod:`statecore.jobs.restore`). It runs under the lock
of the application's directory, and its files lie there (``statecore/jobs/frozen_plan.py`` says where).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.documents import encoded
from statecore.errors import Invalid
from statecore.faults import FaultInjected, FaultPoints
from statecore.filesystem import discard_tree, make_directories, write_durably
from statecore.jobs.attempt import Attempt
from statecore.jobs.engine import Question, Workers
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.frozen_plan import ATTEMPT_SUFFIX, REPORT_SUFFIX, plan_path, sweep_plans
from statecore.jobs.report import RanOn
from statecore.jobs.request import OfApplication
from statecore.jobs.staging import staging_base
from statecore.placement.state_directory import StateDirectory
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec, parse_spec
from statecore.stopwatch import Stopwatch


@dataclass(frozen=True)
class Surroundings:
    """What a job is given besides its request.

    Attributes:
        spec: the application.
        directory: the application's directory, locked by this process.
        progress: told how far the job is.
        faults: points at which tests let the process die.
        say: told what an operator should read at once, line by line.
    """

    spec: ApplicationSpec
    directory: StateDirectory
    progress: Progress
    faults: FaultPoints
    say: Callable[[str], None]


class Job:
    """One try of a request that freezes a plan, under the application's lock.

    Args:
        around: application, directory, and who is told.
        request_id: the request; a retry under it finds the plan.
        state_dir: Kafka Streams' ``state.dir``, as the request names it.
        staging_dir: below which directory the plan is built; ``None`` for the application's own.
        doing: what is being done, to follow "while" in an error: ``stores were restored in /d``.

    Attributes:
        work: the directory below which plans are staged.
        plan_file: where the plan is frozen.
        report_file: the report, beside it.
        attempt_file: the word of the last try, beside it.
        attempt: this try.
        phases: wall seconds of each phase that has ended, in order.
        cpu: CPU seconds of this process in each of them.
        brokers: what the brokers advertise, ``host:port`` each; workers are asked whether they reach them.
        ran_on: where the tasks run, once the workers were asked.
        taken_up: whether the plan is one that an earlier try had frozen.
        began: ``time.monotonic()`` when this try began.
    """

    def __init__(
        self, around: Surroundings, *, request_id: str, state_dir: str, staging_dir: str | None, doing: str
    ) -> None:
        self.spec, self.directory = around.spec, around.directory
        self.progress, self.faults, self.say = around.progress, around.faults, around.say
        self.doing = doing
        self.work = staging_base(staging_dir, around.directory)
        self.plan_file = plan_path(around.directory.work_path, request_id)
        self.report_file = self.plan_file.with_suffix(REPORT_SUFFIX)
        self.attempt_file = self.plan_file.with_suffix(ATTEMPT_SUFFIX)
        self.attempt = Attempt.begin(around.spec.application_id, state_dir, request_id)
        self.phases: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.brokers: list[str] = []
        self.ran_on = RanOn()
        self.taken_up = False
        self.began = time.monotonic()
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
            with suppress(OSError):
                if self.plan_file.exists():
                    self.save(self.attempt_file, self.attempt.failed(said.to_json(), self._reached))
                else:
                    self.attempt_file.unlink(missing_ok=True)
            raise
        self.attempt_file.unlink(missing_ok=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around the steps of a phase: reports say how long it took, or that the try failed in it."""
        watch = Stopwatch(name)
        self._reached = name
        yield
        self.phases[name], self.cpu[name] = watch.wall[name], watch.cpu[name]

    def save(self, file: Path, document: Mapping[str, Any]) -> None:
        """Write a document beside the plan, durable and complete or not at all."""
        make_directories(file.parent)
        write_durably(file, encoded(document))

    def wait_for(self, workers: Workers, staging: Path, kafka: Mapping[str, Any]) -> None:
        """The phases ``start`` and ``check``: workers are there, and every one of them could take part.

        A new plan that is refused here is not kept; what an earlier try has read is, because a refusal of the engine's
        settings or hosts says nothing of it.

        Args:
            workers: the engine's.
            staging: ``<staging>/<plan id>``, which they have to share with this process.
            kafka: the client settings with which they will read.
        """
        with nullcontext() if self.taken_up else self.nothing_left_of_the_invalid(staging):
            with self.phase("start"):
                self.progress.phase(f"wait for {workers.called}")
                workers.parallelism()
                self.progress.done()
            with self.phase("check"):
                self.ran_on = workers.check(Question.of(staging, self.spec.bootstrap_servers, self.brokers, kafka))
                self.say(str(self.ran_on))

    @contextmanager
    def nothing_left_of_the_invalid(self, staging: Path) -> Iterator[None]:
        """What was refused (a record that fits no store of the kind) will be again: nothing is kept for a retry."""
        try:
            yield
        except Invalid:
            shutil.rmtree(staging, ignore_errors=True)
            self.plan_file.unlink(missing_ok=True)
            raise

    def finish(self, staging: Path, report: Mapping[str, Any]) -> None:
        """After the last step: delete what was staged, say the last word, and sweep what nobody will retry.

        The work is done by then, so a report that cannot be written is no failure. The staging goes first, because a
        full disk has room for the report then.
        """
        discard_tree(staging)
        with suppress(OSError):
            self.save(self.report_file, report)
        sweep_plans(self.directory.work_path, time.time())


def spec_of(request: OfApplication) -> ApplicationSpec:
    """The spec that a request names or carries.

    Raises:
        Invalid: it is no spec, or cannot be read.
        NotFound: there is no file at its path.
    """
    if request.spec is not None:
        return parse_spec(request.spec, request.spec_source)
    return load_spec(Path(request.spec_path or ""))
