"""``statecore inspect``: the stores of a state directory at a glance, or the offset sums of its tasks.

Exit code 0 without damage, 12 (``Corrupted``) for damage that only a restore repairs, 13 or 15 if a database could not
be inspected; monitoring can use it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_line, print_table, result_console
from statecore.cli.request_options import add_timeout, path_of
from statecore.words import format_bytes, number_of, shortened_list

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.doctor.inspection import DatabaseView, Inspection, StoreView
    from statecore.doctor.task_lag import OffsetSums
    from statecore.spec.model import ApplicationSpec
    from statecore.tasks.offset_sums import StoreSum

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_MANY_PARTITIONS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", required=True, type=path_of, metavar="DIR", help="the application's state.dir")
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: all)")
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="TASK",
        help="only these tasks, such as 0_1, or global; repeat the option for each (default: every task)",
    )
    parser.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="NAME",
        help="only these stores; repeat the option for each (default: every store)",
    )
    parser.add_argument(
        "--spec",
        type=path_of,
        metavar="FILE",
        help="the application's stores.yaml, which the directory is compared with",
    )
    parser.add_argument("--segments", action="store_true", help="show every segment")
    parser.add_argument(
        "--estimate", action="store_true", help="use RocksDB's estimate of the rows; counting reads every row"
    )
    parser.add_argument(
        "--offset-sums",
        action="store_true",
        help="show instead the offset sum of each task, with --spec and brokers its lag too",
    )
    add_timeout(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.doctor.diagnosis import inspect
    from statecore.errors import worst_of
    from statecore.spec.reader import load_spec
    from statecore.statedir.store_places import (
        application_directory,
        applications,
        check_application,
        no_application_error,
    )

    spec: ApplicationSpec | None = load_spec(arguments.spec) if arguments.spec else None
    wanted = arguments.application_id or (spec.application_id if spec else None)
    if wanted is not None:
        check_application(spec, wanted)
    names = [wanted] if wanted is not None else applications(arguments.state_dir)
    if not names:
        raise no_application_error(arguments.state_dir)
    if wanted is None:
        output.say_skipped(arguments.state_dir)
    if arguments.offset_sums:
        return _run_sums(arguments, names, spec, output)
    found = [
        inspect(
            application_directory(arguments.state_dir, name),
            spec=spec,
            tasks=arguments.task,
            stores=arguments.store,
            estimate=arguments.estimate,
        )
        for name in names
    ]
    code = worst_of(one.exit_code for one in found)
    output.document({"version": DOCUMENT_VERSION, "applications": [one.to_json() for one in found], "exit_code": code})
    if not output.json:
        for one in found:
            show(one, segments=arguments.segments)
    return code


def _run_sums(arguments: argparse.Namespace, names: Sequence[str], spec: ApplicationSpec | None, output: Output) -> int:
    from statecore.doctor.task_lag import inspect_offset_sums
    from statecore.errors import options_conflict, worst_of
    from statecore.jobs.fields.catalog import check_patience
    from statecore.statedir.store_places import application_directory

    check_patience("timeout", arguments.timeout)
    given = [name for name in ("store", "segments", "estimate") if getattr(arguments, name)]
    if given:
        raise options_conflict(
            f"--{given[0]} cannot be combined with --offset-sums, which are sums over a whole task.",
            f"Leave out --{given[0]}.",
            ["offset_sums", given[0]],
        )
    found = [
        inspect_offset_sums(
            application_directory(arguments.state_dir, name), spec, arguments.task, timeout=arguments.timeout
        )
        for name in names
    ]
    code = worst_of(one.exit_code for one in found)
    output.document({"version": DOCUMENT_VERSION, "applications": [one.to_json() for one in found], "exit_code": code})
    if not output.json:
        for one in found:
            show_sums(one)
    return code


def show(inspection: Inspection, *, segments: bool = False) -> None:
    """Print stores with their tasks, then other files, then problems."""
    from statecore.formats.releases import GLOBAL

    console = result_console()
    console.print(f"{inspection.application_id} in {inspection.path}", style="bold", markup=False)
    console.print(_in_use(inspection), markup=False)
    if inspection.layouts:
        console.print(f"layout of Kafka Streams {' and '.join(inspection.layouts)}", markup=False)
    by_store: dict[str, list[StoreView]] = {}
    for store in inspection.stores:
        by_store.setdefault(store.store, []).append(store)
    rows = {key: [_row(store, inspection) for store in stores] for key, stores in by_store.items()}
    header = ("task", "offset", "state", "rows", "bytes", "segments")
    widths = [
        max(map(len, column)) for column in zip(header, *(row for of in rows.values() for row in of), strict=True)
    ]
    console.print("\n  " + _aligned(header, widths), style="dim", markup=False)
    for key, stores in by_store.items():
        console.print(_heading(stores), style="bold", markup=False)
        for line in _about(stores):
            _indented(console, line, 4)
        for store, row in zip(stores, rows[key], strict=True):
            line = _aligned(row, widths)
            console.print(
                ("! " if store.problems else "  ") + line, style="red" if store.problems else None, markup=False
            )
            if segments:
                for database in store.databases if store.segmented else ():
                    _indented(console, _segment(database, inspection.estimated), 6)
            if len(store.offsets) > 1:
                what = "next offsets" if store.task == GLOBAL else "offsets"
                _indented(console, f"{what}: {_offsets(store)}", 6)
    _show_beside(console, inspection)
    _show_trouble(console, inspection)


def _in_use(inspection: Inspection) -> str:
    if inspection.holder is not None:
        return f"in use by {inspection.holder}: the last flushed state is shown"
    holders = sorted({str(store.holder) for store in inspection.stores if store.holder is not None})
    if holders:
        more = f" and {len(holders) - _MANY_PARTITIONS} more" if len(holders) > _MANY_PARTITIONS else ""
        return f"stores are open: {', '.join(holders[:_MANY_PARTITIONS])}{more}; the last flushed state is shown"
    return "not running: no process holds its lock"


def _heading(stores: Sequence[StoreView]) -> str:
    first = stores[0]
    kind = str(first.kind) if not first.possible_kinds else f"? ({first.possible_kinds})"
    return f"{first.store}: {kind}"


def _about(stores: Sequence[StoreView]) -> list[str]:
    from statecore.spec.units import format_duration

    topics = sorted({partition.topic for store in stores for partition in store.offsets})
    lines = [f"changelog {', '.join(topics)}"] if topics else []
    if not all(store.logged for store in stores):
        lines.append("not logged (changelog: none): has no offset, and its rows exist only here")
    starts = [one.start for store in stores for one in store.databases if one.start]
    if starts:  # the segment of a grace buffer starts at 0 and has no end
        ends = [one.end for store in stores for one in store.databases if one.end is not None]
        each = f" of {format_duration(ends[0] - starts[0])}" if ends else ""
        until = f"to {_minute(max(ends))}" if ends else f"to the one that begins {_minute(max(starts))}"
        lines.append(f"segments{each}, {_minute(min(starts))} {until}")
    return lines


def _row(store: StoreView, inspection: Inspection) -> tuple[str, ...]:
    running = inspection.holder is not None or store.holder is not None
    offsets = list(store.offsets.values())
    offset = str(offsets[0]) if len(offsets) == 1 else f"{len(offsets)} partitions" if offsets else "none"
    if any(one.broken for one in store.databases):
        offset = "broken" if not offsets else offset
    no_status = "transactional" if store.transactional else "-"
    state = {None: no_status, True: "closed", False: "open" if running else "not closed"}[store.closed]
    rows = f"{'~' if inspection.estimated else ''}{store.rows:,}"
    task = store.task.rpartition("/")[2]
    return task, offset, state, rows, f"{store.bytes:,}", str(len(store.databases)) if store.segmented else "-"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line: task and state aligned left, numbers right."""
    left = {0, 2}
    return "  ".join(
        cell.ljust(width) if at in left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _segment(database: DatabaseView, estimated: bool) -> str:
    rows = f"{'~' if estimated else ''}{number_of(database.rows, 'row')}"
    since = "" if not database.start else f", from {_minute(database.start)}"
    return f"{database.name.rpartition('.')[2]}{since}: {rows}, {format_bytes(database.bytes)}"


def _offsets(store: StoreView) -> str:
    every = sorted(store.offsets.items())
    shown = ", ".join(f"{partition.partition} = {offset}" for partition, offset in every[:_MANY_PARTITIONS])
    more = len(every) - _MANY_PARTITIONS
    return shown + (f", and {more} more partitions (--json shows all)" if more > 0 else "")


def _show_beside(console: Console, inspection: Inspection) -> None:
    from statecore.formats.checkpoint import store_checkpoint_file

    shown = {(store.task, store_checkpoint_file(store.store)) for store in inspection.stores}
    beside = [one for one in inspection.offset_files if (one.task, one.name) not in shown]
    if beside:
        console.print("\nother files", style="bold", markup=False)
    for one in beside:
        _item(console, f"{one.task}/{one.name}: {one.meaning}".removeprefix("/"))


def _show_trouble(console: Console, inspection: Inspection) -> None:
    damage = _lines(inspection, lambda found: found.damage)
    lines = [line for line in _lines(inspection, lambda found: found.problems) if line not in damage]
    stores, tasks = {store.store for store in inspection.stores}, {store.task for store in inspection.stores}
    rows = sum(store.rows for store in inspection.stores)
    size = sum(store.bytes for store in inspection.stores)
    about = "about " if inspection.estimated else ""
    counted = "RocksDB's estimate" if inspection.estimated else "counted"
    console.print()
    for title, shown in (("damage: restore these stores", damage), ("problems", lines)):
        if shown:
            console.print(title, style="bold red", markup=False)
            for line in shown:
                _item(console, line)
            console.print()
    count = len(lines) + len(damage)
    problems = f"{count} problems" if count > 1 else "1 problem" if count else "no problems found"
    console.print(
        f"{number_of(len(tasks), 'task')}, {number_of(len(stores), 'store')}, "
        f"{about}{rows:,} rows ({counted}), {format_bytes(size)}; "
        + problems
        + (f", {len(damage)} of them damage" if damage and count > 1 else ", damage" if damage else ""),
        markup=False,
    )


def _lines(inspection: Inspection, of: Callable[[StoreView | Inspection], Sequence[str]]) -> list[str]:
    """The problems of stores, one line for all tasks with the same problem, then those outside stores."""
    where: dict[tuple[str, str], list[str]] = {}
    for store in inspection.stores:
        for one in of(store):
            where.setdefault((store.store, one), []).append(store.task)
    return [f"{store} in {shortened_list(tasks)}: {one}" for (store, one), tasks in where.items()] + list(
        of(inspection)
    )


def _item(console: Console, line: str) -> None:
    from rich.table import Table
    from rich.text import Text

    item = Table.grid()
    item.add_column(width=4)
    item.add_column(overflow="fold")
    item.add_row("  - ", Text(line))
    console.print(item)


def _indented(console: Console, line: str, by: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(line, overflow="fold"), (0, 0, 0, by), expand=False))


