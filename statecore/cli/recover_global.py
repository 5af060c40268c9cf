"""``statecore recover-global``: rebuild global stores with which an application would end in ``ERROR``.

Without ``--apply`` it prints the plan and changes nothing. The exit code is that of the most severe finding that is
left; of a plan, that it does not repair.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_line, result_console
from statecore.cli.repair import show as show_repair
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.recover_global.request import RecoverGlobalRequest

if TYPE_CHECKING:
    from statecore.jobs.repair.report import RepairReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, RecoverGlobalRequest)
    add_engine_options(parser, "processes", "engine that rebuilds stores")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.jobs.recover_global.run import run_recover_global

    request = request_of(RecoverGlobalRequest, arguments)
    arguments.plan_only = not request.apply
    engine = engine_of(arguments)
    output.when_stopped = "Nothing was changed."
    if request.apply:
        output.when_stopped = (
            "Every global store is complete, unchanged or rebuilt. Rebuild the rest before you start the application."
        )
        output.set_request_id(request.request_id, is_retry=True)  # it finds what was done, at any moment
    report = output.run(run_recover_global, request, engine, application_id=request.application_id)
    output.result(report, show)
    return report.exit_code


def show(report: RepairReport) -> None:
    """Print what the next start does with each global store without a recovery, then what is rebuilt."""
    console = result_console()
    before = " before the recovery" if report.outcome.is_applied else ""
    for one in report.next_starts:
        print_line(console, f"global store {one.store}{before}: {one.start}", indent=0)
        for why in one.why:
            print_line(console, why, indent=4)
    show_repair(report)
