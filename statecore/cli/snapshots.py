"""``statecore snapshots``: which snapshots a repository has, of what age, and what is damaged.

Exit 0 when nothing that was looked at is damaged, 12 (``Corrupted``) when something is, 13 when something is of another
release; the others are shown all the same. 14 when there is none, 10 when nobody could look.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repository_views import (
    application_document,
    examined_document,
    exit_code,
    show_applications,
    show_snapshot,
    show_snapshots,
    snapshot_document,
)
from statecore.errors import Invalid

if TYPE_CHECKING:
    from statecore.repository.repository import Repository
    from statecore.repository.shelf import Shelf

DOCUMENT_VERSION = 1
"""Of the document under ``--json``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository, as statecore init takes it")
    parser.add_argument(
        "--application-id", metavar="ID", help="this application's snapshots (default: a line for each)"
    )
    parser.add_argument(
        "--snapshot", metavar="ID", help="this one in detail, or 'newest'; --application-id says of which application"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Look, and show."""
    from statecore.repository.repository import open_repository
    from statecore.repository.shelf import Shelf

    if arguments.snapshot is not None and arguments.application_id is None:
        raise Invalid(
            f"Of which application {arguments.snapshot!a} is was not said.",
            action="Add --application-id; without --snapshot all applications are shown.",
        )
    repository = open_repository(arguments.repository)
    if arguments.application_id is None:
        return _applications(repository, output)
    shelf = Shelf(repository, arguments.application_id)
    return _snapshots(shelf, output) if arguments.snapshot is None else _detail(shelf, arguments.snapshot, output)


def _applications(repository: Repository, output: Output) -> int:
    """A line for each application."""
    from statecore.cli.output import result_console
    from statecore.repository.looking import ensure_some, look_at_applications

    url = repository.place.url
    found = look_at_applications(repository)
    ensure_some(repository, found)
    code = exit_code(view.trouble for view in found if view.trouble is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": url,
            "applications": [application_document(view) for view in found],
            "exit_code": code,
        }
    )
    if not output.json:
        show_applications(found, result_console())
    return code


def _snapshots(shelf: Shelf, output: Output) -> int:
    """A line for each snapshot of an application."""
    from statecore.cli.output import result_console
    from statecore.repository.looking import look_at_snapshots

    head = shelf.head()
    output.progress.phase("look", len(head.snapshots), "snapshots")
    found = look_at_snapshots(shelf, head, output.progress.advance)
    output.progress.done()
    code = exit_code(error for one in found for error in one.damage.values())
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": shelf.url,
            "application_id": shelf.application_id,
            "epoch": head.epoch,
            "generation": head.generation,
            "snapshots": [examined_document(one) for one in found],
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshots(found, result_console())
    return code


def _detail(shelf: Shelf, snapshot: str, output: Output) -> int:
    """One snapshot."""
    from statecore.cli.output import result_console
    from statecore.repository.looking import look_at_snapshot

    view = look_at_snapshot(shelf, shelf.head(), snapshot)
    troubles = [view.damage, *(task.damage for task in view.tasks)]
    code = exit_code(error for error in troubles if error is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": shelf.url,
            "application_id": shelf.application_id,
            "snapshot": snapshot_document(view),
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshot(view, result_console())
    return code
