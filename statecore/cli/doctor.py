"""``statecore doctor``: findings in a state directory, their consequences, and what to do.

Exit code 0 without findings besides notes, 20 for warnings, 21 for errors, 22 for data loss; 10 without findings if the
brokers could not be asked. ``statecore repair`` repairs findings.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_line
from statecore.cli.request_options import add_request_options, request_of
from statecore.errors import StatecoreError
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.words import format_bytes, number_of, shortened_list

if TYPE_CHECKING:
    from statecore.doctor.diagnosis import Diagnosis
    from statecore.doctor.findings import Finding

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_MANY_SENTENCES = 4
_STYLES = {"loss": "bold red", "error": "red", "warning": "yellow", "note": "dim"}
_PAGES = "docs/findings"
_NOT_CHECKED = (
    "The directory is in use, so what is normal then was not checked: missing or old offsets, open stores, and what "
    "Kafka Streams {release} does with them. To check whether it can be opened, run the doctor again after {holder} "
    "is closed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, DiagnoseRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.jobs.diagnose.run import run_diagnose

    request = request_of(DiagnoseRequest, arguments)
    found = run_diagnose(request, output.progress)
    if request.application_id is None and request.spec_path is None:
        output.say_skipped(Path(request.state_dir))
    output.document({"version": DOCUMENT_VERSION, **found.to_json()})
    if not output.json:
        for one in found.applications:
            show(one, request)
    return found.exit_code


def show(diagnosis: Diagnosis, request: DiagnoseRequest) -> None:
    """Print the findings, the most severe first: one paragraph for each code, whatever the number of its tasks."""
    from rich.text import Text

    from statecore.cli.output import result_console

    console = result_console()
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
        for remedy in dict.fromkeys(one.remedy for one in found):
            print_line(console, f"Do: {remedy}", indent=2)
        if code == "work-unfinished":
            for command in _resume_commands(diagnosis, request):
                print_line(console, f"Resume it with: {command}", indent=2)
        print_line(console, f"More: {_PAGES}/{code}.md", style="dim", indent=2)
    if diagnosis.undecided:
        console.print("\nnot checked with the brokers", style="bold", markup=False)
        for line in diagnosis.undecided:
            print_line(console, line)
    console.print()
    print_line(console, _counts(diagnosis), indent=0)
    if diagnosis.holder is not None:
        print_line(console, _NOT_CHECKED.format(release=diagnosis.release, holder=diagnosis.holder), indent=0)
    if how := _how_to_repair(diagnosis, request):
        print_line(console, how, indent=0)


def _resume_commands(diagnosis: Diagnosis, request: DiagnoseRequest) -> list[str]:
    from statecore.cli.info import resume_commands
    from statecore.jobs.history.instance_history import read_history
    from statecore.statedir.state_directory import StateDirectory

    with suppress(StatecoreError):
        return resume_commands(read_history(StateDirectory(Path(request.state_dir), diagnosis.application_id)))
    return []


def _about(diagnosis: Diagnosis) -> str:
    use = "not running: no process holds its lock"
    if diagnosis.holder is not None:
        use = f"in use by {diagnosis.holder}: the last flushed state was inspected"
    guarantee = str(diagnosis.guarantee) if diagnosis.guarantee else "guarantee not known, the worse one is assumed"
    return f"{use}; {guarantee}; to be opened by Kafka Streams {diagnosis.release}"


def _how_to_repair(diagnosis: Diagnosis, request: DiagnoseRequest) -> str:
    """The command that plans repairs of the findings; empty if there is nothing to repair."""
    from statecore.doctor.repair_plan import plan_repairs
    from statecore.formats.releases import CURRENT

    if diagnosis.release != CURRENT.name or plan_repairs(diagnosis.findings, diagnosis.stores).is_empty:
        return ""
    words = ["statecore", "repair", "--application-id", diagnosis.application_id]
    words += request.to_words(without=("application_id", "release"))
    when = "Close it, then show" if diagnosis.holder is not None else "Show"
    why = ""
    if not diagnosis.coverage.declared:
        words += ["--spec", "STORES.YAML"]
        why = " (no store can be rebuilt without a spec)"
    return f"{when} the plan of a repair{why}: {shlex.join(words)}"


def _sentences(found: Sequence[Finding]) -> list[str]:
    """The sentences of one code: the same sentence once for all stores and tasks, and only a few different ones."""
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
    more = f"and {len(rest)} more" + (f", in {shortened_list(tasks)}" if tasks else "") + " (--json shows all)"
    return [*lines[:_MANY_SENTENCES], more]


def _sentence(what: str, stores: dict[str, list[str]]) -> str:
    """A sentence with its stores and tasks, unless it begins with one of them."""
    names = [name for store, tasks in stores.items() for name in (store, *tasks) if name]
    if not names or any(what.startswith((f"{name} ", f"{name}/")) for name in names):
        return what
    by_tasks: dict[tuple[str, ...], list[str]] = {}
    for store, tasks in stores.items():
        by_tasks.setdefault(tuple(tasks), []).append(store)
    subjects = []
    for tasks_of, some in by_tasks.items():
        named = shortened_list([one for one in some if one])
        subjects.append(
            f"{named} in {shortened_list(tasks_of)}" if named and tasks_of else named or shortened_list(tasks_of)
        )
    return f"{'; '.join(subjects)}: {what}"


def _counts(diagnosis: Diagnosis) -> str:
    scope = diagnosis.coverage
    how = "every row read" if scope.scanned else "rows not read (--scan)"
    counts = [
        f"{count} {severity.value}{'' if count == 1 or severity.value == 'loss' else 's'}"
        for severity, count in diagnosis.counts.items()
        if count
    ]
    undecided = ""
    if diagnosis.undecided_stores:
        undecided = f"; {number_of(diagnosis.undecided_stores, 'store')} not checked with the brokers to the end"
    return (
        f"{number_of(scope.tasks, 'task')}, {number_of(scope.stores, 'store')}, "
        f"{number_of(scope.databases, 'database')}, {format_bytes(scope.bytes)}, {how}: "
        f"{', '.join(counts) if counts else 'no findings'}{undecided}"
    )
