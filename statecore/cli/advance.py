"""``statecore advance``: bring a stopped application's stores to the end of their changelogs."""

from __future__ import annotations

import argparse

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.advance_request import AdvanceRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_options(parser, AdvanceRequest)
    add_engine_options(parser, default="processes")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Advance, or plan, and show the outcome."""
    from statecore.cli.restore import show_plan, show_report
    from statecore.faults import fault_points_from_environment
    from statecore.spec.reader import load_spec

    spec = load_spec(arguments.spec_path)
    engine = engine_of(arguments)

    from statecore.jobs.advance import run_advance
    from statecore.jobs.report import RestoreReport
    from statecore.telemetry import metered

    request = request_of(AdvanceRequest, arguments)
    if not request.plan_only:
        output.go_on_with(request.request_id)
    faults = fault_points_from_environment()
    with metered(output.progress, {"application-id": spec.application_id}, output.say) as progress:
        result = run_advance(request, engine, progress, faults=faults, say=output.say)
    output.document(result.to_json())
    if not output.json:
        if isinstance(result, RestoreReport):
            show_report(result)
        else:
            show_plan(result)
    return 0
