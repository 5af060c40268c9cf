"""Failure reports of applications that could not be read or checked, for the page *State stores*.

A job that fails reports its error. If no job is started, because the spec cannot be read or the brokers do not answer,
the task that fails instead writes a report, so that the page does not show only the last success::

    <reports>/<application>/refused.json          of ``checkpoint_stores``: one for each application, overwritten at
                                                  every tick, deleted when the application can be checked again
    <reports>/<application>/refused-spec.json     of a Dag that people start, such as ``restore_stores``, if the spec
                                                  cannot be read: deleted when any Dag can read it
    <reports>/<application>/refused-<dag>.json    of such a Dag, if the spec does not fit the other parameters: deleted
                                                  when a later run of that Dag accepts both

If the application id is not known, because the spec does not exist or does not declare it, the spec's path is used as
the name. A relative path is not: it may read as the id of an application. A report that is not updated any more is
deleted after :data:`KEPT_SECONDS`.
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
from statecore.jobs.history.report_head import ReportError, read_head, read_report
from statecore.jobs.history.report_index import INDEX, directory_name

FILE = "refused.json"
"""File name of a report of ``checkpoint_stores``; names of other reports end with part of a hash."""

UNREADABLE = "spec"
"""In place of the Dag in the name of a report of a spec that cannot be read."""

KEPT_SECONDS = 86_400.0
"""How long a report is kept that is not updated any more."""

_LEGAL_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DECLARED_ID = re.compile(
    r"""(?:^|[{,]\s*)["']?application_id["']?\s*:\s*["']?([A-Za-z0-9._-]{1,249})["']?\s*(?:$|[,}\#])""", re.MULTILINE
)
_NO_DIRECTORIES = frozenset({".", "..", INDEX})


def record(
    directory: Path, name: str, request_id: str, error: Mapping[str, Any], *, dag: str = "", state_dir: str = ""
) -> None:
    """Write the failure report of an application, in place of an earlier one, unless it has no id to show.

    It keeps since when there is such a report.
    """
    if _is_shown(name) and not _is_refused_path(name, error):
        file, attempt = _file(directory, name, dag), Attempt.begin(name, state_dir, request_id)
        record_failure(file, attempt, {**error, "failing_since": _failing_since(file) or attempt.started})


def _failing_since(file: Path) -> str:
    """When the first failure was of which a report tells; empty without one."""
    try:
        earlier = read_head(read_report(file))
    except ReportError:
        return ""
    return earlier.failing_since or earlier.when


def delete(directory: Path, names: Collection[str], *, dag: str = "") -> None:
    """Delete the failure reports of applications that could be checked, and those that are not updated any more."""
    before = time.time() - KEPT_SECONDS
    for name in filter(_is_shown, names):
        with suppress(OSError):
            _file(directory, name, dag).unlink()
    for file in directory.glob(f"*/{FILE.replace('.', '*.')}"):
        with suppress(OSError):
            if file.stat().st_mtime < before:
                file.unlink()


def delete_unreadable(directory: Path, names: Collection[str | None]) -> None:
    """Delete the reports that a spec cannot be read, of applications and paths whose spec was read."""
    for name in filter(_is_shown, (name for name in names if name)):
        with suppress(OSError):
            _file(directory, name, UNREADABLE).unlink()


def declared_id(text: str) -> str | None:
    """The application id in the text of a spec, valid or not; ``None`` without one."""
    found = _DECLARED_ID.search(text)
    return None if found is None or found[1] in _NO_DIRECTORIES else found[1]


def declared_application(named: str) -> str | None:
    """The application id of an item of ``applications`` that cannot be parsed; ``None`` without one."""
    if is_inline(named):
        return declared_id(named)
    with suppress(OSError):
        return declared_id(read_regular(named).decode(errors="replace"))
    return None


def _is_shown(name: str) -> bool:
    return name not in _NO_DIRECTORIES and (_LEGAL_ID.fullmatch(name) is not None or Path(name).is_absolute())


def _is_refused_path(name: str, error: Mapping[str, Any]) -> bool:
    """Whether a name is the relative path of a spec, which is refused as such and may read as an application id."""
    context = error.get("context") or {}
    return error.get("code") == "path-relative" and context.get("spec_path") == name


def _file(directory: Path, name: str, dag: str) -> Path:
    return directory / directory_name(name) / (f"refused-{dag}.json" if dag else FILE)
