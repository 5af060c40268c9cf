"""Report files of jobs: their path, reading, and the bounded report of each store for XCom.

A job writes its result or its error as one JSON document to the given path. The operator reads it and passes it on
through XCom, which Airflow keeps in its database: one bounded report for each store, never the whole. The files stay,
one for each request, and are shown by the UI page: ``<reports>/<application id>/<request>.json``. That of an earlier
try is ``<request>.earlier.json`` until the task succeeds: the success of a task that was cleared, else the last
failure. A request with ``plan_only`` leaves the restore's plan instead.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.documents import encode_json
from statecore.filesystem import replace_file
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_head import ReportError as ReportError
from statecore.jobs.history.report_head import ReportOutcome, combined_digest, known_sum, read_head
from statecore.jobs.history.report_head import check_report as check_report
from statecore.jobs.history.report_head import read_report as read_report
from statecore.jobs.history.report_index import directory_name

if TYPE_CHECKING:
    from airflow.sdk import Context

PART_LIMIT = 256 * 1024
"""Bytes of JSON that the report of one store may take in XCom; partitions beyond it are only counted."""

TOTALS = ("records", "rows", "bytes", "tombstones", "null_keys", "aborted")
"""Fields that are summed over the partitions of a store."""


def report_path(directory: Path, application_id: str, request_id: str) -> Path:
    """Path of the report of a request, with part of its id's hash, because characters such as ``/`` are replaced."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", request_id)[:120]
    unique = hashlib.sha256(request_id.encode()).hexdigest()[:8]
    return directory / directory_name(application_id) / f"{readable}-{unique}.json"


def earlier_path(report_file: Path) -> Path:
    """Path of the report of an earlier try of the same request, kept until a later one succeeds."""
    return report_file.with_suffix(f".earlier{report_file.suffix}")


def clear(report_file: Path) -> None:
    """Move the report of an earlier try aside. One without an end is removed, and a failure after a success.

    A later try may be refused, so the success is kept; and it may wait long for what the failure is about, which the
    page shows meanwhile.

    Raises:
        OSError: it cannot be moved or removed.
    """
    outcome, kept = _outcome(report_file), _outcome(earlier_path(report_file))
    if outcome in _SUCCESSES or (outcome is ReportOutcome.FAILED and kept not in _SUCCESSES):
        report_file.replace(earlier_path(report_file))
    else:
        report_file.unlink(missing_ok=True)


_SUCCESSES = (ReportOutcome.RESTORED, ReportOutcome.PUBLISHED, ReportOutcome.UNCHANGED)


def _outcome(report_file: Path) -> ReportOutcome | None:
    try:
        return read_head(read_report(report_file)).outcome
    except ReportError:
        return None


def request_id_of(context: Context) -> str:
    """``dag/run/task/map index``: the same for every try of a task."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}"


def record_failure(path: Path, attempt: Attempt, error: Mapping[str, Any]) -> None:
    """Write a failure that the job itself did not report, so that no older success hides it.

    A report of restored stores is kept; from a report that a job began, its attempt (user, host) is kept.
    """
    try:
        existing = read_report(path)
    except ReportError:
        existing = {}
    if "stores" in existing:
        return
    attempt = Attempt.of(existing) if existing.get("started") and "error" not in existing else attempt
    with suppress(OSError):  # the error is in the task's log too
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, encode_json(attempt.failed(error)))  # on a full disk the report before it stays


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report with the names of its stores instead of its store partitions, so its size is bounded."""
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
        # A job's own totals leave out stores that were not counted.
        "totals": {**report.get("totals", {}), **{name: _total(name, entries) for name in ("rows", "bytes")}},
        "stores": sorted({str(entry["store"]) for entry in report.get("stores", [])}),
    }


def published(report: Mapping[str, Any]) -> str:
    """The published snapshot of a report, as one line of text."""
    found = report["published"]
    done = "was published by an earlier try" if found.get("earlier") else "published"
    others = found.get("concurrent")
    concurrent = f", {others} of other jobs were published meanwhile" if others else ""
    return (
        f"snapshot {found['snapshot']} {done} in {report.get('repository')}: {found.get('tasks')} tasks, "
        f"{int(found.get('file_bytes') or 0):,} bytes, {int(found.get('new_bytes') or 0):,} of them new{concurrent}"
    )


