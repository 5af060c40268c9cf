"""``statecore checkpoint``: append the tails of the changelogs to the newest snapshot."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.errors import missing_option, options_conflict
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.spec.model import MAX_CHECKPOINT_INTERVAL_MS, MIN_CHECKPOINT_INTERVAL_MS
from statecore.spec.units import DURATION_EXPECTED, parse_duration
from statecore.words import format_bytes, note_line

if TYPE_CHECKING:
    from statecore.jobs.read_report import ReadReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, CheckpointRequest)
    service = parser.add_argument_group("as a service")
    service.add_argument("--follow", action="store_true", help="run as a service: make a checkpoint at every interval")
    service.add_argument(
        "--interval",
        type=_interval,
        metavar="TIME",
        help="time between two checkpoints, such as 90s or 5m (default: statestore.checkpoint.interval.ms of the spec)",
    )
    add_engine_options(parser, default="processes", who="engine for long tails; this process reads short ones")


def _interval(text: str) -> int:
    milliseconds = parse_duration(text)
    if milliseconds is None or not MIN_CHECKPOINT_INTERVAL_MS <= milliseconds <= MAX_CHECKPOINT_INTERVAL_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an interval; expected {DURATION_EXPECTED}, from 1s to 365d")
    return milliseconds


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Make one checkpoint, or one at every interval, and show the report."""
    from statecore.faults import fault_points_from_environment
    from statecore.spec.reader import load_spec

    spec = load_spec(arguments.spec_path)
    request = request_of(CheckpointRequest, arguments)
    _check(arguments, request)
    engine = engine_of(arguments)

    from statecore.jobs.checkpoint.last_checkpoint import record_checkpoint
    from statecore.jobs.checkpoint.run import run_checkpoint
    from statecore.jobs.checkpoint.service import run_service
    from statecore.jobs.read_report import ReadReport
    from statecore.telemetry import metered_checkpoints

    tags = {"application-id": spec.application_id}
    interval = arguments.interval or spec.checkpoint_interval_ms
    with metered_checkpoints(output.progress, tags, output.say) as (progress, metrics):

        def on_checkpoint(report: ReadReport) -> None:
            record_checkpoint(metrics, request, report, interval)
            output.document(report.to_json())
            output.text(line_of(report))

        if arguments.follow:
            output.say(f"Checkpoint of {spec.application_id} to {request.repository} every {interval / 1000:g} s.")
            run_service(request, engine, interval / 1000, on_checkpoint, progress=progress, say=output.say)
        else:
            if not request.plan_only:
                output.set_request_id(request.request_id, is_retry=arguments.request_id is not None)
            faults = fault_points_from_environment()
            result = run_checkpoint(request, engine, progress, faults=faults, say=output.say)
            record_checkpoint(metrics, request, result, interval)
    output.document(result.to_json())
    if not output.json:
        if isinstance(result, ReadReport):
            show(result, output.printed)
        else:
            from statecore.cli.restore import show_plan

            show_plan(result)
    return 0


def _check(arguments: argparse.Namespace, request: CheckpointRequest) -> None:
    if arguments.follow and request.plan_only:
        raise options_conflict(
            "--follow and --plan cannot be combined.", "Leave out one of them.", ["follow", "plan_only"]
        )
    if arguments.interval is not None and not arguments.follow:
        raise missing_option("--interval needs --follow.", "Add --follow, or leave out --interval.", "follow")


def line_of(report: ReadReport) -> str:
    """The result of a checkpoint in one line."""
    totals, published = report.totals, report.published
    read = f"{totals['records']:,.0f} records in {report.seconds:.1f} s"
    if published is None:
        return f"no new records: {read}"
    earlier = " (by an earlier try of this request)" if published.earlier else ""
    new = f"{format_bytes(published.new_bytes)} of {format_bytes(published.file_bytes)} new"
    return f"{published.snapshot}: {read}, {new}{earlier}"


def show(report: ReadReport, printed: Collection[str] = ()) -> None:
    """Print the stores with new records as a table, then the result; ``printed`` are notes that were printed before."""
    from rich.text import Text

    console = result_console()
    rows = [store for store in report.stores if store.records or not (store.base or store.restored_by_kafka_streams)]
    if rows:
        print_table(
            console,
            f"{report.application_id} in {report.repository}",
            ("task", "store", "kind", "from", "to", "records", "new bytes", "seconds", "base"),
            [
                (
                    *(store.task, store.store, store.kind),
                    *(f"{count:,}" for count in (store.start, store.end, store.records, store.file_bytes)),
                    f"{store.seconds:.1f}",
                    store.base or "none: read from the start",
                )
                for store in rows
            ],
            left={"task", "store", "kind", "base"},
            spare=("seconds", "kind", "new bytes", "from"),
        )
    for note in report.notes:
        if note not in printed:
            console.print(Text(note_line(note)))
    console.print(Text(line_of(report)))
