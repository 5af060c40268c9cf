"""``statecore repo pin``: keep a snapshot, however old it becomes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repo.options import add_snapshot

if TYPE_CHECKING:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.pins import Pinned

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_snapshot(parser)
    parser.add_argument("--note", metavar="TEXT", help="why the snapshot is pinned")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.pins import pin

    application = ApplicationRepository.open(arguments.repository, arguments.application_id)
    show(application, pin(application, arguments.snapshot, arguments.note), output)
    return 0


def show(application: ApplicationRepository, done: Pinned, output: Output) -> None:
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "snapshot": {"snapshot": done.snapshot, "pinned": False} if done.entry is None else asdict(done.entry),
            "changed": done.changed,
        }
    )
    is_pinned = done.entry is not None and done.entry.pinned
    state = "pinned" if is_pinned else "no longer pinned" if done.changed else "not pinned"
    output.text(f"{done.snapshot} is {state}{'' if done.changed else ' (unchanged)'}")
