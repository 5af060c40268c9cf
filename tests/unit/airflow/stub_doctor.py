"""Stands for ``statecore doctor --json``: finds what is said as ``doctor`` in ``behaviour.json``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    jobs = Path(os.environ["STATECORE_SPARK_JOBS"])
    (jobs / "doctor.json").write_text(json.dumps(sys.argv[1:]))
    found = json.loads((jobs / "behaviour.json").read_text()).get("doctor", [])
    print("a line of something else", flush=True)
    if found is None:
        sys.exit(1)
    print(json.dumps({"applications": [{"findings": found}], "exit_code": 0}))
