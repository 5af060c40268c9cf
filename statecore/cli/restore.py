"""``statecore restore``: rebuild stores without Airflow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.request import RestoreRequest

if TYPE_CHECKING:
    from statecore.jobs.engine import Engine
    from statecore.jobs.plan import RestorePlan
    from statecore.jobs.report import RestoreReport


_LEFT = "left to Kafka Streams"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_options(parser, RestoreRequest)
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine",
        choices=("spark", "processes"),
        default="spark",
        help="who does the work: spark (default), or processes on this machine, without Java",
    )
    engine.add_argument("--processes", type=_processes, metavar="N", help="how many processes (default: one a core)")
    engine.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    engine.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of Spark's, such as spark.executor.memory=2g; repeatable, wins over the spec's spark section",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Restore, or plan, and show the outcome."""
    from statecore.faults import fault_points_from_environment
    from statecore.spec.reader import load_spec

    spec = load_spec(arguments.spec_path)  # a mistake in the spec is answered before Spark is loaded
    engine = _engine(arguments)

    from statecore.jobs.report import RestoreReport
    from statecore.jobs.restore import run_restore
    from statecore.telemetry import metered

    request = request_of(RestoreRequest, arguments)
    if not request.plan_only:
        output.go_on_with(request.request_id)
    faults = fault_points_from_environment()
    with metered(output.progress, {"application-id": spec.application_id}, output.say) as progress:
        result = run_restore(request, engine, progress, faults=faults, say=output.say)
    output.document(result.to_json())
    if not output.json:
        if isinstance(result, RestoreReport):
            show_report(result)
        else:
            show_plan(result)
    return 0


def _engine(arguments: argparse.Namespace) -> Engine:
    """The engine that was chosen.

    Raises:
        Invalid: an option of the other one was given, or its packages are missing.
    """
    from statecore.errors import Invalid
    from statecore.extras import require
    from statecore.spec.spark_settings import properties

    conf = properties(arguments.spark_conf)
    if arguments.engine == "processes":
        if arguments.master or conf:
            raise Invalid(
                "--master and --spark-conf are Spark's, and --engine processes does without it.",
                action="Leave them out, or choose --engine spark.",
            )
        require("pipeline")
        from statecore.jobs.processes import ProcessEngine

        return ProcessEngine(arguments.processes)
    if arguments.processes is not None:
        raise Invalid(
            "--processes is for --engine processes; Spark's master says how many tasks it runs at once.",
            action="Choose --engine processes, or a master such as local[4].",
        )
    if not arguments.plan_only:
        require("spark")
    from statecore.spark.engine import SparkEngine

    return SparkEngine(arguments.master or "local[*]", conf)


def show_report(report: RestoreReport) -> None:
    """The report as a table, its notes below."""
    rows = [
        (
            store.task,
            store.store,
            "all" if store.partition < 0 else str(store.partition),
            f"{store.records:,}",
            f"{store.rows:,}",
            f"{store.expired:,}" if store.expired else "",
            str(store.segments or ""),
            f"{store.bytes:,}",
            _LEFT
            if store.left_to_restore
            else _offset(store.offsets.values() if store.partition < 0 else [store.committed_offset]),
            f"{store.tail_left:,}" if store.tail_left else "",
            f"{store.seconds:.1f}",
            store.digest[:12],
        )
        for store in report.stores
    ]
    columns = (
        *("task", "store", "partition", "records", "rows", "expired", "segments"),
        *("bytes", "offset", "tail left", "seconds", "digest"),
    )
    _table(f"{report.application_id} in {report.state_dir}", columns, rows, left={"task", "store", "digest"})
    totals, left = report.totals, sum(store.left_to_restore for store in report.stores)
    done = "restored" if report.placed else "already in place from an earlier attempt of this request:"
    print(
        f"{done} {len(report.stores) - left} store partitions, {totals['records']:,.0f} records, "
        f"{totals['rows']:,.0f} rows in {report.seconds:.1f} s" + (f"; {left} {_LEFT}" if left else "")
    )
    if report.ran_on.master:
        print(report.ran_on)
    for note in report.notes:
        print(f"note: {note}")


def show_plan(plan: RestorePlan) -> None:
    """What would be read, partition by partition."""
    rows = [
        (
            part.task,
            part.store,
            str(part.kind),
            f"{part.topic}-{part.partition}",
            str(part.start),
            str(part.end),
            _LEFT if part.left_to_restore else _offset([part.committed_offset]),
            f"{part.tail_left:,}" if part.tail_left else "",
            str(len(part.ranges)),
        )
        for part in plan.partitions
    ]
    columns = ("task", "store", "kind", "changelog", "from", "to", "offset", "tail left", "ranges")
    _table(f"plan for {plan.application_id}", columns, rows, left={"task", "store", "kind", "changelog"})
    if any(part.left_to_restore for part in plan.partitions):
        print(f"{_LEFT}: nothing is read; an empty database with offset -4 lets it restore the store from the start")
    if any(part.committed_offset < 0 and not part.left_to_restore for part in plan.partitions):
        print("unknown: the offset is -4; Kafka Streams reads that store's changelog from its start, if there is any")
    print(f"{len(plan.partitions)} store partitions, at most {plan.offsets:,} records; nothing was changed")


def _offset(offsets: Iterable[int]) -> str:
    """What is committed with a store; of a global store the next offset of each partition, in their order."""
    words = ["unknown" if offset < 0 else str(offset) for offset in offsets]
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: set[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    said = [at for at in range(len(columns)) if not rows or any(row[at] for row in rows)]  # others say nothing here
    columns, rows = tuple(columns[at] for at in said), [tuple(row[at] for at in said) for row in rows]
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # a log has no width of its own
    console.print(table)


def _processes(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; at least one does the work")
    return int(text)
