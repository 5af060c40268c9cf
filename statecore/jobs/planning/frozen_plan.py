"""Files of a request: its frozen plan, the state of its last attempt, and the report of its stores.

They are in the application's directory, named by a hash of the request id, because Airflow's run ids contain characters
that file names must not::

    <application>/.statecore/plans/<request>.json       the plan: a retry reads the same ranges, reuses what was
                                                        built, and gives the same digest
    <application>/.statecore/plans/<request>.attempt    the last attempt, until it succeeds
    <application>/.statecore/plans/<request>.report     the report, written before the placement, and again after it
                                                        with the finish time

The report of a fetch under the same id has its own suffix (:mod:`statecore.jobs.fetch.report`). What the attempts of a
plan have built is in ``<staging>/<plan id>``, below :data:`RUNS` and :data:`IMAGES`.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.documents import DocumentType
from statecore.jobs.bases.base import Refused
from statecore.jobs.planning.plan import ReadPlan
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import PLANS

PLAN_SUFFIX, ATTEMPT_SUFFIX, REPORT_SUFFIX = ".json", ".attempt", ".report"

DAMAGED_SUFFIX = ".damaged"
"""Of a checkpoint, in the repository: stores that it found damaged after it had published, until they are rebuilt."""

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
    """A plan on disk, and the request it answers.

    Attributes:
        partitions: the requested partitions; empty for all.
        made_at: when the end offsets were read, in seconds since the epoch, by this machine's clock.
        staging: the directory below which images are built.
        newest_snapshot: the newest snapshot at that time; empty if there was none, or the repository was not read.
        is_partial: whether requested store partitions are missing, because the state directory has not got them, or has
            them at the end already.
        excluded_stores: stores that are missing altogether for that reason.
        command: command and options that repeat the request, without state directory and request id, and without the
            spec if that was not given as a file; empty if not to be shown.
        broker_read_at_ms: when the end offsets were read, in ms since the epoch, by the brokers' clock; ``None`` if
            unknown.
    """

    plan: ReadPlan
    partitions: tuple[int, ...]
    made_at: float
    request_id: str
    staging: str = ""
    newest_snapshot: str = ""
    refused: tuple[Refused, ...] = ()
    is_partial: bool = False
    excluded_stores: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    broker_read_at_ms: int | None = None

    @property
    def read_at_ms(self) -> int:
        """When the end offsets were read, in ms since the epoch, by the brokers' clock if known."""
        return int(self.made_at * 1000) if self.broker_read_at_ms is None else self.broker_read_at_ms


FROZEN_PLAN = DocumentType(
    "frozen plan", 5, FrozenPlan, "The next restore under its request id recreates it.", is_sealed=True
)
"""Sealed with a checksum: an offset changed by a failing disk would silently lose rows.
Version 5 is incompatible with older releases, which know no bases.
"""


def request_name(request_id: str) -> str:
    """Name for the files of a request: a hash, because run ids contain characters that file names must not."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:24]


def plan_path(work_path: Path, request_id: str) -> Path:
    return work_path / PLANS / f"{request_name(request_id)}{PLAN_SUFFIX}"


def load_plan(path: Path) -> FrozenPlan | None:
    """The frozen plan of a request, if it has one. Raises ``Invalid`` if it is damaged or of another release."""
    try:
        return FROZEN_PLAN.decode(path.read_bytes())
    except FileNotFoundError:
        return None


def staging_base(staging_dir: str | None, directory: StateDirectory) -> Path:
    """Where plans are staged: the state directory, or a directory per host and state directory below ``staging_dir``.

    Several hosts, whose locks are independent, may share ``staging_dir``, and the same plan on two of them is likely
    (the application is stopped, its topics do not grow).
    """
    if not staging_dir:
        return directory.work_path
    owner = f"{socket.gethostname()}\n{directory.path.resolve()}"
    return Path(staging_dir) / directory.application_id / hashlib.sha256(owner.encode()).hexdigest()[:12]


def sweep_plans(work_path: Path, now: float, *, keep_files: int = _KEPT_FILES) -> None:
    """Delete old plans and reports, under the application's lock."""
    found = [(file.stat().st_mtime, file) for file in (work_path / PLANS).iterdir() if file.is_file()]
    for modified, file in sorted(found, reverse=True)[keep_files:]:
        if now - modified > _KEPT_SECONDS:
            with suppress(PermissionError):  # another user's small file
                file.unlink(missing_ok=True)
