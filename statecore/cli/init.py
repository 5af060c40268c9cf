"""``statecore init``: make a repository, after the place was put to the test."""

from __future__ import annotations

import argparse

from statecore.cli.output import Output

DOCUMENT_VERSION = 1
"""Of the document under ``--json``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--repository",
        required=True,
        metavar="URL",
        help="s3://bucket/prefix (endpoint, region and credentials as boto3 takes them: AWS_ENDPOINT_URL, AWS_REGION, "
        "AWS_ACCESS_KEY_ID, a profile, a role; or ?endpoint=...&region=...&encryption=AES256|aws:kms|customer), or "
        "file:///path of a directory that all machines share",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Make it, or say that there is one."""
    from dataclasses import asdict

    from statecore.repository.repository import make_repository

    output.progress.phase("probe")
    repository, made, again = make_repository(arguments.repository)
    output.progress.done("" if made else "there is one already")
    name, mark = repository.place.url, repository.mark
    output.document(
        {"version": DOCUMENT_VERSION, "repository": name, "made": made, "put_back": again, "mark": asdict(mark)}
    )
    if again:
        output.text(
            f"put back the mark of the repository at {name}: {mark.id}, which its heads and manifests carry; it was "
            "missing or damaged"
        )
    elif made:
        output.text(f"made the repository {mark.id} at {name}")
    else:
        output.text(f"{name} is a repository already: {mark.id}, made {mark.made} by statecore {mark.made_by}")
    return 0
