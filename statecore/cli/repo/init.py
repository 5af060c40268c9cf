"""``statecore repo init``: create a repository, after a test of the object store."""

from __future__ import annotations

import argparse

from statecore.cli.output import Output

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository",
        required=True,
        metavar="URL",
        help="s3://bucket/prefix (endpoint, region and credentials as boto3 takes them: AWS_ENDPOINT_URL, AWS_REGION, "
        "AWS_ACCESS_KEY_ID, a profile, a role; or ?endpoint=...&region=...&encryption=AES256|aws:kms|customer), or "
        "file:///path of a shared directory; with ?encryption-key=file:/path|env:NAME|kms:KEY all data are encrypted "
        "before they are sent",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from dataclasses import asdict

    from statecore.repository.repository import create_repository

    output.progress.phase("test of the object store")
    repository, made, rewritten = create_repository(arguments.repository)
    output.progress.done("" if made else "it exists already")
    name, descriptor = repository.object_store.url, repository.descriptor
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": name,
            "is_new": made,
            "is_id_restored": rewritten,
            "descriptor": asdict(descriptor),
        }
    )
    if rewritten:
        output.text(
            f"rewrote the repository descriptor at {name}, which was missing or damaged, with the id {descriptor.id} "
            "of its heads and manifests"
        )
        if (key := repository.object_store.key) is not None:
            output.text(
                f"{key.user_key.reference} opens it; if a rotation to another key was killed before, run that again "
                "(statecore repo rotate-key)"
            )
    elif made:
        kind = "encrypted repository" if descriptor.encryption else "repository"
        output.text(f"created the {kind} {descriptor.id} at {name}")
    else:
        created = f"created {descriptor.created_at} by statecore {descriptor.statecore_release}"
        replica = f", a replica of {descriptor.copy_of}" if repository.is_replica else ""
        output.text(f"{name} is a repository already: {descriptor.id}, {created}{replica}")
    return 0
