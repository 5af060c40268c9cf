"""``statecore repo show``: one snapshot in detail, with damage.

Exit code 0 without damage, 12 (``Corrupted``) with damage, 13 if something is of another release.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from statecore.cli.output import Output
from statecore.cli.repo.options import add_snapshot
from statecore.cli.repository_tables import exit_code, show_snapshot, snapshot_document

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_snapshot(parser)
    parser.add_argument(
        "--held", action="store_true", help="show the bytes that the snapshot holds and no newer one does"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.cli.output import result_console
    from statecore.objectstore.base import SHORT_RETRIES
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.listing import describe_snapshot, list_snapshots

    application = ApplicationRepository.open(arguments.repository, arguments.application_id, SHORT_RETRIES)
    head = application.head()
    view = describe_snapshot(application, head, arguments.snapshot)
    verified = None
    if arguments.held:
        newer = head.snapshots[: head.snapshots.index(view.entry) + 1]
        output.progress.phase("inspect", len(newer), "snapshots")
        *_, verified = list_snapshots(
            application, replace(head, snapshots=newer), output.progress.advance, space_usage=True
        )
        output.progress.done()
    troubles = [view.damage, *(task.damage for task in view.tasks)]
    code = exit_code(error for error in troubles if error is not None)
    if not output.json:
        show_snapshot(view, result_console(), verified)
        return code
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "snapshot": snapshot_document(view, None if verified is None else verified.held_bytes),
            "exit_code": code,
        }
    )
    return code
