"""What tests of migrations share: the stub of their job, beside the task and under ``spark-submit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.airflow.home import ROOT
from tests.unit.airflow.stub import StubSpark

_JOB = """
import runpy, sys
sys.path.insert(0, {root!r})
runpy.run_module("tests.unit.airflow.stub_migrate", run_name="__main__")
"""


def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
    """A site on which the stub does the migrations."""
    made = StubSpark.local(tmp_path, monkeypatch)
    (made.jobs / "migrate_checkpoints.py").write_text(_JOB.format(root=str(ROOT)))
    return made


def asked(spark: StubSpark) -> list[dict[str, Any]]:
    """What the job was given so far."""
    file = spark.jobs / "migrations.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
