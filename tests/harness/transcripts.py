"""What a person sees of a command: every word that it prints, held by one file a command.

A test runs a command once or more, then compares all of stdout and stderr, and the exit codes, with
``tests/golden/transcripts/<name>.txt``. Paths, times, ages, durations, sizes of files, ids, hosts and processes
differ from run to run and have a name in their place. ``STATECORE_UPDATE_TRANSCRIPTS=1`` writes the files anew: look at
the difference.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.progress import TerminalProgress

UPDATE = "STATECORE_UPDATE_TRANSCRIPTS"
"""The environment variable that has the files written anew."""

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "transcripts"

_SAME: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( ?UTC|Z)?", "TIME"),
    (r"\b\d+ (second|minute|hour|day|week|month|year)s? ago", "AGE ago"),
    (r"\bjust now\b", "AGE ago"),
    (r"\b(\d+ h \d\d min|\d+ min \d\d s|\d+(\.\d+)? s)\b", "N s"),
    (r"[\d,.]+( [kKMG](i?B)?)?/s\b", "N/s"),
    (r"(?<![\d,.])\d{2,3},\d{3}(?![\d,])", "SIZE"),
    (r"\b\d{2,} [KMG]iB\b", "SIZE"),
    (r"\bprocess \d+ \([^)]*\)", "process PID (COMMAND)"),
    (r"\b[\w.-]+:[\w.-]+ with mode [rwxst-]{9}", "USER:GROUP with mode MODE"),
    (r"\bstatecore \d+\.\d+\S*", "statecore VERSION"),
)
"""What is replaced wherever it stands: expression, name."""

_NUMBERED: tuple[tuple[str, str], ...] = (
    (r"\b\d{8}T\d{6}Z-[0-9a-f]{8}\b", "SNAPSHOT"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)(?:[0-9a-f]{32}|[0-9a-f]{64}|[0-9a-f]{16}|[0-9a-f]{12})\b", "ID"),
)
"""What is replaced by a name and a number, so that equal ones stay equal."""


def normalised(text: str, names: Mapping[str, str]) -> str:
    """A text with names for all that differs from run to run, and columns as far apart as two blanks.

    Args:
        text: what was printed.
        names: text → what stands in its place; the longest first.
    """
    for found in sorted(names, key=len, reverse=True):
        text = text.replace(found, names[found])
    text = text.replace(socket.gethostname(), "HOST")
    text = re.sub(rf"\bby {re.escape(getpass.getuser())}\b", "by USER", text)
    for expression, name in _NUMBERED:
        seen = dict.fromkeys(one[0] for one in re.finditer(expression, text))
        for number, found in enumerate(seen, 1):
            text = text.replace(found, f"{name}-{number}")
    for expression, name in _SAME:
        text = re.sub(expression, name, text)
    lines = [re.sub(r"(?<=\S) {2,}", "  ", re.sub("[─━]{2,}", "──", line)).rstrip() for line in text.splitlines()]
    return "\n".join(lines)


@dataclass
class Transcript:
    """Command lines that were run, with all that they printed.

    Attributes:
        printed: stdout and stderr since it was called last.
        names: text → what stands in its place.
    """

    printed: Callable[[], tuple[str, str]]
    names: dict[str, str]
    _parts: list[str] = field(default_factory=list)

    def run(self, *words: object) -> int:
        """Run a command line.

        Returns:
            Its exit code.
        """
        self.printed()
        said = [str(word) for word in words]
        try:
            code = main(said)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        out, err = self.printed()
        self._parts.append(f"$ {shlex.join(['statecore', *said])}\n[exit code {code}]")
        self._parts += [f"[{name}]\n{text.rstrip()}" for name, text in (("stdout", out), ("stderr", err)) if text]
        return code

    def forget(self) -> None:
        """Leave out what was printed until now."""
        self._parts.clear()

    def check(self, name: str) -> None:
        """Compare all that was printed with the file of that name."""
        check(name, "\n".join(self._parts), self.names)


def check(name: str, text: str, names: Mapping[str, str]) -> None:
    """Compare a text with a golden file, or write it, where that is asked for.

    Args:
        name: of the file.
        text: what was printed.
        names: text → what stands in its place.
    """
    file = GOLDEN / f"{name}.txt"
    found = normalised(text, names) + "\n"
    if os.environ.get(UPDATE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found)
    assert file.exists(), f"there is no {file.name}; {UPDATE}=1 writes it"
    assert found == file.read_text(), f"{UPDATE}=1 writes {file.name} anew"


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which commands print the same everywhere: no terminal, and no settings of the user."""
    for variable in [one for one in os.environ if one.startswith("STATECORE_") and one != UPDATE]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "160")
    # However slow the machine is: a step says how it ended, and nothing on its way there.
    monkeypatch.setattr("statecore.cli.output.TerminalProgress", partial(TerminalProgress, interval=math.inf))
