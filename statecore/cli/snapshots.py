"""``statecore snapshots``: list the snapshots of a repository with age and damage, and pin them.

Exit code 0 without damage, 12 (``Corrupted``) with damage, 13 if something is of another release; the others are shown
all the same. 14 without snapshots, 10 if the repository could not be read.
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
"""Version of the ``--json`` document."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=["pin", "unpin"],
        help="pin: keep a snapshot, however old it becomes; unpin: remove the pin (default: list)",
    )
    parser.add_argument("pinned", nargs="?", metavar="ID", help="the snapshot to pin or unpin, or 'newest'")
    parser.add_argument("--note", metavar="TEXT", help="why the snapshot is pinned")
    parser.add_argument(
        "--held",
        action="store_true",
        help="show the bytes that each snapshot holds and no newer one does",
    )
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository, as for statecore init")
    parser.add_argument(
        "--application-id", metavar="ID", help="the snapshots of this application (default: a line per application)"
    )
    parser.add_argument(
        "--snapshot", metavar="ID", help="show this snapshot in detail, or 'newest'; needs --application-id"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """List or pin snapshots."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.repository import open_repository

    if arguments.action is not None:
        return _pin(arguments, output)
    if arguments.note is not None:
        raise Invalid(
            "--note needs the action pin.",
            code="option-missing",
            action="Write statecore snapshots pin ID --note ...",
            option="action",
        )
    if arguments.snapshot is not None and arguments.application_id is None:
        raise Invalid(
            f"--snapshot {arguments.snapshot!a} needs --application-id.",
            code="option-missing",
            action="Add --application-id; without --snapshot all applications are listed.",
            option="application_id",
        )
    repository = open_repository(arguments.repository)
    if arguments.application_id is None:
        if arguments.held:
            raise Invalid(
                "--held needs --application-id.",
                code="option-missing",
                action="Add --application-id.",
                option="application_id",
            )
        return _applications(repository, output)
    application = ApplicationRepository(repository, arguments.application_id)
    if arguments.snapshot is None:
        return _snapshots(application, output, held=arguments.held)
    return _detail(application, arguments.snapshot, output, held=arguments.held)


def _pin(arguments: argparse.Namespace, output: Output) -> int:
    """Pin or unpin a snapshot."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.pins import pin, unpin

    action, snapshot = arguments.action, arguments.pinned
    wrong = [
        *(["the snapshot was not named"] if snapshot is None else []),
        *(["--application-id was not given"] if arguments.application_id is None else []),
        *([f"--snapshot cannot be combined with {action}"] if arguments.snapshot is not None else []),
        *([f"--held cannot be combined with {action}"] if arguments.held else []),
        *(["--note needs pin"] if action == "unpin" and arguments.note is not None else []),
    ]
    if wrong:
        raise Invalid(
            f"No snapshot could be {action}ned: {'; '.join(wrong)}.",
            code="pin-arguments-invalid",
            action=f"Write statecore snapshots {action} ID --repository URL --application-id ID",
            problems=wrong,
        )
    application = ApplicationRepository.open(arguments.repository, arguments.application_id)
    done = pin(application, snapshot, arguments.note) if action == "pin" else unpin(application, snapshot)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "snapshot": asdict(done.entry),
            "changed": done.changed,
        }
    )
    state = "pinned" if done.entry.pinned else "not pinned"
    output.text(f"{done.entry.snapshot} is {state}{'' if done.changed else ' (unchanged)'}")
    return 0


def _applications(repository: Repository, output: Output) -> int:
    """Show a line for each application."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import list_applications, require_snapshots

    url = repository.place.url
    found = list_applications(repository)
    require_snapshots(repository, found)
    code = exit_code(view.error for view in found if view.error is not None)
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


def _snapshots(application: ApplicationRepository, output: Output, *, held: bool) -> int:
    """Show a line for each snapshot of an application."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import list_snapshots

    head = application.head()
    output.progress.phase("look", len(head.snapshots), "snapshots")
    found = list_snapshots(application, head, output.progress.advance, space_usage=held)
    output.progress.done()
    code = exit_code(error for one in found for error in one.damage.values())
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "epoch": head.epoch,
            "generation": head.generation,
            "snapshots": [examined_document(one) for one in found],
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshots(found, result_console(), held=held)
    return code


def _detail(application: ApplicationRepository, snapshot: str, output: Output, *, held: bool) -> int:
    """Show one snapshot."""
    from statecore.cli.output import result_console
    from statecore.repository.listing import describe_snapshot, list_snapshots

    head = application.head()
    view = describe_snapshot(application, head, snapshot)
    examined = None
    if held:
        newer = head.snapshots[: head.snapshots.index(view.entry) + 1]
        output.progress.phase("look", len(newer), "snapshots")
        *_, examined = list_snapshots(
            application, replace(head, snapshots=newer), output.progress.advance, space_usage=True
        )
        output.progress.done()
    troubles = [view.damage, *(task.damage for task in view.tasks)]
    code = exit_code(error for error in troubles if error is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "snapshot": snapshot_document(view, None if examined is None else examined.held_bytes),
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshot(view, result_console(), examined)
    return code
