"""``statecore repo prune``: delete what no snapshot of an application needs any more.

The first run that finds garbage only lists it; a run at least ``--min-age`` later deletes it.
"""

from __future__ import annotations

import argparse
import math
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from statecore.cli.output import Output
from statecore.cli.repo.forget import duration
from statecore.cli.repo.options import add_repository
from statecore.cli.repository_tables import left_alone
from statecore.progress import progress_of_each
from statecore.spec.units import format_duration
from statecore.words import format_bytes, number_of, shortened_list

if TYPE_CHECKING:
    from statecore.repository.maintenance.collection import Amount, CollectionReport
    from statecore.repository.maintenance.repack import RepackReport

S3_PRICE = 0.023
"""US dollars a GB (2^30 bytes) and month: S3 Standard in us-east-1, first 50 TB, https://aws.amazon.com/s3/pricing."""

DOCUMENT_VERSION = 1  # Of the ``--json`` document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repository(parser)
    parser.add_argument("--application-id", metavar="ID", help="only this application (default: all)")
    parser.add_argument(
        "--min-age",
        type=duration,
        default="24h",
        metavar="TIME",
        help="how long garbage stays after it was listed, and at least the time between two collections; the longest "
        "job that uploads has to end within it (default: 24h)",
    )
    parser.add_argument(
        "--max-unused",
        type=_percent,
        default="20",
        metavar="PERCENT",
        help="rewrite packs of which most is garbage, when the garbage in packs is more than this share of what the "
        "snapshots need, and more than 64 MiB (default: 20)",
    )
    parser.add_argument(
        "--price",
        type=_price,
        metavar="USD",
        help="price of a GB (2^30 bytes) a month, to show what is freed in money (default: "
        f"{S3_PRICE}, the list price of S3 Standard in us-east-1; none of a directory)",
    )
    parser.add_argument("--apply", action="store_true", help="delete and list; without it the plan is shown")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Prune, or plan it; the exit code is that of the first application that failed."""
    from statecore.errors import StatecoreError
    from statecore.faults import fault_points_from_environment
    from statecore.repository.application_repository import ApplicationRepository, published_in
    from statecore.repository.maintenance.collection import Collector
    from statecore.repository.maintenance.repack import Repacker
    from statecore.repository.repository import open_repository

    repository = open_repository(arguments.repository)
    price = arguments.price
    if price is None and arguments.repository.startswith("s3:"):
        price = S3_PRICE
    chosen = arguments.application_id
    reports, repacked, failed = [], {}, {}
    names = published_in(repository) if chosen is None else [chosen]
    for application_id, progress in progress_of_each(names, output.progress):
        application, faults = ApplicationRepository(repository, application_id), fault_points_from_environment()
        collector = Collector(application, min_age_ms=arguments.min_age, progress=progress, faults=faults)
        repacker = Repacker(application, max_unused=arguments.max_unused, progress=progress, faults=faults)
        try:
            reports.append(collector.run() if arguments.apply else collector.plan())
            repacked[application_id] = repacker.run() if arguments.apply else repacker.plan()
        except StatecoreError as error:
            if chosen is not None and not reports:
                raise
            output.progress.done("failed")
            failed[application_id] = error
    output.document(
        {
            "version": DOCUMENT_VERSION,
            "repository": arguments.repository,
            "applied": bool(arguments.apply),
            "applications": [
                {
                    **asdict(one),
                    "freed_usd_a_month": _freed(one, price),
                    "repacked": asdict(repacked[one.application_id]) if one.application_id in repacked else None,
                }
                for one in reports
            ],
            "failed": {application_id: error.to_json() for application_id, error in failed.items()},
        }
    )
    lines = [
        line
        for one in reports
        for line in _lines(one, arguments.min_age, _freed(one, price), repacked.get(one.application_id))
    ]
    lines += [f"! {name}: [{error.code}] {error.what}\n  {error.action}" for name, error in failed.items()]
    output.text("\n".join(lines or ["the repository has no application"]))
    return next((error.exit_code for error in failed.values()), 0)


def _percent(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (found := float(text)) < math.inf:
            return found / 100
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of percent, such as 20")


def _price(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (found := float(text)) < math.inf:
            return found
    raise argparse.ArgumentTypeError(f"{text!r} is not a price; give US dollars, such as {S3_PRICE}")


def _freed(report: CollectionReport, price: float | None) -> float | None:
    """US dollars a month for what is deleted, at a price of a GB; ``None`` without a price, or where the bytes stay."""
    return None if price is None or report.keeps_versions else round(report.deleted.bytes / (1 << 30) * price, 4)


def _lines(report: CollectionReport, min_age_ms: int, freed: float | None, repacked: RepackReport | None) -> list[str]:
    from statecore.repository.maintenance.collection import VERSIONS_STAY

    done = report.applied
    money = "" if freed is None or not report.deleted.blobs else f", {freed:,.2f} USD a month"
    after = f", to be deleted after {format_duration(min_age_ms)}" if report.listed.blobs else ""
    lines = [
        f"{report.application_id}: {number_of(report.snapshots, 'snapshot')}, which need {_amount(report.needed)}",
        f"  {'deleted' if done else 'would delete'}: {_amount(report.deleted)}{money}",
        f"  {'listed' if done else 'would list'}: {_amount(report.listed)}{after}",
        f"  listed before, and not old enough: {_amount(report.waiting)}",
        f"  {'for a copy to list' if report.is_replica else 'of jobs that may still publish'}: {_amount(report.young)}",
    ]
    if report.leftovers.blobs:
        left = f"{number_of(report.leftovers.blobs, 'unfinished file')}, {format_bytes(report.leftovers.bytes)}"
        lines.append(f"  {'deleted' if done else 'would delete'}, of killed writers of any application: {left}")
    if report.keeps_versions:
        lines.append(f"  {VERSIONS_STAY}")
    if repacked is not None and repacked.packs:
        lines.append(
            f"  {'rewritten' if done else 'would rewrite'}: {number_of(repacked.packs, 'pack')} of "
            f"{format_bytes(repacked.bytes)}, of which the newest snapshot needs {format_bytes(repacked.needed_bytes)}"
        )
    if repacked is not None and repacked.damaged:
        lines.append(f"  ! damaged, and not rewritten (statecore repo verify): {shortened_list(repacked.damaged, 3)}")
    lines += [f"  ! {warning}" for warning in (() if repacked is None else repacked.warnings)]
    lines += left_alone(report.unknown)
    return lines if done else [*lines, "  nothing was changed; --apply deletes and lists"]


def _amount(amount: Amount) -> str:
    return f"{number_of(amount.blobs, 'blob')}, {format_bytes(amount.bytes)}" if amount.blobs else "nothing"
