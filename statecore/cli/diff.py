"""``statecore diff``: compare a state directory with another one, a snapshot, or its changelogs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.engine_options import add_engine_options, engine_of
from statecore.cli.output import Output, print_line, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.diff.request import DiffRequest
from statecore.words import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from statecore.jobs.diff.report import DiffReport, StoreDiff
    from statecore.jobs.diff.row_diff import Example, RowCounts

_SEGMENTS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, DiffRequest)
    add_engine_options(parser, default="processes", who="engine that compares stores and builds them from changelogs")
    parser.set_defaults(plan_only=False)
    parser.epilog = (
        "exit codes besides those of all commands: 0 every row is equal, 30 rows differ, 31 rows and offsets differ, "
        "so that both sides may be right, 32 no store could be compared"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.extras import require

    request = request_of(DiffRequest, arguments)
    require("pipeline")

    from statecore.jobs.diff.run import run_diff

    report = run_diff(request, engine_of(arguments), output.progress, say=output.say)
    output.result(report, show)
    return report.verdict.exit_code


def show(report: DiffReport) -> None:
    """Print the offsets that differ, the rows as a table, examples, and the verdict."""
    from statecore.jobs.diff.report import DiffVerdict

    console = result_console()
    for store in report.stores:
        for line in _offsets(store):
            print_line(console, line, indent=0)
    rows = []
    for store in report.stores:
        counts, compared = store.counts, store.compared
        digest = compared.digest[:12] if compared.rows or not compared.shared else ""
        rows.append(
            (
                *(store.task, store.store, store.kind),
                "same files" if compared.shared and not compared.rows and not compared.reference_rows else "",
                *(f"{count:,}" for count in (counts.equal, counts.missing, counts.extra, counts.different)),
                digest,
                compared.reference_digest[:12] if digest else "",
                str(store.verdict),
            )
        )
    print_table(
        console,
        f"{report.state_dir} against {report.reference}",
        (
            *("task", "store", "kind", "files", "equal", "missing", "extra", "different"),
            *("digest", "reference digest", "verdict"),
        ),
        rows,
        left={"task", "store", "kind", "files", "verdict", "digest", "reference digest"},
        spare=("reference digest", "digest", "kind", "files"),
    )
    for store in report.stores:
        _show_differences(console, store)
    for name, why in report.left_out.items():
        print_line(console, f"not compared: {name}: {why}", indent=0)
    total = report.counts
    if report.verdict is DiffVerdict.NOTHING:
        result = "nothing was compared"
    elif report.verdict is DiffVerdict.EQUAL:
        result = "every row is equal"
    else:
        result = f"rows: {_in_words(total)}"
        if report.verdict is DiffVerdict.AT_OTHER_OFFSETS:
            result += "; only in stores whose offsets differ"
    left = f", {len(report.left_out)} not compared" if report.left_out else ""
    print_line(console, f"{result}: {number_of(len(report.stores), 'store')}{left}, {report.seconds:.1f} s", indent=0)


def _offsets(store: StoreDiff) -> list[str]:
    """A line for each partition whose offsets differ; an unknown offset equals none."""
    lines = []
    for partition in sorted({*store.offsets, *store.reference_offsets}):
        here, reference = store.offsets.get(partition), store.reference_offsets.get(partition)
        if here != reference and max(here or 0, reference or 0) > 0:
            offsets = f"{_offset(here)}, in the reference {_offset(reference)}"
            lines.append(f"{store.task} {store.store}: offset of {partition}: {offsets}")
    return lines


def _offset(offset: int | None) -> str:
    if offset is None:
        return "none"
    return "unknown" if offset < 0 else str(offset)


def _show_differences(console: Console, store: StoreDiff) -> None:
    if store.counts.are_equal:
        return
    print_line(console, f"{store.task} {store.store}:", indent=0)
    for one in store.compared.segments[:_SEGMENTS]:
        print_line(console, f"segment {one.segment}: {_in_words(one.counts)}")
    if len(store.compared.segments) > _SEGMENTS:
        print_line(console, f"and {len(store.compared.segments) - _SEGMENTS} more segments; --json has them")
    for example in store.compared.examples:
        print_line(console, _example(example))


def _in_words(counts: RowCounts) -> str:
    return f"{counts.missing:,} missing, {counts.extra:,} extra, {counts.different:,} different"


def _example(example: Example) -> str:
    key = _words(example.words) or f"key {example.key}"
    text = f"{example.difference} {key}"
    if example.value_bytes is not None:
        text += f", here {_value(example.value_bytes, example.value)}"
    if example.reference_bytes is not None:
        text += f", in the reference {_value(example.reference_bytes, example.reference)}"
    return text


def _words(words: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in words.items())


def _value(size: int, front: str) -> str:
    return f"{size:,} bytes {front}{'…' if len(front) < 2 * size else ''}"
