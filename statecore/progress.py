"""Progress reports of long-running work, for a terminal, for Airflow, or discarded.

``phase`` opens a step with a total, ``advance`` adds to it, ``done`` closes it. Three listeners:

* :class:`TerminalProgress`: one line on stderr, rewritten in place on a terminal (rate and time left); elsewhere an
  occasional line, so that a log stays readable.
* :class:`MachineProgress`: lines ``STATECORE_PROGRESS {json}`` on stdout, which Airflow's Spark hook reads from the
  driver's output.
* :class:`NullProgress`.

The clock is injected; nothing here sleeps or starts a thread.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TextIO

MACHINE_PREFIX = "STATECORE_PROGRESS "
"""Start of a machine line; one JSON object follows."""

Clock = Callable[[], float]
"""Monotonic seconds (``time.monotonic``)."""


class Progress(Protocol):
    """Listener that work reports to."""

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        """Begin a step, with its total amount (``None`` if unknown) and unit."""

    def advance(self, amount: int = 1) -> None:
        """Add to the completed amount."""

    def done(self, message: str = "") -> None:
        """End the step, with a message about its outcome if there is one."""


class NullProgress:
    """Discards progress."""

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        """Ignored."""

    def advance(self, amount: int = 1) -> None:
        """Ignored."""

    def done(self, message: str = "") -> None:
        """Ignored."""


class _NamedProgress:
    """Progress with the name of what a step is about before its own."""

    def __init__(self, name: str, progress: Progress) -> None:
        self._name, self._progress = name, progress

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        self._progress.phase(f"{self._name}: {name}", total, unit)

    def advance(self, amount: int = 1) -> None:
        self._progress.advance(amount)

    def done(self, message: str = "") -> None:
        self._progress.done(message)


def progress_of_each(names: Sequence[str], progress: Progress) -> Iterator[tuple[str, Progress]]:
    """Names, each with a listener whose steps say the name and how many there are; a single name is not said."""
    for number, name in enumerate(names, 1):
        yield name, progress if len(names) == 1 else _NamedProgress(f"{name} ({number} of {len(names)})", progress)


class _Stepwise(ABC):
    """Shared state of both listeners: the open step, and the time of the last output."""

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock, self._interval = clock, interval
        self._name, self._unit = "", ""
        self._total: int | None = None
        self._count = 0
        self._began = self._written_at = 0.0
        self._open = False

    @property
    def name(self) -> str:
        """The step begun last; empty before the first."""
        return self._name

    @property
    def is_open(self) -> bool:
        """Whether that step has not ended."""
        return self._open

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        """Begin a step; ends an open one first."""
        if self._open:
            self.done()
        self._name, self._total, self._unit, self._count = name, total, unit, 0
        self._began = self._written_at = self._clock()
        self._open = True
        self._write("begin", "")

    def advance(self, amount: int = 1) -> None:
        """Add to the step; writes output at most once per interval."""
        self._count += amount
        now = self._clock()
        if now - self._written_at >= self._interval:
            self._written_at = now
            self._write("advance", "")

    def done(self, message: str = "") -> None:
        if self._open:
            self._open = False
            self._write("done", message)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._began

    @property
    def _rate(self) -> float:
        return self._count / self._elapsed if self._elapsed > 0 else 0.0

    @property
    def _left(self) -> float | None:
        """Seconds left at the rate so far, or ``None`` if unknown."""
        if self._total is None or self._count <= 0 or self._rate <= 0:
            return None
        return max(0.0, (self._total - self._count) / self._rate)

    @abstractmethod
    def _write(self, event: str, message: str) -> None:
        """Write output for an ``event`` (``begin``, ``advance``, ``done``) of the open step."""


class TerminalProgress(_Stepwise):
    """Progress lines for a person."""

    def __init__(self, stream: TextIO | None = None, *, clock: Clock = time.monotonic, interval: float | None = None):
        self._stream = stream if stream is not None else sys.stderr
        self._tty = self._stream.isatty()
        super().__init__(clock, interval if interval is not None else (0.1 if self._tty else 10.0))
        self._width = 0

    def _write(self, event: str, message: str) -> None:
        if event == "begin" and not self._tty:
            return
        line = self._line(event, message)
        if self._tty:
            end = "\n" if event == "done" else ""
            self._stream.write("\r" + line.ljust(self._width) + end)
            self._width = 0 if event == "done" else len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def end_line(self) -> None:
        """End the line that is being rewritten, before other output."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _line(self, event: str, message: str) -> str:
        parts = [f"{self._name}:"]
        if self._total is not None:
            parts.append(f"{_human(self._count)}/{_human(self._total)} {self._unit}".strip())
        elif self._count:
            parts.append(f"{_human(self._count)} {self._unit}".strip())
        if self._rate > 0:
            parts.append(f"{rate_in_words(self._rate)}/s")
        if event == "done":
            taken = f"in {seconds_in_words(self._elapsed)}"
            parts = [*parts, taken] if len(parts) > 1 else [f"{parts[0]} {taken}"]
        elif self._left is not None:
            parts.append(f"{seconds_in_words(self._left)} left")
        if message:
            parts.append(f"({message})")
        return "  ".join(parts)


class MachineProgress(_Stepwise):
    """One JSON object per line, for a program that reads this process's stdout.

    Fields: ``event`` (``begin``, ``advance``, ``done``), ``phase``, ``count``, ``total`` (or null), ``unit``,
    ``seconds`` since the step began, ``rate`` per second, ``left`` seconds (or null), ``message``.

    Args:
        stream: by default stdout.
    """

    def __init__(self, stream: TextIO | None = None, *, clock: Clock = time.monotonic):
        super().__init__(clock, interval=2.0)
        self._stream = stream if stream is not None else sys.stdout

    def _write(self, event: str, message: str) -> None:
        fields: dict[str, Any] = {
            "event": event,
            "phase": self._name,
            "count": self._count,
            "total": self._total,
            "unit": self._unit,
            "seconds": round(self._elapsed, 3),
            "rate": round(self._rate, 1),
            "left": None if self._left is None else round(self._left, 1),
            "message": message,
        }
        with suppress(BrokenPipeError):  # the reader is gone, which does not concern the job
            self._stream.write(MACHINE_PREFIX + json.dumps(fields, separators=(",", ":")) + "\n")
            self._stream.flush()


def parse_machine_line(line: str) -> dict[str, Any] | None:
    """The fields of a :class:`MachineProgress` line, which may begin anywhere in ``line``; else ``None``."""
    at = line.find(MACHINE_PREFIX)
    if at < 0:
        return None
    try:
        fields = json.loads(line[at + len(MACHINE_PREFIX) :])
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _human(number: int) -> str:
    """``12,345,678`` below a hundred million, then ``123.4 M``."""
    return f"{number:,}" if number < 100_000_000 else f"{number / 1e6:,.1f} M"


def rate_in_words(rate: float) -> str:
    """A rate per second for people: ``378,327``; two significant digits below ten, ``0.4``."""
    return _human(round(rate)) if rate >= 10 else f"{rate:.2g}"


def seconds_in_words(seconds: float) -> str:
    """A duration for people: ``3.1 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
