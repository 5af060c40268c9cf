"""``statecore migrate``: make a state directory what another release of Kafka Streams opens.

Without ``--apply`` the plan is printed, and nothing is changed. Exit 0 when it can be done, 13 (``Invalid``) when
something is refused; 14 (``NotFound``) when there is no such directory, with ``--if-there`` 0.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.migrate.request import MigrateRequest
from statecore.words import number_of, some_of

if TYPE_CHECKING:
    from statecore.jobs.migrate.report import MigrateReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_options(parser, MigrateRequest)
    add_engine_options(parser, "processes", "who converts the tasks")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Migrate, or plan, and show the outcome."""
    from statecore.errors import Invalid
    from statecore.faults import fault_points_from_environment
    from statecore.jobs.migrate.report import Outcome
    from statecore.jobs.migrate.run import run_migrate
    from statecore.telemetry import metered

    request = request_of(MigrateRequest, arguments)
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    output.when_stopped = (
        "Every task is whole, as it was or converted. Run the same command again before the application starts: it "
        "goes on where this one was stopped."
        if request.apply
        else "Nothing was changed."
    )
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

    from statecore.jobs.migrate import summary
    from statecore.jobs.migrate.report import Outcome

    console = result_console()
    columns: tuple[str, ...] = ("store", "kind", "tasks", "what is done")
    done = summary.done(report)
    cells: list[tuple[str, ...]] = [
        (one.store or summary.BESIDE, one.kind, some_of(one.tasks), one.what or "stays as it is") for one in done
    ]
    if not any(one.kind for one in done):  # which matters to no step
        columns, cells = columns[:1] + columns[2:], [row[:1] + row[2:] for row in cells]
    title = f"{report.application_id} in {report.state_dir}, for Kafka Streams {report.to}"
    if cells:
        print_table(console, title, columns, cells, left=set(columns), spare=("kind",))
    elif report.tasks:
        console.print(Text(title))
    for note in report.notes:
        console.print(Text(f"note: {note}"))
    for title, said in (
        ("note", summary.notes(report)),
        ("left as it is", summary.left(report)),
        ("refused", summary.refused(report)),
    ):
        for one in said:
            console.print(Text(f"{title}: {some_of(one.tasks)}: {one.what}"))
    changed = f"{report.changed} of {number_of(len(report.tasks), 'task')}"
    became = {
        Outcome.PLANNED: f"plan {report.plan_id}: {changed} would be migrated; nothing was changed. Do it with --apply",
        Outcome.REFUSED: "refused; nothing was changed",
        Outcome.UNCHANGED: _unchanged(report),
        Outcome.MIGRATED: f"migrated {changed} in {report.seconds:.1f} s",
    }
    kept = f"; what was moved aside lies in {report.kept} for a week" if report.kept else ""
    console.print(Text(became[report.outcome] + kept))


def _unchanged(report: MigrateReport) -> str:
    if not report.tasks:
        return "nothing to do: there is no state of it yet"
    if any(task.left for task in report.tasks):
        return f"nothing that a migration could do; what Kafka Streams {report.to} does with what is left is said above"
    return f"nothing to do: Kafka Streams {report.to} opens it as it is"
