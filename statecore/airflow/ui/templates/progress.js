"use strict";
const API = new URL("../api/v2/", location.href);
const APPROVALS = new Set({{ approvals | tojson }});
const OPERATORS = [...{{ operators | tojson }}, ...APPROVALS].map((name) => `operator=${name}`).join("&");
const OPEN = ["running", "awaiting_input", "deferred"].map((name) => `state=${name}`).join("&");
const ENDED = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);
const query = new URLSearchParams(location.search);
const run = query.get("run_id"), dag = query.get("dag_id");
const message = document.getElementById("status"), body = document.querySelector("tbody");
const ended = new Map();  // progress of tasks that have ended, which does not change any more
const names = new Map();  // of the applications, by map index, which is the same in all tasks of a run
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
  const which = `${OPERATORS}&limit=100${run ? "" : `&${OPEN}`}`;
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
  if (task.state === null || APPROVALS.has(task.operator)) return null;
  const name = [task.dag_id, task.dag_run_id, task.task_id, task.map_index, task.try_number, task.state].join("\n");
  if (ended.has(name)) return ended.get(name);
  const path = `dags/${encodeURIComponent(task.dag_id)}/dagRuns/${encodeURIComponent(task.dag_run_id)}/taskInstances/`
    + `${encodeURIComponent(task.task_id)}/state-store?map_index=${task.map_index}`;
  const stored = await get(path);  // all keys: a request for one key is a 404 in the console until the key exists
  const found = stored && stored.task_state_store.find((one) => one.key === {{ progress_key | tojson }});
  const progress = found && {...found.value, since: since(found.updated_at)};
  if (ENDED.has(task.state)) ended.set(name, progress);
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
  const added = row.insertCell();
  added.textContent = text;
  added.className = className;
  return added;
}

function nameOf(task) {
  if (task.map_index < 0) return task.rendered_map_index || "";  // not expanded yet
  const key = [task.dag_id, task.dag_run_id, task.map_index].join("\n");
  // Until a try runs, and while a retry waits, Airflow has the index only.
  if (task.rendered_map_index && task.rendered_map_index !== String(task.map_index)) names.set(key, task.rendered_map_index);
  return names.get(key) || `[${task.map_index}]`;
}

function waitsForApproval(task) {
  return APPROVALS.has(task.operator) && ["awaiting_input", "deferred"].includes(task.state);
}

function approvalPath(task) {
  const [dag, run, name] = [task.dag_id, task.dag_run_id, task.task_id].map(encodeURIComponent);
  return `dags/${dag}/runs/${run}/tasks/${name}/required_actions`;
}

function stateOf(task) {
  if (waitsForApproval(task)) return "waits for approval";
  if (task.state === "up_for_retry") return `try ${task.try_number} failed, the next one waits`;
  const again = task.try_number > 1 ? `, try ${task.try_number}` : "";
  return `${(task.state || "waiting").replaceAll("_", " ")}${again}`;
}

function inOrder(a, b) {
  const place = (task) => task.map_index < 0 ? Infinity : task.map_index;
  const began = (task) => task.start_date ? Date.parse(task.start_date) : Infinity;
  return place(a) - place(b) || began(a) - began(b);
}

function show(task, progress) {
  const row = body.insertRow();
  const name = nameOf(task);
  cell(row, name);
  cell(row, run ? task.task_id : `${task.task_id} (${task.dag_id})`);
  const state = cell(row, waitsForApproval(task) ? "" : stateOf(task), `state ${task.state}`);
  if (waitsForApproval(task)) {
    const link = document.createElement("a");
    link.href = new URL(`../${approvalPath(task)}`, location.href);
    link.dataset.airflow = "";
    link.textContent = stateOf(task);
    state.append(link);
  }
  const open = progress && task.state === "running";
  cell(row, progress ? progress.phase : "");
  const done = cell(row, "");
  if (progress && progress.total) {
    const share = Math.min(1, progress.count / progress.total), bar = document.createElement("progress");
    bar.value = share;
    bar.setAttribute("aria-label", `${name} ${task.task_id}: ${progress.phase}`);
    done.append(bar, ` ${Math.floor(100 * share)} %`);
  }
  const of = progress && progress.total ? ` of ${number(progress.total)}` : "";
  cell(row, progress && (progress.count || of) ? `${number(progress.count)}${of} ${progress.unit || ""}` : "", "n");
  cell(row, open && progress.rate ? `${number(progress.rate)}/s` : "", "n");
  cell(row, open && progress.left !== null && progress.left !== undefined ? time(progress.left) : "", "n");
  cell(row, open ? time((progress.seconds || 0) + progress.since) : "", "n");
  const all = (task.state === "running" || waitsForApproval(task)) && task.start_date ? since(task.start_date) : task.duration;
  cell(row, all === null || all === undefined ? "" : time(all), "n");
}

function summary(list) {
  const jobs = list.filter((task) => !APPROVALS.has(task.operator));
  const waiting = list.filter(waitsForApproval).length, left = jobs.filter((task) => !ENDED.has(task.state)).length;
  const count = `${jobs.length} ${jobs.length === 1 ? "job" : "jobs"}`;
  const found = [];
  if (jobs.length) found.push(run ? `${count}, ${left} not ended` : `${count} running`);
  else found.push(run ? "This run has no statecore job yet" : "No statecore job is running");
  if (waiting) found.push(`${waiting} ${waiting === 1 ? "plan waits" : "plans wait"} for approval`);
  return `${found.join("; ")}.`;
}

async function refresh() {
  let again = 2000;
  try {
    const list = await tasks();
    list.sort(inOrder);
    const progress = await allProgress(list);
    body.replaceChildren();
    list.forEach((task, at) => show(task, progress[at]));
    body.closest("div").hidden = list.length === 0;
    message.textContent = summary(list);
    if (run && list.length && list.every((task) => ENDED.has(task.state))) again = 15000;
  } catch (error) {
    message.textContent = `${error.message}; retrying.`;
    again = 10000;
  }
  setTimeout(refresh, again);
}
refresh();
