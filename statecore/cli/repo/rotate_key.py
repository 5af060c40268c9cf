"""``statecore repo rotate-key``: encrypt the data key of a repository with another key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output

if TYPE_CHECKING:
    from statecore.repository.maintenance.key_rotation import KeyRotation

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository",
        required=True,
        metavar="URL",
        help="URL of the repository, with its present key: ...?encryption-key=KEY",
    )
    parser.add_argument(
        "--new-key",
        required=True,
        metavar="KEY",
        help="where the new key is: file:/path, env:NAME or kms:KEY, as in a URL",
    )
    parser.add_argument(
        "--apply", action="store_true", help="rotate; without it the plan is shown, and nothing is changed"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.faults import fault_points_from_environment
    from statecore.objectstore.user_keys import user_key_of
    from statecore.repository.maintenance.key_rotation import plan_rotation, rotate

    rotation = plan_rotation(arguments.repository, user_key_of(arguments.new_key))
    if arguments.apply:
        rotate(rotation, fault_points_from_environment())
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": rotation.url,
            "id": rotation.repository.descriptor.id,
            "key": rotation.before,
            "new_key": rotation.after,
            "is_resumed": rotation.is_resumed,
            "applied": arguments.apply,
        }
    )
    output.text("\n".join(_lines(rotation, applied=arguments.apply)))
    return 0


def _lines(rotation: KeyRotation, *, applied: bool) -> list[str]:
    when = "already" if rotation.is_resumed else "now" if applied else "then"
    lines = [
        f"{rotation.after} opens the repository {when}, and {rotation.before} does not",
        f"the URL with the new key: {rotation.url}",
    ]
    what = "completes a rotation that was killed" if rotation.is_resumed else "rotates"
    return lines if applied else [*lines, f"nothing was changed; --apply {what}"]
