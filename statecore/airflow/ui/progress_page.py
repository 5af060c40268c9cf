"""The page *Progress*: progress of the statecore jobs of one run (a tab of its page) or of all running jobs.

The page contains no data. Its script calls Airflow's public REST API with the reader's cookie, so it shows nothing that
the reader may not see, and reads the progress in the task state store (``job_progress.py``). The page itself requires
the right to view plugins, and its script sets content as text, never as markup.
"""

from __future__ import annotations

import secrets

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse

from statecore.airflow.job_progress import PROGRESS_KEY

OPERATORS = ("StatecoreSparkOperator", "StatecoreCheckpointOperator", "StatecoreMigrateOperator")
"""Class names of the operators whose tasks are shown; not imported, because the API server has no Spark."""

app = FastAPI(
    title="Progress",
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.get("/", response_class=HTMLResponse)
def page() -> HTMLResponse:
    """The page for the run in its address (``?dag_id=…&run_id=…``), without one for all running jobs."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "frame-ancestors 'self'"
    )
    operators = "&".join(f"operator={name}" for name in OPERATORS)
    script = SCRIPT.replace("@OPERATORS@", operators).replace("@KEY@", PROGRESS_KEY)
    document = DOCUMENT.format(nonce=nonce, style=STYLE, script=script)
    return HTMLResponse(document, headers={"Content-Security-Policy": policy, "Cache-Control": "no-store"})


DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Progress</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style nonce="{nonce}">{style}</style></head>
<body><main><h1>Progress</h1><p id="status" role="status">Loading …</p>
<div class="wide" hidden><table><thead><tr><th scope="col">Application</th><th scope="col">State</th>
<th scope="col">Phase</th><th scope="col">Done</th><th scope="col" class="n">Amount</th>
<th scope="col" class="n">Rate</th><th scope="col" class="n">Time left</th>
<th scope="col" class="n">In this phase</th><th scope="col" class="n">Total time</th>
</tr></thead><tbody></tbody></table></div>
</main><script nonce="{nonce}">{script}</script></body></html>"""

SCRIPT = """
"use strict";
try {
  // Airflow sets its theme as a class of its root element; follow it, also when it changes.
  const root = parent.document.documentElement;
  const follow = () => { document.documentElement.className = root.className; };
  follow();
  new MutationObserver(follow).observe(root, {attributes: true, attributeFilter: ["class"]});
} catch (error) { /* not in a frame of the UI: the browser's preference applies */ }

const API = new URL("../api/v2/", location.href);
const ENDED = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);
const asked = new URLSearchParams(location.search);
const run = asked.get("run_id"), dag = asked.get("dag_id");
const message = document.getElementById("status"), body = document.querySelector("tbody");
const seen = new Map();  // progress of tasks that have ended, which does not change any more
let ahead = 0;  // the server's clock minus ours, in ms

async function get(path) {
  const answer = await fetch(new URL(path, API), {credentials: "same-origin"});
  if (answer.status === 404) return null;
  ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
  if (!answer.ok) throw new Error(`Airflow answered ${answer.status} ${answer.statusText}`);
  return answer.json();
}

async function tasks() {
  const where = `dags/${encodeURIComponent(dag || "~")}/dagRuns/${encodeURIComponent(run || "~")}/taskInstances`;
  const which = `@OPERATORS@&limit=100${run ? "" : "&state=running"}`;
  const found = [];
  for (let total = 1; found.length < total;) {
    const page = await get(`${where}?${which}&offset=${found.length}`);
    if (page === null || page.task_instances.length === 0) break;
    found.push(...page.task_instances);
    total = page.total_entries;
  }
  return found;
}

async function progressOf(task) {
  if (task.state === null) return null;
  const name = [task.dag_id, task.dag_run_id, task.task_id, task.map_index, task.try_number, task.state].join("\\n");
  if (seen.has(name)) return seen.get(name);
  const path = `dags/${encodeURIComponent(task.dag_id)}/dagRuns/${encodeURIComponent(task.dag_run_id)}/taskInstances/`
    + `${encodeURIComponent(task.task_id)}/state-store?map_index=${task.map_index}`;
  const stored = await get(path);  // all keys: a request for one key is a 404 in the console until the key exists
  const found = stored && stored.task_state_store.find((one) => one.key === "@KEY@");
  const progress = found && {...found.value, since: since(found.updated_at)};
  if (ENDED.has(task.state)) seen.set(name, progress);
  return progress;
}

async function allProgress(list) {
  const found = new Array(list.length);
  let next = 0;
  const work = async () => {
    while (next < list.length) {
      const at = next++;
      found[at] = await progressOf(list[at]);
    }
  };
  await Promise.all(Array.from({length: 6}, work));
  return found;
}

const since = (moment) => Math.max(0, (Date.now() + ahead - Date.parse(moment)) / 1000);

const number = (value) => Math.round(value).toLocaleString("en");

function time(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function cell(row, text, className = "") {
  const made = row.insertCell();
  made.textContent = text;
  made.className = className;
  return made;
}

function show(task, progress) {
  const row = body.insertRow();
  const name = task.rendered_map_index || (task.map_index < 0 ? task.task_id : String(task.map_index));
  cell(row, run ? name : `${name} (${task.dag_id})`);
  const again = task.try_number > 1 ? `, try ${task.try_number}` : "";
  cell(row, `${task.state || "waiting"}${again}`, `state ${task.state}`);
  const open = progress && task.state === "running";
  cell(row, progress ? progress.phase : "");
  const done = cell(row, "");
  if (progress && progress.total) {
    const share = Math.min(1, progress.count / progress.total), bar = document.createElement("progress");
    bar.value = share;
    bar.setAttribute("aria-label", `${name}: ${progress.phase}`);
    done.append(bar, ` ${Math.floor(100 * share)} %`);
  }
  const of = progress && progress.total ? ` of ${number(progress.total)}` : "";
  cell(row, progress && (progress.count || of) ? `${number(progress.count)}${of} ${progress.unit || ""}` : "", "n");
  cell(row, open && progress.rate ? `${number(progress.rate)}/s` : "", "n");
  cell(row, open && progress.left !== null && progress.left !== undefined ? time(progress.left) : "", "n");
  cell(row, open ? time((progress.seconds || 0) + progress.since) : "", "n");
  const all = task.state === "running" && task.start_date ? since(task.start_date) : task.duration;
  cell(row, all === null || all === undefined ? "" : time(all), "n");
}

async function refresh() {
  let again = 2000;
  try {
    const list = await tasks();
    list.sort((a, b) => a.map_index - b.map_index);
    const progress = await allProgress(list);
    body.replaceChildren();
    list.forEach((task, at) => show(task, progress[at]));
    body.closest("div").hidden = list.length === 0;
    const running = list.filter((task) => !ENDED.has(task.state)).length;
    const jobs = `${list.length} ${list.length === 1 ? "job" : "jobs"}`;
    if (list.length) message.textContent = run ? `${jobs}, ${running} not ended` : `${jobs} running`;
    else message.textContent = run ? "This run has no statecore job yet." : "No statecore job is running.";
    if (run && list.length && !running) again = 15000;
  } catch (error) {
    message.textContent = `${error.message}; retrying.`;
    again = 10000;
  }
  setTimeout(refresh, again);
}
refresh();
"""

STYLE = """
:root { color-scheme: light dark; --page: light-dark(#fff, #000); --text: light-dark(#18181b, #fafafa);
  --faint: light-dark(#52525b, #a1a1aa); --line: light-dark(#e4e4e7, #27272a); --head: light-dark(#f4f4f5, #111113); }
:root.light { color-scheme: light; }
:root.dark { color-scheme: dark; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 Inter, system-ui, -apple-system, "Segoe UI", sans-serif; }
main { padding: 16px 24px; }
h1 { font-size: 20px; margin: 0 0 4px; }
#status { margin: 0 0 12px; color: var(--faint); }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 6px 12px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
th { background: var(--head); color: var(--faint); font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.success { color: light-dark(#166534, #86efac); }
.failed, .upstream_failed { color: light-dark(#991b1b, #fca5a5); }
"""
