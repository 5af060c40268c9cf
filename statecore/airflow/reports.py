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
from contextlib import suppress
from pathlib import Path
from typing import Any

from statecore.documents import encoded
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_head import ReportError as ReportError
from statecore.jobs.history.report_head import check_report as check_report
from statecore.jobs.history.report_head import combined_digest, known_sum
from statecore.jobs.history.report_head import read_report as read_report
from statecore.jobs.history.report_index import directory_name

PART_LIMIT = 256 * 1024
"""Bytes of JSON that the part of one store may take in XCom; partitions beyond it are only counted."""

TOTALS = ("records", "rows", "bytes", "tombstones", "null_keys", "aborted")
"""Fields of a store partition that add up over the partitions of a store."""


def report_path(directory: Path, application_id: str, request_id: str) -> Path:
    """Where the report of a request lies; the same for every try of it.

    A request id holds ``/``, ``+`` and ``:``, and two ids may differ in those alone: a piece of its hash is appended.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", request_id)[:120]
    unique = hashlib.sha256(request_id.encode()).hexdigest()[:8]
    return directory / directory_name(application_id) / f"{readable}-{unique}.json"


def record_failure(path: Path, attempt: Attempt, error: Mapping[str, Any]) -> None:
    """Report a failure that the job itself has not reported, so that no older success hides it.

    A report of what was restored stays; of one that only says that a job began, who and where is kept.

    Args:
        path: where the job's report lies, or should.
        attempt: the try, as far as this task knows it.
        error: ``StatecoreError.to_json()``.
    """
    try:
        said = read_report(path)
    except ReportError:
        said = {}
    if "stores" in said:
        return
    attempt = Attempt.of(said) if said.get("started") and "error" not in said else attempt
    with suppress(OSError):  # it is in the task's log all the same
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(attempt.failed(error)))


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without its store partitions, and the names of its stores: small, whatever the application's size."""
    fields = (
        "application_id",
        "plan_id",
        "processing_guarantee",
        "host",
        "state_dir",
        "repository",
        "published",
        "seconds",
        "totals",
        "phases",
        "notes",
        "placed",
        "master",
        "executors",
        "hosts",
    )
    entries = report.get("stores", [])
    return {
        **{name: report[name] for name in fields if name in report},
        # A job's own totals leave out what nobody has counted.
        "totals": {**report.get("totals", {}), **{name: _total(name, entries) for name in ("rows", "bytes")}},
        "stores": sorted({str(entry["store"]) for entry in report.get("stores", [])}),
    }


def published(report: Mapping[str, Any]) -> str:
    """What a report says of the snapshot that it names, in one line for a person."""
    found = report["published"]
    said = "was published by an earlier try" if found.get("earlier") else "published"
    others = f", {found['beside']} of others were published meanwhile" if found.get("beside") else ""
    return (
        f"snapshot {found['snapshot']} {said} in {report.get('repository')}: {found.get('tasks')} tasks, "
        f"{int(found.get('file_bytes') or 0):,} bytes, {int(found.get('new_bytes') or 0):,} of them new{others}"
    )


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
        "host": report.get("host"),
        "state_dir": report.get("state_dir"),
        "finished": report.get("finished"),
        "totals": {name: _total(name, ordered) for name in TOTALS},
        "digest": combined_digest(
            [(int(entry.get("partition", -1)), str(entry.get("digest") or "")) for entry in ordered]
        ),
        "committed_offsets": {key: offset for entry in ordered for key, offset in _offsets(entry)},
        "tail_left": sum(int(entry.get("tail_left") or 0) for entry in ordered),
        "left_to_restore": any(entry.get("left_to_restore") for entry in ordered),
        "partitions": kept,
        "partitions_left_out": len(ordered) - len(kept),
    }


def _total(name: str, entries: Sequence[Mapping[str, Any]]) -> int | None:
    """A sum over the partitions of a store; ``None`` where nobody has counted one of them."""
    found = known_sum(int(entry.get(name) or 0) for entry in entries)
    return None if found < 0 else found


def _offsets(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(partition, committed offset) of an entry; a global store's entry has those of all its partitions."""
    if int(entry.get("partition", -1)) >= 0:
        return [(str(entry["partition"]), entry.get("committed_offset"))]
    offsets = {name.rpartition("-")[2]: offset for name, offset in (entry.get("offsets") or {}).items()}
    return sorted(offsets.items(), key=lambda item: int(item[0]))


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
    lines = columns(
        [heading for _, heading in COLUMNS],
        [[_shown(field, entry.get(field)) for field, _ in COLUMNS] for entry in part["partitions"]],
    )
    if part["partitions_left_out"]:
        lines.append(f"and {part['partitions_left_out']} more partitions, in the report file")
    totals = part["totals"]
    if part.get("left_to_restore"):
        lines.append("left to Kafka Streams, which restores the store when the application starts; nothing was read")
    if totals["rows"] is None:
        lines.append(f"{totals['records']:,} records; nobody has counted the rows that they come to")
    else:
        lines.append(f"{totals['records']:,} records became {totals['rows']:,} rows; digest {part['digest']}")
    return "\n".join(lines)


def _shown(field: str, value: Any) -> Any:
    return "not counted" if (field, value) in (("rows", -1), ("digest", "")) else value


def columns(headings: Sequence[str], values: Sequence[Sequence[Any]]) -> list[str]:
    """Values below headings, a line each, in columns as wide as what they hold."""
    rows = [list(headings), *([_cell(value) for value in row] for row in values)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
