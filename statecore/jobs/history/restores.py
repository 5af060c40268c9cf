"""Finds the last and the unfinished restores of an application's directory, and what they left behind.

Its fetches are in :mod:`statecore.jobs.history.fetches`, migrations and repairs in
:mod:`statecore.jobs.history.directory_changes`.

Read-only and without the lock, from ``<application>/.statecore`` (plans, attempts and reports:
``statecore/jobs/planning/request_files.py``; journal: ``statecore/statedir/journal.py``) and, with Airflow, from the
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

from statecore.errors import Invalid
from statecore.filesystem import tree_bytes
from statecore.formats.releases import LOCK_FILE
from statecore.jobs.attempt import Instance, utc
from statecore.jobs.fetch.report import FETCH_SUFFIX
from statecore.jobs.history.directory_changes import Changes, read_changes
from statecore.jobs.history.fetches import Fetches, fetches_of
from statecore.jobs.history.report_head import (
    Outcome,
    ReportError,
    ReportHead,
    RestoredPartition,
    read_head,
    read_partitions,
    read_report,
)
from statecore.jobs.history.report_index import InstanceReports
from statecore.jobs.history.restored_store import RestoredStore, restored_stores
from statecore.jobs.planning.request_files import (
    ATTEMPT_SUFFIX,
    IMAGES,
    PLAN_SUFFIX,
    REPORT_SUFFIX,
    RUNS,
    FrozenPlan,
    load_plan,
    plan_path,
)
from statecore.statedir.journal import Journal, read_journal
from statecore.statedir.link_scratch import is_in_use
from statecore.statedir.open_stores import find_writer
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.statedir.store_places import store_places
from statecore.statedir.work_directory import PLANS, SCRATCH_PREFIX, entry_of
from statecore.stores.lock_holder import Holder, lock_holder
from statecore.system_errors import RUN_AS_APPLICATION, system_error

MAX_READ = 50
"""Number of newest plans and reports of an application that are read."""


@dataclass(frozen=True)
class UnfinishedRestore:
    """A restore that did not finish; a retry with its request id resumes it.

    Attributes:
        plan_id: its plan; empty if only the journal is left.
        planned: when its offsets were frozen (ISO 8601, UTC); empty likewise.
        attempt: its last attempt; ``None`` if an older release made it.
        reached: its last phase: ``plan``, ``read``, ``build`` or ``place``.
        done: finished units of that phase.
        total: all units of that phase.
        unit: name of the unit.
        running: whether the attempt holds the application's lock.
        words: the command and options that resume it, except spec, state directory and request id; empty if only the
            journal is left, which does not record the job.
    """

    request_id: str
    plan_id: str
    planned: str
    attempt: ReportHead | None
    reached: str
    done: int
    total: int
    unit: str
    running: bool
    words: tuple[str, ...] = ("restore",)

    def to_json(self) -> dict[str, Any]:
        """The restore as a JSON document."""
        return {**vars(self), "attempt": self.attempt.to_json() if self.attempt else None}


@dataclass(frozen=True)
class Leftover:
    """Something in ``.statecore`` that no finished restore needs.

    Attributes:
        bytes: bytes of its files.
        meaning: description for people.
    """

    name: str
    bytes: int
    meaning: str


@dataclass(frozen=True)
class Restores:
    """The history of one instance of an application.

    Attributes:
        instance: application, host and state directory.
        was_read: whether the directory was read; otherwise all comes from reports.
        holder: holder of the application's lock; ``None`` if there is none, or the directory was not read.
        attempts: known attempts, newest first.
        partitions: the latest restore of each store partition.
        unfinished: unfinished restores since the last finished one, newest first.
        leftovers: other contents of ``.statecore``.
        problems: what could not be read.
        writer: process that has stores open without that lock, such as a processor on this library's stores; ``None``
            if there is none, the lock is held, or the directory was not read.
        fetches: its fetches; none if the directory was not read.
        changes: its migrations and repairs; likewise.
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

    @property
    def last(self) -> ReportHead | None:
        """The latest successful restore."""
        return next((head for head in self.attempts if head.outcome is Outcome.RESTORED), None)

    @property
    def before(self) -> ReportHead | None:
        """The latest restore that placed stores, if the last one found nothing to do."""
        if self.last is None or self.last.partitions:
            return None
        done = (head for head in self.attempts if head.outcome is Outcome.RESTORED and head.partitions)
        return next(done, None)

    @property
    def published(self) -> ReportHead | None:
        """The latest job that published a snapshot, with or without restoring a state directory."""
        return next((head for head in self.attempts if head.succeeded and head.snapshot), None)

    @property
    def later(self) -> ReportHead | None:
        """The latest attempt if it did not succeed and is not among the unfinished ones."""
        tried = [head for head in self.attempts if head.outcome is not Outcome.PLANNED]
        known = {one.request_id for one in self.unfinished}
        if not tried or tried[0].succeeded or tried[0].attempt.request_id in known:
            return None
        return tried[0]

    @property
    def stores(self) -> list[RestoredStore]:
        """The stores over their partitions."""
        return restored_stores(self.partitions)

    def to_json(self) -> dict[str, Any]:
        """The history as a JSON document."""
        return {
            **self.instance._asdict(),
            "looked": self.was_read,
            "holder": self.holder._asdict() if self.holder else None,
            "writer": self.writer._asdict() if self.writer else None,
            "last_restore": self.last.to_json() if self.last else None,
            "last_published": self.published.to_json() if self.published else None,
            "later_attempt": self.later.to_json() if self.later else None,
            "attempts": [head.to_json() for head in self.attempts],
            "stores": [vars(store) for store in self.stores],
            "partitions": [vars(part) for part in self.partitions],
            "unfinished": [one.to_json() for one in self.unfinished],
            **self.fetches.to_json(),
            **self.changes.to_json(),
            "left": [vars(one) for one in self.leftovers],
            "trouble": list(self.problems),
        }


