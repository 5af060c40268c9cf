"""A ``spark-submit`` without Spark: it runs the job with this Python, and keeps the command line it was given.

Beside it lies a Python that runs stubs in the place of jobs that work beside the task.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

_SUBMIT = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    kept = ("PYSPARK", "SPARK_SUBMIT", "KAFKA", "AWS_ACCESS", "AWS_SECRET", "AWS_SESSION", "AWS_DEF")
    kept = {{name: value for name, value in os.environ.items() if name.startswith(kept)}}
    calls.write(json.dumps({{"argv": sys.argv[1:], "env": kept}}) + "\\n")
job = next(index for index, argument in enumerate(sys.argv) if argument.endswith(".py") and index > 0)
os.execv({python!r}, [{python!r}, *sys.argv[job:]])
"""

_PYTHON = """#!/bin/sh
if [ "$1" = -m ]; then
    case "$2 $3" in
        "statecore.jobs.program checkpoint") module=tests.unit.airflow.stub_local ;;
        "statecore.jobs.program migrate") module=tests.unit.airflow.stub_migrate ;;
        "statecore.jobs.program diagnose") module=tests.unit.airflow.stub_doctor ;;
        *) module= ;;
    esac
    if [ "$module" ]; then
        shift 3
        set -- -m "$module" "$@"
    fi
fi
exec {python} "$@"
"""

JOB = '''
"""Stands for the files of spark_jobs: reports what its request asks for under "spec.application_id"."""
import argparse, json, os, pathlib, sys

parser = argparse.ArgumentParser()
parser.add_argument("--request", type=json.loads)
parser.add_argument("--report", type=pathlib.Path)
parser.add_argument("--master")
arguments, _ = parser.parse_known_args()
request = arguments.request
behaviour = json.loads(pathlib.Path(__file__).with_name("behaviour.json").read_text())
spec = request.get("spec") or json.loads(pathlib.Path(request["spec_path"]).read_text())
application = spec["application_id"]
said = behaviour.get(application, {})
print("an ordinary line")
for count in (0, 50, 100):
    event = {0: "begin", 100: "done"}.get(count, "advance")
    line = {"event": event, "phase": "read", "count": count, "total": 100, "unit": "records", "seconds": 0.5}
    print("STATECORE_PROGRESS " + json.dumps(line), flush=True)
if "silent_exit" in said:
    sys.exit(said["silent_exit"])
if "error" in said:
    arguments.report.write_text(json.dumps(said))
    sys.exit(said["exit_code"])
if said.get("no_report"):
    sys.exit(0)
every = [name for one in spec["subtopologies"].values() for name in one["stores"]]
names = said.get("stores", request["stores"] or every)
if request.get("plan_only"):
    arguments.report.write_text(json.dumps({
        "version": 3, "application_id": application, "processing_guarantee": "exactly_once_v2", "partitions": [
            {"task": f"0_{partition}", "store": name, "partition": partition, "kind": "key-value", "start": 0,
             "end": 500, "log_end": 503, "topic": f"{name}-log", "topic_id": "x", "ranges": [[0, 250], [250, 500]]}
            for name in names for partition in (request["partitions"] or [0, 1])]}))
    sys.exit(0)
placed_in, repository = request.get("state_dir", ""), request.get("repository", "")
published = {
    "snapshot": said.get("snapshot", "snapshot-1"), "identity": "i" * 32, "created_at": "2026-01-02T03:04:05Z",
    "tasks": 2, "file_bytes": 9000, "new_bytes": 4000, "earlier": said.get("earlier", False), "concurrent": 0,
} if repository else None
stores = [
    {"task": f"0_{partition}", "store": name, "partition": partition, "kind": "key-value", "changelog": f"{name}-log",
     "start": 0, "end": 500, "committed_offset": 499, "records": 500, "tombstones": 3, "null_keys": 1, "aborted": 2,
     "rows": 400 if placed_in else -1, "bytes": 9000 if placed_in else -1,
     "digest": f"{partition:032x}" if placed_in else "", "runs": 1, "seconds": 0.25, "tail_left": 0,
     "max_timestamp": 1700000000000}
    for name in names for partition in (request["partitions"] or [0, 1])
]
arguments.report.write_text(json.dumps({
    "version": said.get("version", 2),
    "application_id": application, "plan_id": "plan-" + request["request_id"], "stores": stores, "seconds": 1.5,
    "processing_guarantee": "exactly_once_v2", "state_dir": placed_in, "phases": {"read": 1.0},
    "totals": {"records": 500 * len(stores), "rows": 400 * len(stores), "bytes": 9000, "seconds": 1.5},
    "placed": said.get("placed", True), "placement": said.get("placement", "this") if placed_in else "",
    "repository": repository, "published": published,
    "request_id": request["request_id"], "host": "stub", "user": "airflow", "process": 1, "release": "0",
    "started": "2026-11-28T00:00:00+00:00", "finished": "2026-11-28T00:00:02+00:00",
}))
'''


class FakeStateStore(dict[str, Any]):
    """The task state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class StubSpark:
    """The stub in ``directory``: put ``bin`` on the PATH, submit ``job``.

    Args:
        directory: where to make it.
    """

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir(parents=True)
        self.jobs = directory / "spark_jobs"
        self.jobs.mkdir()
        self.job = self.jobs / "restore.py"
        self.job.write_text(JOB)
        (self.jobs / "checkpoint.py").write_text(JOB)
        self._calls = directory / "calls.jsonl"
        self.behaves({})
        submit = self.bin / "spark-submit"
        submit.write_text(_SUBMIT.format(python=sys.executable, calls=str(self._calls)))
        submit.chmod(0o755)
        self.python = self.bin / "python"
        self.python.write_text(_PYTHON.format(python=sys.executable))
        self.python.chmod(0o755)

    @classmethod
    def local(cls, directory: Path, monkeypatch: pytest.MonkeyPatch) -> StubSpark:
        """A stub that the local Spark connection of Airflow submits to, and reports in ``directory``."""
        stub = cls(directory / "spark")
        # The operator puts the directory of its own Python first on the PATH of a local job.
        monkeypatch.setattr(sys, "executable", str(stub.python))
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
        monkeypatch.setenv("STATECORE_REPORTS", str(directory / "reports"))
        monkeypatch.setenv("STATECORE_SPARK_JOBS", str(stub.jobs))
        return stub

    def behaves(self, by_application: dict[str, Any]) -> None:
        """What the job does for an application: an error's JSON, ``silent_exit``, ``no_report``, its ``stores``."""
        (self.jobs / "behaviour.json").write_text(json.dumps(by_application))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every submission so far: ``argv`` after ``spark-submit``, and ``env``."""
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []


def spec(application_id: str = "orders", stores: tuple[str, ...] = ("by-id", "clicks")) -> dict[str, Any]:
    """A spec as a mapping."""
    return {
        "application_id": application_id,
        "bootstrap_servers": "localhost:9092",
        "processing_guarantee": "exactly_once_v2",
        "subtopologies": {"0": {"stores": {name: {"kind": "key-value"} for name in stores}}},
    }
