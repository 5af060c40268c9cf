"""Stands for ``statecore.jobs.program checkpoint --local``: does what the stub of Spark does, or wants Spark."""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    jobs = Path(os.environ["STATECORE_SPARK_JOBS"])
    with (jobs / "local.jsonl").open("a") as calls:
        environment = {name: value for name, value in os.environ.items() if name.startswith(("KAFKA", "AWS_SECRET"))}
        calls.write(json.dumps({"argv": sys.argv[1:], "env": environment, "pid": os.getpid()}) + "\n")
    behaviour = json.loads((jobs / "behaviour.json").read_text())
    if behaviour.get("local") == "long":
        sys.exit(64)
    if behaviour.get("local") == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour.get("local") == "waits":
        print("waiting", flush=True)
        time.sleep(600)
    runpy.run_path(str(jobs / "checkpoint.py"), run_name="__main__")
