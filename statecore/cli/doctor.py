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
from statecore.cli.output import Output, number_of, print_line, some_of
from statecore.formats.releases import RELEASES
from statecore.spec.duration import parse_duration

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.maintenance.doctor import Diagnosis
    from statecore.maintenance.findings import Finding
    from statecore.spec.model import ApplicationSpec

_MANY_SENTENCES = 4
_STYLES = {"loss": "bold red", "error": "red", "warning": "yellow", "note": "dim"}
_PAGES = "docs/findings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--state-dir", required=True, type=Path, metavar="DIR", help="the application's state.dir")
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: every one there)")
    parser.add_argument("--spec", type=Path, metavar="FILE", help="the stores.yaml to hold the directory against")
    parser.add_argument(
        "--processing-guarantee",
        choices=("at_least_once", "exactly_once_v2"),
        help="the application's own (default: as in --spec, else findings are as bad as under either)",
    )
    parser.add_argument(
        "--task", action="append", default=[], metavar="T", help="only this task, such as 0_1 or global"
    )
    parser.add_argument("--store", action="append", default=[], metavar="NAME", help="only this store; may be repeated")
    parser.add_argument(
        "--scan", action="store_true", help="read every row and verify its checksum; else only what opens the databases"
    )
    parser.add_argument(
        "--for",
        dest="release",
        choices=tuple(RELEASES),
        help="the release of Kafka Streams that is to open the directory (default: the newest)",
    )
    parser.add_argument(
        "--cleanup-max-age",
        type=_duration,
        metavar="TIME",
        help="the application's state.cleanup.dir.max.age.ms, such as 7d, if it sets one",
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="brokers whose topics the offsets are held against (default: those of --spec)",
    )
    parser.add_argument("--offline", action="store_true", help="do without the brokers")
    add_repair_arguments(parser)


def _duration(text: str) -> int:
    milliseconds = parse_duration(text)
    if milliseconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 10m, 24h or 7d")
    return milliseconds


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Examine, and show."""
    from statecore.errors import Invalid
    from statecore.maintenance.doctor import examine
    from statecore.maintenance.layout import application_directory, applications, check_application, no_application
    from statecore.spec.model import ProcessingGuarantee
    from statecore.spec.reader import load_spec

    spec: ApplicationSpec | None = load_spec(arguments.spec) if arguments.spec else None
    wanted = arguments.application_id or (spec.application_id if spec else None)
    if wanted is not None:
        check_application(spec, wanted)
    guarantee = ProcessingGuarantee(arguments.processing_guarantee) if arguments.processing_guarantee else None
    if spec is not None and guarantee not in (None, spec.processing_guarantee):
        raise Invalid(
            f"{spec.source} says {spec.processing_guarantee}, and --processing-guarantee {guarantee}.",
            action="Leave --processing-guarantee out, or correct the spec.",
        )
    if arguments.repair:
        return run_repair(arguments, wanted, output)
    refuse_without_repair(arguments)
    names = [wanted] if wanted is not None else applications(arguments.state_dir)
    if not names:
        raise no_application(arguments.state_dir)
    servers = arguments.bootstrap_servers or (spec.bootstrap_servers if spec else None)
    brokers = None
    if servers and not arguments.offline:
        from statecore.maintenance.doctor_topics import Brokers

        brokers = Brokers(servers, spec, guarantee, patient=True)
    found = [
        examine(
            application_directory(arguments.state_dir, name),
            spec=spec,
            guarantee=guarantee,
            tasks=arguments.task,
            stores=arguments.store,
            scan=arguments.scan,
            release=RELEASES[arguments.release] if arguments.release else None,
            cleanup_max_age_ms=arguments.cleanup_max_age,
            topics=brokers,
            progress=output.progress if arguments.scan else None,
        )
        for name in names
    ]
    code = max(one.exit_code for one in found)
    if not code and brokers is not None and brokers.failed is not None:
        code = brokers.failed.exit_code
    output.document({"applications": [one.to_json() for one in found], "exit_code": code})
    if not output.json:
        for one in found:
            show(one)
    return code


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


def _about(diagnosis: Diagnosis) -> str:
    said = "not running: nobody holds its lock"
    if diagnosis.holder is not None:
        said = f"in use by {diagnosis.holder}: examined is what was flushed last"
    guarantee = str(diagnosis.guarantee) if diagnosis.guarantee else "guarantee not known, so judged by the worse"
    return f"{said}; {guarantee}; to be opened by Kafka Streams {diagnosis.release}"


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
