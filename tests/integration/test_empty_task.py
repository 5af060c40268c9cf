"""An empty directory of a task whose partition does not exist stops neither a repair nor a backup."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from statecore.jobs.backup.report import BackupOutcome
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair.report import RepairOutcome
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from tests.harness import damage_functions
from tests.harness.broker import Broker
from tests.harness.repairing import repair
from tests.harness.small_application import small_application

pytestmark = pytest.mark.integration


def test_what_is_damaged_elsewhere_is_repaired_and_backed_up(
    broker: Broker, application_id: str, tmp_path: Path
) -> None:
    spec, state_dir, file = small_application(broker, application_id), tmp_path / "state", tmp_path / "stores.yaml"
    file.write_text(yaml.safe_dump(spec))
    run_restore(RestoreRequest(spec=spec, state_dir=str(state_dir), start_from="none"), InProcessEngine())
    application = state_dir / application_id
    (application / "0_7").mkdir()
    damage_functions.tables_of(damage_functions.database_of(application, "by-id", "0_0"))[-1].unlink()
    report = repair(application_id, state_dir, file)
    assert (report.outcome, [one.tasks for one in report.rebuilt]) == (RepairOutcome.PARTLY_REPAIRED, [("0_0",)])
    assert {one["task"] or one["code"] for one in report.remaining} == {"0_7", "group-offsets-missing"}, "it never ran"
    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    backup = run_backup(BackupRequest(spec=spec, state_dir=str(state_dir), repository=url))
    assert (backup.outcome, {one.task for one in backup.stores}) == (BackupOutcome.PUBLISHED, {"0_0", "0_1"})