def from_reports(reports: InstanceReports) -> Restores:
    """The history from an instance's reports only."""
    return Restores(reports.instance, False, None, reports.attempts, reports.partitions)


def read_history(directory: StateDirectory, reported: Iterable[InstanceReports] = ()) -> Restores:
    """Read the history of an application's directory, and merge the reports on it."""
    holder = lock_holder(directory.path / LOCK_FILE)
    trouble: list[str] = []
    try:
        files = _newest(directory.work_path / PLANS)
        finished, partitions = _finished(files, trouble)
        fetches = fetches_of([path for path in files if path.suffix == FETCH_SUFFIX][:MAX_READ], trouble)
        changes = read_changes(directory.work_path, files[:MAX_READ], holder, socket.gethostname(), trouble)
        journal = _journal(directory.work_path, trouble)
        if journal is not None and journal.request_id in fetches.requests | changes.requests:
            journal = None  # it belongs to that fetch, migration or repair
        unfinished = _unfinished(directory.work_path, files, finished, journal, holder)
        left = _left(directory.work_path, unfinished)
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
        tuple(trouble),
        writer,
        fetches,
        changes,
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


def _finished(files: list[Path], trouble: list[str]) -> tuple[dict[str, ReportHead], list[RestoredPartition]]:
    """Heads of finished restores by file stem, and the store partitions they restored."""
    heads: dict[str, ReportHead] = {}
    partitions: list[RestoredPartition] = []
    for path in [path for path in files if path.suffix == REPORT_SUFFIX][:MAX_READ]:
        try:
            document = read_report(path)
            head = read_head(document, path.stat().st_mtime)
            if head.outcome is Outcome.RESTORED:
                heads[path.stem] = head
                partitions += read_partitions(document, head)
        except ReportError as error:
            trouble.append(f"{path}: {error}")
    return heads, partitions


def _journal(work: Path, trouble: list[str]) -> Journal | None:
    try:
        return read_journal(work)
    except Invalid as error:
        trouble.append(str(error))
        return None


