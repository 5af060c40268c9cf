"""Reads which jobs have changed an application's directory, and which of them did not finish.

Read-only and without the lock, from ``<application>/.statecore`` (plans, attempts and reports:
``statecore/jobs/planning/frozen_plan.py``; journal: ``statecore/statedir/journal.py``) and, with Airflow, from the
reports directory, which also has attempts that were refused before they changed anything.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statecore.formats.releases import LOCK_FILE
from statecore.jobs.attempt import Instance
from statecore.jobs.history.directory_changes import Changes, Fetches, read_changes, read_fetches
from statecore.jobs.history.report_head import (
    ReportError,
    ReportHead,
    ReportOutcome,
    RestoredPartition,
    read_head,
    read_partitions,
    read_report,
)
from statecore.jobs.history.report_index import Attempts, InstanceReports
from statecore.jobs.history.restored_store import RestoredStore, restored_stores
from statecore.jobs.history.unfinished_restores import Leftover, UnfinishedRestore, leftovers, unfinished_restores
from statecore.jobs.planning.frozen_plan import PLAN_SUFFIX, REPORT_SUFFIX
from statecore.statedir.open_stores import find_writer
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.statedir.store_places import store_places
from statecore.statedir.work_directory import PLANS
from statecore.stores.lock_holder import Holder, lock_holder
from statecore.system_errors import RUN_AS_APPLICATION, system_error

MAX_READ = 50
"""Number of newest plans and reports of an application that are read."""


@dataclass(frozen=True)
class Restores(Attempts):
    """The history of one instance of an application.

    Attributes:
        was_read: whether the directory was read; otherwise all comes from reports.
        holder: holder of the application's lock; ``None`` if there is none, or the directory was not read.
        partitions: the latest restore of each store partition.
        unfinished: unfinished restores since the last finished one, newest first.
        leftovers: other contents of ``.statecore``.
        writer: process that has stores open without that lock, such as a processor on this library's stores; ``None``
            if there is none, the lock is held, or the directory was not read.
        fetches: its fetches; none if the directory was not read.
        changes: its migrations and repairs; likewise.
        standby_tasks: tasks that ``statecore standby`` has followed in it.
    """

    instance: Instance
    was_read: bool
    holder: Holder | None
    attempts: tuple[ReportHead, ...]
    partitions: tuple[RestoredPartition, ...]
    unfinished: tuple[UnfinishedRestore, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    problems: tuple[str, ...] = ()
    writer: Holder | None = None
    fetches: Fetches = field(default_factory=Fetches)
    changes: Changes = field(default_factory=Changes)
    standby_tasks: tuple[str, ...] = ()

    @property
    def before(self) -> ReportHead | None:
        """The latest restore that placed stores, if the last one found nothing to do."""
        if self.last_restored is None or self.last_restored.partitions:
            return None
        done = (head for head in self.attempts if head.outcome is ReportOutcome.RESTORED and head.partitions)
        return next(done, None)

    @property
    def later(self) -> ReportHead | None:
        """The latest attempt if it did not succeed and is not among the unfinished ones."""
        tried = [head for head in self.attempts if head.outcome is not ReportOutcome.PLANNED]
        known = {one.request_id for one in self.unfinished}
        if not tried or tried[0].succeeded or tried[0].attempt.request_id in known:
            return None
        return tried[0]

    @property
    def stores(self) -> list[RestoredStore]:
        return restored_stores(self.partitions)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.instance._asdict(),
            "was_read": self.was_read,
            "holder": self.holder._asdict() if self.holder else None,
            "writer": self.writer._asdict() if self.writer else None,
            "last_restore": self.last_restored.to_json() if self.last_restored else None,
            "last_published": self.last_published.to_json() if self.last_published else None,
            "later_attempt": self.later.to_json() if self.later else None,
            "attempts": [head.to_json() for head in self.attempts],
            "stores": [vars(store) for store in self.stores],
            "partitions": [vars(part) for part in self.partitions],
            "unfinished": [one.to_json() for one in self.unfinished],
            **self.fetches.to_json(),
            **self.changes.to_json(),
            "standby_tasks": list(self.standby_tasks),
            "leftovers": [vars(one) for one in self.leftovers],
            "problems": list(self.problems),
        }


def from_reports(reports: InstanceReports) -> Restores:
    """The history from an instance's reports only."""
    return Restores(reports.instance, False, None, reports.attempts, reports.partitions)


