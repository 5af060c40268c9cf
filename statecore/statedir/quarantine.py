"""Moves task directories or single stores into quarantine below ``.statecore``, by one rename each.

After a kill a task or store is either at its old or at its new place. Kafka Streams does not look there. A store is
moved into a task directory of its own, at its relative path.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Fenced, StatecoreError
from statecore.filesystem import make_directories, sync_file
from statecore.statedir.file_trees import remove_tree
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import directories_in
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_LOG = logging.getLogger(__name__)

KEPT_MS = 7 * 86_400_000
"""Retention of quarantined and replaced directories: a week."""

_EARLIEST_MS = 1_767_225_600_000
"""2026-01-01, before the first release: a clock that shows an earlier time is wrong."""

_TOLERANCE_MS = 3_600_000
"""How much later than the time of a quarantine its files may have been written: callers read the clock earlier."""


@dataclass(frozen=True)
class Quarantined:
    """A quarantined task directory, or the directory created for a quarantined store."""

    task: str
    path: Path
    at_ms: int


def quarantine_task(directory: StateDirectory, task: str, under: str, now_ms: int) -> Quarantined:
    """Move a task's directory to ``.statecore/<under>/``, durably, or raise and leave it where it was."""
    directory.check_locked()
    source = directory.task_path(task)
    try:
        target_entry = _place(directory, task, under, now_ms)
        source.rename(target_entry.path)
        try:
            sync_file(target_entry.path.parent)
            sync_file(source.parent)
        except OSError:
            with suppress(OSError):
                target_entry.path.rename(source)
            raise
    except OSError as error:
        raise system_error(
            error, f"The task directory {source} could not be quarantined", action=RUN_AS_APPLICATION, task=task
        ) from error
    return target_entry


def quarantine_store(
    directory: StateDirectory, task: str, store: Path, under: str, now_ms: int, *, place: Path | None = None
) -> Quarantined:
    """Move the directory of one store, with its databases closed, to ``.statecore/<under>/``, durably.

    Returns:
        The directory created for it, which contains the store at its relative path.
    """
    directory.check_locked()
    try:
        target_entry = _place(directory, task, under, now_ms)
        target = target_entry.path / (place or store).relative_to(directory.task_path(task))
        make_directories(target.parent)
        store.rename(target)
        for changed in (target.parent, target_entry.path, target_entry.path.parent, store.parent):
            sync_file(changed)
    except OSError as error:
        raise system_error(
            error, f"The store {store} could not be quarantined", action=RUN_AS_APPLICATION, task=task
        ) from error
    return target_entry


def _place(directory: StateDirectory, task: str, under: str, now_ms: int) -> Quarantined:
    """An unused name in ``under``, which is created if missing. Raises ``OSError``."""
    folder = directory.work_path / under
    if not folder.is_dir():
        make_directories(folder)
        sync_file(folder.parent)
    at_ms = now_ms
    while (target := folder / f"{task}@{at_ms}").exists():
        at_ms += 1
    return Quarantined(task, target, at_ms)


def quarantined(directory: StateDirectory, under: str) -> list[Quarantined]:
    """The quarantined directories in ``.statecore/<under>/``, the oldest first; other names are skipped."""
    found = []
    for path in directories_in(directory.work_path / under):
        task, at, stamp = path.name.rpartition("@")
        if at and stamp.isascii() and stamp.isdigit():
            found.append(Quarantined(task, path, int(stamp)))
    return sorted(found, key=lambda one: (one.at_ms, one.path.name))


def delete_expired(directory: StateDirectory, under: str, now_ms: int) -> None:
    """Delete quarantined directories older than :data:`KEPT_MS`; failures are logged. Raises ``Fenced``.

    One whose time is of a clock that was behind gets the present time instead, and is kept from now on.
    """
    for one in quarantined(directory, under):
        if now_ms - one.at_ms > KEPT_MS:
            try:
                if not _restamped(directory, one, under, now_ms):
                    delete_quarantined(directory, one)
            except Fenced:
                raise
            except StatecoreError as error:
                _LOG.warning("An expired quarantined directory could not be deleted: %s", error)


def was_clock_behind(path: Path, at_ms: int, now_ms: int) -> bool:
    """Whether the time at which a directory was quarantined or replaced is too early to be true, and now is not.

    Its files cannot have been written later. Only files count, because a partial deletion changes directories.
    """
    if at_ms < _EARLIEST_MS <= now_ms:
        return True
    for parent, _, files in os.walk(path):
        for name in files:
            written_ms = (Path(parent) / name).lstat().st_mtime_ns // 1_000_000
            if at_ms + _TOLERANCE_MS < written_ms <= now_ms:
                return True
    return False


def _restamped(directory: StateDirectory, one: Quarantined, under: str, now_ms: int) -> bool:
    """Give a directory the present time if its own is of a clock that was behind; returns whether it was."""
    directory.check_locked()
    try:
        if not was_clock_behind(one.path, one.at_ms, now_ms):
            return False
        one.path.rename(_place(directory, one.task, under, now_ms).path)
        sync_file(one.path.parent)
    except OSError as error:
        raise system_error(
            error, f"{one.path} could not be kept longer", action=RUN_AS_APPLICATION, path=str(one.path)
        ) from error
    return True


def delete_quarantined(directory: StateDirectory, one: Quarantined) -> None:
    """Delete a quarantined directory; :func:`quarantined` still lists one that was deleted in part."""
    directory.check_locked()
    try:
        remove_tree(one.path)
        sync_file(one.path.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise system_error(
            error, f"{one.path} could not be deleted", action=RUN_AS_APPLICATION, path=str(one.path)
        ) from error