def reports_by_store(report: Mapping[str, Any], limit: int = PART_LIMIT) -> dict[str, dict[str, Any]]:
    """The report by store: totals, and as many partitions as fit into ``limit`` bytes of JSON."""
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
        "restored_by_kafka_streams": any(entry.get("restored_by_kafka_streams") for entry in ordered),
        "partitions": kept,
        "partitions_left_out": len(ordered) - len(kept),
    }


def _total(name: str, entries: Sequence[Mapping[str, Any]]) -> int | None:
    """A sum over the partitions of a store; ``None`` if one of them was not counted."""
    found = known_sum(int(entry.get(name) or 0) for entry in entries)
    return None if found < 0 else found


def _offsets(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(partition, committed offset) of an entry; for a global store those of all its partitions."""
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
    """The partitions of one store as a table for the task's log."""
    lines = columns(
        [heading for _, heading in COLUMNS],
        [[_shown(field, entry.get(field)) for field, _ in COLUMNS] for entry in part["partitions"]],
    )
    if part["partitions_left_out"]:
        lines.append(f"and {part['partitions_left_out']} more partitions, in the report file")
    totals = part["totals"]
    if part.get("restored_by_kafka_streams"):
        lines.append("nothing was read; Kafka Streams restores the store when the application starts")
    if totals["rows"] is None:
        lines.append(f"{totals['records']:,} records; their rows were not counted")
    else:
        lines.append(f"{totals['records']:,} records became {totals['rows']:,} rows; digest {part['digest']}")
    return "\n".join(lines)


_IDENTIFIERS = ("partition", "committed_offset", "start", "end")


def _shown(field: str, value: Any) -> Any:
    """The value as a cell; identifiers as text, because a cell gives a number separators."""
    if field in _IDENTIFIERS and value is not None:
        return str(value)
    return "not counted" if (field, value) in (("rows", -1), ("digest", "")) else value


def columns(headings: Sequence[str], values: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table with headings, each column as wide as its widest cell."""
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


_PLAN_FIELDS = ("task", "store", "kind", "topic", "partition", "start", "end")
"""Fields of a partition's plan that are copied unchanged."""


def plan_path(report_file: Path) -> Path:
    """Path of the plan for the report path of a restore; apart from the reports, which the UI page shows."""
    return report_file.parent / "plans" / report_file.name


def bounded_plan(plan: Mapping[str, Any], limit: int = PART_LIMIT) -> dict[str, Any]:
    """The plan for XCom: its totals, and as many partitions as fit into ``limit`` bytes of JSON."""
    kept: list[dict[str, Any]] = []
    size = 0
    for part in plan["partitions"]:
        shown = {name: part[name] for name in _PLAN_FIELDS}
        shown |= {"tail_left": part["log_end"] - part["end"], "ranges": len(part["ranges"])}
        size += len(json.dumps(shown))
        if size > limit:
            break
        kept.append(shown)
    return {
        "application_id": plan["application_id"],
        "processing_guarantee": plan["processing_guarantee"],
        "stores": sorted({str(part["store"]) for part in plan["partitions"]}),
        "totals": {
            "partitions": len(plan["partitions"]),
            "offsets": sum(part["end"] - part["start"] for part in plan["partitions"]),
        },
        "partitions": kept,
        "partitions_left_out": len(plan["partitions"]) - len(kept),
    }


def plan_summary(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The bounded plan without its partitions."""
    return {"plan_only": True, **{name: value for name, value in plan.items() if not name.startswith("partitions")}}


def plan_table(plan: Mapping[str, Any]) -> str:
    """The bounded plan as a table for the task's log."""
    headings = ("task", "store", "kind", "changelog", "partition", "from", "to", "tail left", "ranges")
    fields = (*_PLAN_FIELDS, "tail_left", "ranges")
    lines = columns(headings, [[_shown(name, part[name]) for name in fields] for part in plan["partitions"]])
    if plan["partitions_left_out"]:
        lines.append(f"and {plan['partitions_left_out']:,} more partitions")
    totals = plan["totals"]
    lines.append(f"{totals['partitions']:,} store partitions, at most {totals['offsets']:,} records to read")
    return "\n".join(lines)
