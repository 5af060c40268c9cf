"""Plans of migrations for people: in short for XCom, as a table for the log, as Markdown for who approves them.

What is done to a store is the same in most of its tasks, but for offsets. So tasks are put together whose words differ
in nothing but numbers, and where those differ stands ``…``. However many tasks and directories there are, what is shown
is bounded, and says how much was left out; the whole plan is in the report.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statecore.airflow.reports import columns

ROWS = 40
"""Rows of a directory that are shown."""

DIRECTORIES = 40
"""Directories whose plans are shown to who approves them; the others are named in the first table."""

_NAMED = 12
"""Tasks that a row names."""

_NUMBER = re.compile(r"(\d+(?:,\d{3})*)")
_MARKUP = re.compile(r"([\\`*{}\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")
"""What means something to Markdown; an underscore within a word does not."""

_FIELDS = ("application_id", "state_dir", "host", "to", "outcome", "plan_id", "kept", "seconds", "phases")


def migration_path(report_file: Path) -> Path:
    """Where the report of a migration lies that would be that of a restore at ``report_file``."""
    return report_file.parent / "migrations" / report_file.name


def short(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report for XCom: small, whatever the directory's size."""
    tasks = report["tasks"]
    done = [(task["task"], (store["store"], store["kind"]), what) for task in tasks for store, what in _stores(task)]
    done += [(task["task"], ("", ""), "; ".join(task["steps"])) for task in tasks if task["steps"]]
    return {
        **{name: report[name] for name in _FIELDS if name in report},
        "seen": sorted({str(task["seen"]) for task in tasks}),
        "tasks": len(tasks),
        "changed": sum(_is_changed(task) for task in tasks),
        "rewritten_bytes": sum(int(store["rewritten_bytes"]) for task in tasks for store in task["stores"]),
        "done": _bounded(_put_together(done), ("store", "kind")),
        "left": _bounded(_put_together((task["task"], (), why) for task in tasks for why in task["left"]), ()),
        "notes": _bounded(_put_together((task["task"], (), note) for task in tasks for note in task["notes"]), ()),
    }


def reasons(report: Mapping[str, Any]) -> list[str]:
    """Why a directory is refused, a line each, with the tasks for which that is so."""
    found = _put_together((task["task"], (), why) for task in report["tasks"] for why in task["refused"])
    return [f"{_tasks(tasks[:_NAMED], len(tasks))}: {what}" for _, tasks, what in found]


def _stores(task: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], str]]:
    return ((store, "; ".join(store["steps"])) for store in task["stores"] if store["steps"])


def _is_changed(task: Mapping[str, Any]) -> bool:
    return bool(task["steps"] or any(store["steps"] for store in task["stores"]))


def _put_together(
    said: Iterable[tuple[str, tuple[str, ...], str]],
) -> list[tuple[tuple[str, ...], list[str], str]]:
    """What is said of tasks: of what, of which tasks, and the words that hold for all of them."""
    found: dict[tuple[Any, ...], tuple[tuple[str, ...], list[str], list[list[str]]]] = {}
    for task, of, what in said:
        pieces = _NUMBER.split(what)
        _, tasks, several = found.setdefault((of, *pieces[::2]), (of, [], []))
        tasks.append(task)
        several.append(pieces)
    return [(of, tasks, _common(several)) for of, tasks, several in found.values()]


def _common(several: Sequence[Sequence[str]]) -> str:
    return "".join(pieces[0] if len(set(pieces)) == 1 else "…" for pieces in zip(*several, strict=True))


def _bounded(found: Sequence[tuple[tuple[str, ...], list[str], str]], names: Sequence[str]) -> dict[str, Any]:
    rows = [
        {**dict(zip(names, of, strict=True)), "tasks": tasks[:_NAMED], "count": len(tasks), "what": what}
        for of, tasks, what in found[:ROWS]
    ]
    return {"rows": rows, "left_out": len(found) - len(rows)}


def _tasks(tasks: Sequence[str], count: int) -> str:
    more = f" and {count - len(tasks):,} more" if count > len(tasks) else ""
    return ", ".join(tasks) + more


def table(plan: Mapping[str, Any]) -> str:
    """A short report as a table for a person who reads the task's log."""
    lines = []
    if plan["done"]["rows"]:
        rows = [
            (_tasks(row["tasks"], row["count"]), row["store"] or "files beside the stores", row["kind"], row["what"])
            for row in plan["done"]["rows"]
        ]
        lines += columns(("task", "store", "kind", "what is done"), rows)
    lines += _left_out(plan["done"])
    for title, name in (("left as it is", "left"), ("note", "notes")):
        lines += [f"{title}: {_tasks(row['tasks'], row['count'])}: {row['what']}" for row in plan[name]["rows"]]
        lines += _left_out(plan[name])
    lines.append(f"{plan['changed']:,} of {plan['tasks']:,} tasks; plan {plan['plan_id']}")
    return "\n".join(lines)


def _left_out(part: Mapping[str, Any]) -> list[str]:
    return [f"and {part['left_out']:,} more rows, in the report"] if part["left_out"] else []


def body(plans: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]], to: str) -> str:
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
    for entry, plan in shown[:DIRECTORIES]:
        lines += ["", f"### {_cell(entry['name'])}: plan {_code(plan['plan_id'])}"]
        lines += _detail(plan)
    if len(shown) > DIRECTORIES:
        lines += ["", f"The plans of {len(shown) - DIRECTORIES:,} more directories are in the logs of their tasks."]
    return "\n".join(lines)


def _overview(entry: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    where = _code(entry["request"]["state_dir"]) + (f" on {_cell(entry['host'])}" if entry["host"] else "")
    begin = f"| {_cell(entry['application_id'])} | {where} |"
    if plan is None:
        return f"{begin}  | not part of this: its task *plan* failed, and says why |  |"
    if not plan["changed"]:
        return f"{begin} {_cell(', '.join(plan['seen']))} | none: it is opened as it is |  |"
    anew = f"; {_size(plan['rewritten_bytes'])} are written anew" if plan["rewritten_bytes"] else ""
    changed = f"{plan['changed']:,} of {plan['tasks']:,}{anew}"
    return f"{begin} {_cell(', '.join(plan['seen']))} | {changed} | {_code(plan['plan_id'])} |"


def _detail(plan: Mapping[str, Any]) -> list[str]:
    lines = ["", "| task | store | what is done |", "|---|---|---|"]
    for row in plan["done"]["rows"]:
        kind = "" if row["kind"] in ("", "?") else f" ({_cell(row['kind'])})"
        store = f"{_code(row['store'])}{kind}" if row["store"] else "files beside the stores"
        lines.append(f"| {_tasks([*map(_code, row['tasks'])], row['count'])} | {store} | {_cell(row['what'])} |")
    for part, heading in (("left", "left as it is, and what Kafka Streams will do with it"), ("notes", "note")):
        if plan[part]["rows"]:
            lines += ["", f"| task | {heading} |", "|---|---|"]
            lines += [
                f"| {_tasks([*map(_code, row['tasks'])], row['count'])} | {_cell(row['what'])} |"
                for row in plan[part]["rows"]
            ]
    hidden = sum(plan[part]["left_out"] for part in ("done", "left", "notes"))
    return [*lines, *(["", f"{hidden:,} more rows are in the report."] if hidden else [])]


def _cell(text: str) -> str:
    """Text in a cell of a table, whatever it is made of."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def _code(text: str) -> str:
    """A name that is to be read letter by letter."""
    safe = " ".join(str(text).split())
    return _cell(safe) if "`" in safe or "|" in safe else f"`{safe}`"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
