"""``statecore repair``: repair or rebuild what ``statecore doctor`` finds.

Without ``--apply`` it prints the plan and changes nothing.
The exit code is that of the most severe finding that is left; of a plan, that it does not repair.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_line, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.repair.request import RepairRequest
from statecore.words import note_line, number_of, shortened_list

if TYPE_CHECKING:
    from statecore.jobs.repair.report import RepairReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, RepairRequest)
    add_engine_options(parser, "processes", "engine that rebuilds stores")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.errors import missing_option
    from statecore.jobs.repair import run as repair
    from statecore.spec.reader import load_spec

    if arguments.application_id is None and arguments.spec_path is None:
        raise missing_option("A repair needs an application.", "Give --application-id or --spec.", "application_id")
    if arguments.application_id is None:
        arguments.application_id = load_spec(Path(arguments.spec_path)).application_id
    request = request_of(RepairRequest, arguments)
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    output.when_stopped = "Nothing was changed."
    if request.apply:
        output.when_stopped = "Every task is complete, unchanged or repaired."
        output.set_request_id(request.request_id, is_retry=True)  # it finds what was done, at any moment
    report = output.run(repair.run_repair, request, engine, application_id=request.application_id)
    output.result(report, show)
    return report.exit_code


def show(report: RepairReport) -> None:
    from statecore.jobs.repair.report import RepairOutcome

    console = result_console()
    done = report.outcome.is_applied
    console.print(f"{report.application_id} in {report.state_dir}", style="bold", markup=False)
    notes = sum(one["severity"] == "note" for one in report.found)
    among = f", including {number_of(notes, 'note')}" if notes else ""
    before = " before the repair" if done else ""
    print_line(console, f"{number_of(len(report.found), 'finding')}{before}{among}", indent=0)
    steps: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for task in report.repaired:
        for step in task.steps:
            steps.setdefault((step, task.codes), []).append(task.task)
    for (step, codes), tasks in steps.items():
        print_line(
            console, f"{'repaired' if done else 'would repair'} {shortened_list(tasks)}: {step} [{', '.join(codes)}]"
        )
    for one in report.rebuilt:
        rows = f" from {one.sources}" if one.sources and one.rows is None else ""
        rows += "" if one.rows is None else f": {one.rows:,} rows in {one.seconds:.1f} s"
        rows += f", base {', '.join(one.bases)}" if one.bases else ""
        what = f"{', '.join(one.stores)} in {shortened_list(one.tasks)}"
        print_line(console, f"{'rebuilt' if done else 'would rebuild'} {what}{rows} [{', '.join(one.codes)}]")
        for doubt in one.doubts if not done else ():
            print_line(console, doubt, indent=4)
    for finding in report.remaining:
        where = "/".join(str(finding[name]) for name in ("task", "store") if finding.get(name))
        words = f"{where}: " if where else ""
        print_line(console, f"{'left' if done else 'not repaired'}: {words}{finding['what']} [{finding['code']}]")
        print_line(console, f"Do: {finding['remedy']}", indent=4)
    for note in report.notes:
        print_line(console, note_line(note))
    replaced = [path for path in (report.kept, *(one.kept for one in report.rebuilt)) if path]
    kept = f"; replaced files are kept for a week, unless you delete them: {', '.join(replaced)}" if replaced else ""
    doubtful = any(one.doubts for one in report.rebuilt)
    approval = f" --approved {report.plan_id}, after a review of the warnings above" if doubtful else ""
    result = {
        RepairOutcome.PLANNED: f"plan {report.plan_id}; nothing was changed. Apply it with --apply{approval}",
        RepairOutcome.REPAIRED: f"repaired in {report.seconds:.1f} s{kept}",
        RepairOutcome.PARTLY_REPAIRED: f"repaired in part in {report.seconds:.1f} s: with a finding that is left "
        f"the application may not start, or answers wrongly; see what to do above{kept}",
        RepairOutcome.UNCHANGED: "nothing was changed: this repairs none of the findings that are left; see what to "
        "do above"
        if report.remaining
        else "nothing to repair",
        RepairOutcome.NOT_REPAIRED: "not repaired: there is no repair for the findings that are left; see what to do "
        "above",
    }
    print_line(console, result[report.outcome], indent=0)
