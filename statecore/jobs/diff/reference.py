"""The reference of a diff: an existing state directory, or one that is built in a scratch directory.

::

    --with-state-dir   the existing directory
    --with-snapshot    fetched into a scratch directory (snapshot_reference.py)
    --with-changelog   built there from the changelogs, up to the offsets of the compared stores
                       (changelog_reference.py)
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from statecore.errors import StatecoreError, options_conflict
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.request import DiffRequest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import StoppedStoreOffsets
from statecore.statedir.store_places import application_directory
from statecore.system_errors import system_error

StoreOffsets: TypeAlias = Mapping[Key, StoppedStoreOffsets]
"""The offsets that the application would use for each store of a directory."""


@dataclass(frozen=True)
class Reference:
    """The directory that a state directory is compared with.

    Attributes:
        words: description for people.
        only: stores to compare, by task and name; ``None`` for all of both sides.
        scratch: directory for files shared by workers and driver; ``None`` if no reference was built.
    """

    directory: StateDirectory
    words: str
    spec: ApplicationSpec | None
    only: frozenset[Key] | None = None
    left_out: Mapping[Key, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scratch: Path | None = None


def existing_reference(context: JobContext[DiffRequest], state_dir: str) -> Reference:
    """The application's directory in another state directory."""
    directory = application_directory(Path(state_dir), context.application_id)
    if directory.path.samefile(context.existing_directory().path):
        raise options_conflict(
            f"{directory.path} would be compared with itself.",
            "Name another state directory (--with-state-dir), such as a copy.",
            ["state_dir", "with_state_dir"],
        )
    return Reference(directory, f"the state directory {directory.path}", context.declared)


_PREFIX = ".statecore-diff"
_MODE = 0o700


@contextmanager
def scratch(below: Path) -> Iterator[Path]:
    """A directory of this process below ``below``, as a context manager."""
    _sweep(below)
    path = below / f"{_PREFIX}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir(mode=_MODE)
    except OSError as error:
        raise _unusable(below, error) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(below: Path) -> None:
    """Delete directories of dead processes of this machine."""
    for path in below.glob(f"{_PREFIX}.{socket.gethostname()}.*.*"):
        process = path.name.split(".")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _unusable(below: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"No directory can be created in {below}",
        action="Name a writable directory with enough space for the stores (--scratch-dir).",
        path=str(below),
    )
