"""A repair reads the repository, and publishes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair.report import RepairOutcome
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import create_repository
from tests.harness import damage_functions, mounts, topics
from tests.harness.broker import Broker
from tests.harness.repairing import repair
from tests.harness.small_application import small_application
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
def test_a_repair_rebuilds_from_a_snapshot_and_publishes_nothing(
    broker: Broker, application_id: str, tmp_path: Path, read_only: bool
) -> None:
    spec, state_dir, file = small_application(broker, application_id), tmp_path / "state", tmp_path / "stores.yaml"
    file.write_text(yaml.safe_dump(spec))
    with mounts.disk(tmp_path / "disk", "64m") as disk:
        url = (disk.path / "repository").as_uri()
        create_repository(url)
        run_restore(RestoreRequest(spec=spec, repository=url, start_from="none"), InProcessEngine())
        run_restore(RestoreRequest(spec=spec, state_dir=str(state_dir), start_from="none"), InProcessEngine())
        damage_functions.tables_of(damage_functions.database_of(state_dir / application_id, "by-id", "0_0"))[
            -1
        ].unlink()
        topic = f"{application_id}-by-id-changelog"
        topics.produce(broker.bootstrap_servers, topic, [Record(b"key-0", b"x", 0)])
        repository = ApplicationRepository.open(url, application_id)
        before = repository.head()
        if read_only:
            disk.remount("ro")
        report = repair(application_id, state_dir, file, repository=url)
        assert (report.outcome, [one.bases for one in report.rebuilt]) == (
            RepairOutcome.PARTLY_REPAIRED,
            [(before.snapshots[0].snapshot,)],
        )
        assert repository.head() == before
