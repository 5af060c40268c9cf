"""The findings of ``statecore doctor`` in a migrated directory, as an independent check.

A finding that keeps the release from opening the directory, or that loses data, fails the task, unless it is in a Kafka
Streams task that the approved plan left unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from statecore.errors import Corrupted
from statecore.jobs.diagnose.request import DiagnoseRequest

_BAD = ("error", "loss")
_SHOWN = 20


class Found(TypedDict):
    """The fields of a finding (:mod:`statecore.doctor.findings`) that are used here."""

    code: str
    severity: str
    task: str | None
    store: str | None
    what: str


def request_for(migration: Mapping[str, Any]) -> DiagnoseRequest:
    """The doctor's request for the directory of a migration's request (as JSON), without brokers."""
    same = ("application_id", "state_dir", "tasks", "spec_path", "processing_guarantee")
    fields = {name: migration[name] for name in same if name in migration}
    return DiagnoseRequest.from_json({**fields, "release": migration["to"], "offline": True})


def report_path(migration: Path) -> Path:
    """Path of the doctor's report for the path of a migration's report."""
    return migration.with_suffix(".examination.json")


def findings(report: Mapping[str, Any]) -> list[Found]:
    """The findings of a doctor's report."""
    return [finding for one in report["applications"] for finding in one["findings"]]


def in_words(finding: Found) -> str:
    where = " of ".join(name for name in (finding["store"], finding["task"]) if name)
    return f"{finding['severity']} {finding['code']}{f' ({where})' if where else ''}: {finding['what']}"


def check(found: Sequence[Found], left: Collection[str], where: str) -> None:
    """Refuse findings of severity error or loss."""
    bad = [one for one in found if one["severity"] in _BAD and one["task"] not in left]
    if bad:
        lines = "\n".join(f"  {in_words(one)}" for one in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise Corrupted(
            f"{where} was migrated, but statecore doctor has {len(bad)} findings of severity error or loss:\n"
            f"{lines}{more}",
            code="migrated-state-unsound",
            action="See docs/findings for each of them before you start the application.",
            problems=[{name: one[name] for name in ("code", "what", "task", "store")} for one in bad],
        )
