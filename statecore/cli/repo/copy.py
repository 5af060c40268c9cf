"""``statecore repo copy``: copy the snapshots of a repository into a replica.

Exit code 0 if all applications were copied; else that of the first one's error: 12 if its snapshots are damaged in the
source, or the source was set back. The others are copied all the same; so is an application of which files of older
snapshots are damaged, without these.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from statecore.cli.output import Output
from statecore.cli.repo.options import add_repository
from statecore.cli.repository_tables import left_alone
from statecore.progress import Progress, progress_of_each
from statecore.words import format_bytes, number_of

if TYPE_CHECKING:
    from statecore.repository.maintenance.copier import CopiedApplication

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument(
        "--to", required=True, metavar="URL", help="the replica; it is made if there is nothing at that place"
    )
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: all)")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.errors import StatecoreError
    from statecore.faults import fault_points_from_environment
    from statecore.repository.application_repository import ApplicationRepository, applications_in
    from statecore.repository.maintenance.copier import (
        DIVERGED,
        CopiedApplication,
        Copier,
        CopyOutcome,
        record_source,
    )
    from statecore.repository.maintenance.descriptor_change import add_needs
    from statecore.repository.object_store import object_store_of
    from statecore.repository.repository import create_replica, open_repository

    faults = fault_points_from_environment()
    source = open_repository(arguments.repository)
    chosen = arguments.application_id
    if chosen is not None and ApplicationRepository(source, chosen).read_head() is None:
        ApplicationRepository(source, chosen).head()  # raises that there is none, before a replica is made
    output.progress.phase("test of the object store")
    replica, is_new, _ = create_replica(object_store_of(arguments.to), source)
    output.progress.done("" if is_new else "it is a replica already")
    replica = add_needs(replica, source)
    faults.reach("copy.after-descriptor")

    def copy(name: str, progress: Progress) -> CopiedApplication:
        applications = ApplicationRepository(source, name), ApplicationRepository(replica, name)
        try:
            return Copier(*applications, progress=progress, faults=faults).run()
        except StatecoreError as error:
            progress.done("failed")
            return CopiedApplication(name, CopyOutcome.FAILED, error=error)

    names = sorted({*applications_in(source), *applications_in(replica)}) if chosen is None else [chosen]
    copied = [copy(*each) for each in progress_of_each(names, output.progress)]
    errors = [one.error for one in copied if one.error is not None]
    nothing = (CopyOutcome.EMPTY, CopyOutcome.FAILED, CopyOutcome.AHEAD)
    is_copied = any(one.outcome not in nothing for one in copied)
    is_diverged = any(error.code == DIVERGED for error in errors)
    before = record_source(replica, source) if is_copied and not is_diverged else ""
    code = errors[0].exit_code if errors else 0
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": source.object_store.url,
            "replica": replica.object_store.url,
            "is_new": is_new,
            "copy_of_before": before or None,
            "applications": [_document(one) for one in copied],
            "exit_code": code,
        }
    )
    made = [f"made the replica {replica.object_store.url}"] if is_new else []
    if before:
        made.append(
            f"it is recorded as a replica of {source.object_store.url_without_key} now, and was one of {before}"
        )
    output.text("\n".join([*made, *(line for one in copied for line in _lines(one))]))
    return code


def _document(one: CopiedApplication) -> dict[str, Any]:
    error = None if one.error is None else one.error.to_json()
    return {**asdict(replace(one, error=None)), "error": error}


def _lines(one: CopiedApplication) -> list[str]:
    from statecore.repository.maintenance.copier import CopyOutcome

    if one.error is not None and one.outcome is CopyOutcome.FAILED:
        return [f"{one.application_id}: not copied: [{one.error.code}] {one.error.what}", f"  {one.error.action}"]
    if one.outcome is CopyOutcome.EMPTY:
        return [f"{one.application_id}: nothing was published"]
    if one.outcome is CopyOutcome.AHEAD:
        return [f"{one.application_id}: nothing to copy: the replica was copied from the primary later than the source"]
    said = {
        CopyOutcome.COPIED: "copied",
        CopyOutcome.CURRENT: "the replica had the newest head",
        CopyOutcome.INCOMPLETE: f"copied without {number_of(len(one.left_out), 'damaged blob')} of older snapshots",
    }
    lines = [
        f"{one.application_id}: {said[one.outcome]}: {number_of(one.snapshots, 'snapshot')}, which need "
        f"{number_of(one.needed.blobs, 'blob')}, {format_bytes(one.needed.bytes)}; copied "
        f"{number_of(one.copied.blobs, 'blob')}, {format_bytes(one.copied.bytes)}"
    ]
    if one.error is not None:
        lines += [f"  [{one.error.code}] {one.error.what}", f"  {one.error.action}"]
    if one.listed.blobs:
        lines.append(
            f"  the source has deleted {number_of(one.listed.blobs, 'blob')}, {format_bytes(one.listed.bytes)} of what "
            "the replica has; repo prune deletes them there"
        )
    return lines + left_alone(one.unknown)
