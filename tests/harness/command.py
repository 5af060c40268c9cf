"""The command line, as a person runs it: a process of its own; or, for what it says alone, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from statecore.cli.main import main


def statecore(*words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``statecore`` with these words; never on a terminal."""
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, input=stdin)


def statecore_here(*words: object) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has loaded everything already: a second or more of computing less."""
    command = [str(word) for word in words]
    said, told = io.StringIO(), io.StringIO()
    with tempfile.TemporaryFile() as document:  # which goes to the file descriptor
        saved = os.dup(1)
        os.dup2(document.fileno(), 1)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                code = main(command)
        finally:
            os.dup2(saved, 1)
            os.close(saved)
        document.seek(0)
        return subprocess.CompletedProcess(command, code, said.getvalue() + document.read().decode(), told.getvalue())


def examined(state_dir: Path, spec: Path, *words: object) -> tuple[int, list[dict[str, Any]]]:
    """What ``statecore doctor`` says of an application's directory: its exit code, and its findings."""
    done = statecore_here("doctor", "--state-dir", state_dir, "--spec", spec, "--json", *words)
    (application,) = json.loads(done.stdout)["applications"]
    return done.returncode, application["findings"]


def worse_than_notes(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings that have an exit code."""
    return [one for one in findings if one["severity"] != "note"]


def statecore_on_a_terminal(answers: str, *words: object) -> tuple[int, str]:
    """Run it as at a terminal; exit code, and what a person sees there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answers.encode())
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # Linux says so when nobody has the other end open any more
        pass
    os.close(ours)
    return process.wait(timeout=300), seen.decode()
