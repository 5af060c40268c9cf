"""``statecore repo promote-replica``: make a replica a primary, to which jobs may publish.

Exit code 0, or 12 if a head is damaged: ``repo repair-head`` rebuilds it then.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repo.options import add_repository
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.repository.maintenance.promotion import PromotionPlan

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument(
        "--apply", action="store_true", help="promote; without it the plan is shown, and nothing is changed"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.faults import fault_points_from_environment
    from statecore.repository.maintenance.promotion import plan_promotion, promote, promoted
    from statecore.repository.repository import open_repository

    repository = open_repository(arguments.repository)
    plan = promote(repository, fault_points_from_environment()) if arguments.apply else plan_promotion(repository)
    code = next((error.exit_code for error in plan.damaged.values()), 0)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": repository.object_store.url,
            "copy_of": plan.copy_of,
            "applied": bool(arguments.apply and plan.copy_of),
            "heads": {name: {"epoch": promoted(head).epoch} for name, head in plan.heads.items()},
            "damaged": {name: error.to_json() for name, error in plan.damaged.items()},
            "exit_code": code,
        }
    )
    output.text("\n".join(_lines(repository.object_store.url, plan, applied=arguments.apply)))
    return code


def _lines(url: str, plan: PromotionPlan, *, applied: bool) -> list[str]:
    from statecore.repository.maintenance.promotion import promoted

    if not plan.copy_of:
        return [f"{url} is a primary; there is nothing to do"]
    lines = [f"{url}, a replica of {plan.copy_of}, {'is' if applied else 'would be'} a primary{' now' * applied}"]
    lines += [
        f"  {name}: {number_of(len(head.snapshots), 'snapshot')}, the newest "
        f"{head.newest.snapshot if head.newest else 'none'}; epoch {head.epoch} → {promoted(head).epoch}"
        for name, head in plan.heads.items()
    ]
    lines += [
        f"  {name}: its head cannot be read, repair it with repo repair-head: [{error.code}] {error.what}"
        for name, error in plan.damaged.items()
    ]
    lines += [
        f"Jobs that publish to {plan.copy_of} are not stopped. What they have published since the last copy, and "
        "publish from now on, is there and not here: the two diverge, and repo copy refuses to copy here. Stop these "
        "jobs, and start them with this URL.",
    ]
    return lines if applied else [*lines, "nothing was changed; --apply promotes"]
