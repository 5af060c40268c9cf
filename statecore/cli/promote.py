"""``statecore promote``: promote standby tasks into the state directory of a stopped application.

Without ``--apply`` it prints the plan and changes nothing. Exit code 0 if all tasks are promoted or need not be, 13
(``Invalid``) if a task is refused; the others are promoted all the same. Before anything is changed the brokers are
asked whether the standby tasks can be continued from their changelogs; ``--offline`` skips that.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.standby.promote.request import PromoteRequest
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.standby.promote.report import PromoteReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, PromoteRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.faults import fault_points_from_environment
    from statecore.standby.promote.run import run_promote

    request = request_of(PromoteRequest, arguments)
    output.when_stopped = (
        "Every task is complete, unchanged or promoted. Run the same command again to promote the rest."
        if request.apply
        else "Nothing was changed."
    )
    faults = fault_points_from_environment()
    report = run_promote(request, output.progress, faults=faults, say=output.say)
    output.result(report, show)
    return report.exit_code


def show(report: PromoteReport) -> None:
    from rich.text import Text

    from statecore.standby.promote.report import PromoteOutcome, PromoteVerdict

    console = result_console()
    columns = ("task", "verdict", "offsets ahead", "to restore", "stores", "why")
    promoted = [one for one in report.tasks if one.verdict is PromoteVerdict.PROMOTED]
    cells = [
        (
            one.task,
            str(one.verdict),
            f"{one.ahead:,}" if one.verdict is PromoteVerdict.PROMOTED else "",
            "" if one.behind is None else f"{one.behind:,}",
            str(len(one.stores) or ""),
            one.why,
        )
        for one in report.tasks
    ]
    title = f"{report.application_id} from {report.standby_dir} into {report.state_dir}"
    print_table(console, title, columns, cells, left={"task", "verdict", "why"}, spare=("stores",))
    for one in report.tasks:
        for note in one.notes:
            console.print(Text(f"note: {one.task}: {note}"))
    would = f"{len(promoted)} of {number_of(len(report.tasks), 'task')} would be promoted; nothing was changed"
    result = {
        PromoteOutcome.PLANNED: f"{would}. Apply the plan with --apply" if promoted else "no task would be promoted",
        PromoteOutcome.UNCHANGED: "nothing to do; nothing was changed",
        PromoteOutcome.DONE: f"promoted {len(promoted)} of {number_of(len(report.tasks), 'task')} in "
        f"{report.seconds:.1f} s",
    }
    kept = f"; the replaced tasks are kept in {report.kept} for a week" if report.kept else ""
    console.print(Text(result[report.outcome] + kept))
