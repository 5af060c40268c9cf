"""What an executor that could not take part is told, from the answer of a real process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statecore.extras import EXTRAS
from statecore.spark import probe
from statecore.spark.executor_check import Problem, WorkerRequirements, problems_of
from tests.harness.broker import free_ports

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    made = tmp_path / "executors-1"
    made.write_text(made.name)
    return made


def ask(required: WorkerRequirements, token: Path, /, *words: str, **changes: Any) -> list[Problem]:
    """What is wrong with an executor that runs the probe by a command."""
    asked = {"token": str(token), "files": required.files, "seconds": 1.0, "modules": [], "sys_path": [], **changes}
    asked["brokers"] = [*required.brokers, *required.bootstrap]
    command = words or (sys.executable, "-c", Path(probe.__file__).read_text())
    done = subprocess.run(
        command, input=json.dumps(asked) + "\n", capture_output=True, text=True, cwd=ROOT, check=False
    )
    return problems_of(done.stdout + done.stderr, "/opt/python", token, required)


def test_an_executor_that_can_do_all_is_fine(token: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        address = f"127.0.0.1:{broker.getsockname()[1]}"
        required = WorkerRequirements(token.parent, ("127.0.0.1:1", address), (address,), (__file__,))
        assert ask(required, token) == []


def test_a_staging_directory_of_another_machine_is_detected_by_its_token(token: Path) -> None:
    required = WorkerRequirements(token.parent, (), ())
    other = token.with_name("executors-2")
    (wrong,) = ask(required, token, token=str(other))
    assert wrong.code == "staging-not-shared"
    assert str(token.parent) in wrong.what
    other.write_text("what another driver wrote")
    assert ask(required, token, token=str(other)) == [wrong]


def test_brokers_that_only_the_driver_reaches_are_named(token: Path) -> None:
    (port,) = free_ports(1)
    (wrong,) = ask(WorkerRequirements(token.parent, (), (f"127.0.0.1:{port}",)), token)
    assert wrong.code == "broker-unreachable"
    assert f"127.0.0.1:{port} (Connection refused)" in wrong.what
    (wrong,) = ask(WorkerRequirements(token.parent, (f"127.0.0.1:{port}",), ()), token)
    assert f"127.0.0.1:{port}" in wrong.what


def test_a_certificate_that_is_not_there_is_named(token: Path) -> None:
    required = WorkerRequirements.of(
        token.parent, "a:1", ["b:2"], {"ssl_cafile": "/nowhere/ca.pem", "proxy_url": "socks5://p"}
    )
    (wrong,) = ask(required, token)
    assert (wrong.code, "/nowhere/ca.pem" in wrong.what) == ("file-not-readable", True)


def test_kernels_that_cannot_be_loaded_are_reported(token: Path) -> None:
    (wrong,) = ask(WorkerRequirements(token.parent, (), ()), token, modules=["statecore.nothing"])
    assert wrong.code == "kernels-not-loadable"
    assert "(ModuleNotFoundError: No module named 'statecore.nothing')" in wrong.what


def test_an_executor_without_the_extra_is_an_error_that_names_it(token: Path) -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS['pipeline']}))"
    source = f"exec(compile({Path(probe.__file__).read_text()!r}, 'probe', 'exec'))"
    command = (sys.executable, "-c", f"{blocked}\n{source}")
    (wrong,) = ask(WorkerRequirements(token.parent, (), ()), token, *command, modules=["statecore.changelog.reader"])
    assert wrong.code == "kernels-not-loadable"
    assert "MissingExtra: " in wrong.what
    assert "'pipeline'" in wrong.what


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("sh: 1: /opt/python: not found", "interpreter-not-runnable", ["(sh: 1: /opt/python: not found)"]),
        ({"writable": False, "user": 7}, "staging-directory-not-writable", ["7", "{directory}"]),
        ("", "interpreter-not-runnable", ["/opt/python"]),
        ({"python": [3, 9]}, "python-mismatch", ["/opt/python", "3.9", f"3.{sys.version_info[1]}"]),
        ({"statecore": None, "why": "No module"}, "statecore-missing", ["/opt/python", "(No module)"]),
        ({"statecore": "0.0.9"}, "release-mismatch", ["/opt/python", "0.0.9", "0.1.0"]),
    ],
)
def test_each_thing_that_is_wrong_is_one_clause(
    token: Path, said: str | dict[str, Any], code: str, words: list[str]
) -> None:
    if isinstance(said, dict):
        fine = {
            "python": list(sys.version_info[:2]),
            "statecore": "0.1.0",
            "why": None,
            "token": token.name,
            "writable": True,
        }
        said = (
            f"a line of the system's\n{probe.OUTPUT_PREFIX}{json.dumps({**fine, 'files': [], 'brokers': {}, **said})}"
        )
    (found,) = problems_of(said, "/opt/python", token, WorkerRequirements(token.parent, (), ()))
    assert found.code == code
    assert all(word.format(directory=token.parent) in found.what for word in words)
