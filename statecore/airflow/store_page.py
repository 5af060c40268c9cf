"""The page *State stores* of the UI: a protected web application that Airflow's API server mounts.

Airflow protects nothing that a plugin mounts: without the dependency below anybody could read the page. The same goes
for FastAPI's own documentation pages, which are therefore switched off. The page lies in a frame of the UI and takes
over its theme. Everything on it comes from files that jobs wrote, and is escaped.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse

from statecore.airflow.restored import RestoredApplication, RestoredPartition, restored_applications
from statecore.airflow.settings import Settings

app = FastAPI(
    title="State stores",
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.get("/stores")
def stores() -> list[dict[str, Any]]:
    """What was last restored, for programs."""
    return [asdict(one) for one in restored_applications(Settings.from_environment().reports)]


@app.get("/", response_class=HTMLResponse)
def page() -> HTMLResponse:
    """What was last restored, for people."""
    nonce = secrets.token_urlsafe(16)
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; frame-ancestors 'self'"
    document = render(restored_applications(Settings.from_environment().reports), nonce)
    return HTMLResponse(document, headers={"Content-Security-Policy": policy, "Cache-Control": "no-store"})


def render(applications: Iterable[RestoredApplication], nonce: str) -> str:
    """The whole document; ``nonce`` lets its own style and script run, and no others."""
    body = "".join(_application(one) for one in applications) or EMPTY
    return DOCUMENT.format(nonce=nonce, style=STYLE, script=SCRIPT, body=body)


def _application(one: RestoredApplication) -> str:
    facts = []
    if one.partitions:
        names = {partition.store for partition in one.partitions}
        rows = sum(partition.rows for partition in one.partitions)
        facts.append(f"{_count(len(names), 'store')}, {_count(len(one.partitions), 'partition')}, {rows:,} rows")
    if one.state_dir is not None:
        facts.append(f"<code>{escape(one.state_dir)}</code>")
    if one.seconds is not None:
        facts.append(f"last restore took {one.seconds:,.1f} s")
    if one.unreadable:
        facts.append(f"{_count(one.unreadable, 'report')} could not be read, see the API server's log")
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in one.notes)
    return (
        f"<section><h2>{escape(one.application_id)}</h2><p class=facts>{' · '.join(facts)}</p>"
        f"{_failure(one)}{notes}{_table(one.partitions)}</section>"
    )


def _failure(one: RestoredApplication) -> str:
    if one.failure is None or one.failed_at is None:
        return ""
    said = {name: escape(str(one.failure.get(name, ""))) for name in ("error", "what", "action")}
    return (
        f'<p class="failure" role="alert"><strong>The latest attempt failed</strong> at {_time(one.failed_at)}: '
        f"{said['error']}. {said['what']}<br>{said['action']}</p>"
    )


def _table(partitions: Iterable[RestoredPartition]) -> str:
    rows = "".join(_row(one) for one in partitions)
    if not rows:
        return ""
    heads = (
        '<th scope="col">Task</th><th scope="col">Store</th><th scope="col">Kind</th>'
        '<th scope="col" class="n">Partition</th><th scope="col" class="n">Rows</th>'
        '<th scope="col" class="n">Records read</th><th scope="col" class="n">Committed offset</th>'
        '<th scope="col" class="n">Tail left</th><th scope="col">Digest</th><th scope="col">Restored (UTC)</th>'
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(one: RestoredPartition) -> str:
    unknown = "left to Kafka Streams" if one.left_to_restore else "empty changelog"
    offset = unknown if one.committed_offset < 0 else f"{one.committed_offset:,}"
    partition = "all" if one.partition < 0 else str(one.partition)
    return (
        f"<tr><td>{escape(one.task)}</td><td>{escape(one.store)}</td><td>{escape(one.kind)}</td>"
        f'<td class="n">{partition}</td><td class="n">{one.rows:,}</td><td class="n">{one.records:,}</td>'
        f'<td class="n">{offset}</td><td class="n">{one.tail_left:,}</td>'
        f'<td><code title="{escape(one.digest)}">{escape(one.digest[:12])}</code></td><td>{_time(one.when)}</td></tr>'
    )


def _time(when: Any) -> str:
    return f'<time datetime="{when.isoformat()}">{when:%Y-%m-%d %H:%M:%S}</time>'


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


EMPTY = """<section class="empty"><h2>No store was restored yet</h2>
<p>Trigger the Dag <code>restore_stores</code>. What its jobs report is shown here.</p></section>"""

DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>State stores</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style nonce="{nonce}">{style}</style><script nonce="{nonce}">{script}</script></head>
<body><main><h1>State stores</h1>{body}</main></body></html>"""

SCRIPT = """
// Airflow says its theme by a class of its root element; follow it, also when it changes.
try {
  const root = parent.document.documentElement;
  const follow = () => { document.documentElement.className = root.className; };
  follow();
  new MutationObserver(follow).observe(root, {attributes: true, attributeFilter: ["class"]});
} catch (error) { /* not in a frame of the UI: the browser's preference applies */ }
"""

STYLE = """
:root { color-scheme: light; --page: #fff; --text: #18181b; --faint: #52525b; --line: #e4e4e7; --head: #f4f4f5;
  --bad-page: #fef2f2; --bad: #991b1b; --note-page: #fefce8; --note: #713f12; }
:root.dark { color-scheme: dark; --page: #000; --text: #fafafa; --faint: #a1a1aa; --line: #27272a; --head: #111113;
  --bad-page: #300c0c; --bad: #fca5a5; --note-page: #281f08; --note: #fde047; }
@media (prefers-color-scheme: dark) { :root:not(.light) { color-scheme: dark; --page: #000; --text: #fafafa;
  --faint: #a1a1aa; --line: #27272a; --head: #111113; --bad-page: #300c0c; --bad: #fca5a5; --note-page: #281f08;
  --note: #fde047; } }
body { margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 Inter, system-ui, -apple-system, "Segoe UI", sans-serif; }
main { padding: 16px 24px; }
h1 { font-size: 20px; margin: 0 0 16px; }
h2 { font-size: 16px; margin: 0; }
section { margin: 0 0 32px; }
.facts { margin: 2px 0 10px; color: var(--faint); }
.failure, .note { margin: 0 0 10px; padding: 8px 12px; border-radius: 6px; }
.failure { background: var(--bad-page); color: var(--bad); }
.note { background: var(--note-page); color: var(--note); }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 6px 12px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
th { background: var(--head); color: var(--faint); font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 12px ui-monospace, SFMono-Regular, Menlo, monospace; }
"""
