"""Stands for ``statecore.jobs.program migrate``, beside the task and under ``spark-submit``.

It keeps what it was given in ``migrations.jsonl`` of the stub's jobs, and reports a directory of two tasks: to be
changed until it was applied once. What it does otherwise is said by application in ``behaviour.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def report(said: dict[str, Any], request: dict[str, Any], *, done: bool) -> dict[str, Any]:
    """The report of a migration."""
    text = "the column family offsets is added, which says"
    return {
        "version": 2,
        **dict.fromkeys(("request_id", "host", "user", "release", "started", "finished"), ""),
        "process": 1,
        "application_id": request["application_id"],
        "state_dir": request["state_dir"],
        "to": request["to"],
        "outcome": "migrated" if request.get("apply") else "nothing to do" if done else "planned",
        "plan_id": "plan-2" if done else "plan-1",
        "tasks": [
            {
                "task": f"0_{n}",
                "seen": "4.2",
                "stores": [
                    {
                        "store": "by-id",
                        "kind": "key-value",
                        "steps": [] if done else [{"text": text, "rows": 0, "offsets": {f"by-id-changelog-{n}": n}}],
                        "offsets": {},
                        "rewritten_bytes": 0,
                    }
                ],
                "steps": [],
                "left": [],
                "refused": [],
                "notes": [],
            }
            for n in range(2)
        ],
        **said,
    }


def main() -> int:
    """Do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=json.loads)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--master")
    given = parser.parse_args()
    jobs, request = Path(os.environ["STATECORE_SPARK_JOBS"]), given.request
    with (jobs / "migrations.jsonl").open("a") as calls:
        kept = {name: value for name, value in os.environ.items() if name.startswith("KAFKA")}
        calls.write(json.dumps({"local": given.local, "request": request, "env": kept, "argv": sys.argv[1:]}) + "\n")
    application = request["application_id"]
    said = json.loads((jobs / "behaviour.json").read_text()).get(application, {})
    said = said.get("apply" if request.get("apply") else "plan", said)
    given.report.parent.mkdir(parents=True, exist_ok=True)
    if "error" in said:
        given.report.write_text(json.dumps(said))
        return int(said["exit_code"])
    applied = jobs / f"{application}.applied"
    given.report.write_text(json.dumps(report(said, request, done=applied.exists() and not request.get("apply"))))
    if request.get("apply"):
        applied.touch()
    print("an ordinary line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
