"""Which fetches an application's directory has seen: the last that came to its end, and one that did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.jobs.fetch.report import FETCH_REPORT, FetchReport


@dataclass(frozen=True)
class Fetches:
    """The fetches of a directory.

    Attributes:
        last: the latest that came to its end; ``None`` for none.
        unfinished: the latest, where it had begun to place stores and did not come to its end.
        requests: request ids of all that did not.
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
    """What the reports of fetches say.

    Args:
        files: their files.
        trouble: told what could not be read.
    """
    reports: list[FetchReport] = []
    for file in files:
        try:
            reports.append(FETCH_REPORT.decode(file.read_bytes()))
        except FileNotFoundError:  # a job is at work
            continue
        except Invalid as error:
            trouble.append(f"{file}: {error}")
    ended = _latest([report for report in reports if report.finished])
    begun = _latest([report for report in reports if not report.finished])
    if begun is not None and ended is not None and begun.started <= ended.started:
        begun = None
    return Fetches(ended, begun, frozenset(report.request_id for report in reports if not report.finished))


def _latest(reports: Sequence[FetchReport]) -> FetchReport | None:
    return max(reports, key=lambda report: report.finished or report.started, default=None)
