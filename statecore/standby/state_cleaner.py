"""Task directories that nobody owns any more go, as Kafka Streams' cleaner lets them go, but never the best copy.

Kafka Streams deletes a task directory that no thread of the process owns and that was not changed for
``state.cleanup.delay.ms`` (``StateDirectory.cleanRemovedTasks``), by the modification time of the directory itself.
Whether anybody else has the task's state it does not ask. Here a directory goes only where somebody is known to be at
least as far with the task; what nobody has said counts as not known. Whoever wants the others to go too says so: they
are out of the way then, and kept for a week.

The application's lock is held meanwhile. ``.lock``, ``kafka-streams-process-metadata`` and ``global/`` stay, whatever
their age, and so does a task that somebody has open. What goes is moved aside first, by one rename, and then deleted: a
cleaner that is killed leaves no half of a task, and the next one deletes what lies aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.errors import Invalid, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.integers import INT64_MAX
from statecore.spec.model import ApplicationSpec
from statecore.standby.unreplicated_stores import followed_sum, untold
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.quarantine import delete_expired, delete_quarantined, quarantine_task, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import CLEANED, UNOWNED
from statecore.tasks.offset_sums import Standing, TaskSum, read_task_sum

CLEANUP_DELAY = "state.cleanup.delay.ms"
"""Kafka Streams' setting: how long a task directory that nobody owns stays."""

DEFAULT_CLEANUP_DELAY_MS = 600_000
"""Ten minutes, as in Kafka Streams."""


