from __future__ import annotations

from pathlib import Path

import pytest

from statecore.airflow.ui.state_view import Filter, Run, application_page, report_page, run_of
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import ApplicationReports, ReportIndex
from tests.unit.jobs.reports import attempt, done, entry, failed, write


@pytest.fixture
def index(tmp_path: Path) -> ReportIndex:
    for number in range(25):
        tried = attempt(
            number, state_dir=f"/state/{number % 2}", host=f"node-{number}", application=f"app-{number:02d}"
        )
        written = failed(tried) if number == 7 else done(tried, entry("s", 0))
        write(tmp_path, number, written, f"app-{number:02d}")
    return ReportIndex(tmp_path)


def test_a_page_holds_the_applications_that_were_written_to_last(index: ReportIndex) -> None:
    first = application_page(index, size=10)
    assert [one.name for one in first.applications][:2] == ["app-24", "app-23"]
    assert (len(first.applications), first.number, first.pages, first.total) == (10, 1, 3, 25)
    last = application_page(index, number=99, size=10)
    assert ([one.name for one in last.applications][-1], last.number) == ("app-00", 3)


class NotingIndex(ReportIndex):
    """Notes of which applications it was asked for the reports."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.read: list[str] = []

    def application(self, name: str) -> ApplicationReports:
        self.read.append(name)
        return super().application(name)


def test_a_page_reads_no_report_but_those_of_the_applications_on_it(index: ReportIndex) -> None:
    noting = NotingIndex(index.directory)
    application_page(noting, number=2, size=10)
    assert noting.read == [f"app-{number:02d}" for number in range(14, 4, -1)]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter("APP-03"), ["app-03"]),
        (Filter("node-12"), ["app-12"]),
        (Filter("state/1"), [f"app-{number:02d}" for number in range(23, 0, -2)]),
        (Filter(outcome=ReportOutcome.FAILED), ["app-07"]),
        (Filter("app-08", ReportOutcome.FAILED), []),
    ],
)
def test_a_filter_matches_application_host_directory_and_outcome(
    index: ReportIndex, wanted: Filter, names: list[str]
) -> None:
    found = application_page(index, wanted, size=100)
    assert [one.name for one in found.applications] == names
    assert found.total == len(names)


def test_reports_come_in_pages_newest_first(index: ReportIndex) -> None:
    first = report_page(index, size=20)
    assert [one.attempt.application_id for one in first.reports] == [f"app-{n:02d}" for n in range(24, 4, -1)]
    assert first.next == 20
    second = report_page(index, offset=20, size=20)
    assert ([one.attempt.application_id for one in second.reports][-1], second.next) == ("app-00", None)
    assert [one.attempt.host for one in report_page(index, application="app-03").reports] == ["node-3"]
    assert len(report_page(index, state_dir="/state/0").reports) == 13
    sparse = report_page(index, host="node-3", limit=5)
    assert (sparse.reports, sparse.next) == ((), 5)


def test_a_request_of_the_operator_names_its_run() -> None:
    run = run_of("restore_stores/manual__2026-01-01T00:00:00+00:00/group.restore/3")
    assert run == Run("restore_stores", "manual__2026-01-01T00:00:00+00:00", "group.restore", 3)
    assert (
        run.path == "/dags/restore_stores/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/group.restore/mapped/3"
    )
    assert run_of("d/r/t/-1") == Run("d", "r", "t", -1)
    assert not Run("d", "r", "t", -1).path.endswith("1")
    assert run_of("0f9a") is None
