from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.stop import stop_all
from tests.harness.process_guard import started_at

OBEDIENT = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()


def sleeper(sleepers: list[subprocess.Popen[bytes]], program: str = OBEDIENT) -> subprocess.Popen[bytes]:
    sleepers.append(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE))
    if program is STUBBORN:
        assert sleepers[-1].stdout is not None
        sleepers[-1].stdout.readline()
    return sleepers[-1]


def record(path: Path, pid: int, started: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "started_at": started}))


def test_what_is_recorded_is_stopped_the_broker_last(tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]) -> None:
    broker, streams = sleeper(sleepers), sleeper(sleepers)
    record(tmp_path / "a" / "broker.json", broker.pid, started_at(broker.pid))
    record(tmp_path / "z" / "streams.json", streams.pid, started_at(streams.pid))
    said: list[str] = []

    def alive(what: str) -> None:
        said.append(what)
        assert started_at((broker if what.startswith("broker") else streams).pid) is not None

    assert stop_all(tmp_path, say=alive) == said == [f"streams in {tmp_path / 'z'}", f"broker in {tmp_path / 'a'}"]
    assert started_at(broker.pid) is None
    assert started_at(streams.pid) is None
    assert stop_all(tmp_path) == []


def test_a_process_that_got_a_recorded_pid_later_is_left_alone(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    stranger = sleeper(sleepers)
    record(tmp_path / "broker.json", stranger.pid, "1")
    record(tmp_path / "streams.json", stranger.pid, None)
    (tmp_path / "airflow.json").write_text(
        json.dumps({"pid": stranger.pid, "started_at": "1", "port": 1, "mark": "none", "user": "u", "password": "p"})
    )
    assert stop_all(tmp_path) == []
    stranger.send_signal(signal.SIGUSR1)  # what it is sent first ends it, and tells so
    assert stranger.wait(60) == -signal.SIGUSR1


def test_one_that_ignores_the_request_is_ended(tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]) -> None:
    stubborn = sleeper(sleepers, STUBBORN)
    record(tmp_path / "broker.json", stubborn.pid, started_at(stubborn.pid))
    assert len(stop_all(tmp_path, grace_seconds=0.3)) == 1
    assert started_at(stubborn.pid) is None


@pytest.mark.parametrize("content", ["", "[]", "3", "{}", '{"pid": "x"}', '{"pid": 1}', '{"stores": [{"pid": 1}]}'])
def test_other_json_files_are_no_records(tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    assert stop_all(tmp_path) == []


def test_without_a_demo_there_is_nothing_to_stop(tmp_path: Path) -> None:
    assert stop_all(tmp_path / "absent") == []
