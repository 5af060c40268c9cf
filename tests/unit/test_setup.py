"""``make setup`` says what it does before each step, which may take minutes, and how long it took."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts" / "setup.sh"


def run(tmp_path: Path, failing: str = "none") -> tuple[int, list[str]]:
    """The exit code and the lines of a setup whose steps only say that they run."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SETUP, tmp_path / "scripts")
    programs = {
        ".venv/bin/python": f'echo "runs $2" >&2; [ "$2" != {failing} ]',
        ".venv/bin/uv": '[ "$1" = --version ] || echo "runs uv" >&2',
        "bin/java": "echo 'openjdk version \"17.0.1\"' >&2",
    }
    for name, does in programs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o700)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(tmp_path / "scripts" / "setup.sh")],
        env={**os.environ, "PATH": path, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    plain = re.sub(r"\x1b\[\d*m", "", done.stderr)
    return done.returncode, re.sub(r"\d+ s$", "N s", plain, flags=re.MULTILINE).splitlines()


def test_each_step_is_printed_before_it_runs_with_its_seconds_after(tmp_path: Path) -> None:
    code, lines = run(tmp_path)
    assert (code, (tmp_path / ".venv" / ".ready").exists()) == (0, True)
    steps = {
        "installing Python packages": "uv",
        "fetching Kafka jars (demo and tests only)": "tests.harness.jars",
        "building the S3 server (demo and tests only)": "tests.harness.versitygw",
        "compiling kernels": "statecore.spark.warm",
        "preparing a quick start of Spark": "statecore.spark.jvm",
        "preparing a quick start of Kafka (demo and tests only)": "tests.harness.archives",
    }
    said = [(f"[setup] {what} ...", f"runs {program}", f"[setup] {what}: N s") for what, program in steps.items()]
    assert lines == [*(line for step in said for line in step), "[setup] ready after N s"]


def test_a_step_that_fails_ends_the_setup_and_the_s3_server_alone_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    code, lines = run(tmp_path / "one", "statecore.spark.warm")
    assert (code, lines[-1]) == (1, "runs statecore.spark.warm")
    assert not (tmp_path / "one" / ".venv" / ".ready").exists()
    (tmp_path / "two").mkdir()
    code, lines = run(tmp_path / "two", "tests.harness.versitygw")
    assert (code, lines[-1]) == (0, "[setup] ready after N s")


@pytest.mark.parametrize("directory", ["dags", "plugins", "spark_jobs"])
def test_the_wheel_has_every_dag_plugin_and_program(directory: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = project["tool"]["setuptools"]["data-files"][f"share/statecore/{directory}"]
    assert installed == sorted(f"{directory}/{file.name}" for file in (ROOT / directory).glob("*.py"))
