"""What is the same in many tasks is said once, and what is not the same is not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from statecore.jobs.attempt import Attempt
from statecore.jobs.migrate import summary
from statecore.jobs.migrate.report import (
    MIGRATE_REPORT,
    MigratedStep,
    MigratedStore,
    MigratedTask,
    MigrateReport,
    MigrationOutcome,
)


def task(name: str, *steps: MigratedStep, store: str = "by-id", kind: str = "key-value", **fields: Any) -> MigratedTask:
    return MigratedTask(name, "4.2", (MigratedStore(store, kind, steps, {}),), **fields)


def report(*tasks: MigratedTask) -> MigrateReport:
    attempt = asdict(Attempt.begin("orders", "/srv/state", "one"))
    return MigrateReport(
        **attempt, finished="now", to="4.3", outcome=MigrationOutcome.PLANNED, plan_id="abc", tasks=tasks
    )


def step(partition: int, offset: int) -> MigratedStep:
    return MigratedStep("added at", offsets={f"log-{partition}": offset})


def said(found: list[summary.CombinedChange]) -> list[tuple[tuple[str, ...], str]]:
    return [(one.tasks, one.what) for one in found]


def test_the_same_step_of_many_tasks_is_summed_up_without_offsets() -> None:
    both = report(task("0_0", step(0, 1_234)), task("0_1", step(1, 5)))
    assert said(summary.done(both)) == [(("0_0", "0_1"), "added at its offset")]
    several = MigratedStep("file at", offsets={"log-0": 7, "log-1": 8})
    assert said(summary.done(report(task("global", several)))) == [(("global",), "file at its offsets")]


def test_an_offset_that_is_not_known_is_not_put_together_with_those_that_are() -> None:
    found = summary.done(report(*(task(f"0_{n}", step(n, offset)) for n, offset in enumerate((7, -4, -4)))))
    (known, unknown) = said(found)
    assert known == (("0_0",), "added at its offset")
    assert (unknown[0], "added at -4" in unknown[1]) == (("0_1", "0_2"), True)


def test_rows_of_several_tasks_are_added_up() -> None:
    moved = [task(f"0_{n}", MigratedStep("rows are moved", rows=600)) for n in range(3)]
    assert said(summary.done(report(*moved))) == [(("0_0", "0_1", "0_2"), "1,800 rows are moved")]


def test_stores_and_the_files_beside_them_are_apart_and_one_that_stays_is_named() -> None:
    found = summary.done(
        report(task("0_0", kind="?", steps=(".checkpoint: moved aside",)), task("0_1", MigratedStep("x"), store="b"))
    )
    assert [(one.store, one.kind, one.what) for one in found] == [
        ("by-id", "", ""),
        ("b", "key-value", "x"),
        ("", "", ".checkpoint: moved aside"),
    ]


def test_sentences_that_differ_in_numbers_alone_are_one_and_names_stay_names() -> None:
    tasks = [
        task(
            f"0_{n}",
            left=(f"0_{n}/.checkpoint app-log-{n} at {n},000, {n + 5} more.",),
            notes=(f"clicks-{n + 3}: look",),
            refused=("the same",),
        )
        for n in range(2)
    ]
    assert said(summary.left(report(*tasks))) == [(("0_0", "0_1"), "…/.checkpoint app-log-… at …, … more.")]
    assert said(summary.notes(report(*tasks))) == [(("0_0",), "clicks-3: look"), (("0_1",), "clicks-4: look")]
    assert said(summary.refused(report(*tasks, task("global", refused=("the same",))))) == [
        (("0_0", "0_1", "global"), "the same")
    ]


def test_a_step_is_a_value_in_the_report_too() -> None:
    one = report(task("0_0", step(0, 7), MigratedStep("rows are moved", rows=1_200)))
    read = MIGRATE_REPORT.from_json(one.to_json())
    assert read == one
