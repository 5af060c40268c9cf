"""``statecore fold``: merge the runs of the newest snapshot that have become many."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console

if TYPE_CHECKING:
    from statecore.jobs.compact.report import CompactionReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--spec", required=True, metavar="FILE", help="the application's stores.yaml")
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository, as statecore init takes it")
    parser.add_argument("--plan", action="store_true", help="say what would be merged, and change nothing")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Fold, or plan, and show the outcome; runs that are damaged are the exit code of damage."""
    from statecore.errors import Corrupted
    from statecore.extras import require
    from statecore.faults import fault_points_from_environment
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.spec.reader import load_spec
    from statecore.telemetry import metered

    spec = load_spec(arguments.spec)
    require("pipeline")

    from statecore.jobs.compact.run import run_compact

    shelf = ApplicationRepository.at(arguments.repository, spec.application_id)
    faults = fault_points_from_environment()
    with metered(output.progress, {"application-id": spec.application_id}, output.say) as progress:
        report = run_compact(shelf, spec, plan_only=arguments.plan, progress=progress, say=output.say, faults=faults)
    output.document(report.to_json())
    if not output.json:
        show(report)
    return Corrupted.exit_code if report.findings else 0


def show(report: CompactionReport) -> None:
    """The report as a table, and what became of it."""
    from rich.text import Text

    from statecore.jobs.compact.report import CompactionOutcome

    console = result_console()
    if report.folded:
        planned = report.outcome is CompactionOutcome.PLANNED
        rows = []
        for one in report.folded:
            left = ("" if planned else "left as they are") if one.folded_bytes is None else f"{one.folded_bytes:,}"
            segment = "" if one.segment is None else str(one.segment)
            rows.append((one.task, one.store, segment, f"{one.runs:,}", f"{one.bytes:,}", left))
        print_table(
            console,
            f"{report.application_id}, snapshot {report.newest}",
            ("task", "store", "segment", "runs", "bytes", "bytes when merged"),
            rows,
            left={"task", "store"},
        )
    size = sum(one.bytes for one in report.folded)
    said = {
        CompactionOutcome.PUBLISHED: (
            f"published {report.snapshot}: {report.brought_bytes:,} bytes came, {report.written_bytes:,} were put"
        ),
        CompactionOutcome.NOT_DUE: f"no database of {report.newest} has runs enough; nothing was changed",
        CompactionOutcome.NOTHING_LEFT: "nothing was published: what was merged could not be read, or is not what the "
        "newest snapshot has any more",
        CompactionOutcome.PLANNED: f"would merge {report.runs:,} runs of {size:,} bytes; nothing was changed",
    }
    console.print(Text(f"{said[report.outcome]} ({report.seconds:.1f} s, {report.repository})"))
