"""``statecore doctor``: what is wrong with a state directory, what becomes of it, and what to do.

Exit 0 when nothing was found but notes, 20 for warnings, 21 for errors, 22 for the loss of data; 10 when nothing was
found and the brokers could not be asked. With ``--repair``: :mod:`statecore.cli.doctor_repair`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.cli.doctor_repair import add_repair_arguments, refuse_without_repair, run_repair
from statecore.cli.output import Output, print_line
from statecore.cli.request_options import add_request_options, request_of
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.words import number_of, some_of

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.doctor.doctor import Diagnosis
    from statecore.doctor.findings import Finding

_MANY_SENTENCES = 4
_STYLES = {"loss": "bold red", "error": "red", "warning": "yellow", "note": "dim"}
_PAGES = "docs/findings"
_NOT_JUDGED = (
    "It runs, and what is normal then was not judged: offsets that lag or lack, stores that are open, and what Kafka "
    "Streams {release} makes of them. After it is closed, look again: only that says whether it can be opened."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_options(parser, DiagnoseRequest)
    add_repair_arguments(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Examine, and show."""
    if arguments.repair:
        return run_repair(arguments, output)
    refuse_without_repair(arguments)
    from statecore.jobs.diagnose.run import run_diagnose

    request = request_of(DiagnoseRequest, arguments)
    found = run_diagnose(request, output.progress)
    if request.application_id is None and request.spec_path is None:
        output.say_skipped(Path(request.state_dir))
    output.document(found.to_json())
    if not output.json:
        for one in found.applications:
            show(one)
    return found.exit_code


def show(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print what was found, the worst first: a paragraph for each finding, whatever the number of its tasks."""
    from rich.text import Text

    from statecore.cli.output import result_console

    console = console or result_console()
    console.print(f"{diagnosis.application_id} in {diagnosis.path}", style="bold", markup=False)
    print_line(console, _about(diagnosis), indent=0)
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in diagnosis.findings:
        groups.setdefault((one.severity.value, one.code), []).append(one)
    for (severity, code), found in groups.items():
        kind = found[0].kind
        console.print()
        heading = Text(severity.upper(), style=_STYLES[severity])
        console.print(heading.append(f"  {code}", style="bold").append(f": {kind.title}", style="default"))
        for line in _sentences(found):
            print_line(console, line, indent=2)
        print_line(console, f"It means: {kind.means}", indent=2)
        print_line(console, f"Do: {kind.remedy}", indent=2)
        print_line(console, f"More: {_PAGES}/{code}.md", style="dim", indent=2)
    if diagnosis.undecided:
        console.print("\nnot told by the brokers", style="bold", markup=False)
        for line in diagnosis.undecided:
            print_line(console, line)
    console.print()
    print_line(console, _counts(diagnosis), indent=0)
    if diagnosis.holder is not None:
        print_line(console, _NOT_JUDGED.format(release=diagnosis.release), indent=0)
    if how := _how_to_repair(diagnosis):
        print_line(console, how, indent=0)


def _about(diagnosis: Diagnosis) -> str:
    said = "not running: nobody holds its lock"
    if diagnosis.holder is not None:
        said = f"in use by {diagnosis.holder}: examined is what was flushed last"
    guarantee = str(diagnosis.guarantee) if diagnosis.guarantee else "guarantee not known, so judged by the worse"
    return f"{said}; {guarantee}; to be opened by Kafka Streams {diagnosis.release}"


def _how_to_repair(diagnosis: Diagnosis) -> str:
    """The command that shows what would mend what was found; empty where there is nothing to mend."""
    from statecore.doctor.repair_plan import plan_repairs
    from statecore.formats.releases import CURRENT

    if diagnosis.release != CURRENT.name or plan_repairs(diagnosis.findings, diagnosis.stores).is_nothing_to_do:
        return ""
    spec = "" if diagnosis.looked_at.declared else " and --spec, without which no store can be rebuilt"
    when = " Close the application before that." if diagnosis.holder is not None else ""
    command = f"statecore doctor --repair --application-id {diagnosis.application_id}"
    return f"{command}, with the other arguments as here{spec}, shows what would mend it, and changes nothing.{when}"


def _sentences(found: Sequence[Finding]) -> list[str]:
    """What is said of one code: the same words of several stores and tasks once, and not more than a few of others."""
    where: dict[str, dict[str, list[str]]] = {}
    for one in found:
        tasks = where.setdefault(one.what, {}).setdefault(one.store, [])
        if one.task and one.task not in tasks:
            tasks.append(one.task)
    lines = [_sentence(what, stores) for what, stores in where.items()]
    if len(lines) <= _MANY_SENTENCES:
        return lines
    rest = list(where.values())[_MANY_SENTENCES:]
    tasks = list(dict.fromkeys(task for stores in rest for some in stores.values() for task in some))
    more = f"and {len(rest)} more" + (f", in {some_of(tasks)}" if tasks else "") + " (--json shows all)"
    return [*lines[:_MANY_SENTENCES], more]


def _sentence(what: str, stores: dict[str, list[str]]) -> str:
    """A sentence with its subject, where it does not begin with it."""
    names = [name for store, tasks in stores.items() for name in (store, *tasks) if name]
    if not names or any(what.startswith((f"{name} ", f"{name}/")) for name in names):
        return what
    by_tasks: dict[tuple[str, ...], list[str]] = {}
    for store, tasks in stores.items():
        by_tasks.setdefault(tuple(tasks), []).append(store)
    said = []
    for tasks_of, some in by_tasks.items():
        named = some_of([one for one in some if one])
        said.append(f"{named} in {some_of(tasks_of)}" if named and tasks_of else named or some_of(tasks_of))
    return f"{'; '.join(said)}: {what}"


def _counts(diagnosis: Diagnosis) -> str:
    looked = diagnosis.looked_at
    how = "every row read" if looked.scanned else "rows not read (--scan)"
    said = [
        f"{count} {severity.value}{'' if count == 1 or severity.value == 'loss' else 's'}"
        for severity, count in diagnosis.counts.items()
        if count
    ]
    return (
        f"{number_of(looked.tasks, 'task')}, {number_of(looked.stores, 'store')}, "
        f"{number_of(looked.databases, 'database')}, {looked.bytes:,} bytes, {how}: "
        f"{', '.join(said) if said else 'nothing found'}"
    )
