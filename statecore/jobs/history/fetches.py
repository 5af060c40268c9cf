"""Finds the last finished and the unfinished fetch of a directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.history.job_reports import read_reports


@dataclass(frozen=True)
class Fetches:
    """Fetches of a directory.

    Attributes:
        last: the last finished one; ``None`` if there is none.
        unfinished: the last one, if it began to place stores and did not finish.
        requests: request ids of all unfinished ones.
    """

    last: FetchReport | None = None
    unfinished: FetchReport | None = None
    requests: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Both as a JSON document."""
        return {
            "last_fetch": self.last.to_json() if self.last else None,
            "unfinished_fetch": self.unfinished.to_json() if self.unfinished else None,
        }


def fetches_of(files: Iterable[Path], trouble: list[str]) -> Fetches:
    """Read the fetch reports; ``trouble`` receives what could not be read."""
    reports = [report.body for report in read_reports(files, trouble) if isinstance(report.body, FetchReport)]
    ended = _latest([report for report in reports if report.finished])
    begun = _latest([report for report in reports if not report.finished])
    if begun is not None and ended is not None and begun.started <= ended.started:
        begun = None
    return Fetches(ended, begun, frozenset(report.request_id for report in reports if not report.finished))


def _latest(reports: Sequence[FetchReport]) -> FetchReport | None:
    return max(reports, key=lambda report: report.finished or report.started, default=None)
