"""Checkpoints as a service: one after the other, at the interval of the application, in a process that stays warm.

Between two of them lies the interval, counted from the moment at which the ends of the changelogs were read, so that
neither the time that a checkpoint takes nor one that failed makes the next one late. What passes by itself (brokers or
store that are away, another job that was first, a full disk) is said and tried again under the same request id, so that
what was read is found again; what does not pass by itself ends the service, because somebody has to look. While another
job says that it is under way (:mod:`statecore.jobs.in_progress_marker`) the service waits, because one of the two would
be lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from statecore.changelog.cluster import Cluster
from statecore.errors import Capacity, Fenced, Retryable
from statecore.jobs.attempt import utc_now
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import Warm, run_checkpoint
from statecore.jobs.engine import Engine
from statecore.jobs.in_progress_marker import heard_of
from statecore.jobs.job import nobody, spec_of
from statecore.jobs.restore.report import RestoreReport
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

_BESIDE = 15.0
"""Seconds between two looks whether another job, which would be outrun, has ended."""


def follow(
    request: CheckpointRequest,
    engine: Engine,
    interval: float,
    made: Callable[[RestoreReport], None],
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] = nobody,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    run: Callable[..., object] = run_checkpoint,
) -> None:
    """Make a checkpoint at every interval, until the process is stopped.

    Args:
        request: what is checkpointed; each checkpoint gets a request id of its own.
        engine: who reads tails that are long.
        interval: seconds between two checkpoints.
        made: told the report of each.
        progress: told how far each is; ``None`` for nobody.
        say: told what an operator should read at once.
        clock: monotonic seconds.
        sleep: waits for seconds.
        run: makes a checkpoint.

    Raises:
        StatecoreError: what does not pass by itself.
    """
    spec = spec_of(request)
    progress = progress or NullProgress()
    shelf: ApplicationRepository | None = None
    pause, last = _FIRST_PAUSE, ""
    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
        while True:
            began, moment = clock(), utc_now()
            try:
                shelf = shelf or ApplicationRepository.at(request.repository, spec.application_id)
                if (heard := heard_of(shelf, time.time())) is not None:
                    say(
                        f"Another job is under way, and said so {heard:.0f} s ago. The next look is in {_BESIDE:.0f} s."
                    )
                    sleep(_BESIDE)
                    continue
                report = run(request, engine, progress, say=say, warm=Warm(shelf, cluster))
            except (Retryable, Fenced, Capacity) as error:
                progress.done("failed")
                fresh = f" The state is as fresh as {last}." if last else ""
                say(f"{error.what} {error.action}{fresh} The next try is in {pause:.0f} s.")
                sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE, max(interval, _FIRST_PAUSE))
                if isinstance(error, Fenced):
                    request = replace(request, request_id=uuid.uuid4().hex)
                    shelf = None  # the place may have become another repository
                continue
            pause, last = _FIRST_PAUSE, moment
            assert isinstance(report, RestoreReport)  # it was not to plan only
            made(report)
            request = replace(request, request_id=uuid.uuid4().hex)
            sleep(max(0.0, began + interval - clock()))
