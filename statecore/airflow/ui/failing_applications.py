"""Applications that nobody can look at: what the page *State stores* is told of them, while it lasts.

A job that fails reports it. Where no job is started, because the spec cannot be read or the brokers are away, the task
that fails in its place writes a report of its own, so that the page does not go on showing the last success alone::

    <reports>/<application>/refused.json          one for each application, written again at every tick: it takes the
                                                  place of no other report, and goes when the application can be looked
                                                  at again
    <reports>/<application>/refused-<dag>.json    of a run that somebody starts, such as that of ``restore_stores``: it
                                                  goes when a later run of that Dag can read the spec

An application whose id nobody knows, because its spec is not there or does not say it, has the spec's path for a name.
A path that nobody asks for any more has its word for :data:`KEPT_SECONDS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.airflow.reports import record_failure
from statecore.airflow.requests import is_inline
from statecore.filesystem import read_regular
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_index import INDEX, directory_name

FILE = "refused.json"
"""The name of such a report of ``checkpoint_stores``. No request has it: theirs end with a piece of a hash."""

KEPT_SECONDS = 86_400.0
"""How long the word stays of an application that nobody asks for any more."""

_LEGAL_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SAID_ID = re.compile(
    r"""(?:^|[{,]\s*)["']?application_id["']?\s*:\s*["']?([A-Za-z0-9._-]{1,249})["']?\s*(?:$|[,}\#])""", re.MULTILINE
)
_NO_DIRECTORIES = frozenset({".", "..", INDEX})


def record(
    directory: Path, name: str, request_id: str, error: Mapping[str, Any], *, dag: str = "", state_dir: str = ""
) -> None:
    """Report that nobody can look at an application, in the place of what was said of that before.

    An inline spec that does not say its application has no name under which anybody would look for it: then its task
    alone says what is wrong.

    Args:
        directory: where the reports lie.
        name: the application's id, or the path of its spec.
        request_id: of the task that says it.
        error: ``StatecoreError.to_json()``.
        dag: the Dag, where it is one that people start.
        state_dir: the state directory that the run is about; empty without one.
    """
    if _is_shown(name):
        record_failure(_file(directory, name, dag), Attempt.begin(name, state_dir, request_id), error)


def forget(directory: Path, names: Collection[str], *, dag: str = "") -> None:
    """Take back what was said of applications that can be looked at, and of those that nobody asks for any more.

    Args:
        directory: where the reports lie.
        names: ids of the applications that can be looked at, and the paths of their specs.
        dag: as it was recorded with.
    """
    before = time.time() - KEPT_SECONDS
    for name in filter(_is_shown, names):
        with suppress(OSError):
            _file(directory, name, dag).unlink()
    for file in directory.glob(f"*/{FILE.replace('.', '*.')}"):
        with suppress(OSError):
            if file.stat().st_mtime < before:
                file.unlink()


def said_id(text: str) -> str | None:
    """The application's id that the text of a spec says, even where it is no spec; ``None`` where it says none."""
    found = _SAID_ID.search(text)
    return None if found is None or found[1] in _NO_DIRECTORIES else found[1]


def said_application(named: str) -> str | None:
    """The application that an item of ``applications`` is of which cannot be read, as far as it says it."""
    if is_inline(named):
        return said_id(named)
    with suppress(OSError):
        return said_id(read_regular(named).decode(errors="replace"))
    return None


def _is_shown(name: str) -> bool:
    return name not in _NO_DIRECTORIES and (_LEGAL_ID.fullmatch(name) is not None or Path(name).is_absolute())


def _file(directory: Path, name: str, dag: str) -> Path:
    return directory / directory_name(name) / (f"refused-{dag}.json" if dag else FILE)
