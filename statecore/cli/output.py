"""Where a command's words go: the result to stdout, everything else to stderr.

Under ``--json`` nothing but the one document may reach stdout, not even from a JVM or a library that this process
starts. So file descriptor 1 is pointed at stderr while the command runs, and the document goes to the saved one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from statecore.progress import Progress, TerminalProgress

if TYPE_CHECKING:
    from rich.console import Console

_FOLDED, _BETWEEN = 12, 3
"""Columns that words are folded to at least, and those that a column of a table takes besides its cells."""

LOG_WIDTH = 200
"""Columns of a table that goes to a file or a pipe, which have no width of their own."""


class Output:
    """The output of one command; a context manager.

    Args:
        json: whether one JSON document is wanted instead of words.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._saved: int | None = None
        self._stdout = sys.stdout
        self._progress: TerminalProgress | None = None
        self.request_id: str | None = None
        self._is_retry = False
        self.when_stopped = ""
        """How the command leaves things when a signal ends it, in a sentence; empty where nothing has to be said."""
        self.said: set[str] = set()

    def __enter__(self) -> Output:
        if self.json:
            sys.stdout.flush()
            self._saved = os.dup(1)
            os.dup2(2, 1)
            self._stdout, sys.stdout = sys.stdout, sys.stderr
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved is not None:
            sys.stdout = self._stdout
            sys.stdout.flush()
            os.dup2(self._saved, 1)
            os.close(self._saved)
            self._saved = None

    @property
    def progress(self) -> Progress:
        """A listener that shows progress to a person, on stderr."""
        if self._progress is None:
            self._progress = TerminalProgress()
        return self._progress

    def go_on_with(self, request_id: str, *, is_retry: bool = False) -> None:
        """Remember under which request id the same command goes on, should it be stopped.

        Args:
            request_id: the id.
            is_retry: whether an earlier command may have had it.
        """
        self.request_id, self._is_retry = request_id, is_retry

    def going_on(self) -> str:
        """How to go on with what was stopped; empty where nothing can be gone on with."""
        is_planning = self._progress is not None and self._progress.name in ("", "plan")
        if self.request_id is None or (is_planning and not self._is_retry):
            return ""
        return f"Go on with the same command and --request-id {self.request_id}; what was finished is found again."

    def say(self, text: str) -> None:
        """A word on the way, for people; it is remembered in ``said``."""
        self.said.add(text)
        self._on_a_line_of_its_own()
        print(text, file=sys.stderr, flush=True)

    def say_skipped(self, state_dir: Path) -> None:
        """Say which directories below a ``state.dir`` are left out where all applications are meant."""
        from statecore.statedir.store_places import skipped_in

        for path in skipped_in(state_dir):
            self.say(f"{path} is skipped: this user may not look into it.")

    def _on_a_line_of_its_own(self) -> None:
        if self._progress is not None:
            self._progress.end_line()

    def text(self, text: str) -> None:
        """The result as text; dropped under ``--json``."""
        if not self.json:
            print(text, flush=True)

    def document(self, document: Any) -> None:
        """The result for a program; dropped without ``--json``. Called once."""
        if self._saved is not None:
            data = json.dumps(document).encode() + b"\n"
            while data:
                data = data[os.write(self._saved, data) :]

    def error(self, document: dict[str, Any], text: str) -> None:
        """What went wrong: words on stderr, and the document where one is expected and somebody still reads it."""
        self._on_a_line_of_its_own()
        print(f"statecore: {text}", file=sys.stderr, flush=True)
        with suppress(OSError):
            self.document(document)


def result_console() -> Console:
    """The console that results are printed on: as wide as the terminal (or ``COLUMNS``).

    A file or a pipe has no width: tables are wide there, and sentences are not folded, so that a search finds them.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=LOG_WIDTH, soft_wrap=True)
    return console


def print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str],
    spare: Sequence[str] = (),
    indent: int = 0,
) -> None:
    """Print rows as a table whose numbers are whole, however narrow the console is.

    Args:
        console: where.
        title: its heading; empty for none.
        columns: the names of its columns.
        rows: their cells.
        left: the columns of words, which may be folded; the others are numbers.
        spare: the columns that are left out where there is no room, the first one first.
        indent: blanks before it.
    """
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown = list(range(len(columns)))

    def width() -> int:
        cells = {at: [columns[at], *(row[at] for row in rows)] for at in shown}
        widest = [max(map(len, cells[at])) for at in shown]
        least = [min(most, _FOLDED) if columns[at] in left else most for at, most in zip(shown, widest, strict=True)]
        return sum(least) + _BETWEEN * len(shown) + indent

    lacking: list[str] = []
    for name in spare:
        if name in columns and width() > console.width:
            shown.remove(columns.index(name))
            lacking.append(name)
    if width() > console.width:
        if title:
            print_line(console, title, indent=indent)
        for row in rows:
            said = [f"{columns[at]} {row[at]}" for at in shown if row[at]]
            print_line(console, ", ".join(said), indent=indent + 2)
    else:
        if title:  # as a line of its own: a table would cut it to its own width
            print_line(console, title, indent=indent)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for at in shown:
            is_left = columns[at] in left
            table.add_column(columns[at], justify="left" if is_left else "right", overflow="fold", no_wrap=not is_left)
        for row in rows:
            table.add_row(*(Text(row[at]) for at in shown))
        console.print(Padding(table, (0, 0, 0, indent), expand=False))
    if lacking:
        print_line(console, f"left out, as there is no room: {', '.join(lacking)}; --json has them", indent=indent)


def print_line(console: Console, line: str, style: str | None = None, indent: int = 2) -> None:
    """Print a line, indented; one in red stays whole: it may end with a command, which is to be pasted."""
    from rich.padding import Padding
    from rich.text import Text

    if style == "red" or console.soft_wrap:
        console.print(Text(" " * indent + line, style=style or ""), soft_wrap=True)
        return
    console.print(Padding(Text(line, overflow="fold", style=style or ""), (0, 0, 0, indent), expand=False))
