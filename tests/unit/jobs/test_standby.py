"""Warm copies as a service: what is done before the first round, without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

from statecore.jobs.standby import run_standby
from statecore.jobs.standby_request import StandbyRequest

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "127.0.0.1:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}}}},
}


def test_corrupt_copies_that_were_kept_for_a_week_are_deleted_without_a_group_too(tmp_path: Path) -> None:
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    old = tmp_path / "app" / ".statecore" / "corrupt" / "0_0@1000"
    old.mkdir(parents=True)
    (old / "file").write_text("x")
    stop = Event()
    stop.set()
    done = run_standby(StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0",)), stop)
    assert [task.task for task in done.tasks] == ["0_0"]
    assert not old.exists()
