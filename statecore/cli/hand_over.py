"""``statecore hand-over``: put the tasks of a warm copy into the state directory of an application that is down.

Without ``--apply`` the plan is printed, and nothing is changed. Exit 0 when all tasks are handed over or need not be,
13 (``Invalid``) when a task is refused; the others are handed over all the same. The brokers are asked before anything
is changed whether the copy can be continued by its changelogs; ``--offline`` does without them.
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
    """Declare the arguments."""
    add_request_options(parser, PromoteRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Hand over, or plan, and show the outcome."""
    from statecore.faults import fault_points_from_environment
    from statecore.standby.promote.run import run_promote

    request = request_of(PromoteRequest, arguments)
    output.when_stopped = (
        "Every task is whole, as it was or handed over. Run the same command again."
        if request.apply
        else "Nothing was changed."
    )
    faults = fault_points_from_environment()
    report = run_promote(request, output.progress, faults=faults, say=output.say)
    output.document(report.to_json())
    if not output.json:
        show(report)
    return report.exit_code


def show(report: PromoteReport) -> None:
    """What becomes of each task, then what became of all."""
    from rich.text import Text

    from statecore.standby.promote.report import Outcome, Verdict

    console = result_console()
    columns = ("task", "what becomes of it", "ahead by", "to restore", "stores", "why")
    taken = [one for one in report.tasks if one.verdict is Verdict.TAKEN]
    cells = [
        (
            one.task,
            str(one.verdict),
            f"{one.ahead:,}" if one.verdict is Verdict.TAKEN else "",
            "" if one.behind is None else f"{one.behind:,}",
            str(len(one.stores) or ""),
            one.why,
        )
        for one in report.tasks
    ]
    title = f"{report.application_id} from {report.warm_dir} into {report.state_dir}"
    print_table(console, title, columns, cells, left={"task", "what becomes of it", "why"}, spare=("stores",))
    for one in report.tasks:
        for note in one.notes:
            console.print(Text(f"note: {one.task}: {note}"))
    would = f"{len(taken)} of {number_of(len(report.tasks), 'task')} would be handed over; nothing was changed"
    became = {
        Outcome.PLANNED: f"{would}. Do it with --apply" if taken else "nothing would be handed over",
        Outcome.UNCHANGED: "nothing to do; nothing was changed",
        Outcome.DONE: f"handed over {len(taken)} of {number_of(len(report.tasks), 'task')} in {report.seconds:.1f} s",
    }
    kept = f"; what was there before lies in {report.kept} for a week" if report.kept else ""
    console.print(Text(became[report.outcome] + kept))
