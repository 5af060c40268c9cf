"""``statecore repo compact``: merge the runs of databases that have many."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console
from statecore.cli.repo.options import add_repository

if TYPE_CHECKING:
    from statecore.jobs.compact.report import CompactionReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", required=True, metavar="FILE", help="the application's stores.yaml")
    add_repository(parser)
    parser.add_argument("--plan", action="store_true", help="show what would be merged, and change nothing")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Compact, or plan, and show the report; damaged runs give the exit code of ``Corrupted``."""
    from statecore.errors import Corrupted
    from statecore.extras import require
    from statecore.jobs.compact.request import CompactRequest
    from statecore.jobs.context import spec_of

    request = CompactRequest(spec_path=arguments.spec, repository=arguments.repository, plan_only=arguments.plan)
    application_id = spec_of(request).application_id
    require("pipeline")

    from statecore.jobs.compact.run import run_compact

    report = output.run(run_compact, request, application_id=application_id)
    output.result(report, show)
    return Corrupted.exit_code if report.findings else 0


def show(report: CompactionReport) -> None:
    from rich.text import Text

    from statecore.jobs.compact.report import CompactionOutcome

    console = result_console()
    if report.compacted:
        planned = report.outcome is CompactionOutcome.PLANNED
        rows = []
        for one in report.compacted:
            merged = ("" if planned else "not merged") if one.compacted_bytes is None else f"{one.compacted_bytes:,}"
            segment = "" if one.segment is None else str(one.segment)
            rows.append((one.task, one.store, segment, f"{one.runs:,}", f"{one.bytes:,}", merged))
        print_table(
            console,
            f"{report.application_id}, snapshot {report.newest}",
            ("task", "store", "segment", "runs", "bytes", "bytes when merged"),
            rows,
            left={"task", "store"},
        )
    size = sum(one.bytes for one in report.compacted)
    result = {
        CompactionOutcome.PUBLISHED: (
            f"published {report.snapshot}: {report.downloaded_bytes:,} bytes downloaded, "
            f"{report.written_bytes:,} uploaded"
        ),
        CompactionOutcome.NOT_DUE: f"no database of {report.newest} has enough runs; nothing was changed",
        CompactionOutcome.NOTHING_LEFT: "nothing was published: the runs could not be read, or the newest snapshot "
        "does not have them any more",
        CompactionOutcome.PLANNED: f"would merge {report.runs:,} runs of {size:,} bytes; nothing was changed",
    }
    console.print(Text(f"{result[report.outcome]} ({report.seconds:.1f} s, {report.repository})"))
