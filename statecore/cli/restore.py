"""``statecore restore``: rebuild stores from their changelogs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import RESTORED_BY_STREAMS, Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.fields.catalog import Planned
from statecore.jobs.restore.request import RestoreRequest
from statecore.words import note_line, number_of, offset_list

if TYPE_CHECKING:
    from statecore.jobs.planning.plan import ReadPlan
    from statecore.jobs.read_report import ReadReport


RequestT = TypeVar("RequestT", bound=Planned)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, RestoreRequest)
    add_engine_options(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    def job() -> Callable[..., ReadReport | ReadPlan]:
        from statecore.jobs.restore.run import run_restore

        return run_restore

    return run_and_show(arguments, output, RestoreRequest, job)


def run_and_show(
    arguments: argparse.Namespace,
    output: Output,
    kind: type[RequestT],
    job: Callable[[], Callable[..., ReadReport | ReadPlan]],
) -> int:
    """Run or plan a job that places stores in a state directory, and show its report."""
    from statecore.spec.reader import load_spec

    spec = load_spec(arguments.spec_path)  # errors of the spec are reported before Spark is loaded
    engine = engine_of(arguments)

    from statecore.jobs.read_report import ReadReport
    from statecore.jobs.restore.planned_restore import RefusedPlan

    run_job, request = job(), request_of(kind, arguments)
    if not request.plan_only:
        output.set_request_id(request.request_id, is_retry=arguments.request_id is not None)
    try:
        result = output.run(run_job, request, engine, application_id=spec.application_id)
    except RefusedPlan as refused:
        if refused.plan is not None and not output.json:
            show_plan(refused.plan)
        raise
    output.result(result, lambda it: show_report(it) if isinstance(it, ReadReport) else show_plan(it))
    return 0


def show_report(report: ReadReport) -> None:
    rows = [
        (
            store.task,
            store.store,
            "all" if store.partition < 0 else str(store.partition),
            f"{store.records:,}",
            f"{store.rows:,}" if store.rows >= 0 else "",
            f"{store.expired:,}" if store.expired else "",
            str(store.segments or ""),
            f"{store.bytes:,}" if store.bytes >= 0 else "",
            RESTORED_BY_STREAMS
            if store.restored_by_kafka_streams
            else offset_list(store.offsets.values() if store.partition < 0 else [store.committed_offset]),
            f"{store.tail_left:,}" if store.tail_left else "",
            f"{store.seconds:.1f}",
            store.digest[:12],
            store.base,
        )
        for store in report.stores
    ]
    columns = (
        *("task", "store", "partition", "records", "rows", "expired", "segments"),
        *("bytes", "offset", "tail left", "seconds", "digest", "base"),
    )
    where = report.state_dir or report.repository
    if rows:
        spare = ("digest", "seconds", "segments", "expired", "base", "bytes", "partition")
        left_ones = {"task", "store", "digest", "base"}
        _table(f"{report.application_id} in {where}", columns, rows, left=left_ones, spare=spare)
    totals, left = report.totals, sum(store.restored_by_kafka_streams for store in report.stores)
    done = "restored" if report.placed else "already in place from an earlier attempt of this request:"
    if not report.state_dir:
        done = "published" if report.published else "read"
    is_counted = report.state_dir and all(store.rows >= 0 for store in report.stores)
    counted = f", {totals['rows']:,.0f} rows" if is_counted else ""
    if rows:
        print(
            f"{done} {number_of(len(rows) - left, 'store partition')}, "
            f"{totals['records']:,.0f} records{counted} in {report.seconds:.1f} s"
            + (f"; {left} {RESTORED_BY_STREAMS}" if left else "")
        )
    elif report.published is None:
        print(f"{report.application_id} in {where}: nothing to restore")
    if report.published:
        print(f"snapshot {report.published.snapshot} in {report.repository}")
    for note in report.notes:
        print(note_line(note))


def show_plan(plan: ReadPlan) -> None:
    """Print the offsets to read, by partition."""
    rows = [
        (
            partition.task,
            partition.store,
            str(partition.kind),
            f"{partition.topic}-{partition.partition}",
            str(partition.start),
            str(partition.end),
            RESTORED_BY_STREAMS if partition.restored_by_kafka_streams else offset_list([partition.committed_offset]),
            f"{partition.tail_left:,}" if partition.tail_left else "",
            str(len(partition.ranges)),
            partition.base,
        )
        for partition in plan.partitions
    ]
    columns = ("task", "store", "kind", "changelog", "from", "to", "offset", "tail left", "ranges", "base")
    if not rows:
        print("nothing to do; nothing was changed")
        return
    left_ones, spare = {"task", "store", "kind", "changelog", "base"}, ("ranges", "kind", "changelog", "base")
    _table(f"plan for {plan.application_id}", columns, rows, left=left_ones, spare=spare)
    if any(partition.restored_by_kafka_streams for partition in plan.partitions):
        print(
            f"{RESTORED_BY_STREAMS}: nothing is read; an empty database with offset -4 makes Kafka Streams restore "
            "the store from the start"
        )
    if any(partition.committed_offset < 0 and not partition.restored_by_kafka_streams for partition in plan.partitions):
        print("unknown: the offset is -4; Kafka Streams reads the store's changelog from its start, if there is one")
    print(
        f"{number_of(len(plan.partitions), 'store partition')}, at most {plan.offsets:,} records; nothing was changed"
    )


def _table(
    title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: set[str], spare: tuple[str, ...]
) -> None:
    filled = [at for at in range(len(columns)) if not rows or any(row[at] for row in rows)]
    shown = [tuple(row[at] for at in filled) for row in rows]
    print_table(result_console(), title, [columns[at] for at in filled], shown, left=left, spare=spare)
