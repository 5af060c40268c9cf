"""Short plans as a table for the log and as Markdown for the approval page.

Steps that are the same in many tasks are shown once (:mod:`statecore.jobs.migrate.summary`). The output is bounded and
says how many rows were left out; the report has the whole plan.

Names of tasks are not marked as code: Airflow's page draws boxes around code, and in wrapped lists the boxes cover
underscores of the line above.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from statecore.airflow.directory_change.change import Change
from statecore.airflow.directory_change.xcom_values import Entry, Plans, Row, Rows, ShortReport
from statecore.airflow.reports import columns
from statecore.jobs.migrate.summary import BESIDE, CombinedChange

ROWS = 40
"""Number of rows that are shown of a directory."""

DIRECTORIES = 40
"""Number of directories whose plans are shown for approval; the first table names all of them."""

_NAMED = 12
"""Number of tasks that a row names."""

_MARKUP = re.compile(r"([\\`*{}\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")
"""Characters with a meaning in Markdown; an underscore within a word has none."""


def bounded(found: Sequence[CombinedChange]) -> Rows:
    return {"rows": [*map(row_of, found[:ROWS])], "left_out": max(len(found) - ROWS, 0)}


def row_of(one: CombinedChange) -> Row:
    tasks = list(one.tasks[:_NAMED])
    return {"store": one.store, "kind": one.kind, "tasks": tasks, "count": len(one.tasks), "what": one.what}


def named_tasks(row: Row) -> str:
    more = f" and {row['count'] - len(row['tasks']):,} more" if row["count"] > len(row["tasks"]) else ""
    return ", ".join(row["tasks"]) + more


def table(plan: ShortReport) -> str:
    """A short report as a table for the task's log."""
    lines = []
    if plan["done"]["rows"]:
        rows = [(named_tasks(row), row["store"] or BESIDE, row["kind"], row["what"]) for row in plan["done"]["rows"]]
        lines += columns(("task", "store", "kind", "what is done"), rows)
    lines += _left_out(plan["done"])
    for title, found in (("unchanged", plan["left"]), ("note", plan["notes"])):
        lines += [f"{title}: {named_tasks(row)}: {row['what']}" for row in found["rows"]]
        lines += _left_out(found)
    lines.append(f"{plan['changed']:,} tasks with changes; plan {plan['plan_id']}")
    return "\n".join(lines)


def _left_out(found: Rows) -> list[str]:
    return [f"and {found['left_out']:,} more rows, in the report"] if found["left_out"] else []


def page(change: Change, plans: Plans, to: str, refused: Sequence[str | None] = ()) -> str:
    """The Markdown that is shown for approval; ``refused`` has the reason of each directory that has no plan."""
    reasons = refused or [None] * len(plans)
    headings = ("application", "state directory", *change.headings, "plan")
    lines = [
        f"If you approve, {change.introduction.format(to=to)} "
        "Nothing has been changed yet; keep the applications stopped until this run has ended.",
        "",
        f"| {' | '.join(headings)} |",
        "|---" * len(headings) + "|",
        *(_overview(change, entry, plan, why) for (entry, plan), why in zip(plans, reasons, strict=True)),
    ]
    shown = [(entry, plan) for entry, plan in plans if plan is not None and plan["changed"]]
    for entry, plan in shown[:DIRECTORIES]:
        lines += ["", f"### {cell(entry['title'])}: plan {code(plan['plan_id'])}", *_detail(plan)]
    if len(shown) > DIRECTORIES:
        lines += ["", f"The plans of {len(shown) - DIRECTORIES:,} more directories are in the logs of their tasks."]
    return "\n".join(lines)


def _overview(change: Change, entry: Entry, plan: ShortReport | None, why: str | None) -> str:
    where = code(entry["request"]["state_dir"]) + (f" on {cell(entry['host'])}" if entry["host"] else "")
    empty = [""] * (len(change.headings) - 1)
    if plan is None:
        reason = f": {cell(why)}" if why else ""
        cells = [*empty, f"not included, see the log of its task *plan*{reason}", ""]
    elif plan["changed"]:
        cells = [*change.cells(plan), code(plan["plan_id"])]
    else:
        known = change.cells(plan)[: len(empty)]
        cells = [*known, f"none: {cell(change.why_nothing(plan))}", ""]
    return f"| {' | '.join([cell(entry['application_id']), where, *cells])} |"


def _detail(plan: ShortReport) -> list[str]:
    lines = ["", "| task | store | what is done |", "|---|---|---|"]
    for row in plan["done"]["rows"]:
        kind = f" ({cell(row['kind'])})" if row["kind"] else ""
        store = f"{code(row['store'])}{kind}" if row["store"] else BESIDE
        lines.append(f"| {cell(named_tasks(row))} | {store} | {cell(row['what'])} |")
    left, notes = plan["left"], plan["notes"]
    for found, heading in ((left, "unchanged, and what Kafka Streams will do with it"), (notes, "note")):
        if found["rows"]:
            lines += ["", f"| task | {heading} |", "|---|---|"]
            lines += [f"| {cell(named_tasks(row))} | {cell(row['what'])} |" for row in found["rows"]]
    hidden = sum(found["left_out"] for found in (plan["done"], left, notes))
    return [*lines, *(["", f"{hidden:,} more rows are in the report."] if hidden else [])]


def cell(text: str) -> str:
    """Text escaped for a cell of a Markdown table."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def code(text: str) -> str:
    """A name as inline code, or escaped if it cannot be code."""
    safe = " ".join(str(text).split())
    return cell(safe) if "`" in safe or "|" in safe else f"`{safe}`"
