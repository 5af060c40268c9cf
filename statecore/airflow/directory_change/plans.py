"""Migration plans for XCom (short), for the log (table) and for the approval page (Markdown).

Steps that are the same in many tasks are shown once (:mod:`statecore.jobs.migrate.summary`). The output is bounded and
says how many rows were left out; the report has the whole plan.

Names of tasks are not marked as code: Airflow's page draws boxes around code, and in wrapped lists the boxes cover
underscores of the line above.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from statecore.airflow.directory_change.xcom_values import Entry, Plans, Row, Rows, ShortPlan
from statecore.airflow.reports import columns
from statecore.jobs.migrate import summary
from statecore.jobs.migrate.report import MigrateReport
from statecore.jobs.migrate.summary import BESIDE, CombinedChange

ROWS = 40
"""Number of rows that are shown of a directory."""

DIRECTORIES = 40
"""Number of directories whose plans are shown for approval; the first table names all of them."""

_NAMED = 12
"""Number of tasks that a row names."""

_MARKUP = re.compile(r"([\\`*{}\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")
"""Characters with a meaning in Markdown; an underscore within a word has none."""


def migration_path(report_file: Path) -> Path:
    """Path of a migration's report for the report path of a restore."""
    return report_file.parent / "migrations" / report_file.name


def short(report: MigrateReport) -> ShortPlan:
    """A report for XCom, of bounded size."""
    return {
        "application_id": report.application_id,
        "state_dir": report.state_dir,
        "host": report.host,
        "to": report.to,
        "outcome": str(report.outcome),
        "plan_id": report.plan_id,
        "kept": report.kept,
        "seconds": report.seconds,
        "phases": dict(report.phases),
        "seen": sorted({task.seen for task in report.tasks}),
        "tasks": len(report.tasks),
        "changed": report.changed,
        "rewritten_bytes": sum(store.rewritten_bytes for task in report.tasks for store in task.stores),
        "done": bounded([one for one in summary.done(report) if one.what]),
        "left": bounded(summary.left(report)),
        "notes": bounded([*(CombinedChange(("all",), note) for note in report.notes), *summary.notes(report)]),
    }


def reasons(report: MigrateReport) -> list[str]:
    """The reasons why a directory is refused, each with its tasks."""
    return [f"{_tasks(row)}: {row['what']}" for row in map(_row, summary.refused(report))]


def bounded(found: Sequence[CombinedChange]) -> Rows:
    """The rows that are shown."""
    return {"rows": [*map(_row, found[:ROWS])], "left_out": max(len(found) - ROWS, 0)}


def _row(one: CombinedChange) -> Row:
    tasks = list(one.tasks[:_NAMED])
    return {"store": one.store, "kind": one.kind, "tasks": tasks, "count": len(one.tasks), "what": one.what}


def _tasks(row: Row) -> str:
    more = f" and {row['count'] - len(row['tasks']):,} more" if row["count"] > len(row["tasks"]) else ""
    return ", ".join(row["tasks"]) + more


def table(plan: ShortPlan) -> str:
    """A short report as a table for the task's log."""
    lines = []
    if plan["done"]["rows"]:
        rows = [(_tasks(row), row["store"] or BESIDE, row["kind"], row["what"]) for row in plan["done"]["rows"]]
        lines += columns(("task", "store", "kind", "what is done"), rows)
    lines += _left_out(plan["done"])
    for title, found in (("unchanged", plan["left"]), ("note", plan["notes"])):
        lines += [f"{title}: {_tasks(row)}: {row['what']}" for row in found["rows"]]
        lines += _left_out(found)
    lines.append(f"{plan['changed']:,} of {plan['tasks']:,} tasks; plan {plan['plan_id']}")
    return "\n".join(lines)


def _left_out(found: Rows) -> list[str]:
    return [f"and {found['left_out']:,} more rows, in the report"] if found["left_out"] else []


def body(plans: Plans, to: str) -> str:
    """The Markdown that is shown for approval."""
    shown = [(entry, plan) for entry, plan in plans if plan is not None and plan["changed"]]
    lines = [
        f"If you approve, these state directories are migrated to Kafka Streams **{to}**. "
        "Nothing has been changed yet; keep the applications stopped until this run has ended.",
        "",
        "| application | state directory | from | tasks that change | plan |",
        "|---|---|---|---|---|",
    ]
    lines += [_overview(entry, plan) for entry, plan in plans]
    return "\n".join([*lines, *details(shown)])


def details(shown: Sequence[tuple[Entry, ShortPlan]]) -> list[str]:
    """The steps in each directory that changes, as far as they are shown."""
    lines: list[str] = []
    for entry, plan in shown[:DIRECTORIES]:
        lines += ["", f"### {cell(entry['title'])}: plan {code(plan['plan_id'])}"]
        lines += _detail(plan)
    if len(shown) > DIRECTORIES:
        lines += ["", f"The plans of {len(shown) - DIRECTORIES:,} more directories are in the logs of their tasks."]
    return lines


def _overview(entry: Entry, plan: ShortPlan | None) -> str:
    where = code(entry["request"]["state_dir"]) + (f" on {cell(entry['host'])}" if entry["host"] else "")
    begin = f"| {cell(entry['application_id'])} | {where} |"
    if plan is None:
        return f"{begin}  | not included: its task *plan* failed, see its log |  |"
    if not plan["changed"]:
        return f"{begin} {cell(', '.join(plan['seen']))} | none: it can be opened as it is |  |"
    rewritten = f"; {_size(plan['rewritten_bytes'])} are rewritten" if plan["rewritten_bytes"] else ""
    changed = f"{plan['changed']:,} of {plan['tasks']:,}{rewritten}"
    return f"{begin} {cell(', '.join(plan['seen']))} | {changed} | {code(plan['plan_id'])} |"


def _detail(plan: ShortPlan) -> list[str]:
    lines = ["", "| task | store | what is done |", "|---|---|---|"]
    for row in plan["done"]["rows"]:
        kind = f" ({cell(row['kind'])})" if row["kind"] else ""
        store = f"{code(row['store'])}{kind}" if row["store"] else BESIDE
        lines.append(f"| {cell(_tasks(row))} | {store} | {cell(row['what'])} |")
    left, notes = plan["left"], plan["notes"]
    for found, heading in ((left, "unchanged, and what Kafka Streams will do with it"), (notes, "note")):
        if found["rows"]:
            lines += ["", f"| task | {heading} |", "|---|---|"]
            lines += [f"| {cell(_tasks(row))} | {cell(row['what'])} |" for row in found["rows"]]
    hidden = sum(found["left_out"] for found in (plan["done"], left, notes))
    return [*lines, *(["", f"{hidden:,} more rows are in the report."] if hidden else [])]


def cell(text: str) -> str:
    """Text escaped for a cell of a Markdown table."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def code(text: str) -> str:
    """A name as inline code, or escaped if it cannot be code."""
    safe = " ".join(str(text).split())
    return cell(safe) if "`" in safe or "|" in safe else f"`{safe}`"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