def _unfinished(
    work: Path, files: list[Path], finished: dict[str, ReportHead], journal: Journal | None, holder: Holder | None
) -> list[UnfinishedRestore]:
    """Plans without an end that are newer than the last finished restore, and the restore of a journal."""
    since = max((head.when for head in finished.values()), default="")
    interrupted = plan_path(work, journal.request_id).stem if journal is not None else ""
    found = []
    for plan in [path for path in files if path.suffix == PLAN_SUFFIX][:MAX_READ]:
        try:
            frozen = load_plan(plan)
        except Invalid:  # the next restore rebuilds it
            continue
        if frozen is None or (plan.stem in finished and plan.stem != interrupted):
            continue
        attempt = _attempt(plan.with_suffix(ATTEMPT_SUFFIX))
        heard = max(attempt.when if attempt else "", utc(plan.stat().st_mtime))
        if heard > since or plan.stem == interrupted:
            found.append(_one_unfinished(work, plan, frozen, attempt, journal, holder))
    if journal is not None and journal.request_id not in {one.request_id for one in found}:
        place = ("place", _swapped(journal), len(journal.tasks), "tasks")
        found.append(UnfinishedRestore(journal.request_id, "", "", None, *place, holder is not None, ()))
    return found


def _attempt(file: Path) -> ReportHead | None:
    try:
        return read_head(read_report(file), file.stat().st_mtime)
    except (ReportError, FileNotFoundError):
        return None


def _one_unfinished(
    work: Path,
    plan: Path,
    frozen: FrozenPlan,
    attempt: ReportHead | None,
    journal: Journal | None,
    holder: Holder | None,
) -> UnfinishedRestore:
    tasks = len({part.task for part in frozen.plan.partitions})
    staging = Path(frozen.staging or work) / frozen.plan.plan_id
    images, runs = _count_files(staging / IMAGES, "result.json"), _count_files(staging / RUNS, "*.json")
    ranges = sum(len(part.ranges) for part in frozen.plan.partitions)
    if journal is not None and journal.request_id == frozen.request_id:
        reached = ("place", _swapped(journal), len(journal.tasks), "tasks")
    elif plan.with_suffix(REPORT_SUFFIX).exists():
        reached = ("place", 0, tasks, "tasks")
    elif images or (ranges and runs == ranges):
        reached = ("build", images, len(frozen.plan.stores), "images")
    elif runs or staging.is_dir():
        reached = ("read", runs, ranges, "offset ranges")
    else:
        reached = ("plan", 0, 0, "")
    running = (
        holder is not None
        and attempt is not None
        and attempt.outcome is Outcome.BEGUN
        and (holder.process, socket.gethostname()) == (attempt.attempt.process, attempt.attempt.host)
    )
    planned, words = utc(frozen.made_at), frozen.command or ("restore",)
    return UnfinishedRestore(frozen.request_id, frozen.plan.plan_id, planned, attempt, *reached, running, words)


def _swapped(journal: Journal) -> int:
    return len(journal.tasks) if journal.state == "verified" else 0


def _count_files(directory: Path, pattern: str) -> int:
    return sum(1 for _ in directory.rglob(pattern))


def _left(work: Path, unfinished: list[UnfinishedRestore]) -> list[Leftover]:
    """Contents of the work directory besides plans, journal and record."""
    wanted = {one.plan_id: one.request_id for one in unfinished if one.plan_id}
    found = []
    for entry in sorted(work.iterdir()) if work.is_dir() else ():
        known = entry_of(entry.name)
        if known.is_bookkeeping:
            continue
        if entry.name in wanted:
            meaning = f"built files of request {wanted[entry.name]}; a retry of it resumes with them"
        elif known.name == SCRATCH_PREFIX and is_in_use(entry):
            meaning = "hard links of a running backup"
        else:
            meaning = known.meaning
        size = entry.stat().st_size if entry.is_file() else tree_bytes(entry)
        found.append(Leftover(entry.name, size, meaning))
    return found


def _merged(own: list[ReportHead], reported: list[ReportHead]) -> tuple[ReportHead, ...]:
    """Merge attempts of two sources, newest first: of each request the latest with each outcome."""
    known: dict[tuple[str, Outcome], ReportHead] = {}
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