def _minute(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def show_sums(sums: OffsetSums) -> None:
    console = result_console()
    console.print(f"{sums.directory.application_id} in {sums.directory.path}", style="bold", markup=False)
    ends = not sums.why_no_ends
    columns = ("task", "offset sum", *(("end sum", "lag") if ends else ()), "offsets of its stores")
    rows = [
        (
            one.task,
            f"{one.sum:,}",
            *((_number(sums.end_sum(one)), _number(sums.lag(one))) if ends else ()),
            ", ".join(_sum_offset(store, is_followed=sums.is_followed(one, store)) for store in one.stores) or "none",
        )
        for one in sums.tasks
    ]
    print_table(console, "", columns, rows, left=("task", "offsets of its stores"))
    for one in sums.tasks:
        if one.reason:
            print_line(console, f"{one.task} ({one.state}): {one.reason}")
    if sums.why_no_ends:
        print_line(console, f"No end sums: {sums.why_no_ends}", indent=0)


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _sum_offset(one: StoreSum, *, is_followed: bool) -> str:
    name = one.store or ("?" if one.changelog is None else str(one.changelog))
    if not is_followed:
        return f"{name} not followed"
    offset = "?" if one.offset is None else one.offset
    return f"{name} {offset}{' (offsets of its databases differ)' if one.databases_differ else ''}"
