"""Plans of migrations for people: in short for XCom, as a table for the log, as Markdown for who approves them.

What is the same in many tasks is said once (:mod:`statecore.jobs.migrate.summary`). However many tasks and directories
there are, what is shown is bounded, and says how much was left out; the whole plan is in the report.

Names of tasks are text and no code: Airflow's page draws a box around code, and where a list of boxes is folded the
next line's covers the underscores of the one above.
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
from statecore.jobs.migrate.summary import BESIDE, Together

ROWS = 40
"""Rows of a directory that are shown."""

DIRECTORIES = 40
"""Directories whose plans are shown to who approves them; the others are named in the first table."""

_NAMED = 12
"""Tasks that a row names."""

_MARKUP = re.compile(r"([\\`*{}\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")
"""What means something to Markdown; an underscore within a word does not."""


def migration_path(report_file: Path) -> Path:
    """Where the report of a migration lies that would be that of a restore at ``report_file``."""
    return report_file.parent / "migrations" / report_file.name


def short(report: MigrateReport) -> ShortPlan:
    """A report for XCom: small, whatever the directory's size."""
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
        "notes": bounded([*(Together(("all",), note) for note in report.notes), *summary.notes(report)]),
    }


def reasons(report: MigrateReport) -> list[str]:
    """Why a directory is refused, a line each, with the tasks for which that is so."""
    return [f"{_tasks(row)}: {row['what']}" for row in map(_row, summary.refused(report))]


def bounded(found: Sequence[Together]) -> Rows:
    """As many rows as are shown."""
    return {"rows": [*map(_row, found[:ROWS])], "left_out": max(len(found) - ROWS, 0)}


def _row(one: Together) -> Row:
    tasks = list(one.tasks[:_NAMED])
    return {"store": one.store, "kind": one.kind, "tasks": tasks, "count": len(one.tasks), "what": one.what}


def _tasks(row: Row) -> str:
    more = f" and {row['count'] - len(row['tasks']):,} more" if row["count"] > len(row["tasks"]) else ""
    return ", ".join(row["tasks"]) + more


def table(plan: ShortPlan) -> str:
    """A short report as a table for a person who reads the task's log."""
    lines = []
    if plan["done"]["rows"]:
        rows = [(_tasks(row), row["store"] or BESIDE, row["kind"], row["what"]) for row in plan["done"]["rows"]]
        lines += columns(("task", "store", "kind", "what is done"), rows)
    lines += _left_out(plan["done"])
    for title, part in (("left as it is", plan["left"]), ("note", plan["notes"])):
        lines += [f"{title}: {_tasks(row)}: {row['what']}" for row in part["rows"]]
        lines += _left_out(part)
    lines.append(f"{plan['changed']:,} of {plan['tasks']:,} tasks; plan {plan['plan_id']}")
    return "\n".join(lines)


def _left_out(part: Rows) -> list[str]:
    return [f"and {part['left_out']:,} more rows, in the report"] if part["left_out"] else []


def body(plans: Plans, to: str) -> str:
    """What is shown to who approves plans, as Markdown.

    Args:
        plans: of each directory its entry, and its plan in short; ``None`` where it is refused.
        to: the release.
    """
    shown = [(entry, plan) for entry, plan in plans if plan is not None and plan["changed"]]
    lines = [
        f"Kafka Streams **{to}** is to open these state directories. Nothing has been changed yet; keep the "
        "applications closed until this run has ended.",
        "",
        "| application | state directory | from | tasks that change | plan |",
        "|---|---|---|---|---|",
    ]
    lines += [_overview(entry, plan) for entry, plan in plans]
    return "\n".join([*lines, *details(shown)])


def details(shown: Sequence[tuple[Entry, ShortPlan]]) -> list[str]:
    """What is done in each directory in which something is, as far as it is shown."""
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
        return f"{begin}  | not part of this: its task *plan* failed, and says why |  |"
    if not plan["changed"]:
        return f"{begin} {cell(', '.join(plan['seen']))} | none: it is opened as it is |  |"
    anew = f"; {_size(plan['rewritten_bytes'])} are written anew" if plan["rewritten_bytes"] else ""
    changed = f"{plan['changed']:,} of {plan['tasks']:,}{anew}"
    return f"{begin} {cell(', '.join(plan['seen']))} | {changed} | {code(plan['plan_id'])} |"


def _detail(plan: ShortPlan) -> list[str]:
    lines = ["", "| task | store | what is done |", "|---|---|---|"]
    for row in plan["done"]["rows"]:
        kind = f" ({cell(row['kind'])})" if row["kind"] else ""
        store = f"{code(row['store'])}{kind}" if row["store"] else BESIDE
        lines.append(f"| {cell(_tasks(row))} | {store} | {cell(row['what'])} |")
    left, notes = plan["left"], plan["notes"]
    for part, heading in ((left, "left as it is, and what Kafka Streams will do with it"), (notes, "note")):
        if part["rows"]:
            lines += ["", f"| task | {heading} |", "|---|---|"]
            lines += [f"| {cell(_tasks(row))} | {cell(row['what'])} |" for row in part["rows"]]
    hidden = sum(part["left_out"] for part in (plan["done"], left, notes))
    return [*lines, *(["", f"{hidden:,} more rows are in the report."] if hidden else [])]


def cell(text: str) -> str:
    """Text in a cell of a table, whatever it is made of."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def code(text: str) -> str:
    """A name that is to be read letter by letter."""
    safe = " ".join(str(text).split())
    return cell(safe) if "`" in safe or "|" in safe else f"`{safe}`"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
