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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from statecore import __version__
from statecore.dump.dump import kind_of
from statecore.errors import Invalid, NotFound
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Segmentation
from statecore.jobs.attempt import utc_now
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.reference import Reference, References
from statecore.jobs.diff.report import DiffReport, StoreDiff, worst
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.tasks import DiffSide, DiffTask, bytes_read, compare_batch
from statecore.jobs.engine import Engine, Question, RanOn, Started
from statecore.jobs.failures import translated_errors
from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.pipeline.stages import Watch, batched, run_batches
from statecore.jobs.processes import ProcessEngine
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, retention_of, segment_interval_of
from statecore.statedir.startup_offsets import StartupOffsets, read_startup_offsets
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import (
    StorePlace,
    changelog_at,
    declared_at,
    store_places,
    suggest_names,
)

_SMALL = 64 << 20
"""Bytes of files below which this process compares alone, because workers take longer to start."""

_ROW_BYTES = 100
"""Estimated bytes of a row; work is measured in rows."""

_NO_STORE = StartupOffsets()


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

    def run(self) -> DiffReport:
        """Run all phases in order."""
        with self._phase("look"):
            self._progress.phase("look")
            places = self._places(self._directory)
            standings = self._standings(places, self._spec)
            self._progress.done()
        with ExitStack() as made:
            if self._request.with_changelog and self._spec is not None:  # the workers that build also compare
                self._engine = Started(made.enter_context(self._engine.start("diff", self._spec)))
            references = References(self._request, self._spec, self._directory, self._engine, self._progress)
            with self._phase("reference"):
                reference = made.enter_context(references.of(standings))
            for note in reference.notes:
                self._note(note)
            progress_directory = self._progress_directory(reference, made)
            with self._phase("look again"):
                tasks, left_out = self._tasks(places, reference, progress_directory)
            running = self._note_running(self._directory)
            reference_running = reference.scratch is None and self._note_running(reference.directory)
            with self._phase("compare"):
                stores, ran_on = self._compare(tasks, progress_directory, reference.spec)
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

    def _places(self, directory: StateDirectory) -> dict[Key, StorePlace]:
        """The selected stores of a directory."""
        stores, tasks = self._request.stores, self._request.tasks
        return {
            (place.task, place.store): place
            for place in store_places(directory)
            if (not stores or place.store in stores) and (not tasks or place.task in tasks)
        }

    def _standings(self, places: Mapping[Key, StorePlace], spec: ApplicationSpec | None) -> dict[Key, StartupOffsets]:
        return {
            key: read_startup_offsets(place, {changelog_at(self._application, *key, declared_at(spec, *key))})
            for key, place in places.items()
        }

    def _tasks(
        self, here: Mapping[Key, StorePlace], reference: Reference, progress_directory: Path
    ) -> tuple[list[DiffTask], dict[Key, str]]:
        """Stores to compare, and those left out."""
        spec = reference.spec
        there = self._places(reference.directory)
        if reference.scratch is not None:  # it may contain more than was requested
            tasks = {task for task, _ in here} | set(self._request.tasks)
            there = {key: place for key, place in there.items() if key[0] in tasks}
        keys = sorted({*here, *there})
        if reference.only is not None:
            keys = [key for key in keys if key in reference.only]
        left_out = dict(reference.left_out)
        keys = [key for key in keys if key not in left_out]
        self._check_named(keys, left_out)
        mine, theirs = self._standings(here, spec), self._standings(there, spec)
        kinds: dict[str, StoreKind] = {}
        tasks_made = []
        for number, key in enumerate(keys):
            places = [found for found in (here.get(key), there.get(key)) if found is not None]
            name = places[0].store
            if name not in kinds:
                kinds[name] = self._kind(name, [*_of_store(here, name), *_of_store(there, name)], spec)
            tasks_made.append(
                DiffTask(
                    number,
                    *key,
                    kinds[name],
                    _side(here.get(key), mine.get(key, _NO_STORE)),
                    _side(there.get(key), theirs.get(key, _NO_STORE)),
                    self._request.examples,
                    self._segmentation(key, spec) if self._request.ignore_expired else None,
                    str(progress_directory),
                )
            )
        return tasks_made, left_out

    def _check_named(self, keys: list[Key], left_out: Mapping[Key, str]) -> None:
        """Refuse named stores or tasks that neither side has."""
        known = [*keys, *left_out]
        for what, code, names, at in (
            ("store", "store-not-found", self._request.stores, 1),
            ("task", "task-not-found", self._request.tasks, 0),
        ):
            have = {key[at] for key in known}
            for name in names:
                if name not in have:
                    raise NotFound(
                        f"Neither side has a {what} {name}{suggest_names(name, have)}",
                        code=code,
                        action=f"Name a {what} that exists, or leave --{what} out.",
                        **{what: name},
                    )

    def _kind(self, store: str, places: list[StorePlace], spec: ApplicationSpec | None) -> StoreKind:
        """The kind of a store: declared, detected in its directories, or unknown."""
        declared = declared_at(spec, places[0].task, store)
        if declared is not None and declared.kind.can_be_built:
            return declared.kind
        try:
            return kind_of([place for place in places if place.databases], None, None)
        except (Invalid, IndexError):
            if any(place.databases for place in places):
                self._note(f"The kind of {store} is unknown: raw rows are compared. Give --spec to declare it.")
            return StoreKind.UNKNOWN

    def _segmentation(self, key: Key, spec: ApplicationSpec | None) -> Segmentation | None:
        declared = declared_at(spec, *key)
        if declared is None or not declared.kind.is_segmented:
            return None
        retention, interval = retention_of(declared), segment_interval_of(declared)
        return None if retention is None or interval is None else Segmentation(retention, interval)

    def _note_running(self, directory: StateDirectory) -> bool:
        holder = directory.in_use_by()
        if holder is None:
            return False
        self._note(f"{directory.path} is in use by {holder}: its flushed rows are compared.")
        return True

    def _compare(
        self, tasks: list[DiffTask], progress_directory: Path, spec: ApplicationSpec | None
    ) -> tuple[list[StoreDiff], RanOn]:
        largest_first = sorted(tasks, key=lambda task: -task.file_bytes)
        total = sum(task.file_bytes for task in tasks)
        engine, of = self._engine, spec or ApplicationSpec.undeclared(self._application)
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


def _of_store(places: Mapping[Key, StorePlace], name: str) -> list[StorePlace]:
    return [place for place in places.values() if place.store == name]


def _side(place: StorePlace | None, standing: StartupOffsets) -> DiffSide:
    return DiffSide(
        "" if place is None else str(place.path.absolute()),
        {segment: str(path.absolute()) for segment, path in standing.databases.items()},
        _named(standing.offsets),
        _named(standing.position),
        standing.file_bytes,
    )


def _named(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(part): offset for part, offset in sorted(offsets.items())}
