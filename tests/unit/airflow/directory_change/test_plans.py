from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from statecore.airflow.directory_change.migration import Migration, reasons
from statecore.airflow.directory_change.plans import DIRECTORIES, ROWS, page, table
from statecore.airflow.directory_change.xcom_values import Entry
from statecore.jobs.attempt import Attempt
from statecore.jobs.migrate.report import MigratedStep, MigratedStore, MigratedTask, MigrateReport, MigrationOutcome
from tests.harness.transcripts import check

MIGRATION = Migration()


def task(name: str, *steps: MigratedStep | str, store: str = "by-id", **fields: Any) -> MigratedTask:
    done = tuple(MigratedStep(step) if isinstance(step, str) else step for step in steps)
    return MigratedTask(name, "4.2", (MigratedStore(store, "key-value", done, {}, 1024),), **fields)


def report(*tasks: MigratedTask, **fields: Any) -> MigrateReport:
    attempt = Attempt.begin("orders", "/srv/state", "one")
    known = {"to": "4.3", "outcome": MigrationOutcome.PLANNED, "plan_id": "abc", "finished": "now"}
    return replace(MigrateReport(**asdict(attempt), **known), tasks=tasks, **fields)  # type: ignore[arg-type]


def entry(title: str = "orders", host: str | None = None) -> Entry:
    return {
        **{"title": title, "name": "statecore migrate", "application_id": title, "host": host},
        **{"engine": "processes", "conf": None, "request": {"state_dir": "/srv/state"}},
    }


def cells_of(line: str) -> list[str]:
    """The cells of a line that is one of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("| ") else []


def test_tasks_that_differ_in_offsets_alone_are_one_row() -> None:
    steps = [MigratedStep("offsets are added in format 5, which says", 0, {f"log-{n}": n * 1000}) for n in range(30)]
    plan = MIGRATION.short(report(*(task(f"0_{n}", step) for n, step in enumerate(steps))))
    (row,) = plan["done"]["rows"]
    said = "offsets are added in format 5, which says its offset"
    assert (row["count"], len(row["tasks"]), row["what"]) == (30, 12, said)
    assert (plan["tasks"], plan["changed"], plan["rewritten_bytes"]) == (30, 30, 30 * 1024)
    assert "0_11 and 18 more" in table(plan)


def test_a_plan_lists_unchanged_tasks_and_stray_files() -> None:
    plan = MIGRATION.short(
        report(task("0_0", left=("It is wiped.",), notes=("by-id: look",), steps=(".checkpoint: moved",)))
    )
    shown = page(MIGRATION, [(entry(), plan)], "4.3")
    check("approval-of-what-is-left", f"{shown}\n\n{table(plan)}", {})
    assert [cells[-1] for cells in map(cells_of, shown.splitlines()) if cells[:1] == ["0_0"]] == [
        ".checkpoint: moved",
        "It is wiped.",
        "by-id: look",
    ]


def test_the_page_names_every_directory_its_plan_and_what_is_done() -> None:
    plans = [
        (entry(), MIGRATION.short(report(task("0_0", "offsets are added")))),
        (entry("billing", host="host-b"), MIGRATION.short(report(task("0_0"), plan_id="other"))),
        (entry("broken"), None),
    ]
    shown = page(MIGRATION, plans, "4.3")
    check("approval-of-a-migration", shown, {})
    rows = {cells[0]: cells[1:] for cells in map(cells_of, shown.splitlines()) if cells}
    assert [rows["orders"][at] for at in (0, 1, 3)] == ["`/srv/state`", "4.2", "`abc`"]
    assert rows["orders"][2].strip() == "1 of 1; 1 KiB are rewritten"
    assert [rows["billing"][at] for at in (0, 1, 3)] == ["`/srv/state` on host-b", "4.2", ""]
    assert [rows["broken"][at] for at in (0, 1, 3)] == ["`/srv/state`", "", ""]
    assert rows["0_0"] == ["`by-id` (key-value)", "offsets are added"]
    assert "other" not in shown


def test_names_are_text_whatever_they_are_made_of() -> None:
    hostile = "a|b<script>`x`*y*\n| z"
    plan = MIGRATION.short(report(task("0_0", f"{hostile} is __done__", store=hostile)))
    shown = page(MIGRATION, [(entry(hostile), plan)], "4.3")
    assert "<script>" not in shown
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == len({5: 3}) * 3 + 3
    assert "is \\_\\_done\\_\\_" in shown


def test_what_is_shown_is_bounded_and_says_how_much_is_not() -> None:
    many = [task(f"0_{n}", "x" * n + " is added", store=f"store-{n}") for n in range(ROWS + 7)]
    plan = MIGRATION.short(report(*many))
    assert (len(plan["done"]["rows"]), plan["done"]["left_out"]) == (ROWS, 7)
    assert "and 7 more" in table(plan)
    shown = page(MIGRATION, [(entry(f"app-{n}"), plan) for n in range(DIRECTORIES + 3)], "4.3")
    assert "7 more" in shown
    assert " 3 more" in shown
    assert shown.count("### ") == DIRECTORIES
    assert all(f"| app-{n} |" in shown for n in range(DIRECTORIES + 3))


def test_a_short_report_stays_short_however_large_the_directory_is() -> None:
    large = report(*(task(f"{a}_{b}", "added at 5", left=("stays",)) for a in range(10) for b in range(1000)))
    assert len(json.dumps(MIGRATION.short(large))) < 2000


def test_reasons_name_the_tasks_for_which_they_hold() -> None:
    refused = [task(f"0_{n}", refused=(f"rows at {n} have headers",)) for n in range(3)]
    assert reasons(report(*refused, task("1_0", refused=("other",)))) == [
        "0_0, 0_1, 0_2: rows at … have headers",
        "1_0: other",
    ]


def test_names_of_tasks_keep_their_underscores_where_a_list_of_them_is_compacted() -> None:
    shown = page(
        MIGRATION,
        [(entry(), MIGRATION.short(report(*(task(f"0_{n}", "offsets are added") for n in range(20)))))],
        "4.3",
    )
    (row,) = [line for line in shown.splitlines() if "offsets are added" in line]
    assert row.startswith("| 0_0, 0_1, 0_2, ")
    assert "0_11 and 8 more | `by-id`" in row
