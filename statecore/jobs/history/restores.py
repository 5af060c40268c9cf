"""Which restores an application's directory has seen: the last one, one that did not come to its end, what they left.

Beside them stand its fetches (:mod:`statecore.jobs.history.fetches`), migrations and repairs
(:mod:`statecore.jobs.history.directory_changes`).

Read without the lock and without changing anything, from ``<application>/.statecore`` (plans, tries and reports:
``statecore/jobs/planning/frozen_plan.py``; journal: ``statecore/statedir/journal.py``) and, where Airflow keeps one,
from the directory of reports, which also has the tries that were refused before they touched anything.
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
from statecore.jobs.backup.scratch_dir import is_at_work
from statecore.jobs.fetch.report import FETCH_SUFFIX
from statecore.jobs.history.directory_changes import Changes, changes_of
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
from statecore.jobs.planning.frozen_plan import (
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
from statecore.statedir.open_stores import writer_among
from statecore.statedir.state_directory import WORK_DIRECTORY, StateDirectory
from statecore.statedir.store_places import store_places
from statecore.statedir.work_directory import PLANS, SCRATCH_PREFIX, entry_of
from statecore.stores.lock_holder import Holder, lock_holder
from statecore.system_errors import RUN_AS_APPLICATION, system_error

LOOKED_AT = 50
"""Newest plans and reports of an application that are read; restores long ago are of no use to anybody."""


@dataclass(frozen=True)
class UnfinishedRestore:
    """A restore that did not come to its end, and that its request id takes up again.

    Attributes:
        request_id: the request.
        plan_id: its plan; empty when only the journal is left.
        planned: when its offsets were frozen (ISO 8601, UTC); empty likewise.
        attempt: its last try, and how that failed; ``None`` when it was made by an older release.
        reached: the phase it had reached: ``plan``, ``read``, ``build`` or ``place``.
        done: parts of that phase that are done.
        total: parts it has.
        unit: what these are.
        running: whether that try still holds the application's lock.
        words: the command and the options that go on with it, but for the spec, the state directory and the request id;
            empty where only the journal is left, which does not say what job it was.
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
        """All of it as a JSON document."""
        return {**vars(self), "attempt": self.attempt.to_json() if self.attempt else None}


@dataclass(frozen=True)
class LeftBehind:
    """Something in ``.statecore`` that no finished restore needs.

    Attributes:
        name: its name.
        bytes: bytes of its files.
        meaning: what it is.
    """

    name: str
    bytes: int
    meaning: str


@dataclass(frozen=True)
class Restores:
    """What is known of one instance of an application.

    Attributes:
        instance: application, host and state directory.
        looked: whether the directory itself was looked at; else all comes from reports.
        holder: who holds the application's lock; ``None`` for nobody, and where it was not looked.
        attempts: the tries that are known, newest first.
        partitions: the latest restore of each store partition.
        unfinished: restores that did not come to their end since the last one that did, newest first.
        left: what lies in ``.statecore`` besides.
        trouble: what could not be read.
        writer: who has stores of it open without that lock, as processors on this library's stores have; ``None`` for
            nobody, where the lock is held, and where it was not looked.
        fetches: its fetches; none where it was not looked.
        changes: its migrations and repairs; likewise.
    """

    instance: Instance
    looked: bool
    holder: Holder | None
    attempts: tuple[ReportHead, ...]
    partitions: tuple[RestoredPartition, ...]
    unfinished: tuple[UnfinishedRestore, ...] = ()
    left: tuple[LeftBehind, ...] = ()
    trouble: tuple[str, ...] = ()
    writer: Holder | None = None
    fetches: Fetches = field(default_factory=Fetches)
    changes: Changes = field(default_factory=Changes)

    @property
    def last(self) -> ReportHead | None:
        """The latest restore that succeeded."""
        return next((head for head in self.attempts if head.outcome is Outcome.RESTORED), None)

    @property
    def before(self) -> ReportHead | None:
        """The latest restore that left stores, where the last one found nothing to be done."""
        if self.last is None or self.last.partitions:
            return None
        done = (head for head in self.attempts if head.outcome is Outcome.RESTORED and head.partitions)
        return next(done, None)

    @property
    def published(self) -> ReportHead | None:
        """The latest job that published a snapshot, whether it restored a state directory as well or not."""
        return next((head for head in self.attempts if head.succeeded and head.snapshot), None)

    @property
    def later(self) -> ReportHead | None:
        """The latest try when it did not succeed, and is none of the unfinished, which say it themselves."""
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
        """All of it as a JSON document."""
        return {
            **self.instance._asdict(),
            "looked": self.looked,
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
            "left": [vars(one) for one in self.left],
            "trouble": list(self.trouble),
        }


