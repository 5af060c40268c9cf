"""Stands for ``statecore.jobs.program diagnose``: finds what is said as ``doctor`` in ``behaviour.json``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=json.loads)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--local", action="store_true", required=True)
    given = parser.parse_args()
    jobs = Path(os.environ["STATECORE_SPARK_JOBS"])
    (jobs / "doctor.json").write_text(json.dumps(given.request))
    found = json.loads((jobs / "behaviour.json").read_text()).get("doctor", [])
    print("a line of something else", flush=True)
    if found is None:
        sys.exit(1)
    if isinstance(found, dict):
        given.report.write_text(json.dumps(found))
        sys.exit(found["exit_code"])
    given.report.write_text(json.dumps({"applications": [{"findings": found}], "exit_code": 0}))
