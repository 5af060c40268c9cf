from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statecore.airflow.ui import failing_applications as refusals
from statecore.jobs.history.report_index import ReportIndex

ERROR = {"error": "Invalid", "exit_code": 13, "what": "It is no spec.", "action": "Mend it.", "context": {}}


def shown(directory: Path) -> list[str]:
    """The applications that have a report."""
    index = ReportIndex(directory)
    return sorted(one.instance.application_id for name in index.names() for one in index.application(name).instances)


def test_a_failure_is_cleared_by_name(tmp_path: Path) -> None:
    for name in ("orders", "billing", "/srv/specs/a.yaml"):
        refusals.record(tmp_path, name, "d/r/t/1", ERROR)
    assert shown(tmp_path) == ["/srv/specs/a.yaml", "billing", "orders"]
    refusals.delete(tmp_path, {"orders", "/srv/specs/a.yaml", "never", ".", ".."})
    assert shown(tmp_path) == ["billing"]


def test_a_failure_not_reported_again_expires_after_a_day(tmp_path: Path) -> None:
    for name in ("/old.yaml", "/new.yaml"):
        refusals.record(tmp_path, name, "d/r/t/1", ERROR)
    before = time.time() - refusals.KEPT_SECONDS - 1
    os.utime(tmp_path / "_old.yaml" / refusals.FILE, (before, before))
    refusals.delete(tmp_path, ())
    assert shown(tmp_path) == ["/new.yaml"]


@pytest.mark.parametrize("name", ["inline spec 1", "a.yaml and more", ".", "..", ".index", ""])
def test_a_name_that_no_application_has_gets_no_report(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "reports"
    refusals.record(directory, name, "d/r/t/1", ERROR)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_directory_that_is_not_there_has_nothing_to_forget(tmp_path: Path) -> None:
    refusals.delete(tmp_path / "nowhere", {"orders"})
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("application_id: orders\nsubtopologies: none\n", "orders"),
        ("# of the shop\napplication_id: 'orders'  # its id\nkafka: {a: b: c\n", "orders"),
        ('{"bootstrap_servers": "b:9092", "application_id": "orders", ', "orders"),
        ('{\n  "application_id": "orders"\n}', "orders"),
        ("application_id: ${NAME}\n", None),
        ("application_id: the orders\n", None),
        ("application_id:\n", None),
        ("application_id: ..\n", None),
        ("# application_id: orders\n", None),
        ("kafka:\n  application_id: orders\n", None),
        ("{", None),
    ],
)
def test_a_spec_says_its_application_even_where_it_is_none(text: str, said: str | None) -> None:
    assert refusals.declared_id(text) == said
