"""A program whose report cannot be written is refused before it does anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.jobs.diagnose import program as examine_job
from statecore.jobs.program import reporting, write_report
from statecore.jobs.recover_global import program as recover_global_job
from statecore.spark import checkpoint_job, diff_job, job, migrate_job
from tests.harness.raising import code_said


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was begun")


PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "restore": lambda words: job.main(words, restore=never),
    "checkpoint": lambda words: checkpoint_job.main(words, checkpoint=never),
    "migrate": lambda words: migrate_job.main(words, migrate=never),
    "diff": diff_job.main,
    "examine": examine_job.main,
    "recover-global": recover_global_job.main,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_done(
    tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    report = tmp_path / "file" / "report.json"
    assert PROGRAMS[program](["--report", str(report), "--request", "{"]) == Invalid.exit_code
    err = capsys.readouterr().err
    assert (code_said(err), "Traceback" in err) == ("system-refused", False)


@pytest.mark.parametrize(("report", "code"), [("/dev/null", "file-not-regular"), ("/dev", "system-refused")])
def test_what_is_no_file_is_not_replaced_by_a_report(
    report: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reporting(Path(report), never) == Invalid.exit_code
    assert code_said(capsys.readouterr().err) == code
    assert not Path(report).is_file()


def test_the_directories_of_a_report_are_made_and_an_earlier_report_stays_until_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    report = tmp_path / "new" / "reports" / "report.json"
    assert reporting(report, lambda: 0) == 0
    assert list(report.parent.iterdir()) == []
    report.write_text("earlier")
    assert reporting(report, lambda: int(report.read_text() != "earlier")) == 0
    write_report(report, {"now": 1})
    assert json.loads(report.read_text()) == {"now": 1}


def test_a_report_that_can_no_longer_be_written_at_the_end_has_the_exit_code_of_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"

    def work() -> int:
        report.mkdir()
        write_report(report, {})
        return 0

    assert reporting(report, work) == Invalid.exit_code
    assert code_said(capsys.readouterr().err) == "system-refused"
