"""``statecore snapshots``: which snapshots a repository has, of what age, and what is damaged; and pins on them.

Exit 0 when nothing that was looked at is damaged, 12 (``Corrupted``) when something is, 13 when something is of another
release; the others are shown all the same. 14 when there is none, 10 when nobody could look.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repository_tables import (
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
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.repository import Repository

DOCUMENT_VERSION = 1
"""Of the document under ``--json``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=["pin", "unpin"],
        help="pin: go on naming a snapshot, however old it is; unpin: take the pin off (default: show)",
    )
    parser.add_argument("pinned", nargs="?", metavar="ID", help="the snapshot to pin or unpin, or 'newest'")
    parser.add_argument("--note", metavar="TEXT", help="why it is pinned")
    parser.add_argument(
        "--held",
        action="store_true",
        help="add up the bytes that each snapshot, or the one in detail, holds and no newer one does",
    )
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository, as statecore init takes it")
    parser.add_argument(
        "--application-id", metavar="ID", help="this application's snapshots (default: a line for each)"
    )
    parser.add_argument(
        "--snapshot", metavar="ID", help="this one in detail, or 'newest'; --application-id says of which application"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Look, and show."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.repository import open_repository

    if arguments.action is not None:
        return _pin(arguments, output)
    if arguments.note is not None:
        raise Invalid(
            "A note says why a snapshot is pinned.",
            code="option-missing",
            action="Say which: statecore snapshots pin ID --note ...",
            option="action",
        )
    if arguments.snapshot is not None and arguments.application_id is None:
        raise Invalid(
            f"Of which application {arguments.snapshot!a} is was not said.",
            code="option-missing",
            action="Add --application-id; without --snapshot all applications are shown.",
            option="application_id",
        )
    repository = open_repository(arguments.repository)
    if arguments.application_id is None:
        if arguments.held:
            raise Invalid(
                "What is held was asked of no application.",
                code="option-missing",
                action="Add --application-id.",
                option="application_id",
            )
        return _applications(repository, output)
    shelf = ApplicationRepository(repository, arguments.application_id)
    if arguments.snapshot is None:
        return _snapshots(shelf, output, held=arguments.held)
    return _detail(shelf, arguments.snapshot, output, held=arguments.held)


def _pin(arguments: argparse.Namespace, output: Output) -> int:
    """Pin a snapshot, or take its pin off."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.pins import pin, unpin

    action, snapshot = arguments.action, arguments.pinned
    wrong = [
        *(["the snapshot was not named"] if snapshot is None else []),
        *(["--application-id was not given"] if arguments.application_id is None else []),
        *(["--snapshot is for showing one"] if arguments.snapshot is not None else []),
        *(["--held is for showing"] if arguments.held else []),
        *(["--note says why one is pinned"] if action == "unpin" and arguments.note is not None else []),
    ]
    if wrong:
        raise Invalid(
            f"No snapshot could be {action}ned: {'; '.join(wrong)}.",
            code="pin-arguments-invalid",
            action=f"statecore snapshots {action} ID --repository URL --application-id ID",
            problems=wrong,
        )
    shelf = ApplicationRepository.at(arguments.repository, arguments.application_id)
    done = pin(shelf, snapshot, arguments.note) if action == "pin" else unpin(shelf, snapshot)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": shelf.url,
            "application_id": shelf.application_id,
            "snapshot": asdict(done.entry),
            "changed": done.changed,
        }
    )
    state = "pinned" if done.entry.pinned else "not pinned"
    output.text(f"{done.entry.snapshot} is {state}{'' if done.changed else ', as it was'}")
    return 0


def _applications(repository: Repository, output: Output) -> int:
    """A line for each application."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import ensure_some, list_applications

    url = repository.place.url
    found = list_applications(repository)
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


def _snapshots(shelf: ApplicationRepository, output: Output, *, held: bool) -> int:
    """A line for each snapshot of an application."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import list_snapshots

    head = shelf.head()
    output.progress.phase("look", len(head.snapshots), "snapshots")
    found = list_snapshots(shelf, head, output.progress.advance, held=held)
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
        show_snapshots(found, result_console(), held=held)
    return code


def _detail(shelf: ApplicationRepository, snapshot: str, output: Output, *, held: bool) -> int:
    """One snapshot."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import describe_snapshot, list_snapshots

    head = shelf.head()
    view = describe_snapshot(shelf, head, snapshot)
    examined = None
    if held:
        newer = head.snapshots[: head.snapshots.index(view.entry) + 1]
        output.progress.phase("look", len(newer), "snapshots")
        *_, examined = list_snapshots(shelf, replace(head, snapshots=newer), output.progress.advance, held=True)
        output.progress.done()
    troubles = [view.damage, *(task.damage for task in view.tasks)]
    code = exit_code(error for error in troubles if error is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": shelf.url,
            "application_id": shelf.application_id,
            "snapshot": snapshot_document(view, None if examined is None else examined.held_bytes),
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshot(view, result_console(), examined)
    return code
