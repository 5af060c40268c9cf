"""The restore: rebuild stores of one application from its changelogs, and put them where the application finds them.

Order of things, and why a kill at any moment is harmless::

    lock      the application's .lock, until the end       a running application makes the job refuse to start
    recover   finish or clear what a killed job left       (statecore.runtime.placement)
    plan      preconditions, then freeze the offsets       nothing was changed before this line
    read      Spark: ranges → runs                         in the staging directory of the plan
    build     Spark: runs → images                         ditto; each appears complete or not at all
    place     whole task directories, by journal           by this process alone
    report    written beside the plan, then returned

The same function serves ``statecore restore`` and the Spark job that Airflow submits.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.changelog.cluster import Cluster
from statecore.faults import FaultPoints
from statecore.images.plan import RestorePlan
from statecore.images.report import RestoreReport
from statecore.progress import NullProgress, Progress
from statecore.runtime.placement import apply_placement, recover
from statecore.runtime.state_directory import StateDirectory
from statecore.spark.planning import plan_path, plan_restore
from statecore.spark.request import RestoreRequest
from statecore.spark.session import spark_context
from statecore.spark.stages import build_images, read_runs
from statecore.spark.tasks import ClusterSettings
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec, parse_spec

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_restore(
    request: RestoreRequest,
    progress: Progress | None = None,
    *,
    master: str | None = None,
    faults: FaultPoints | None = None,
) -> RestoreReport | RestorePlan:
    """Rebuild the stores of a request.

    Args:
        request: what to restore, from where, to where.
        progress: told how far it is; ``None`` for nobody.
        master: Spark master for a context of this process (``local[*]``); ``None`` under ``spark-submit``.
        faults: points at which tests let the process die.

    Returns:
        The report; with ``request.plan_only`` the plan, and nothing was changed.

    Raises:
        Invalid, NotFound, Fenced, Capacity, Retryable: as their docs say; nothing was replaced.
        Corrupted: bytes on their way into the stores were not what they must be; nothing was replaced.
    """
    progress = progress or NullProgress()
    faults = faults or FaultPoints()
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    if request.plan_only:
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
            return plan_restore(cluster, spec, request, parallelism=1)[0]
    with directory.lock():
        faults.reach("restore.after-lock")
        with _SparkStart(f"statecore restore {spec.application_id}", master) as spark:
            return _Restore(request, spec, directory, progress, faults).run(spark)


def spec_of(request: RestoreRequest) -> ApplicationSpec:
    """The spec a request names or carries."""
    if request.spec is not None:
        return parse_spec(request.spec, request.spec_source)
    return load_spec(Path(request.spec_path or ""))


class _SparkStart:
    """Starts Spark in the background while the driver plans, because each takes about as long as the other."""

    def __init__(self, name: str, master: str | None) -> None:
        self._manager = spark_context(name, master)
        self._context: SparkContext | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start")

    def __enter__(self) -> _SparkStart:
        self._thread.start()
        return self

    def _start(self) -> None:
        try:
            self._context = self._manager.__enter__()
        except BaseException as error:  # handed to whoever asks for the context
            self._error = error

    def context(self) -> SparkContext:
        """The context, when it is there.

        Raises:
            Retryable: Spark did not start.
        """
        self._thread.join()
        if self._context is None:
            raise Retryable(
                f"Spark did not start: {self._error}",
                action="Look at the lines above, check the master and that Java 17 or 21 is on the PATH, and try again.",
            ) from self._error
        return self._context

    def __exit__(self, *error: object) -> None:
        self._thread.join()
        if self._context is not None:
            self._manager.__exit__(None, None, None)


class _Restore:
    """One run of a restore, under the application's lock."""

    def __init__(
        self,
        request: RestoreRequest,
        spec: ApplicationSpec,
        directory: StateDirectory,
        progress: Progress,
        faults: FaultPoints,
    ) -> None:
        self.request, self.spec, self.directory = request, spec, directory
        self.progress, self.faults = progress, faults
        self.work = Path(request.staging_dir) / spec.application_id if request.staging_dir else directory.work_path
        self.plan_file = plan_path(directory.work_path, request.request_id)
        self.report_file = self.plan_file.with_suffix(".report")
        self.phases: dict[str, float] = {}
        self.began = time.monotonic()

    def run(self, spark: _SparkStart) -> RestoreReport:
        """All steps in order; each is timed under its name."""
        request, directory = self.request, self.directory
        with self._phase("plan"):
            recover(directory, self.faults)
            earlier = self._already_placed()
            if earlier is not None:
                return earlier
            plan, notes = self._plan(spark)
            placement = self._placement(plan)
        self.faults.reach("restore.after-plan")
        cluster = ClusterSettings(self.spec.bootstrap_servers, self.spec.kafka, request.timeout)
        staging = self.work / plan.plan_id
        with self._phase("start"):
            context = spark.context()
        with self._phase("read"):
            runs = read_runs(context, plan, cluster, staging, request.memory_budget, self.progress)
        self.faults.reach("restore.after-runs")
        with self._phase("build"):
            images = build_images(context, plan, runs, staging, self.progress)
        self.faults.reach("restore.after-images")
        del placement
        report = self._report(plan, runs, images, notes)
        with self._phase("place"):
            write_json(self.report_file, report.to_json())
            apply_placement(self._placement(plan, images), self.faults)
        self.faults.reach("restore.after-placement")
        report = replace(report, seconds=time.monotonic() - self.began, phases=dict(self.phases))
        write_json(self.report_file, report.to_json())
        shutil.rmtree(staging, ignore_errors=True)
        return report

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - began
