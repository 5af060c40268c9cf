"""Output of a command: the result to stdout, everything else to stderr.

Under ``--json`` only the document may reach stdout, whatever a JVM or a library of this process prints. So file
descriptor 1 is redirected to stderr while the command runs, and the document is written to a saved copy of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from statecore.progress import Progress, TerminalProgress

if TYPE_CHECKING:
    from rich.console import Console

_FOLDED, _BETWEEN = 12, 3
"""Minimum width to which words are wrapped, and the padding of a table column."""

RESTORED_BY_STREAMS = "restored by Kafka Streams"
LOG_WIDTH = 200
"""Table width for files and pipes, which have no width."""
MOST_ROWS = 1_000
"""Rows of a table; more are printed as lines, because laying out a table takes a millisecond a row."""


class _Report(Protocol):
    """What a job returns."""

    def to_json(self) -> Any: ...


ReportT = TypeVar("ReportT", bound=_Report)


class Output:
    """The output of one command; a context manager."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._saved: int | None = None
        self._stdout = sys.stdout
        self._progress: TerminalProgress | None = None
        self.request_id: str | None = None
        self._is_retry = False
        self.when_stopped = ""
        """The state that the command leaves when a signal ends it, as a sentence; empty for none."""
        self.printed: set[str] = set()

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
        """The listener that shows progress on stderr."""
        if self._progress is None:
            self._progress = TerminalProgress()
        return self._progress

    def set_request_id(self, request_id: str, *, is_retry: bool = False) -> None:
        """Remember the request id for a resumption; ``is_retry``: an earlier command may have used it."""
        self.request_id, self._is_retry = request_id, is_retry

    def how_to_resume(self) -> str:
        """How to resume a stopped command; empty if it cannot be resumed."""
        step = self._progress
        is_planning = step is not None and (not step.name or (step.name == "plan" and step.is_open))
        if self.request_id is None or (is_planning and not self._is_retry):
            return ""
        if step is not None and step.name == "place" and not step.is_open:  # only Spark had still to stop
            return "All stores are in place."
        return f"Resume it with the same command and --request-id {self.request_id}; finished work is reused."

    def say(self, text: str) -> None:
        """Print a message on stderr; it is remembered in ``printed``."""
        self.printed.add(text)
        self._end_progress_line()
        print(text, file=sys.stderr, flush=True)

    def say_skipped(self, state_dir: Path) -> None:
        """Report the directories below a ``state.dir`` that cannot be read, when all applications are meant."""
        from statecore.statedir.store_places import unreadable_directories

        for path in unreadable_directories(state_dir):
            self.say(f"{path} is skipped: permission denied.")

    def _end_progress_line(self) -> None:
        if self._progress is not None:
            self._progress.end_line()

    def text(self, text: str) -> None:
        """Print the result as text; ignored under ``--json``."""
        if not self.json:
            print(text, flush=True)

    def run(self, job: Callable[..., ReportT], *arguments: Any, application_id: str | None) -> ReportT:
        """Run a job with progress, messages, and the metrics and faults that the environment asks for."""
        from statecore.faults import fault_points_from_environment
        from statecore.telemetry import metered

        faults = fault_points_from_environment()
        tags = {} if application_id is None else {"application-id": application_id}
        with metered(self.progress, tags, self.say) as progress:
            return job(*arguments, progress, faults=faults, say=self.say)

    def result(self, report: ReportT, show: Callable[[ReportT], None]) -> None:
        """Print the report of a job, as JSON or by ``show``."""
        if self.json:
            self.document(report.to_json())
        else:
            show(report)

    def document(self, document: Any) -> None:
        """Print the result as JSON; ignored without ``--json``. Call it once."""
        if self._saved is not None:
            data = json.dumps(document).encode() + b"\n"
            while data:
                data = data[os.write(self._saved, data) :]

    def error(self, document: dict[str, Any], text: str) -> None:
        """Print an error on stderr, and as JSON under ``--json``."""
        self._end_progress_line()
        print(f"statecore: {text}", file=sys.stderr, flush=True)
        with suppress(OSError):
            self.document(document)


def result_console() -> Console:
    """The console for results, as wide as the terminal (or ``COLUMNS``).

    For a file or a pipe, tables are wide and sentences are not wrapped, so that they can be searched.
    """
    from rich.console import Console

    class ResultConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which the base would turn into exit code 1, that of a defect

    console = ResultConsole(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = ResultConsole(highlight=False, width=LOG_WIDTH, soft_wrap=True)
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
    """Print rows as a table whose numbers are never wrapped, however narrow the console is."""
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

    hidden: list[str] = []
    for name in spare:
        if name in columns and width() > console.width:
            shown.remove(columns.index(name))
            hidden.append(name)
    if width() > console.width or len(rows) > MOST_ROWS:
        if title:
            print_line(console, title, indent=indent)
        for row in rows:
            cells = [f"{columns[at]} {row[at]}" for at in shown if row[at]]
            print_line(console, ", ".join(cells), indent=indent + 2)
    else:
        if title:  # as a separate line, because a table would wrap it to its own width
            print_line(console, title, indent=indent)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for at in shown:
            is_left = columns[at] in left
            table.add_column(columns[at], justify="left" if is_left else "right", overflow="fold", no_wrap=not is_left)
        for row in rows:
            table.add_row(*(Text(row[at]) for at in shown))
        console.print(Padding(table, (0, 0, 0, indent), expand=False))
    if hidden:
        print_line(console, f"columns omitted for lack of space: {', '.join(hidden)}; see --json", indent=indent)


def print_line(console: Console, line: str, style: str | None = None, indent: int = 2) -> None:
    """Print an indented line; a red line is never wrapped, because it may end with a command to paste."""
    from rich.padding import Padding
    from rich.text import Text

    if style == "red" or console.soft_wrap:
        console.print(Text(" " * indent + line, style=style or ""), soft_wrap=True)
        return
    console.print(Padding(Text(line, overflow="fold", style=style or ""), (0, 0, 0, indent), expand=False))


def time_ago(when: str) -> str:
    """How long ago a recorded time was, in one unit; the text itself if it is no time."""
    from statecore.jobs.attempt import age, parsed_time

    found = parsed_time(when)
    return age(found) if found else when
