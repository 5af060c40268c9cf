"""``statecore inspect --offset-sums``: the offset sum of each task, by which a group assigns it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_line, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.doctor.task_lag import OffsetSums
    from statecore.spec.model import ApplicationSpec
    from statecore.tasks.offset_sums import StoreSum


DOCUMENT_VERSION = 1
"""Version of the ``--json`` document."""


def run_sums(
    state_dir: Path, names: Sequence[str], spec: ApplicationSpec | None, tasks: Sequence[str], output: Output
) -> int:
    from statecore.doctor.task_lag import inspect_offset_sums
    from statecore.errors import worst_of
    from statecore.statedir.store_places import application_directory

    found = [inspect_offset_sums(application_directory(state_dir, name), spec, tasks) for name in names]
    code = worst_of(one.exit_code for one in found)
    output.document({"version": DOCUMENT_VERSION, "applications": [one.to_json() for one in found], "exit_code": code})
    if not output.json:
        for one in found:
            show_sums(one)
    return code


def show_sums(sums: OffsetSums, console: Console | None = None) -> None:
    from statecore.cli.output import result_console

    console = console or result_console()
    console.print(f"{sums.directory.application_id} in {sums.directory.path}", style="bold", markup=False)
    ends = not sums.why_no_ends
    columns = ("task", "offset sum", *(("end sum", "lag") if ends else ()), "offsets of its stores")
    rows = [
        (
            one.task,
            f"{one.sum:,}",
            *((_number(sums.end_sum(one)), _number(sums.lag(one))) if ends else ()),
            ", ".join(_offset(store, is_followed=sums.is_followed(one, store)) for store in one.stores) or "none",
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


def _offset(one: StoreSum, *, is_followed: bool) -> str:
    name = one.store or ("?" if one.changelog is None else str(one.changelog))
    if not is_followed:
        return f"{name} not followed"
    offset = "?" if one.offset is None else one.offset
    return f"{name} {offset}{' (offsets of its databases differ)' if one.databases_differ else ''}"
