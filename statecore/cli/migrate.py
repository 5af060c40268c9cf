"""``statecore migrate``: make a state directory what another release of Kafka Streams opens.

Without ``--apply`` the plan is printed, and nothing is changed. Exit 0 when it can be done, 13 (``Invalid``) when
something is refused; 14 (``NotFound``) when there is no such directory, with ``--if-there`` 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_table, result_console, some_of
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.migrate_request import MigrateRequest

if TYPE_CHECKING:
    from statecore.jobs.migrate_report import MigratedStore, MigratedTask, MigrateReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_options(parser, MigrateRequest)
    add_engine_options(parser, "processes", "who converts the tasks")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Migrate, or plan, and show the outcome."""
    from statecore.errors import Invalid
    from statecore.faults import fault_points_from_environment
    from statecore.jobs.migrate import run_migrate
    from statecore.jobs.migrate_report import Outcome
    from statecore.telemetry import metered

    request = request_of(MigrateRequest, arguments)
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    faults = fault_points_from_environment()
    with metered(output.progress, {"application-id": request.application_id}, output.say) as progress:
        report = run_migrate(request, engine, progress, faults=faults, say=output.say)
    code = Invalid.exit_code if report.outcome is Outcome.REFUSED else 0
    output.document({**report.to_json(), "exit_code": code})
    if not output.json:
        show(report)
    return code


def show(report: MigrateReport) -> None:
    """What is done to each store, with the tasks in which that is the same; then what is left, refused and noted."""
    from rich.text import Text

    from statecore.jobs.migrate_report import Outcome

    console = result_console()
    rows: dict[tuple[str, str, str], list[str]] = {}
    for task in report.tasks:
        for store in task.stores:
            what = "; ".join(_step(step, store) for step in store.steps) or "stays as it is"
            rows.setdefault((store.store, store.kind, what), []).append(task.task)
        if task.steps:
            rows.setdefault(("files beside the stores", "", "; ".join(task.steps)), []).append(task.task)
    columns: tuple[str, ...] = ("store", "kind", "tasks", "what is done")
    cells: list[tuple[str, ...]] = [(store, kind, some_of(tasks), what) for (store, kind, what), tasks in rows.items()]
    if not any(row[1].strip("?") for row in cells):  # which matters to no step
        columns, cells = columns[:1] + columns[2:], [row[:1] + row[2:] for row in cells]
    title = f"{report.application_id} in {report.state_dir}, for Kafka Streams {report.to}"
    if report.tasks:
        print_table(console, title, columns, cells, left=set(columns), spare=("kind",))
    for title, of in _WORDS:
        for why, tasks in _grouped(report, of).items():
            console.print(Text(f"{title}: {some_of(tasks)}: {why}"))
    changed = sum(task.is_changed for task in report.tasks)
    said = {
        Outcome.PLANNED: f"plan {report.plan_id}: {changed} of {len(report.tasks)} tasks would be migrated; nothing "
        "was changed. Do it with --apply",
        Outcome.REFUSED: "refused; nothing was changed",
        Outcome.UNCHANGED: f"nothing to do: Kafka Streams {report.to} opens it as it is"
        if report.tasks
        else "nothing to do: there is no state of it yet",
        Outcome.MIGRATED: f"migrated {changed} of {len(report.tasks)} tasks in {report.seconds:.1f} s",
    }
    kept = f"; what was moved aside lies in {report.kept} for a week" if report.kept else ""
    console.print(Text(said[report.outcome] + kept))


def _step(step: str, store: MigratedStore) -> str:
    """A step as it is said of all tasks at once: where its offsets are, is in the JSON document."""
    for partition, offset in store.offsets.items():
        step = step.replace(f"{partition} at {offset}", "its offset")
    return step


_WORDS: tuple[tuple[str, Callable[[MigratedTask], tuple[str, ...]]], ...] = (
    ("note", lambda task: task.notes),
    ("left as it is", lambda task: task.left),
    ("refused", lambda task: task.refused),
)


def _grouped(report: MigrateReport, of: Callable[[MigratedTask], tuple[str, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task in report.tasks:
        for why in of(task):
            found.setdefault(why, []).append(task.task)
    return found
