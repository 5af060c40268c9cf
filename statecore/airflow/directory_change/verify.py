"""What ``statecore doctor`` says of a directory that was migrated: a second look, by eyes that had no part in it.

A finding that would keep the release from opening the directory, or lose something, fails the task, unless it is of a
Kafka Streams task that the plan left as it is: that was said before, and approved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from statecore.errors import Corrupted
from statecore.jobs.diagnose.request import DiagnoseRequest

MODULE = "statecore.jobs.diagnose.program"

_BAD = ("error", "loss")
_SHOWN = 20


class Found(TypedDict):
    """As much of a finding (:mod:`statecore.doctor.findings`) as is looked at here."""

    code: str
    severity: str
    task: str | None
    store: str | None
    what: str


def request_for(migration: Mapping[str, Any]) -> DiagnoseRequest:
    """What is asked about the directory of a migration's request. Brokers are not.

    Args:
        migration: the request, as JSON.
    """
    same = ("application_id", "state_dir", "tasks", "spec_path", "processing_guarantee")
    said = {name: migration[name] for name in same if name in migration}
    return DiagnoseRequest.from_json({**said, "release": migration["to"], "offline": True})


def report_path(migration: Path) -> Path:
    """Where the report lies, beside that of the migration."""
    return migration.with_suffix(".examination.json")


def findings(report: Mapping[str, Any]) -> list[Found]:
    """What was found, from the report of an examination."""
    return [finding for one in report["applications"] for finding in one["findings"]]


def in_words(finding: Found) -> str:
    """A finding as a line of a log."""
    where = " of ".join(name for name in (finding["store"], finding["task"]) if name)
    return f"{finding['severity']} {finding['code']}{f' ({where})' if where else ''}: {finding['what']}"


def check(found: Sequence[Found], left: Collection[str], where: str) -> None:
    """Refuse what keeps a directory from being opened, or loses something.

    Args:
        found: what was found.
        left: tasks that the plan has left as they are.
        where: the directory, for the message.

    Raises:
        Corrupted: something is that bad.
    """
    bad = [one for one in found if one["severity"] in _BAD and one["task"] not in left]
    if bad:
        said = "\n".join(f"  {in_words(one)}" for one in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise Corrupted(
            f"{where} was migrated, and statecore doctor finds {len(bad)} things that are bad:\n{said}{more}",
            code="migrated-state-unsound",
            action="See docs/findings for each of them before the application is started.",
            problems=[{name: one[name] for name in ("code", "what", "task", "store")} for one in bad],
        )
