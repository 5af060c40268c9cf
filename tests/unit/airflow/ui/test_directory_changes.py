"""Which migrations and recoveries the page *State stores* shows, from their reports."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from statecore.airflow.ui.directory_changes import SHOWN, last_changes
from statecore.jobs.attempt import Attempt, utc
from statecore.jobs.migrate.report import MigratedStep, MigratedStore, MigratedTask, MigrateReport, MigrationOutcome
from statecore.jobs.repair.report import RebuiltStores, RepairOutcome, RepairReport
from tests.unit.jobs.reports import BEGAN, FAILURE

STORE = MigratedStore("counts", "key-value", (MigratedStep("offset imported", offsets={"log-0": 9}),), {"log-0": 9})
TASKS = (MigratedTask("0_0", "Kafka Streams 4.2", (STORE,)), MigratedTask("0_1", "Kafka Streams 4.4", ()))


def attempt(second: int, dag: str, step: str, application: str = "orders") -> Attempt:
    request = f"{dag}/manual__{second}/{step}/0"
    return Attempt(application, "/s", request, "one", "kafka", 7, "0.5", utc(BEGAN + second))


def migration(second: int, outcome: MigrationOutcome, *tasks: MigratedTask, **more: Any) -> dict[str, Any]:
    tried = attempt(second, "migrate_checkpoints", "migrate.apply", **more)
    return MigrateReport(
        **vars(tried), finished=utc(BEGAN + second), to="4.4", outcome=outcome, plan_id="p", tasks=tasks
    ).to_json()


def recovery(second: int, outcome: RepairOutcome, **more: Any) -> dict[str, Any]:
    tried = attempt(second, "recover_global_stores", "recover.apply")
    return RepairReport(
        **vars(tried), finished=utc(BEGAN + second), outcome=outcome, plan_id="p", exit_code=0, **more
    ).to_json()


def write(reports: Path, folder: str, second: int, document: Any, application: str = "orders") -> None:
    path = reports / application / folder / f"r{second}.json"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    os.utime(path, (BEGAN + second, BEGAN + second))


def test_what_was_changed_or_refused_and_what_failed_is_shown_the_newest_first(tmp_path: Path) -> None:
    write(tmp_path, "migrations", 1, migration(1, MigrationOutcome.PLANNED, *TASKS))
    write(tmp_path, "migrations", 2, migration(2, MigrationOutcome.MIGRATED, *TASKS))
    write(tmp_path, "migrations", 3, migration(3, MigrationOutcome.UNCHANGED, *TASKS))
    refused = replace(TASKS[0], refused=("its store counts is damaged",))
    write(tmp_path, "migrations", 4, migration(4, MigrationOutcome.REFUSED, refused))
    rebuilt = RebuiltStores(("table",), ("global",), ("global-offset-unknown",), 5, sources="kafka:9092")
    write(tmp_path, "recoveries", 5, recovery(5, RepairOutcome.REPAIRED, rebuilt=(rebuilt,)))
    left = {"code": "x", "task": "global", "what": "It cannot be read."}
    write(tmp_path, "recoveries", 6, recovery(6, RepairOutcome.NOT_REPAIRED, remaining=(left,)))
    write(tmp_path, "migrations", 7, attempt(7, "migrate_checkpoints", "migrate.apply").failed(FAILURE))
    write(tmp_path, "migrations", 8, attempt(8, "migrate_checkpoints", "migrate.apply").begun())
    write(tmp_path, "migrations", 9, "no report")
    (tmp_path / "orders/migrations/r2.doctor.json").write_text("{}")
    found = [
        (one.attempt.request_id.split("/")[1], one.outcome, one.what, one.is_bad) for one in last_changes(tmp_path)
    ]
    assert found == [
        ("manual__7", "failed", "Fenced (): It runs.", True),
        ("manual__6", "not repaired", "It cannot be read.", True),
        ("manual__5", "repaired", "rebuilt table", False),
        ("manual__4", "refused", "0_0: its store counts is damaged", True),
        ("manual__2", "migrated", "1 task to Kafka Streams 4.4", False),
    ]


def test_those_of_one_instance_are_its_own_and_the_number_is_bounded(tmp_path: Path) -> None:
    for second in range(SHOWN + 5):
        for application in ("orders", "payments"):
            done = migration(second, MigrationOutcome.MIGRATED, *TASKS, application=application)
            write(tmp_path, "migrations", second, done, application)
    assert len(last_changes(tmp_path)) == SHOWN
    instance = last_changes(tmp_path)[0].attempt.instance._replace(application_id="payments")
    found = last_changes(tmp_path, instance)
    assert {one.attempt.instance for one in found} == {instance}
    assert [one.when for one in found] == [utc(BEGAN + second) for second in range(SHOWN + 4, 4, -1)]
    assert last_changes(tmp_path, instance._replace(host="another")) == []
