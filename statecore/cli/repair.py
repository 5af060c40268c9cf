"""``statecore repair head``: make the head of an application anew from the manifests that are there."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.repository.head_repair import RepairPlan

DOCUMENT_VERSION = 1
"""Of the document under ``--json``."""

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", choices=["head"], help="the head: what says which snapshots of an application count")
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository, as statecore init takes it")
    parser.add_argument("--application-id", required=True, metavar="ID", help="the application")
    parser.add_argument(
        "--apply", action="store_true", help="do it (default: print what would be done, and change nothing)"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Look, and repair where that is asked for."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.head_repair import apply_repair, plan_repair

    shelf = ApplicationRepository.at(arguments.repository, arguments.application_id)
    output.progress.phase("look", unit="snapshots")
    plan = plan_repair(shelf, output.progress.advance)
    output.progress.done()
    if arguments.apply:
        apply_repair(shelf, plan)
    applied = bool(arguments.apply and plan.wrong is not None)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": shelf.url,
            "application_id": shelf.application_id,
            "wrong": plan.wrong,
            "applied": applied,
            "head": asdict(plan.head),
            "left_out": [one._asdict() for one in plan.left_out],
        }
    )
    output.text("\n".join(_lines(shelf.application_id, plan, applied=applied)))
    return 0


def _lines(application_id: str, plan: RepairPlan, *, applied: bool) -> list[str]:
    head = plan.head
    if plan.wrong is None:
        lines = [
            f"the head of {application_id} is well, and is left alone: it names {_snapshots(len(head.snapshots))}, all "
            "of which can be read (manifests and parts; of files nobody has looked)"
        ]
        return lines + _left_out("not named", plan)
    lines = [
        f"the head of {application_id}: {plan.wrong}",
        f"the new head{'' if applied else ' would name'} {'names ' if applied else ''}"
        f"{_snapshots(len(head.snapshots))}, with epoch {head.epoch} and generation {head.generation}",
    ]
    lines += [
        f"  {one.snapshot}, made {one.made}, by {one.origin}: {number_of(one.tasks, 'task')}, {one.file_bytes:,} bytes"
        for one in head.snapshots
    ]
    lines += _left_out("left out", plan)
    if applied:
        return [*lines, "done; who began to publish before is fenced, and has to start a new job"]
    return [*lines, "nothing was changed: do it with --apply"]


def _left_out(word: str, plan: RepairPlan) -> list[str]:
    """A line for each reason and snapshot, the latest first; of one reason a few: heads let go of most checkpoints."""
    lines, by_reason = [], dict[str, list[str]]()
    for one in sorted(plan.left_out, reverse=True):
        by_reason.setdefault(one.why, []).append(one.snapshot)
    for why, snapshots in by_reason.items():
        lines += [f"  {word}: {snapshot}: {why}" for snapshot in snapshots[:_SHOWN]]
        if len(snapshots) > _SHOWN:
            lines.append(f"  {word}: {len(snapshots) - _SHOWN} more: {why} (--json names them)")
    return lines


def _snapshots(number: int) -> str:
    return f"{number} snapshot{'' if number == 1 else 's'}" if number else "no snapshot"