def known_of(reports: InstanceReports) -> Restores:
    """What the reports of an instance say, where its directory cannot be looked at."""
    return Restores(reports.instance, False, None, reports.attempts, reports.partitions)


def restores_of(directory: StateDirectory, reported: Iterable[InstanceReports] = ()) -> Restores:
    """What an application's directory says of the restores it has seen, and the reports of it besides.

    Args:
        directory: the application's.
        reported: what reports elsewhere say of this very instance.

    Raises:
        Invalid: this user may not read it.
    """
    holder = lock_holder(directory.path / LOCK_FILE)
    trouble: list[str] = []
    try:
        files = _newest(directory.work_path / PLANS)
        finished, partitions = _finished(files, trouble)
        fetches = fetches_of([path for path in files if path.suffix == FETCH_SUFFIX][:LOOKED_AT], trouble)
        changes = changes_of(directory.work_path, files[:LOOKED_AT], holder, socket.gethostname(), trouble)
        journal = _journal(directory.work_path, trouble)
        if journal is not None and journal.request_id in fetches.requests | changes.requests:
            journal = None  # it is of that fetch, or of that migration or repair
        unfinished = _unfinished(directory.work_path, files, finished, journal, holder)
        left = _left(directory.work_path, unfinished)
        databases = (path for place in store_places(directory) for path in place.databases)
        writer = writer_among(databases) if holder is None else None
    except PermissionError as error:
        raise system_error(
            error, f"{error.filename} cannot be read", action=RUN_AS_APPLICATION, path=str(error.filename)
        ) from error
    tries = [one.attempt for one in unfinished if one.attempt is not None]
    elsewhere = list(reported)
    attempts = _merged([*finished.values(), *tries], [head for one in elsewhere for head in one.attempts])
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
    """The files of the newest requests, newest first."""
    found = []
    with suppress(FileNotFoundError), os.scandir(plans) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a restore is at work
                if not entry.name.endswith(".tmp"):
                    found.append((entry.stat().st_mtime, entry.path))
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _finished(files: list[Path], trouble: list[str]) -> tuple[dict[str, ReportHead], list[RestoredPartition]]:
    """File stem → head of the restores that came to their end, and the store partitions they restored."""
    heads: dict[str, ReportHead] = {}
    partitions: list[RestoredPartition] = []
    for path in [path for path in files if path.suffix == REPORT_SUFFIX][:LOOKED_AT]:
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
    """Plans without an end that are newer than the last end, and what a journal is about."""
    since = max((head.when for head in finished.values()), default="")
    interrupted = plan_path(work, journal.request_id).stem if journal is not None else ""
    found = []
    for plan in [path for path in files if path.suffix == PLAN_SUFFIX][:LOOKED_AT]:
        try:
            frozen = load_plan(plan)
        except Invalid:  # the next restore makes it anew
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
    images, runs = _files(staging / IMAGES, "result.json"), _files(staging / RUNS, "*.json")
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
    planned, words = utc(frozen.made_at), frozen.words or ("restore",)
    return UnfinishedRestore(frozen.request_id, frozen.plan.plan_id, planned, attempt, *reached, running, words)


def _swapped(journal: Journal) -> int:
    return len(journal.tasks) if journal.state == "verified" else 0


def _files(directory: Path, called: str) -> int:
    return sum(1 for _ in directory.rglob(called))


def _left(work: Path, unfinished: list[UnfinishedRestore]) -> list[LeftBehind]:
    """What lies in the work directory besides plans, journal and record."""
    wanted = {one.plan_id: one.request_id for one in unfinished if one.plan_id}
    found = []
    for entry in sorted(work.iterdir()) if work.is_dir() else ():
        known = entry_of(entry.name)
        if known.is_bookkeeping:
            continue
        if entry.name in wanted:
            meaning = f"what was built for request {wanted[entry.name]}; a retry of it goes on with that"
        elif known.name == SCRATCH_PREFIX and is_at_work(entry):
            meaning = "second names of the files of a snapshot that is being taken"
        else:
            meaning = known.meaning
        size = entry.stat().st_size if entry.is_file() else tree_bytes(entry)
        found.append(LeftBehind(entry.name, size, meaning))
    return found


def _merged(own: list[ReportHead], reported: list[ReportHead]) -> tuple[ReportHead, ...]:
    """Tries that two places may know, newest first: of one request, the latest with each outcome."""
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
    """The directories below a ``state.dir`` in which a restore has worked."""
    found = []
    with suppress(OSError):
        for path in state_dir.iterdir():
            with suppress(OSError):  # another user's
                if (path / WORK_DIRECTORY).is_dir():
                    found.append(path.name)
    return sorted(found)
