"""The files of a request: its frozen plan, how its last try goes or ended, and the report of its stores.

They lie in the application's directory, by a hash of the request's id, as Airflow's run ids hold characters that no
file name should::

    <application>/.statecore/plans/<request>.json       the plan: a retry reads the same ranges, reuses what was
                                                        built, and gives the same digest
    <application>/.statecore/plans/<request>.attempt    the last try since, while it has not come to a good end
    <application>/.statecore/plans/<request>.report     the report, written before the placement, and after it
                                                        again with the time when it was finished

The report of a fetch under the same id lies beside them, with a suffix of its own
(:mod:`statecore.jobs.fetch.report`).

What the tries of a plan have built lies in ``<staging>/<plan id>``, below it :data:`RUNS` and :data:`IMAGES`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.documents import DocumentType
from statecore.jobs.bases.base import Refused
from statecore.jobs.planning.plan import RestorePlan
from statecore.statedir.work_directory import PLANS

PLAN_SUFFIX, ATTEMPT_SUFFIX, REPORT_SUFFIX = ".json", ".attempt", ".report"

RUNS = "runs"
"""In a plan's staging directory: ``runs/<task>/<store>/<p>.<start>-<end>.json``."""

MERGED = "merged"
"""In a plan's staging directory: ``merged/<task>/<store>/<runs>.<n>-<of>.json``."""

IMAGES = "images"
"""In a plan's staging directory: ``images/<task>/<store>/``, each with its ``result.json``."""

_KEPT_FILES = 200
_KEPT_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class FrozenPlan:
    """A plan on disk, and what it answers.

    Attributes:
        plan: the plan.
        partitions: the partitions that were asked for; empty for all.
        made_at: when its end offsets were read, in seconds since the epoch, by the clock of this machine.
        request_id: the request it was made for.
        staging: the directory below which it is built.
        newest: the snapshot that was the newest then; empty where there was none, or nobody asked.
        refused: parents that a checkpoint does not use, and why.
        is_part: whether it lacks store partitions that were asked for: those that the state directory has not, or has
            at the end already.
        left_out: the stores that it lacks altogether for that reason.
        words: the command and the options that ask for it, but for the spec, the state directory and the request id;
            empty where nobody is told them.
        read_at_ms: when its end offsets were read, by the cluster's clock, in ms since the epoch; ``None`` where that
            did not tell it.
    """

    plan: RestorePlan
    partitions: tuple[int, ...]
    made_at: float
    request_id: str
    staging: str = ""
    newest: str = ""
    refused: tuple[Refused, ...] = ()
    is_part: bool = False
    left_out: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    read_at_ms: int | None = None

    @property
    def cut_ms(self) -> int:
        """When its end offsets were read, in ms since the epoch: by the best clock there is."""
        return int(self.made_at * 1000) if self.read_at_ms is None else self.read_at_ms


FROZEN_PLAN = DocumentType(
    "frozen plan", 5, FrozenPlan, "It is made anew by the next restore under its request id.", is_sealed=True
)
"""An offset that became another one on a failing disk would be rows that are missing, and nothing else would tell.
Version 5 is read by no older release, and reads none of theirs, which know of no parents."""


def request_name(request_id: str) -> str:
    """A name for the files of a request: Airflow's run ids hold characters that no file name should."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:24]


def plan_path(work_path: Path, request_id: str) -> Path:
    """Where the plan of a request is kept."""
    return work_path / PLANS / f"{request_name(request_id)}{PLAN_SUFFIX}"


def load_plan(path: Path) -> FrozenPlan | None:
    """The frozen plan of a request; ``None`` when it has none yet.

    Raises:
        Invalid: it is torn, of another release, or not what was written.
    """
    try:
        return FROZEN_PLAN.decode(path.read_bytes())
    except FileNotFoundError:
        return None


def sweep_plans(work_path: Path, now: float, *, keep_files: int = _KEPT_FILES) -> None:
    """Delete the plans and reports of requests that nobody will retry any more, under the application's lock.

    Args:
        work_path: the application's ``.statecore``.
        now: seconds since the epoch.
        keep_files: how many of the newest stay whatever their age.
    """
    found = [(file.stat().st_mtime, file) for file in (work_path / PLANS).iterdir() if file.is_file()]
    for modified, file in sorted(found, reverse=True)[keep_files:]:
        if now - modified > _KEPT_SECONDS:
            with suppress(PermissionError):  # another user's; it is small, and in nobody's way
                file.unlink(missing_ok=True)
