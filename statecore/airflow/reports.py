"""The report of a job: where its file lies, how it is read, and how it is cut into one part for each store.

A job writes its result (or its error) as one JSON document to the path it was given. The operator reads it there and
hands it on through XCom, which lies in Airflow's database: so one bounded part for each store, never the whole.
The files stay, one for each request, and are what the UI page shows:
``<reports>/<application id>/<request>.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PART_LIMIT = 256 * 1024
"""Bytes of JSON that the part of one store may take in XCom; partitions beyond it are only counted."""

TOTALS = ("records", "rows", "bytes", "tombstones", "null_keys", "aborted")
"""Fields of a store partition that add up over the partitions of a store."""


class ReportError(Exception):
    """A report file is absent or is not what a job writes."""


def report_path(directory: Path, application_id: str, request_id: str) -> Path:
    """Where the report of a request lies; the same for every try of it.

    A request id holds ``/``, ``+`` and ``:``, and two ids may differ in those alone: a piece of its hash is appended.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", request_id)[:120]
    unique = hashlib.sha256(request_id.encode()).hexdigest()[:8]
    return directory / re.sub(r"[^A-Za-z0-9._-]", "_", application_id) / f"{readable}-{unique}.json"


def read_report(path: Path) -> dict[str, Any]:
    """The document at ``path``. Raises ``ReportError`` when there is none or it is no JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"The job wrote no report to {path}.") from None
    except (OSError, ValueError) as cause:
        raise ReportError(f"The report {path} cannot be read: {cause}.") from cause
    if not isinstance(document, dict):
        raise ReportError(f"The report {path} holds no JSON object.")
    return document


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without its store partitions, and the names of its stores: small, whatever the application's size."""
    fields = (
        "application_id",
        "plan_id",
        "processing_guarantee",
        "state_dir",
        "seconds",
        "totals",
        "phases",
        "notes",
        "placed",
        "master",
        "executors",
        "hosts",
    )
    return {
        **{name: report[name] for name in fields if name in report},
        "stores": sorted({str(entry["store"]) for entry in report.get("stores", [])}),
    }


def parts_by_store(report: Mapping[str, Any], limit: int = PART_LIMIT) -> dict[str, dict[str, Any]]:
    """The report cut by store: totals over the partitions, and the partitions as far as ``limit`` bytes of JSON go."""
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for entry in report.get("stores", []):
        entries.setdefault(str(entry["store"]), []).append(entry)
    return {store: _part(report, store, partitions, limit) for store, partitions in sorted(entries.items())}


def _part(report: Mapping[str, Any], store: str, partitions: Sequence[Mapping[str, Any]], limit: int) -> dict[str, Any]:
    ordered = sorted(partitions, key=lambda entry: int(entry.get("partition", -1)))
    kept: list[Mapping[str, Any]] = []
    size = 0
    for entry in ordered:
        size += len(json.dumps(entry))
        if size > limit:
            break
        kept.append(entry)
    return {
        "application_id": report.get("application_id"),
        "store": store,
        "kind": ordered[0].get("kind"),
        "changelog": ordered[0].get("changelog"),
        "plan_id": report.get("plan_id"),
        "state_dir": report.get("state_dir"),
        "totals": {name: sum(int(entry.get(name) or 0) for entry in ordered) for name in TOTALS},
        "digest": combined_digest(ordered),
        "committed_offsets": {key: offset for entry in ordered for key, offset in _offsets(entry)},
        "tail_left": sum(int(entry.get("tail_left") or 0) for entry in ordered),
        "partitions": kept,
        "partitions_left_out": len(ordered) - len(kept),
    }


def _offsets(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(partition, committed offset) of an entry; a global store's entry has those of all its partitions."""
    if int(entry.get("partition", -1)) >= 0:
        return [(str(entry["partition"]), entry.get("committed_offset"))]
    offsets = {name.rpartition("-")[2]: offset for name, offset in (entry.get("offsets") or {}).items()}
    return sorted(offsets.items(), key=lambda item: int(item[0]))


def combined_digest(partitions: Sequence[Mapping[str, Any]]) -> str:
    """One digest of a store over the digests of its partitions, each bound to its partition number."""
    lines = sorted(f"{entry.get('partition')}:{entry.get('digest')}" for entry in partitions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


COLUMNS: tuple[tuple[str, str], ...] = (
    ("task", "task"),
    ("store", "store"),
    ("partition", "partition"),
    ("records", "records"),
    ("rows", "rows"),
    ("committed_offset", "committed offset"),
    ("tail_left", "tail left"),
    ("seconds", "seconds"),
    ("digest", "digest"),
)
"""Fields and headings of the table in a task's log."""


def table(part: Mapping[str, Any]) -> str:
    """The partitions of one store as a table for a person who reads the task's log."""
    rows = [[heading for _, heading in COLUMNS]]
    rows += [[_cell(entry.get(field)) for field, _ in COLUMNS] for entry in part["partitions"]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if part["partitions_left_out"]:
        lines.append(f"and {part['partitions_left_out']} more partitions, in the report file")
    totals = part["totals"]
    lines.append(f"{totals['records']:,} records became {totals['rows']:,} rows; digest {part['digest']}")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
