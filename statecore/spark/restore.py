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

import argparse
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.sizes import log_sizes
from statecore.errors import Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints, fault_points_from_environment
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.plan import PartitionPlan, RestorePlan
from statecore.images.report import RestoreReport, StoreReport
from statecore.progress import MachineProgress, NullProgress, Progress
from statecore.runtime.files import write_durably
from statecore.runtime.journal import read_record
from statecore.runtime.placement import (
    PlacementPlan,
    SiblingStore,
    StoreImage,
    apply_placement,
    plan_placement,
    recover,
)
from statecore.runtime.state_directory import StateDirectory
from statecore.spark.planning import (
    FrozenPlan,
    check_unchanged,
    covers,
    load_plan,
    notes_of,
    plan_path,
    plan_restore,
    save_plan,
    why_stale,
)
from statecore.spark.request import RestoreRequest
from statecore.spark.session import spark_context
from statecore.spark.stages import build_images, read_runs
from statecore.spark.tasks import ClusterSettings, ImageResult, RangeResult
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
    faults = faults or NO_FAULTS
    spec = spec_of(request)
    directory = StateDirectory(Path(request.state_dir), spec.application_id)
    if request.plan_only:
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=request.timeout) as cluster:
            return plan_restore(cluster, spec, request, parallelism=lambda: 1)[0]
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
    """Starts Spark in the background while the driver plans, because each takes about as long as the other.

    A refusal does not wait for it: the start is abandoned, and a context that comes up later is stopped at once.
    """

    def __init__(self, name: str, master: str | None) -> None:
        self._manager = spark_context(name, master)
        self._context: SparkContext | None = None
        self._error: BaseException | None = None
        self._guard = threading.Lock()
        self._abandoned = False
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    def __enter__(self) -> _SparkStart:
        self._thread.start()
        return self

    def _start(self) -> None:
        try:
            context = self._manager.__enter__()
        except BaseException as error:  # handed to whoever asks for the context
            self._error = error
            return
        with self._guard:
            self._context = context
            if self._abandoned:
                self._manager.__exit__(None, None, None)

    def context(self) -> SparkContext:
        """The context, when it is there.

        Raises:
            Retryable: Spark did not start.
        """
        self._thread.join()
        if self._context is None:
            raise Retryable(
                f"Spark did not start: {self._error}",
                action="Look at the lines above, check the master, and that Java 17 or 21 is on the PATH.",
            ) from self._error
        return self._context

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._abandoned = True
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
        request = self.request
        with self._phase("plan"):
            recover(self.directory, self.faults)
            earlier = self._already_placed()
            if earlier is not None:
                shutil.rmtree(self.work / earlier.plan_id, ignore_errors=True)  # what the killed attempt had staged
                return earlier
            plan, notes = self._plan(spark)
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
        with self._phase("place"):
            # Before the placement: a retry after a kill finds the stores in place and needs their report.
            self._save(self._report(plan, runs, images, notes))
            apply_placement(self._placement(plan, images), self.faults)
        self.faults.reach("restore.after-placement")
        report = self._report(plan, runs, images, notes)
        self._save(report)
        shutil.rmtree(staging, ignore_errors=True)
        return report

    def _save(self, report: RestoreReport) -> None:
        self.report_file.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self.report_file, json.dumps(report.to_json(), indent=1).encode())

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - began

    def _already_placed(self) -> RestoreReport | None:
        """The report of an earlier attempt of this request, while all that it had placed still stands there."""
        frozen = load_plan(self.plan_file)
        if frozen is None or not self.report_file.exists() or not covers(frozen, self.spec, self.request):
            return None
        record = read_record(self.directory.work_path)
        tasks = {part.task for part in frozen.plan.partitions}
        if record is None or not all(
            record.placed(task, self.directory.task_path(task), self.request.request_id) for task in tasks
        ):
            return None
        return replace(RestoreReport.from_json(json.loads(self.report_file.read_text())), placed=False)

    def _plan(self, spark: _SparkStart) -> tuple[RestorePlan, tuple[str, ...]]:
        """The frozen plan of this request, or a new one, frozen now. All refusals are made here."""
        frozen = load_plan(self.plan_file)
        why: tuple[str, ...] = ()
        with Cluster(self.spec.bootstrap_servers, self.spec.kafka, timeout=self.request.timeout) as cluster:
            if frozen is not None and covers(frozen, self.spec, self.request):
                stale = self._why_stale(frozen, cluster)
                if stale is None:
                    self._placement(frozen.plan)
                    notes = notes_of(cluster, self.spec, frozen.plan, self.request)
                    return frozen.plan, ("The plan of an earlier attempt of this request was taken up.", *notes)
                why = (f"The plan of an earlier attempt of this request was made anew: {stale}.",)
            made_at = time.time()
            plan, notes = plan_restore(
                cluster, self.spec, self.request, parallelism=lambda: spark.context().defaultParallelism
            )
            self._placement(plan)
            self._ensure_room(cluster, plan)
        save_plan(self.plan_file, plan, self.request, made_at)
        return plan, (*why, *notes)

    def _why_stale(self, frozen: FrozenPlan, cluster: Cluster) -> str | None:
        topics = cluster.describe_topics(sorted({part.topic for part in frozen.plan.partitions}))
        check_unchanged(frozen.plan, topics)
        offsets = cluster.log_offsets({part.topic_partition for part in frozen.plan.partitions})
        return why_stale(frozen, topics, offsets, time.time())

    def _placement(
        self, plan: RestorePlan, images: Mapping[tuple[str, str], ImageResult] | None = None
    ) -> PlacementPlan:
        """What placing would do (or, without images yet, every reason not to begin)."""
        restored = {(part.task, part.store) for part in plan.partitions}
        siblings = [
            SiblingStore(task, store.name, store.kind, TopicPartition(store.changelog, partition))
            for task, partition in sorted({(part.task, part.partition) for part in plan.partitions})
            for store in self.spec.stores
            if store.subtopology == int(task.partition("_")[0])
            and store.kind is not StoreKind.IN_MEMORY
            and (task, store.name) not in restored
        ]

        def image_of(part: PartitionPlan) -> StoreImage:
            built = images[part.task, part.store].image if images is not None else None
            return StoreImage(
                part.task,
                part.store,
                part.kind,
                part.topic_partition,
                Path(built.path) if built is not None else None,
                built.committed_offset if built is not None else None,
            )

        return plan_placement(
            self.directory,
            [image_of(part) for part in plan.partitions],
            siblings=siblings,
            guarantee=plan.processing_guarantee,
            replace=self.request.replace,
            request_id=self.request.request_id,
        )

    def _ensure_room(self, cluster: Cluster, plan: RestorePlan) -> None:
        """Refuse when the disk cannot hold the runs: at least what the broker stores for the changelogs."""
        sizes = log_sizes(cluster, {part.topic_partition for part in plan.partitions})
        if sizes is not None:
            self.directory.ensure_room(sum(sizes.values()))

    def _report(
        self,
        plan: RestorePlan,
        runs: Mapping[tuple[str, str], Sequence[RangeResult]],
        images: Mapping[tuple[str, str], ImageResult],
        notes: tuple[str, ...],
    ) -> RestoreReport:
        stores = []
        for part in sorted(plan.partitions, key=lambda part: (part.task, part.store)):
            read, built = runs.get((part.task, part.store), ()), images[part.task, part.store]
            seen = [result.statistics for result in read]
            stores.append(
                StoreReport(
                    task=part.task,
                    store=part.store,
                    partition=part.partition,
                    kind=str(part.kind),
                    changelog=part.topic,
                    start=part.start,
                    end=part.end,
                    committed_offset=built.image.committed_offset,
                    records=sum(each.records for each in seen),
                    tombstones=sum(each.tombstones for each in seen),
                    null_keys=sum(each.null_keys for each in seen),
                    aborted=sum(each.aborted for each in seen),
                    rows=built.image.rows,
                    bytes=built.image.bytes,
                    file_bytes=built.image.file_bytes,
                    digest=built.image.digest,
                    runs=sum(len(result.runs) for result in read),
                    seconds=round(sum(result.seconds for result in read) + built.seconds, 3),
                    tail_left=part.tail_left,
                    max_timestamp=max((each.max_timestamp for each in seen), default=-1),
                )
            )
        return RestoreReport(
            application_id=plan.application_id,
            plan_id=plan.plan_id,
            processing_guarantee=str(plan.processing_guarantee),
            state_dir=self.request.state_dir,
            seconds=time.monotonic() - self.began,
            phases=dict(self.phases),
            stores=tuple(stores),
            notes=notes,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """What ``spark_jobs/restore.py`` runs under ``spark-submit``.

    Returns:
        The exit code: 0, or that of the error's kind. Report or error lie in the file named by ``--report``.
    """
    parser = argparse.ArgumentParser(prog="restore.py", description="Rebuild stores of one application.")
    parser.add_argument("--request", required=True, help="a RestoreRequest as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the report, or for the error")
    options = parser.parse_args(arguments)
    try:
        request = RestoreRequest.from_json(json.loads(options.request))
        result = run_restore(request, MachineProgress(), faults=fault_points_from_environment())
    except StatecoreError as error:
        _write(options.report, error.to_json())
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    _write(options.report, result.to_json())
    return 0


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(document).encode())
