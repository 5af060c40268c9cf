"""``statecore``: every operation from a shell, for people and for programs.

What a command finds is printed on stdout, what it has to say on the way goes to stderr. With ``--json`` stdout holds
exactly one JSON document, the result or the error, also of a wrong command line. Exit codes are those of
:mod:`statecore.errors`: 0 done, 2 a wrong command line, 10 to 15 by the kind of error, 20 to 22 by what the doctor
found, 1 a defect of this program, 130 interrupted, 143 terminated.

A command is one module with ``add_arguments`` and ``run``; only the one that is used is imported, and it imports Spark,
Kafka and Arrow only when it needs them, so that ``statecore --help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, Protocol

from statecore import __version__
from statecore.cli.output import Output
from statecore.errors import Capacity, Retryable, StatecoreError
from statecore.extras import explained
from statecore.system_errors import Refusal, refusal_of

COMMANDS: dict[str, str] = {
    "advance": "bring the stores of a stopped application's state directory to the end of their changelogs",
    "checkpoint": "advance the newest snapshot of a repository by what was written since, once or as a service",
    "diff": "hold a state directory against another one, a snapshot, or its changelogs: rows missing, extra, different",
    "discover": "write the spec of an application from its topics, topology and state directory",
    "doctor": "say what is wrong with a state directory, what becomes of it, and what to do",
    "dump": "print the rows of a store, decoded",
    "fetch": "bring stores from a repository into a state directory, so that the application starts from a snapshot",
    "fold": "merge the runs of the newest snapshot in a repository that have become many, so that they stay few",
    "hand-over": "put the tasks of a warm copy into the state directory of an application that is down",
    "info": "show which restores there are: where, of what age, by whom, what is unfinished, and who holds the lock, "
    "and which snapshots a repository has",
    "init": "make a repository for snapshots in an object store, after the store was put to the test",
    "inspect": "show what lies in a state directory: stores, kinds, offsets, rows, sizes, and what is wrong",
    "migrate": "make a state directory what another release of Kafka Streams opens, 3.9, 4.2, 4.3 or 4.4, either way",
    "recover-global": "rebuild the global stores with which an application would end in ERROR, and keep the others",
    "repair": "make the head of an application in a repository anew, where it was lost or damaged",
    "restore": "rebuild an application's stores from its changelogs, so that it opens them with nothing to restore",
    "snapshot": "publish what lies in a state directory to a repository, closed, or while the application runs",
    "snapshots": "show which snapshots a repository has: of which applications, of what age, what is damaged; pin some",
    "standby": "keep warm copies of an application's tasks in a state directory of their own, once or as a service",
}
"""Command → what it is for. The module is ``statecore.cli.<command>``, with ``_`` for ``-``."""

_EPILOG = """\
A first restore:
  statecore discover --bootstrap-servers localhost:9092 --application-id orders \\
      --topology describe.txt --output stores.yaml
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams --plan
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams

A start from a snapshot:
  statecore fetch --repository s3://states/production --application-id orders \\
      --state-dir /var/lib/kafka-streams --instance 0/3

State that stays fresh, while the application works:
  statecore checkpoint --spec stores.yaml --repository s3://states/production --follow

A look at what is there:
  statecore doctor --state-dir /var/lib/kafka-streams
  statecore info --state-dir /var/lib/kafka-streams
  statecore inspect --state-dir /var/lib/kafka-streams
  statecore dump --state-dir /var/lib/kafka-streams --application-id orders --store clicks --key string
  statecore diff --state-dir /var/lib/kafka-streams --spec stores.yaml --with-changelog

A look at a repository:
  statecore snapshots --repository s3://states/production
  statecore snapshots --repository s3://states/production --application-id orders --snapshot newest

