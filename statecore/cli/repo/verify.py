"""``statecore repo verify``: verify what the heads of a repository name, up to a level.

Exit code 0 without damage, 12 (``Corrupted``) with damage, 13 if something is of another release, 14 without snapshots,
10 if the repository could not be read; of several applications that of the worst, damage first. Nothing is changed but
the verification record.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_line, result_console
from statecore.cli.repo.options import add_repository
from statecore.words import format_bytes, number_of

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.repository.maintenance.verify import Subset, VerificationReport

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: all)")
    parser.add_argument(
        "--level",
        choices=("documents", "files", "bytes"),
        default="files",
        help="documents: head, manifests, task manifests; files: also presence and size of all blobs; bytes: also read "
        "all files and compare their SHA-256 (default: files)",
    )
    parser.add_argument(
        "--subset",
        type=_subset,
        metavar="K/N",
        help="with --level bytes: read part K of N of the blobs; /N reads the part whose last verification is the "
        "oldest, so that N runs read everything",
    )


def _subset(text: str) -> Subset:
    from statecore.repository.maintenance.verify import MOST_PARTS, Subset

    found = Subset.parse(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N or /N, with K up to N and N up to {MOST_PARTS}")
    return found


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.cli.repository_tables import exit_code
    from statecore.errors import options_conflict
    from statecore.metrics import VerificationMetrics
    from statecore.repository.maintenance.verification_record import Level
    from statecore.repository.maintenance.verify import ALL, verify_applications
    from statecore.repository.repository import open_repository
    from statecore.telemetry import metrics_from_environment

    level = Level(arguments.level)
    if arguments.subset is not None and level is not Level.BYTES:
        raise options_conflict(
            f"--subset divides what --level bytes reads, and the level is {level}.",
            "Add --level bytes, or leave --subset out.",
            ["level", "subset"],
        )
    repository = open_repository(arguments.repository)
    reports = []
    with ExitStack() as afterwards, metrics_from_environment(output.say) as metrics:
        for report in verify_applications(
            repository, arguments.application_id, level, arguments.subset or ALL, output.progress
        ):
            afterwards.callback(VerificationMetrics(metrics, report.application_id, report.known).close)
            reports.append(report)
            if not output.json:
                show(report, result_console())
    code = exit_code(error for report in reports for error in report.errors)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": repository.object_store.url,
            "applications": [report.to_json() for report in reports],
            "exit_code": code,
        }
    )
    return code


def show(report: VerificationReport, console: Console) -> None:
    from statecore.cli.repository_tables import label_of
    from statecore.repository.maintenance.verification_record import Level

    amount = "nothing could be verified"
    if report.newest is not None:
        amount = f"{number_of(report.snapshots, 'snapshot')}, {number_of(report.blobs, 'blob')}, "
        amount += f"{format_bytes(report.bytes)} of files"
    print_line(console, f"{report.application_id}: {amount}", indent=0)
    if report.level is Level.BYTES and report.newest is not None:
        part = "" if report.parts == 1 else f", part {report.part} of {report.parts}"
        print_line(
            console, f"bytes: {number_of(report.read_blobs, 'blob')}, {format_bytes(report.read_bytes)} read{part}"
        )
    if report.problem is not None:
        print_line(console, f"{label_of(report.problem)}: {report.problem.what}", "red")
        print_line(console, f"do: {report.problem.action}", indent=4)
    elif not report.damaged:
        print_line(console, f"no damage found (level {report.level})")
    groups = report.groups
    for group in groups[:_SHOWN]:
        one = group.first
        print_line(console, f"{label_of(one.error)}: {group.what}", "red")
        if one.snapshots:
            older = f" and {len(one.snapshots) - 3} older" if len(one.snapshots) > 3 else ""
            print_line(console, f"needed by {', '.join(one.snapshots[:3])}{older}", indent=4)
        print_line(console, f"do: {one.error.action}", indent=4)
    if len(groups) > _SHOWN:
        print_line(console, f"{len(groups) - _SHOWN} more; --json names them")
    if report.damaged and report.newest is not None:
        print_line(console, f"newest snapshot in which no damage was found: {report.intact or 'none'}")
    if report.not_recorded:
        print_line(console, f"not recorded: {report.not_recorded}")
