"use strict";
// Of an attempt without an end Airflow knows whether its task runs; asked with the reader's cookie.
const ENDS = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);

function inWords(state) {
  if (state === "running") return "its task is running";
  if (state === "up_for_retry") return "it was killed, and a retry waits";
  if (ENDS.has(state)) return `it was killed: its task ended as ${state.replaceAll("_", " ")}`;
  return `it was killed, and its task is ${(state || "waiting").replaceAll("_", " ")} again`;
}

async function tell(element) {
  const answer = await fetch(new URL(`../api/v2/${element.dataset.task}`, location.href), {credentials: "same-origin"});
  if (answer.ok) element.textContent = inWords((await answer.json()).state);
}

if (typeof document !== "undefined") {
  for (const element of document.querySelectorAll("[data-task]")) tell(element).catch(() => {});  // the text stays
}
