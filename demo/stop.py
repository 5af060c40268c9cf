"""Stops what the demo left running: Airflow, the Kafka Streams application, the broker. Safe to call at any time.

Everything the demo starts leaves a JSON record under ``.demo/`` with the process id and the process's start time. The
pair names one process for ever: a record whose pid was given to somebody else since is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo.airflow_server import RECORD, AirflowServer
from tests.harness.process_guard import started_at

DEMO = Path(__file__).resolve().parents[1] / ".demo"
GRACE_SECONDS = 30.0


def stop_all(
    directory: Path = DEMO, *, grace_seconds: float = GRACE_SECONDS, say: Callable[[str], object] = lambda _: None
) -> list[str]:
    """Stop every recorded process under ``directory``; returns what was stopped, and says each before it is stopped.

    Airflow goes first, so that nothing it runs meets a broker that is gone; the broker goes last.
    """
    stopped = []
    for record in sorted(directory.rglob(RECORD)):
        server = AirflowServer.attach(record.parent)
        if server is not None and (server.running or server.processes()):
            stopped.append(f"Airflow in {record.parent}")
            say(stopped[-1])
            server.stop()
    others = sorted(directory.rglob("*.json"), key=lambda path: (path.name == "broker.json", path))
    for path in others:
        process = _recorded(path)
        if process is not None and path.name != RECORD:
            stopped.append(f"{path.stem} in {path.parent}")
            say(stopped[-1])
            _end(*process, grace_seconds)
    return stopped


def _recorded(path: Path) -> tuple[int, str] | None:
    """Pid and start time of the living process that a record names, or ``None``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        pid, started = int(document["pid"]), str(document["started_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (pid, started) if started_at(pid) == started else None


def _end(pid: int, started: str, grace_seconds: float) -> None:
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 10.0)):
        if started_at(pid) != started:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while started_at(pid) == started and time.monotonic() < deadline:
            time.sleep(0.05)


def main() -> int:
    """Stop everything, and say what is being stopped: Airflow takes some seconds to end."""
    stopped = stop_all(say=lambda what: print(f"stopping {what}", flush=True))
    print("stopped" if stopped else "nothing to stop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
