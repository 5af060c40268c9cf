"use strict";
// Of an attempt without an end Airflow knows whether its task runs, and of a Dag whether it is paused; asked with the
// reader's cookie.
const ENDS = new Set(["success", "skipped", "upstream_failed", "removed"]);

function inWords(state) {
  if (state === "running") return "its task is running";
  if (state === "up_for_retry") return "it was killed, and a retry waits";
  if (state === "failed") return "it was killed, its task failed, and no retry is left: clear the failed task";
  if (ENDS.has(state)) return `it was killed: its task ended as ${state.replaceAll("_", " ")}`;
  return `it was killed, and its task is ${(state || "waiting").replaceAll("_", " ")} again`;
}

function show(element, state) {
  element.textContent = inWords(state);
  if (state !== "failed") return;
  const box = element.closest("div");  // nothing continues this attempt by itself
  box.className = "failure";
  box.setAttribute("role", "alert");
}

async function tell(element) {
  const answer = await fetch(new URL(`../api/v2/${element.dataset.task}`, location.href), {credentials: "same-origin"});
  if (answer.ok) show(element, (await answer.json()).state);
}

// What is known of the schedule that tries again after a failure.
function scheduleInWords(dag, now) {
  if (dag.is_paused) return `The Dag ${dag.dag_id} is paused: nothing tries again until it is unpaused.`;
  const left = Math.round((Date.parse(dag.next_dagrun_run_after) - now) / 1000);
  if (left < -120) return `The schedule should have tried again ${-Math.round(left / 60)} minutes ago: check Airflow's scheduler.`;
  return left > 0 ? `The schedule tries again in ${left < 120 ? `${left} s` : `${Math.round(left / 60)} minutes`}.` : "";
}

async function tellSchedule(element) {
  const answer = await fetch(new URL(`../api/v2/${element.dataset.dag}`, location.href), {credentials: "same-origin"});
  if (!answer.ok) return;
  const now = Date.parse(answer.headers.get("Date")) || Date.now();
  element.textContent = scheduleInWords(await answer.json(), now) || element.textContent;
}

if (typeof document !== "undefined") {
  for (const element of document.querySelectorAll("[data-task]")) tell(element).catch(() => {});  // the text stays
  for (const element of document.querySelectorAll("[data-dag]")) tellSchedule(element).catch(() => {});
}
