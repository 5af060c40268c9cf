"""The command line, as a person runs it: a process of its own, or this one where nothing depends on that."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from statecore.cli.main import main
from statecore.faults import VARIABLE


def statecore(*words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``statecore`` with these words; never on a terminal."""
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, input=stdin)


def statecore_killed(fault: str, *words: object) -> subprocess.CompletedProcess[str]:
    """The same, killed at a fault point (``STATECORE_FAULT``)."""
    command = [sys.executable, "-m", "statecore.cli.main", *map(str, words)]
    environment = {**os.environ, VARIABLE: fault}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)


def statecore_here(*words: object) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has loaded everything already. It must hold no lock that the command takes."""
    given = [str(word) for word in words]
    with ExitStack() as captured:
        # A JSON document goes to descriptor 1 itself.
        out, err = (captured.enter_context(_captured(number)) for number in (1, 2))
        captured.enter_context(redirect_stdout(out))
        captured.enter_context(redirect_stderr(err))
        code = main(given)
        return subprocess.CompletedProcess(given, code, *map(_text, (out, err)))


@contextmanager
def _captured(number: int) -> Iterator[TextIO]:
    """A file that a descriptor of this process writes to for a while."""
    with tempfile.TemporaryFile("w+") as file:
        kept = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield file
        finally:
            os.dup2(kept, number)
            os.close(kept)


def _text(file: TextIO) -> str:
    file.seek(0)  # and what is not written yet goes to the file
    return file.read()


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
    return process.wait(timeout=1200), seen.decode()
