"""Reports as jobs write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from statecore.jobs.attempt import Attempt, utc

BEGAN = 1_700_000_000
"""When the first second is over which the helpers count, since the epoch."""


def entry(store: str, partition: int, rows: int = 1, **fields: Any) -> dict[str, Any]:
    """One store partition of a report."""
    return {
        "task": f"0_{partition}",
        "store": store,
        "partition": partition,
        "kind": "key-value",
        "rows": rows,
        "records": 10,
        "committed_offset": 9,
        "tail_left": 0,
        "digest": "d",
        **fields,
    }


FAILURE = {"error": "Fenced", "exit_code": 11, "what": "It runs.", "action": "Stop it.", "context": {}}
"""What a report says of an error."""


def attempt(second: int, state_dir: str = "/s", host: str = "one", application: str = "orders") -> Attempt:
    """A try that began at a second."""
    request = f"restore_stores/manual__{second}/restore/0"
    return Attempt(application, state_dir, request, host, "kafka", 7, "0.5", utc(BEGAN + second))


def done(tried: Attempt, *entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The report of a try that succeeded half a second after it began."""
    began = float(tried.started[17:19])
    finished = f"{tried.started[:17]}{began + 0.5:06.3f}Z"
    return {**tried.begun(), "plan_id": "p", "finished": finished, "seconds": 1.0, "stores": list(entries), **fields}


def failed(tried: Attempt, **fields: Any) -> dict[str, Any]:
    """The report of a try that failed."""
    return {**tried.failed(FAILURE), "finished": tried.started, **fields}


def write(directory: Path, second: int, document: Any, application: str = "orders") -> Path:
    """Put a report where a job of that second would have put it."""
    path = directory / application / f"r{second}.json"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    os.utime(path, (BEGAN + second, BEGAN + second))
    return path