Exit codes: 0 done, 2 wrong command line, 10 try again later, 11 in use by another, 12 corrupted, 13 invalid request,
14 not found, 15 not enough room, 1 a defect, 130 interrupted, 143 terminated; doctor: 20 warnings, 21 errors, 22 loss
of data. 'statecore COMMAND --help' says more.
"""


class Command(Protocol):
    """What the module of a command provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, arguments: argparse.Namespace, output: Output) -> int:
        """Do it; the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: the words after ``statecore``; ``None`` for this process's own.

    Returns:
        The exit code. Errors of the command line itself raise ``SystemExit`` with code 2, as argparse does.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # what the locale has no character for is printed with escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    command, parsed = _parse(words)
    with _stoppable() as stopped, Output(json=parsed.json) as output:
        try:
            return command.run(parsed, output)
        except KeyboardInterrupt:
            return _stopped(output, stopped or [signal.SIGINT])
        except StatecoreError as error:
            # A terminal's Ctrl-C goes to Spark's workers too: that they have died may be heard of first.
            return _stopped(output, stopped) if stopped else _refused(output, error)
        except BrokenPipeError:
            # Whoever read our output has gone; nothing more can be said, and the interpreter must not try at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        except Exception as error:
            lacking = explained(error) if isinstance(error, ModuleNotFoundError) else None
            if lacking is not None:
                return _refused(output, lacking)
            if isinstance(error, OSError) and refusal_of(error) is not Refusal.OTHER:
                return _refused(output, _system_refused(error, parsed.command))
            what = f"A defect of this program: {type(error).__name__}: {error}"
            action, trace = "Report it together with the trace.", traceback.format_exc()
            return _refused(output, StatecoreError(what, code="defect", action=action, trace=trace))


def _system_refused(error: OSError, command: str) -> StatecoreError:
    """What the system refused to a command itself, mostly to write the result where stdout leads."""
    from statecore.jobs.failures import as_statecore_error

    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # as above: the interpreter must not try at exit
    return as_statecore_error(error, f"statecore {command} was at work")


def _open_closed_streams() -> None:
    """Let what was closed of the standard streams lead nowhere; else the next file, of a store too, is one of them."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _refused(output: Output, error: StatecoreError) -> int:
    """Say what kept the command from its end, and what to do."""
    passes = isinstance(error, (Retryable, Capacity)) or error.context.get("goes_on")
    going_on = output.going_on() if passes else ""
    text = "\n".join(filter(None, [error.what.rstrip("\n"), error.action, going_on]))
    document = error.to_json()
    if going_on:
        document["request_id"] = output.request_id
    code = f"[{error.code}] " if error.code else ""
    output.error(document, f"{error.context.get('trace', '')}{code}{text}")
    return error.exit_code


def _stopped(output: Output, signals: Sequence[int]) -> int:
    """Say that a signal ended the command, the first of those that came, how things are left, and how to go on."""
    kind, code = ("Terminated", 143) if signals[0] == signal.SIGTERM else ("Interrupted", 130)
    what, action = " ".join(filter(None, [f"{kind}.", output.when_stopped])), output.going_on()
    document = {
        "error": kind,
        "code": kind.lower(),
        "exit_code": code,
        "what": what,
        "action": action,
        "context": {"signal": signal.Signals(signals[0]).name},
        "request_id": output.request_id,
    }
    output.error(document, " ".join(filter(None, [what, action])))
    return code


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """Turn SIGTERM and SIGINT into ``KeyboardInterrupt`` while a command runs, where signals can be handled.

    That is in the main thread. Locks are released and Spark is stopped on the way out.

    Yields:
        The signals that came, in their order: what a command raises after one may be of its consequences.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def stop(number: int, _frame: object) -> None:
        came.append(number)
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as behind nohup
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Misused(Exception):
    """What argparse calls wrong, with the parser that says so."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.parser, self.message = parser, message


class _Parser(argparse.ArgumentParser):
    """A parser that leaves it to the caller to say what is wrong with a command line."""

    def error(self, message: str) -> NoReturn:
        """Raises ``_Misused``."""
        raise _Misused(self, message)


def _misused(words: Sequence[str], parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Say what is wrong with the command line, for programs on stdout, and exit with 2 as argparse does."""
    if any(len(word) > 2 and "--json".startswith(word) for word in words):  # argparse takes beginnings of options
        document = {
            "error": "Misused",
            "code": "arguments-invalid",
            "exit_code": 2,
            "what": message,
            "action": f"See {parser.prog} --help.",
            "context": {"command": parser.prog},
        }
        print(json.dumps(document), flush=True)
    parser.print_usage(sys.stderr)
    parser.exit(2, f"{parser.prog}: error: {message}\n")


def _parse(words: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command's module, and its arguments."""
    parser = _Parser(
        prog="statecore",
        description="Rebuilds the state of Kafka Streams applications from their changelogs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"statecore {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    modules: dict[str, Command] = {}
    for name, purpose in COMMANDS.items():
        sub = commands.add_parser(name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        if name == chosen:
            modules[name] = importlib.import_module(f"statecore.cli.{name.replace('-', '_')}")
            modules[name].add_arguments(sub)
    try:
        parsed = parser.parse_args(words)
    except _Misused as misused:
        _misused(words, misused.parser, misused.message)
    return modules[parsed.command], parsed


if __name__ == "__main__":
    sys.exit(main())