@dataclass(frozen=True)
class CleaningSettings:
    """When task directories go.

    Attributes:
        cleanup_delay_ms: ``state.cleanup.delay.ms``: least milliseconds since the directory was changed last.

    Raises:
        Invalid: the delay is negative.
    """

    cleanup_delay_ms: int = DEFAULT_CLEANUP_DELAY_MS

    def __post_init__(self) -> None:
        if self.cleanup_delay_ms < 0:
            raise Invalid(
                f"{CLEANUP_DELAY} is {self.cleanup_delay_ms}.",
                code="setting-invalid",
                action="Give milliseconds, from 0 on.",
                setting=CLEANUP_DELAY,
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CleaningSettings:
        """The settings that Kafka Streams' configuration says. Raises ``Invalid``: the delay is no number."""
        said = properties.get(CLEANUP_DELAY)
        if said is None:
            return cls()
        try:
            return cls(int(said))
        except ValueError as error:
            raise Invalid(
                f"{CLEANUP_DELAY} is {said!r}.",
                code="setting-invalid",
                action="Give milliseconds, from 0 on.",
                setting=CLEANUP_DELAY,
            ) from error


@dataclass(frozen=True)
class Cleaned:
    """What one round of cleaning did.

    Attributes:
        deleted: tasks whose directories went.
        kept: tasks that nobody owns and whose time is over, and why they stay.
        left: tasks whose directories are aside and could not be deleted, and why; the next round tries again.
        aside: tasks that went though nobody else may have all of their state, and where they lie for a week.
    """

    deleted: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    aside: Mapping[str, Path] = field(default_factory=dict)


def clean_unowned(
    directory: StateDirectory,
    owned: Collection[str],
    others: Mapping[str, int],
    *,
    spec: ApplicationSpec | None = None,
    settings: CleaningSettings | None = None,
    force: bool = False,
    shortened: Collection[str] = (),
    agreed: Callable[[str], bool] = lambda _: True,
    clock: Callable[[], float] = time.time,
    faults: FaultPoints = NO_FAULTS,
) -> Cleaned:
    """Delete the task directories that nobody owns and nobody needs.

    Args:
        directory: the application's, locked.
        owned: tasks that are assigned to this process, or that it has open.
        others: the best offset sum of each task elsewhere, over the changelogs that are followed; a task that is not in
            it is nowhere else, as far as is known.
        spec: what is declared.
        settings: how long they stay.
        force: let them go though nobody else may have their state: they are moved to ``.statecore/unowned``, and the
            first cleaning after a week deletes them.
        shortened: tasks whose logs have lost records to something else than compaction, so that others may have made
            their copies anew from what is left. They are moved as with ``force``.
        agreed: asked right before a task goes: whether nobody counts on it. Others stay, and nothing is said of them.
        clock: seconds since the epoch.
        faults: points at which a test lets the process die.

    Raises:
        Fenced: the application's lock is not held.
        Invalid: its directory may not be read.
    """
    directory.check_locked()
    now_ms = int(clock() * 1000)
    delete_expired(directory, UNOWNED, now_ms)
    kept: dict[str, str] = {}
    aside: dict[str, Path] = {}
    for task, found in _due(directory, owned, spec, settings, now_ms):
        if isinstance(found, OSError):
            kept[task] = str(found)
            continue
        reason = why_kept(directory, found, others.get(task), spec)
        if reason and not (force and may_be_forced(found)):
            kept[task] = reason
            continue
        if not agreed(task):
            continue
        faults.reach("cleaning.before-aside")
        below = UNOWNED if reason or task in shortened else CLEANED
        try:
            refuse_open_stores(directory.task_path(task))  # it may have been opened since it was looked at
            moved = quarantine_task(directory, task, below, now_ms)
        except StatecoreError as error:
            directory.check_locked()
            kept[task] = error.what
        else:
            if below == UNOWNED:
                aside[task] = moved.path
        faults.reach("cleaning.after-aside")
    deleted, left = _delete(directory, faults)
    return Cleaned(tuple(deleted), kept, left, aside)


def could_go(
    directory: StateDirectory,
    owned: Collection[str],
    others: Collection[str],
    *,
    spec: ApplicationSpec | None = None,
    settings: CleaningSettings | None = None,
    force: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Task directories that would go if those who keep their tasks had all of them.

    Args:
        directory: the application's.
        owned: as in :func:`clean_unowned`.
        others: tasks that others keep.
        spec: what is declared.
        settings: how long they stay.
        force: see :func:`clean_unowned`.
        clock: seconds since the epoch.

    Raises:
        Invalid: its directory may not be read.
    """
    return [
        task
        for task, found in _due(directory, owned, spec, settings, int(clock() * 1000))
        if isinstance(found, TaskSum)
        and (
            (force and may_be_forced(found))
            or not why_kept(directory, found, INT64_MAX if task in others else None, spec)
        )
    ]


def may_be_forced(found: TaskSum) -> bool:
    """Whether a task may go by force: not one that is another application's, or that somebody may have open."""
    return not found.is_held and found.standing not in (Standing.OPEN, Standing.UNREADABLE, Standing.FOREIGN)


def why_kept(
    directory: StateDirectory, found: TaskSum, elsewhere: int | None, spec: ApplicationSpec | None = None
) -> str:
    """Why a directory stays whose time is over; empty where it may go.

    Args:
        directory: the application's.
        found: what it holds.
        elsewhere: the best offset sum of its task elsewhere; ``None`` where nobody has said any.
        spec: what is declared.
    """
    if found.is_held or found.standing is Standing.OPEN:
        return found.reason if found.standing is Standing.OPEN else "Another process has one of its stores open."
    if found.standing is Standing.UNREADABLE:
        return f"Nobody knows whether another process has it open: {found.reason}"
    if found.standing is Standing.EMPTY:
        return ""
    if found.standing is not Standing.KNOWN:
        return f"What it holds cannot be compared with others' copies: {found.reason}"
    unsaid = next((one for one in found.stores if one.unsaid), None)
    if unsaid is not None:
        return f"Its store {unsaid.store} cannot be compared with others' copies: {unsaid.reason}"
    if elsewhere is None:
        return "Nobody else is known to have a copy of it."
    held = followed_sum(found, spec)
    if held > elsewhere:
        return f"It is the best copy: its offset sum is {held:,}, and the best one elsewhere {elsewhere:,}."
    return untold(directory, found, spec)


def _due(
    directory: StateDirectory,
    owned: Collection[str],
    spec: ApplicationSpec | None,
    settings: CleaningSettings | None,
    now_ms: int,
) -> Iterator[tuple[str, TaskSum | OSError]]:
    """The tasks that nobody owns and whose time is over, and what they hold, or why nobody can look."""
    delay_ms = (settings or CleaningSettings()).cleanup_delay_ms
    for task in directory.task_directories():
        if task in owned:
            continue
        try:
            if now_ms - directory.task_path(task).stat().st_mtime_ns // 1_000_000 > delay_ms:
                yield task, read_task_sum(directory, task, spec)
        except OSError as error:
            yield task, error


def _delete(directory: StateDirectory, faults: FaultPoints) -> tuple[list[str], dict[str, str]]:
    """Delete all that lies aside, also what a cleaner has left that was killed."""
    deleted, left = [], {}
    for one in quarantined(directory, CLEANED):
        try:
            delete_quarantined(directory, one)
        except StatecoreError as error:
            directory.check_locked()
            left[one.task] = error.what
        else:
            deleted.append(one.task)
            faults.reach("cleaning.after-delete")
    return deleted, left
