"""``statecore fetch``: download stores from a repository into a state directory, without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from statecore.cli.output import RESTORED_BY_STREAMS, Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.fetch.request import FetchRequest
from statecore.words import format_bytes, known_number, note_line, number_of, offset_list

if TYPE_CHECKING:
    from statecore.jobs.fetch.report import FetchReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, FetchRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.extras import require

    request = request_of(FetchRequest, arguments)
    require("pipeline")

    from statecore.jobs.fetch.run import run_fetch

    if not request.plan_only:
        if request.replace:
            output.set_request_id(request.request_id, is_retry=arguments.request_id is not None)
        else:
            output.when_stopped = "The same command resumes it; finished downloads are reused."
    report = output.run(run_fetch, request, application_id=request.application_id)
    output.result(report, lambda found: show(found, output.printed))
    return 0


def show(report: FetchReport, printed: Collection[str] = ()) -> None:
    """Print the stores as a table, then the result; ``printed`` are notes that were printed before."""
    from statecore.jobs.attempt import age, parsed_time
    from statecore.progress import seconds_in_words

    rows = [
        (
            store.task,
            store.store,
            "" if store.restored_by_kafka_streams else known_number(store.rows),
            "" if store.restored_by_kafka_streams else known_number(store.bytes),
            f"{store.file_bytes:,}",
            RESTORED_BY_STREAMS if store.restored_by_kafka_streams else offset_list(store.offsets.values()),
        )
        for store in report.stores
    ]
    print(f"{report.application_id} in {report.state_dir}")
    if rows:
        columns = ("task", "store", "rows", "bytes", "bytes of files", "offset")
        print_table(result_console(), "", columns, rows, left={"task", "store"}, spare=("bytes",))
    when = parsed_time(report.read_at or report.created_at)
    label = "of" if report.read_at else "published"
    print(f"snapshot {report.snapshot}, {label} {age(when) if when is not None else report.created_at}")
    kept = f"; kept: {', '.join(report.kept)}" if report.kept else ""
    tasks = number_of(len({store.task for store in report.stores}), "task")
    stores = number_of(len(report.stores), "store")
    if report.plan_only:
        print(f"would fetch {stores} of {tasks}, {format_bytes(report.downloaded_bytes)}{kept}")
    elif report.placed:
        at_hand = f"{format_bytes(report.at_hand_bytes)} were here already{kept}"
        print(
            f"fetched {stores} of {tasks} in {seconds_in_words(report.seconds)}: "
            f"{format_bytes(report.downloaded_bytes)} downloaded, {at_hand}"
        )
    else:
        print(f"nothing to fetch{kept}")
    for note in report.notes:
        if note not in printed:
            print(note_line(note))
