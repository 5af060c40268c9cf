from __future__ import annotations

from pathlib import Path

import pytest

from statecore.airflow.ui.state_view import Filter, Run, application_page, report_page, run_of
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import ReportIndex
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


def test_applications_with_an_alarm_come_first_then_by_name(index: ReportIndex) -> None:
    first = application_page(index, size=10)
    assert [one.name for one in first.applications] == ["app-07", *(f"app-{n:02d}" for n in range(10) if n != 7)]
    assert (first.number, first.pages, first.total, first.red) == (1, 3, 25, 1)
    last = application_page(index, number=99, size=10)
    assert ([one.name for one in last.applications][-1], last.number) == ("app-24", 3)
    red = application_page(index, is_red=lambda one: one.instance.host == "node-12")
    assert [one.name for one in red.applications][:2] == ["app-12", "app-00"]


def test_what_failed_includes_what_is_red_for_another_reason(index: ReportIndex) -> None:
    failed_last = Filter(outcome=ReportOutcome.FAILED)
    found = application_page(index, failed_last, is_red=lambda one: one.instance.host == "node-12")
    assert [one.name for one in found.applications] == ["app-12", "app-07"]
    both = Filter("app-07", ReportOutcome.FAILED)
    assert len(application_page(index, both, is_red=lambda _: True).applications) == 1


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter("APP-03"), ["app-03"]),
        (Filter("node-12"), ["app-12"]),
        (Filter("state/1"), ["app-07", *(f"app-{number:02d}" for number in range(1, 24, 2) if number != 7)]),
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
    assert run_of("checkpoint_stores/r/checkpoint/0-rebuilt") == Run("checkpoint_stores", "r", "checkpoint", 0)
    assert run_of("d/r/t/-1") == Run("d", "r", "t", -1)
    assert not Run("d", "r", "t", -1).path.endswith("1")
    assert run_of("0f9a") is None
