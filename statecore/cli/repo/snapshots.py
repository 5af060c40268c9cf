"""``statecore repo snapshots``: list the applications of a repository, or the snapshots of one, with age and damage.

Exit code 0 without damage, 12 (``Corrupted``) with damage, 13 if something is of another release; the others are shown
all the same. 14 without snapshots, 10 if the repository could not be read.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repo.options import add_repository
from statecore.cli.repository_tables import (
    application_document,
    exit_code,
    show_applications,
    show_snapshots,
    show_verified,
    verified_document,
)
from statecore.errors import missing_option

if TYPE_CHECKING:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.repository import Repository

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument(
        "--application-id", metavar="ID", help="the snapshots of this application (default: a line per application)"
    )
    parser.add_argument(
        "--held",
        action="store_true",
        help="show the bytes that each snapshot holds and no newer one does; needs --application-id",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.objectstore.base import SHORT_RETRIES
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.repository import open_repository

    repository = open_repository(arguments.repository, SHORT_RETRIES)
    if arguments.application_id is not None:
        return _snapshots(ApplicationRepository(repository, arguments.application_id), output, held=arguments.held)
    if arguments.held:
        raise missing_option("--held needs --application-id.", "Add --application-id.", "application_id")
    return _applications(repository, output)


def _applications(repository: Repository, output: Output) -> int:
    from statecore.cli.output import result_console
    from statecore.repository.listing import list_applications, require_snapshots

    url = repository.object_store.url
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
    from statecore.cli.output import result_console
    from statecore.repository.listing import list_snapshots
    from statecore.repository.maintenance.verification_record import verified_before

    head = application.head()
    output.progress.phase("inspect", len(head.snapshots), "snapshots")
    found = list_snapshots(application, head, output.progress.advance, space_usage=held)
    output.progress.done()
    verified = verified_before(application)
    code = exit_code(error for one in found for error in one.damage.values())
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "epoch": head.epoch,
            "generation": head.generation,
            "snapshots": [verified_document(one) for one in found],
            "verified": [asdict(one) for one in verified.verified],
            "exit_code": code,
        }
    )
    if not output.json:
        show_snapshots(found, result_console(), held=held)
        show_verified(verified, int(time.time() * 1000), result_console())
    return code
