"""``statecore standby``: run standby tasks of an application."""

from __future__ import annotations

import _thread
import argparse
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statecore.cli.output import Output, print_table, result_console
from statecore.cli.request_options import add_request_options, request_of
from statecore.progress import Clock, rate_in_words, seconds_in_words
from statecore.standby.request import StandbyRequest
from statecore.words import number_of, shortened_list

if TYPE_CHECKING:
    from statecore.standby.report import StandbyReport, StandbyTaskReport


_FEW = 8
"""Number of tasks that a line names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser, StandbyRequest)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Follow the changelogs until a signal, or once, and show the tasks."""
    from statecore.faults import fault_points_from_environment

    request = request_of(StandbyRequest, arguments)
    faults = fault_points_from_environment()

    from statecore.standby.service import run_standby
    from statecore.telemetry import metrics_from_environment

    lines = RoundLines()

    def print_changes(now: StandbyReport) -> None:
        if line := lines.line(now):
            output.say(line)

    with _stopped_by_signals() as stop, metrics_from_environment(output.say) as metrics:
        report = run_standby(
            request,
            stop,
            on_report=print_changes,
            say=output.say,
            metrics=metrics,
            faults=faults,
        )
    output.result(report, show)
    return report.exit_code


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first SIGTERM or SIGINT sets; a second one ends the command at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def ask(_number: int, _frame: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        # Set in a thread: the main thread, which runs the handler, may hold the event's lock while it starts to wait.
        _thread.start_new_thread(stop.set, ())

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class RoundLines:
    """Lines of the rounds that changed something, with rate and remaining time where they are known."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._before: tuple[float, int, int] | None = None
        self._lags: dict[str, str] | None = None

    def line(self, report: StandbyReport) -> str | None:
        """The tasks whose lag or state changed since the last line; ``None`` if there are none."""
        lags = {task.task: _lag_of(task) for task in report.tasks}
        is_first, before, self._lags = self._lags is None, self._lags or {}, lags
        changed = [task for task in report.tasks if before.get(task.task) != lags[task.task]]
        gone = sorted(before.keys() - lags)
        words = self._with_rate(report, line_of(report, changed, gone))  # always: the next rate is counted from here
        return words if changed or gone or is_first else None

    def _with_rate(self, report: StandbyReport, line: str) -> str:
        now, records = self._clock(), sum(store.records for task in report.tasks for store in task.stores)
        behind = sum(task.lag or 0 for task in report.tasks)
        before, self._before = self._before, (now, records, behind)
        if before is None or now <= before[0] or records <= before[1] or not behind:
            return line
        took = now - before[0]
        words = f"{line}; {rate_in_words((records - before[1]) / took)} records/s"
        if behind >= before[2]:  # a further task is behind, or records are written faster than they are read
            return words
        return f"{words}, {seconds_in_words(behind * took / (before[2] - behind))} left"


def line_of(report: StandbyReport, changed: Sequence[StandbyTaskReport], gone: Sequence[str] = ()) -> str:
    """What a round changed, in one line."""
    round_, left = f"round {report.rounds}: ", f"no longer here: {shortened_list(gone)}" if gone else ""
    if not report.tasks:
        return round_ + "; ".join(filter(None, ["no tasks", left]))
    if len(changed) <= _FEW:
        lags = f"lag {', '.join(map(_lag_of, changed))}" if changed else ""
        return round_ + "; ".join(filter(None, [lags, left]))
    behind = sorted(changed, key=lambda task: (task.exit_code == 0, task.lag is not None, -(task.lag or 0)))
    failed = sum(task.exit_code != 0 for task in report.tasks)
    words = f"{round_}{number_of(len(report.tasks), 'task')}, lag {_together(report)}"
    words += f", {failed:,} failed" if failed else ""
    return "; ".join(filter(None, [words, f"most behind: {', '.join(map(_lag_of, behind[:_FEW]))}", left]))


def _together(report: StandbyReport) -> str:
    known = sum(task.lag or 0 for task in report.tasks)
    if all(task.lag is not None for task in report.tasks):
        return f"{known:,}"
    return f"at least {known:,}" if known else "?"


def _lag_of(task: StandbyTaskReport) -> str:
    lag = "?" if task.lag is None else f"{task.lag:,}"
    return f"{task.task} {lag}{' (warmup)' if task.role == 'warmup' else ''}{' failed' if task.exit_code else ''}"


def show(report: StandbyReport) -> None:
    from rich.text import Text

    console = result_console()
    rows = [
        (
            *(task.task, task.role, store.store),
            str(store.offset),
            "?" if store.lag is None else f"{store.lag:,}",
            f"{store.records:,}",
            f"{store.rebuilt}",
        )
        for task in report.tasks
        for store in task.stores
    ]
    if rows:
        print_table(
            console,
            f"{report.application_id} in {report.state_dir}",
            ("task", "role", "store", "offset", "lag", "records", "rebuilt"),
            rows,
            left={"task", "role", "store"},
            spare=("rebuilt", "records", "role"),
        )
    for error, places in _places_by_error(report).items():
        console.print(Text(f"{shortened_list(places, _FEW)}: {error}", style="red"), soft_wrap=True)


def _places_by_error(report: StandbyReport) -> dict[str, list[str]]:
    """Each error once, with the tasks that have it, and the stores where it is not that of the whole task."""
    found: dict[str, list[str]] = {}
    for task in report.tasks:
        stores: dict[str, list[str]] = {}
        for store in task.stores:
            if store.error is not None and store.error != task.error:
                stores.setdefault(store.error, []).append(store.store)
        if task.error is not None:
            found.setdefault(task.error, []).append(f"task {task.task}")
        for error, names in stores.items():
            of = "" if len(names) == len(task.stores) else f" ({', '.join(names)})"
            found.setdefault(error, []).append(f"task {task.task}{of}")
    return found
