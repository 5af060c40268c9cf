"""Diff: compares a state directory with another one, a snapshot, or its changelogs, row by row.

Phases; compared data is never changed, and temporary data is always deleted::

    inspect        stores and their offsets, also while the application runs (its flushed rows)   planner.py
    reference      an existing directory, or a temporary one:                                     reference.py
                   fetched from a snapshot,                                                       snapshot_reference.py
                   or built from the changelogs up to the stores' own offsets                     changelog_reference.py
    inspect again  which stores of both sides are compared, and which are left out                planner.py
    compare        on the engine's workers, one store of a task at a time                         compare.py

Rows rightly differ if the offsets do; so offsets are compared as well, and reported first.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from statecore import __version__
from statecore.jobs.attempt import utc_now
from statecore.jobs.context import JobContext
from statecore.jobs.diff.changelog_reference import build_reference
from statecore.jobs.diff.compare import compare
from statecore.jobs.diff.planner import DiffPlanner
from statecore.jobs.diff.reference import Reference, StoreOffsets, existing_reference, scratch
from statecore.jobs.diff.report import DiffReport, worst
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.snapshot_reference import fetch_reference
from statecore.jobs.engine.protocol import Engine, Started
from statecore.jobs.failures import translated_errors
from statecore.jobs.job import Phases
from statecore.progress import Progress
from statecore.statedir.state_directory import StateDirectory


def run_diff(request: DiffRequest, engine: Engine, progress: Progress | None = None, **opened: Any) -> DiffReport:
    """Compare a state directory with a reference; differences are no error."""
    with translated_errors(f"{request.state_dir} was compared"):
        return _Diff(JobContext.open(request, progress, **opened), engine).run()


class _Diff:
    """One diff."""

    def __init__(self, context: JobContext[DiffRequest], engine: Engine) -> None:
        self._context, self._request, self._engine = context, context.request, engine
        self._progress, self._say = context.progress, context.say
        self._phases = Phases()
        self._notes: list[str] = []
        self._spec, self._application = context.declared, context.application_id
        self._directory = context.existing_directory()
        self._planner = DiffPlanner(context, self._note)

    def run(self) -> DiffReport:
        with self._phases.phase("inspect"):
            self._progress.phase("inspect")
            places = self._planner.places(self._directory)
            offsets = self._planner.offsets(places, self._spec)
            self._progress.done()
        with ExitStack() as made:
            if self._request.with_changelog and self._spec is not None:  # the workers that build also compare
                self._engine = Started(made.enter_context(self._engine.start("diff", self._spec)))
            with self._phases.phase("reference"):
                reference = made.enter_context(self._reference(offsets))
            for note in reference.notes:
                self._note(note)
            progress_directory = self._progress_directory(reference, made)
            with self._phases.phase("inspect again"):
                tasks, left_out = self._planner.tasks(places, reference, progress_directory)
            running = self._note_running(self._directory)
            reference_running = reference.scratch is None and self._note_running(reference.directory)
            with self._phases.phase("compare"):
                spec, doing = reference.spec or self._context.spec, f"{self._directory.path} was compared"
                stores, ran_on = compare(self._engine, spec, tasks, progress_directory, self._progress, doing)
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
            seconds=self._phases.elapsed,
            phases={name: round(seconds, 3) for name, seconds in self._phases.wall.items()},
            ran_on=ran_on,
        )

    def _note_running(self, directory: StateDirectory) -> bool:
        holder = directory.in_use_by()
        if holder is None:
            return False
        self._note(f"{directory.path} is in use by {holder}: its flushed rows are compared.")
        return True

    @contextmanager
    def _reference(self, offsets: StoreOffsets) -> Iterator[Reference]:
        """What the directory is compared with; a temporary one is deleted at the end."""
        request = self._request
        if request.with_state_dir is not None:
            yield existing_reference(self._context, request.with_state_dir)
            return
        with scratch(Path(request.scratch_dir or request.state_dir)) as where:
            temporary = StateDirectory(where, self._application)
            if request.with_changelog:
                tasks = self._directory.every_task()
                yield build_reference(self._context, self._engine, temporary, offsets, tasks)
            else:
                yield fetch_reference(self._context, temporary, offsets)

    def _progress_directory(self, reference: Reference, made: ExitStack) -> Path:
        """An empty directory for progress files of the workers; a cluster's workers may not see it."""
        if reference.scratch is None:
            return Path(made.enter_context(tempfile.TemporaryDirectory(prefix="statecore-diff-")))
        path = reference.scratch / ".progress"
        path.mkdir()
        return path

    def _note(self, note: str) -> None:
        self._notes.append(note)
        self._say(f"note: {note}")
