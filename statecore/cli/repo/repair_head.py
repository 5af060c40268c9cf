"""``statecore repo repair-head``: rebuild the head of an application from its manifests in the repository."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repo.options import add_application
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.repository.maintenance.head_repair import HeadRepairPlan

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_application(parser)
    parser.add_argument(
        "--apply", action="store_true", help="repair; without it the plan is shown, and nothing is changed"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.head_repair import apply_repair, plan_repair

    application = ApplicationRepository.open(arguments.repository, arguments.application_id)
    output.progress.phase("inspect", unit="snapshots")
    plan = plan_repair(application, output.progress.advance)
    output.progress.done()
    if arguments.apply:
        apply_repair(application, plan)
    applied = bool(arguments.apply and plan.problem is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "wrong": plan.problem,
            "applied": applied,
            "head": asdict(plan.head),
            "left_out": [one._asdict() for one in plan.excluded],
        }
    )
    output.text("\n".join(_lines(application.application_id, plan, applied=applied)))
    return 0


def _lines(application_id: str, plan: HeadRepairPlan, *, applied: bool) -> list[str]:
    head = plan.head
    if plan.problem is None:
        lines = [
            f"the head of {application_id} is valid and is not changed: it names {_snapshots(len(head.snapshots))}, "
            "all of them readable (manifests and task manifests; files were not checked)"
        ]
        return lines + _left_out("not named", plan)
    lines = [
        f"the head of {application_id}: {plan.problem}",
        f"the new head{'' if applied else ' would name'} {'names ' if applied else ''}"
        f"{_snapshots(len(head.snapshots))}, with epoch {head.epoch} and generation {head.generation}",
    ]
    lines += [
        f"  {one.snapshot}, published {one.created_at} by {one.origin}: {number_of(one.tasks, 'task')}, "
        f"{one.file_bytes:,} bytes"
        for one in head.snapshots
    ]
    if not head.snapshots:
        lines.append(
            "  warning: nothing can be fetched then, and once a job has published, repo prune deletes all other files. "
            "Look first for the manifests in a replica, or in the bucket's versions"
        )
    lines += _left_out("left out", plan)
    if applied:
        return [*lines, "the head was replaced; jobs that are publishing now are fenced, start them again"]
    return [*lines, "nothing was changed. Apply the repair with --apply"]


def _left_out(label: str, plan: HeadRepairPlan) -> list[str]:
    """A line for each reason and snapshot, newest first, with a limit for each reason."""
    lines, by_reason = [], dict[str, list[str]]()
    for one in sorted(plan.excluded, reverse=True):
        by_reason.setdefault(one.why, []).append(one.snapshot)
    for why, snapshots in by_reason.items():
        lines += [f"  {label}: {snapshot}: {why}" for snapshot in snapshots[:_SHOWN]]
        if len(snapshots) > _SHOWN:
            lines.append(f"  {label}: {len(snapshots) - _SHOWN} more: {why} (--json names them)")
    return lines


def _snapshots(number: int) -> str:
    return f"{number} snapshot{'' if number == 1 else 's'}" if number else "no snapshot"
