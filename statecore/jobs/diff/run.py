"""Diff: compares a state directory with another one, a snapshot, or its changelogs, row by row.

Phases; compared data is never changed, and temporary data is always deleted::

    look      stores and their offsets                         also while the application runs: its flushed rows
    fetch     a snapshot into a scratch directory, or          (jobs/diff/reference.py)
    build     the changelogs up to the stores' own offsets
    compare   by the engine's workers, one store of a task     (statecore.jobs.diff.store_diff)
              at a time

Rows rightly differ if the offsets do; so offsets are compared as well, and reported first.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from statecore import __version__
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.attempt import utc_now
from statecore.jobs.context import JobContext
from statecore.jobs.diff.plan import DiffPlanner
from statecore.jobs.diff.reference import Reference, References
from statecore.jobs.diff.report import DiffReport, StoreDiff, worst
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.tasks import DiffTask, bytes_read, compare_batch
from statecore.jobs.engine import Engine, Question, RanOn, Started
from statecore.jobs.failures import translated_errors
from statecore.jobs.in_process_engine import InProcessEngine
from statecore.jobs.pipeline.batches import Watch, batched, run_batches
from statecore.jobs.process_engine import ProcessEngine
from statecore.progress import Progress
from statecore.statedir.state_directory import StateDirectory

_SMALL = 64 << 20
"""Bytes of files below which this process compares alone, because workers take longer to start."""

_ROW_BYTES = 100
"""Estimated bytes of a row; work is measured in rows."""


def run_diff(
    request: DiffRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = lambda _: None,
) -> DiffReport:
    """Compare a state directory with a reference.

    Returns:
        The report; differences are no error.
    """
    with translated_errors(f"{request.state_dir} was compared"):
        return _Diff(JobContext.open(request, progress, faults=faults, say=say), engine).run()


class _Diff:
    """One diff."""

    def __init__(self, context: JobContext[DiffRequest], engine: Engine) -> None:
        self._context, self._request, self._engine = context, context.request, engine
        self._progress, self._say = context.progress, context.say
        self._began = time.monotonic()
        self._phases: dict[str, float] = {}
        self._notes: list[str] = []
        self._spec, self._application = context.declared, context.application_id
        self._directory = context.existing_directory()
        self._planner = DiffPlanner(context, self._note)

    def run(self) -> DiffReport:
        """Run all phases in order."""
        with self._phase("look"):
            self._progress.phase("look")
            places = self._planner.places(self._directory)
            standings = self._planner.standings(places, self._spec)
            self._progress.done()
        with ExitStack() as made:
            if self._request.with_changelog and self._spec is not None:  # the workers that build also compare
                self._engine = Started(made.enter_context(self._engine.start("diff", self._spec)))
            references = References(self._context, self._directory, self._engine)
            with self._phase("reference"):
                reference = made.enter_context(references.of(standings))
            for note in reference.notes:
                self._note(note)
            progress_directory = self._progress_directory(reference, made)
            with self._phase("look again"):
                tasks, left_out = self._planner.tasks(places, reference, progress_directory)
            running = self._note_running(self._directory)
            reference_running = reference.scratch is None and self._note_running(reference.directory)
            with self._phase("compare"):
                stores, ran_on = self._compare(tasks, progress_directory, reference)
        return DiffReport(
            application_id=self._application,
            state_dir=str(self._directory.path),
            reference=reference.words,
            verdict=worst([store.verdict for store in stores]),
            running=running,
            reference_running=reference_running,
            stores=tuple(sorted(stores, key=lambda store: (store.store, len(store.task), store.task))),
            left_out={f"{task}/{store}": why for (task, store), why in sorted(left_out.items())},
            notes=tuple(self._notes),
            host=socket.gethostname(),
            release=__version__,
            finished=utc_now(),
            seconds=time.monotonic() - self._began,
            phases=dict(self._phases),
            ran_on=ran_on,
        )

    def _note_running(self, directory: StateDirectory) -> bool:
        holder = directory.in_use_by()
        if holder is None:
            return False
        self._note(f"{directory.path} is in use by {holder}: its flushed rows are compared.")
        return True

    def _compare(
        self, tasks: list[DiffTask], progress_directory: Path, reference: Reference
    ) -> tuple[list[StoreDiff], RanOn]:
        largest_first = sorted(tasks, key=lambda task: -task.file_bytes)
        total = sum(task.file_bytes for task in tasks)
        engine, of = self._engine, reference.spec or self._context.spec
        if isinstance(engine, ProcessEngine) and engine.processes is None and total < _SMALL:
            engine = InProcessEngine()
        with engine.start("diff", of) as workers:
            if not isinstance(engine, InProcessEngine):
                self._progress.phase(f"wait for {workers.name}")
            parallelism = workers.parallelism()
            self._progress.done()
            ran_on = workers.check(Question(None, (), ()))
            self._progress.phase("compare", total, "bytes")
            batches = batched(largest_first, [task.file_bytes // _ROW_BYTES for task in largest_first], parallelism)
            with Watch(lambda: bytes_read(progress_directory), self._progress) as watch:
                found = run_batches(workers, batches, compare_batch, f"{self._directory.path} was compared")
            self._progress.advance(total - watch.seen)
            self._progress.done()
        return found, ran_on

    def _progress_directory(self, reference: Reference, made: ExitStack) -> Path:
        """An empty directory for progress files of the workers; a cluster's workers may not see it."""
        if reference.scratch is None:
            return Path(made.enter_context(tempfile.TemporaryDirectory(prefix="statecore-diff-")))
        path = reference.scratch / ".told"
        path.mkdir()
        return path

    def _note(self, note: str) -> None:
        self._notes.append(note)
        self._say(f"note: {note}")

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._phases[name] = round(time.monotonic() - began, 3)
