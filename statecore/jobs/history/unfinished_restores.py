"""Finds unfinished restores of an application's directory, and files that no finished job needs.

A frozen plan without a report is unfinished (:mod:`statecore.jobs.planning.frozen_plan`), and so is a journal of a
placement (:mod:`statecore.statedir.journal`).
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.filesystem import tree_bytes
from statecore.jobs.attempt import utc
from statecore.jobs.history.report_head import ReportError, ReportHead, ReportOutcome, read_head, read_report
from statecore.jobs.planning.frozen_plan import (
    ATTEMPT_SUFFIX,
    IMAGES,
    REPORT_SUFFIX,
    RUNS,
    FrozenPlan,
    load_plan,
    plan_path,
)
from statecore.statedir.journal import Journal, read_journal
from statecore.statedir.link_scratch import is_in_use
from statecore.statedir.work_directory import BACKUP_LINKS_PREFIX, entry_of
from statecore.stores.lock_holder import Holder


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
        words: the command and options that resume it, except state directory and request id, and a spec that was not
            given as a file; empty if only the journal is left, which does not record the job.
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
        return {**vars(self), "attempt": self.attempt.to_json() if self.attempt else None}


@dataclass(frozen=True)
class Leftover:
    """Something in ``.statecore`` that no finished restore needs."""

    name: str
    bytes: int
    meaning: str


def unfinished_restores(
    work: Path,
    plans: Iterable[Path],
    finished: Mapping[str, ReportHead],
    other_requests: Collection[str],
    holder: Holder | None,
    problems: list[str],
) -> list[UnfinishedRestore]:
    """Plans without an end that are newer than the last finished restore, and the restore of a journal.

    Requests with the same plan share what is built, so one of them resumes it: the one in progress, else the newest.
    The rebuilds of an unfinished repair, among ``other_requests``, are resumed by the repair.
    """
    journal = _journal(work, problems)
    if journal is not None and journal.request_id in other_requests:
        journal = None
    since = max((head.when for head in finished.values()), default="")
    interrupted = plan_path(work, journal.request_id).stem if journal is not None else ""
    found = []
    for plan in plans:
        try:
            frozen = load_plan(plan)
        except Invalid:  # the next restore rebuilds it
            continue
        if frozen is None or (plan.stem in finished and plan.stem != interrupted):
            continue
        if frozen.request_id.rpartition("-")[0] in other_requests:
            continue
        attempt = _attempt(plan.with_suffix(ATTEMPT_SUFFIX))
        heard = max(attempt.when if attempt else "", utc(plan.stat().st_mtime))
        if heard > since or plan.stem == interrupted:
            found.append(_one_unfinished(work, plan, frozen, attempt, journal, holder))
    placing = "" if journal is None else journal.request_id
    resumed: dict[str, UnfinishedRestore] = {}
    for one in sorted(found, key=lambda one: (not one.running, one.request_id != placing)):
        resumed.setdefault(one.plan_id, one)
    found = [one for one in found if resumed[one.plan_id] is one]
    if journal is not None and placing not in {one.request_id for one in found}:
        progress = ("place", _swapped(journal), len(journal.tasks), "tasks")
        found.append(UnfinishedRestore(journal.request_id, "", "", None, *progress, holder is not None, ()))
    return found


def _journal(work: Path, problems: list[str]) -> Journal | None:
    try:
        return read_journal(work)
    except Invalid as error:
        problems.append(str(error))
        return None


def _attempt(file: Path) -> ReportHead | None:
    try:
        return read_head(read_report(file))
    except ReportError:
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
        and attempt.outcome is ReportOutcome.BEGUN
        and (holder.process, socket.gethostname()) == (attempt.attempt.process, attempt.attempt.host)
    )
    planned, words = utc(frozen.made_at), frozen.command or ("restore",)
    return UnfinishedRestore(frozen.request_id, frozen.plan.plan_id, planned, attempt, *reached, running, words)


def _swapped(journal: Journal) -> int:
    return len(journal.tasks) if journal.state == "verified" else 0


def _count_files(directory: Path, pattern: str) -> int:
    return sum(1 for _ in directory.rglob(pattern))


def leftovers(work: Path, unfinished: Sequence[UnfinishedRestore]) -> list[Leftover]:
    """Contents of the work directory besides plans, journal and record."""
    wanted = {one.plan_id: one.request_id for one in unfinished if one.plan_id}
    found = []
    for entry in sorted(work.iterdir()) if work.is_dir() else ():
        known = entry_of(entry.name)
        if known.is_bookkeeping:
            continue
        if entry.name in wanted:
            meaning = f"built files of request {wanted[entry.name]}; a retry of it resumes with them"
        elif known.name == BACKUP_LINKS_PREFIX and is_in_use(entry):
            meaning = "hard links of a running backup"
        else:
            meaning = known.meaning
        size = entry.stat().st_size if entry.is_file() else tree_bytes(entry)
        found.append(Leftover(entry.name, size, meaning))
    return found
