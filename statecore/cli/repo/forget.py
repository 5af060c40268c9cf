"""``statecore repo forget``: leave snapshots out of the head, by a retention or by name.

``repo prune`` deletes what they held.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console
from statecore.cli.repo.options import add_application
from statecore.spec.units import DURATION_EXPECTED, format_duration, parse_duration
from statecore.words import number_of

if TYPE_CHECKING:
    from statecore.repository.head import Retention
    from statecore.repository.maintenance.forget import ForgetPlan

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_KEPT = {"last": "", "hourly": "hours", "daily": "days", "weekly": "weeks", "monthly": "months", "yearly": "years"}
"""Field of a retention → the span of which it keeps the newest snapshot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_application(parser)
    for name, span in _KEPT.items():
        what = f"the newest of each of the last N {span} that have one" if span else "the newest N snapshots"
        parser.add_argument(f"--keep-{name}", type=_count, metavar="N", help=f"keep {what}")
    parser.add_argument(
        "--keep-within", type=duration, metavar="TIME", help="keep all that are at most so much older than the newest"
    )
    parser.add_argument(
        "--snapshot",
        action="append",
        default=[],
        metavar="ID",
        help="forget this snapshot, and no other (repeatable): a damaged one; not the newest, and none that is pinned",
    )
    parser.add_argument("--apply", action="store_true", help="forget; without it the plan is shown")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 100000")
    return int(text)


def duration(text: str) -> int:
    """Milliseconds of a duration."""
    milliseconds = parse_duration(text)
    if milliseconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; expected {DURATION_EXPECTED}")
    return milliseconds


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.errors import options_conflict
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.maintenance.forget import forget, plan_forget

    keep = _retention(arguments)
    if keep is not None and arguments.snapshot:
        raise options_conflict(
            "--snapshot forgets snapshots by name, and --keep-* by a retention.",
            "Give one of both; forget twice for both.",
            ["snapshot", "keep"],
        )
    application = ApplicationRepository.open(arguments.repository, arguments.application_id)
    plan = (forget if arguments.apply else plan_forget)(application, keep, arguments.snapshot)
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": application.url,
            "application_id": application.application_id,
            "applied": bool(arguments.apply),
            "keep": asdict(plan.keep),
            "snapshots": [{"snapshot": asdict(one.entry), "kept_for": one.reasons} for one in plan.snapshots],
        }
    )
    if not output.json:
        show(plan, applied=arguments.apply)
    return 0


def _retention(arguments: argparse.Namespace) -> Retention | None:
    """The retention of the options, in which what is not given is not kept; ``None`` without options."""
    from statecore.repository.head import Retention

    given = {name: getattr(arguments, f"keep_{name}") for name in _KEPT}
    given["within_ms"] = arguments.keep_within
    if all(value is None for value in given.values()):
        return None
    return Retention(**{one.name: given[one.name] or 0 for one in fields(Retention)})


def show(plan: ForgetPlan, *, applied: bool) -> None:
    from rich.text import Text

    console = result_console()
    rows = [
        (one.entry.snapshot, one.entry.created_at, one.entry.origin, ", ".join(one.reasons) or "forgotten")
        for one in plan.snapshots
    ]
    print_table(console, "", ("snapshot", "published", "by", "kept for"), rows, left={"snapshot", "by", "kept for"})
    keep = ", ".join(
        f"{name} {value}" if name != "within_ms" else f"within {format_duration(value)}"
        for name, value in asdict(plan.keep).items()
        if value
    )
    number = len(plan.forgotten)
    done = "forgot" if applied else "would forget"
    console.print(Text(f"{done} {number_of(number, 'snapshot')} of {len(plan.snapshots)}; kept from now on: {keep}"))
    if number:
        console.print(Text("repo prune deletes what they held" if applied else "nothing was changed; --apply forgets"))
