"""``statecore migrate``: convert a state directory for another release of Kafka Streams.

Without ``--apply`` it prints the plan and changes nothing. Exit code 0 if it can be migrated, 13 (``Invalid``) if
something is refused, 14 (``NotFound``) without a directory, or 0 with ``--if-there``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.migrate.request import MigrateRequest
from statecore.words import note_line, number_of, shortened_list

if TYPE_CHECKING:
    from statecore.jobs.migrate.report import MigrateReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, MigrateRequest)
    add_engine_options(parser, "processes", "engine that converts the tasks")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.errors import Invalid
    from statecore.jobs.migrate.report import MigrationOutcome
    from statecore.jobs.migrate.run import run_migrate

    request = request_of(MigrateRequest, arguments)
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    output.when_stopped = (
        "Every task is complete, unchanged or converted. Run the same command again before you start the application: "
        "it resumes the migration."
        if request.apply
        else "Nothing was changed."
    )
    report = output.run(run_migrate, request, engine, application_id=request.application_id)
    code = Invalid.exit_code if report.outcome is MigrationOutcome.REFUSED else 0
    output.document({**report.to_json(), "exit_code": code})
    if not output.json:
        show(report)
    return code


def show(report: MigrateReport) -> None:
    """Print what is done to each store, with its tasks; then what is left, refused and noted."""
    from rich.text import Text

    from statecore.jobs.migrate import summary
    from statecore.jobs.migrate.report import MigrationOutcome

    console = result_console()
    columns: tuple[str, ...] = ("store", "kind", "tasks", "what is done")
    done = summary.done(report)
    cells: list[tuple[str, ...]] = [
        (one.store or summary.BESIDE, one.kind, shortened_list(one.tasks), one.what or "unchanged") for one in done
    ]
    if not any(one.kind for one in done):  # leave out an empty column
        columns, cells = columns[:1] + columns[2:], [row[:1] + row[2:] for row in cells]
    title = f"{report.application_id} in {report.state_dir}, for Kafka Streams {report.to}"
    if cells:
        print_table(console, title, columns, cells, left=set(columns), spare=("kind",))
    elif report.tasks:
        console.print(Text(title))
    for note in report.notes:
        console.print(Text(note_line(note)))
    for title, remarks in (
        ("note", summary.notes(report)),
        ("unchanged", summary.left(report)),
        ("refused", summary.refused(report)),
    ):
        for one in remarks:
            console.print(Text(f"{title}: {shortened_list(one.tasks)}: {one.what}"))
    changed = f"{report.changed} of {number_of(len(report.tasks), 'task')}"
    result = {
        MigrationOutcome.PLANNED: f"plan {report.plan_id}: {changed} would be migrated; nothing was changed. Add "
        "--apply to migrate",
        MigrationOutcome.REFUSED: "refused; nothing was changed",
        MigrationOutcome.UNCHANGED: _unchanged(report),
        MigrationOutcome.MIGRATED: f"migrated {changed} in {report.seconds:.1f} s",
    }
    kept = f"; replaced tasks are kept in {report.kept} for a week" if report.kept else ""
    console.print(Text(result[report.outcome] + kept))


def _unchanged(report: MigrateReport) -> str:
    if not report.tasks:
        return "nothing to do: the application has no state yet"
    if any(task.left for task in report.tasks):
        return f"nothing to migrate; see above what Kafka Streams {report.to} will do with unchanged tasks"
    return f"nothing to do: Kafka Streams {report.to} can open it as it is"