def read_history(directory: StateDirectory, reported: Iterable[InstanceReports] = ()) -> Restores:
    """Read the history of an application's directory, and merge the reports on it."""
    holder = lock_holder(directory.path / LOCK_FILE)
    problems: list[str] = []
    try:
        files = _newest(directory.work_path / PLANS)
        finished, partitions = _finished(_of_kind(files, REPORT_SUFFIX), problems)
        fetches = read_fetches(files, problems, most=MAX_READ)
        changes = read_changes(directory.work_path, files[:MAX_READ], holder, socket.gethostname(), problems)
        plans, other_requests = _of_kind(files, PLAN_SUFFIX), fetches.requests | changes.requests
        unfinished = unfinished_restores(directory.work_path, plans, finished, other_requests, holder, problems)
        left = leftovers(directory.work_path, unfinished)
        databases = (path for place in store_places(directory) for path in place.databases)
        writer = find_writer(databases) if holder is None else None
    except PermissionError as error:
        raise system_error(
            error, f"{error.filename} cannot be read", action=RUN_AS_APPLICATION, path=str(error.filename)
        ) from error
    attempts_here = [one.attempt for one in unfinished if one.attempt is not None]
    elsewhere = list(reported)
    attempts = _merged([*finished.values(), *attempts_here], [head for one in elsewhere for head in one.attempts])
    return Restores(
        Instance(directory.application_id, socket.gethostname(), os.path.realpath(directory.state_dir)),
        True,
        holder,
        attempts,
        _latest([*partitions, *(part for one in elsewhere for part in one.partitions)]),
        tuple(unfinished),
        tuple(left),
        tuple(problems),
        writer,
        fetches,
        changes,
        tuple(task for task in directory.task_directories() if directory.was_followed(task)),
    )


def _newest(plans: Path) -> list[Path]:
    """Request files, newest first."""
    found = []
    with suppress(FileNotFoundError), os.scandir(plans) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a running restore removed it
                if not entry.name.endswith(".tmp"):
                    found.append((entry.stat().st_mtime, entry.path))
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _of_kind(files: list[Path], suffix: str) -> list[Path]:
    return [path for path in files if path.suffix == suffix][:MAX_READ]


def _finished(reports: list[Path], problems: list[str]) -> tuple[dict[str, ReportHead], list[RestoredPartition]]:
    """Heads of finished restores by file stem, and the store partitions they restored."""
    heads: dict[str, ReportHead] = {}
    partitions: list[RestoredPartition] = []
    for path in reports:
        try:
            document = read_report(path)
            head = read_head(document)
            if head.outcome is ReportOutcome.RESTORED:
                heads[path.stem] = head
                partitions += read_partitions(document, head)
        except ReportError as error:
            problems.append(f"{path}: {error}")
    return heads, partitions


def _merged(own: list[ReportHead], reported: list[ReportHead]) -> tuple[ReportHead, ...]:
    """Merge attempts of two sources, newest first: of each request the latest with each outcome."""
    known: dict[tuple[str, ReportOutcome], ReportHead] = {}
    for head in sorted([*own, *reported], key=lambda head: head.when, reverse=True):
        known.setdefault((head.attempt.request_id or head.when, head.outcome), head)
    return tuple(known.values())


def _latest(partitions: list[RestoredPartition]) -> tuple[RestoredPartition, ...]:
    latest: dict[tuple[str, int, str], RestoredPartition] = {}
    for part in partitions:
        key = (part.store, part.partition, part.task)
        if key not in latest or part.when > latest[key].when:
            latest[key] = part
    return tuple(latest[key] for key in sorted(latest))


def directories(state_dir: Path) -> list[str]:
    """Directories below a ``state.dir`` in which a restore has worked."""
    found = []
    with suppress(OSError):
        for path in state_dir.iterdir():
            with suppress(OSError):  # owned by another user
                if (path / WORK_DIRECTORY).is_dir():
                    found.append(path.name)
    return sorted(found)
