"""Checkpoint service: checkpoints one application at its interval, in one process that keeps its connections.

The interval is counted from the start of an attempt, so a long checkpoint does not delay the next. Transient errors
(brokers or store away, a conflicting publication, a full disk) are reported and retried under the same request id, so
that finished work is reused; other errors end the service, because an operator has to act. While the in-progress marker
(:mod:`statecore.jobs.in_progress_marker`) is recent the service waits, because the work of one of two jobs would be
lost. The marker may also be that of a killed process, such as this service's last one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from statecore.changelog.cluster import Cluster
from statecore.errors import Capacity, Fenced, Invalid, Retryable
from statecore.jobs.attempt import utc_now
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.context import ignore, spec_of
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.failures import refused_later
from statecore.jobs.in_progress_marker import marker_age
from statecore.jobs.read_report import ReadReport
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

_WAIT = 15.0
"""Seconds between two checks whether the other job has ended."""


def run_service(
    request: CheckpointRequest,
    engine: Engine,
    interval: float,
    made: Callable[[ReadReport], None],
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] = ignore,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    run: Callable[..., object] = run_checkpoint,
) -> NoReturn:
    """Make a checkpoint at every interval, until the process is stopped."""
    spec = spec_of(request)
    progress = progress or NullProgress()
    repository: ApplicationRepository | None = None
    pause, last = _FIRST_PAUSE, ""
    with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
        while True:
            began, began_at = clock(), utc_now()
            try:
                repository = repository or ApplicationRepository.open(request.repository, spec.application_id)
                if (age_s := marker_age(repository, time.time())) is not None:
                    say(
                        f"A job is in progress, or was killed: it set its marker {age_s:.0f} s ago. "
                        f"The next check is in {_WAIT:.0f} s."
                    )
                    sleep(_WAIT)
                    continue
                report = run(request, engine, progress, say=say, shared_repository=repository, shared_cluster=cluster)
            except (Retryable, Fenced, Capacity) as error:
                progress.done("failed")
                fresh = f" The newest checkpoint is of {last}." if last else ""
                say(f"{error.what} {error.action}{fresh} The next attempt is in {pause:.0f} s.")
                sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE, max(interval, _FIRST_PAUSE))
                if isinstance(error, Fenced):
                    request = replace(request, request_id=uuid.uuid4().hex)
                    repository = None  # another repository may be at this URL now
                continue
            except Invalid as error:
                if last:
                    raise refused_later(error) from error
                raise
            pause, last = _FIRST_PAUSE, began_at
            assert isinstance(report, ReadReport)  # the request is not plan_only
            made(report)
            request = replace(request, request_id=uuid.uuid4().hex)
            sleep(max(0.0, began + interval - clock()))
