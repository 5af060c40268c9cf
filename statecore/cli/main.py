"""``statecore``: the entry point of all commands.

Results are printed on stdout, messages on stderr. With ``--json`` stdout has exactly one JSON document, the result or
the error, also for a wrong command line. Exit codes are those of :mod:`statecore.errors`: 0 done, 2 wrong command line,
10 to 15 by the kind of error, 20 to 22 by the doctor's findings, 1 a defect of this program, 130 interrupted, 143
terminated.

A command is one module with ``add_arguments`` and ``run``. Only the module of the command is imported, and it imports
Spark, Kafka and Arrow only when it needs them, so that ``statecore --help`` is quick.
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
from statecore.system_errors import Cause, cause_of

COMMANDS: dict[str, str] = {
    "advance": "bring the stores of a stopped application to the end of their changelogs",
    "backup": "publish the stores of a state directory to a repository, also while the application runs",
    "checkpoint": "append new changelog records to the newest snapshot of an application, once or as a service",
    "diff": "compare a state directory with another one, a snapshot, or its changelogs, row by row",
    "discover": "write the spec of an application from its topics, topology and state directory",
    "doctor": "find problems in a state directory, with their consequences and what to do",
    "dump": "print the rows of a store, decoded",
    "fetch": "download stores from a repository into a state directory, so that the application starts from a snapshot",
    "fold": "compact the newest snapshot of an application: merge the runs of databases that have many",
    "promote": "promote standby tasks into the state directory of a stopped application",
    "info": "list restores with their state, age and user, the holder of the lock, and the snapshots of a repository",
    "init": "create a repository for snapshots in an object store, after a test of the object store",
    "inspect": "show the stores of a state directory: kinds, offsets, rows, sizes, and problems",
    "migrate": "upgrade or downgrade a state directory for another release of Kafka Streams: 3.9, 4.2, 4.3 or 4.4",
    "recover-global": "rebuild global stores with which an application would end in ERROR, and keep the others",
    "repair": "rebuild a lost or damaged head of an application in a repository",
    "restore": "rebuild an application's stores from its changelogs, so that it opens them with nothing to restore",
    "snapshots": "list the snapshots of a repository with their age and damage, and pin them",
    "standby": "run standby tasks of an application in a state directory of their own, once or as a service",
}
"""Command → its description. The module is ``statecore.cli.<command>``, with ``_`` for ``-``."""

_EPILOG = """\
A first restore:
  statecore discover --bootstrap-servers localhost:9092 --application-id orders \\
      --topology describe.txt --output stores.yaml
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams --plan
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams

A start from a snapshot:
  statecore fetch --repository s3://states/production --application-id orders \\
      --state-dir /var/lib/kafka-streams --instance 0/3

Up-to-date snapshots of a running application:
  statecore checkpoint --spec stores.yaml --repository s3://states/production --follow

Inspect state directories:
  statecore doctor --state-dir /var/lib/kafka-streams
  statecore info --state-dir /var/lib/kafka-streams
  statecore inspect --state-dir /var/lib/kafka-streams
  statecore dump --state-dir /var/lib/kafka-streams --application-id orders --store clicks --key string
  statecore diff --state-dir /var/lib/kafka-streams --spec stores.yaml --with-changelog

Inspect a repository:
  statecore snapshots --repository s3://states/production
  statecore snapshots --repository s3://states/production --application-id orders --snapshot newest

Exit codes: 0 done, 2 wrong command line, 10 try again later, 11 in use by another, 12 corrupted, 13 invalid request,
14 not found, 15 not enough room, 1 a defect, 130 interrupted, 143 terminated; doctor: 20 warnings, 21 errors, 22 loss
of data. See also 'statecore COMMAND --help'.
"""


class Command(Protocol):
    """The interface of a command's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, arguments: argparse.Namespace, output: Output) -> int:
        """Run the command; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns:
        The exit code. A wrong command line raises ``SystemExit`` with code 2, as in argparse.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape characters that the locale's encoding does not have
        sys.stdout.reconfigure(errors="backslashreplace")
    command, parsed = _parse(words)
    with _stoppable() as stopped, Output(json=parsed.json) as output:
        try:
            return command.run(parsed, output)
        except KeyboardInterrupt:
            return _stopped(output, stopped or [signal.SIGINT])
        except StatecoreError as error:
            # Ctrl-C on a terminal also reaches Spark's workers, so their death may be reported first.
            return _stopped(output, stopped) if stopped else _refused(output, error)
        except BrokenPipeError:
            # The reader of stdout has exited; redirect it, so that the interpreter does not flush into it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        except Exception as error:
            lacking = explained(error) if isinstance(error, ModuleNotFoundError) else None
            if lacking is not None:
                return _refused(output, lacking)
            if isinstance(error, OSError) and cause_of(error) is not Cause.OTHER:
                return _refused(output, _system_refused(error, parsed.command))
            what = f"A defect of this program: {type(error).__name__}: {error}"
            action, trace = "Report it together with the trace.", traceback.format_exc()
            return _refused(output, StatecoreError(what, code="defect", action=action, trace=trace))


def _system_refused(error: OSError, command: str) -> StatecoreError:
    """The error for an ``OSError`` of a command itself, mostly when it writes the result to stdout."""
    from statecore.jobs.failures import as_statecore_error

    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # as above
    return as_statecore_error(error, f"statecore {command} was running")


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device; else the next file, of a store too, becomes one."""
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
    """Print the error and what to do; returns its exit code."""
    can_resume = isinstance(error, (Retryable, Capacity)) or error.context.get("goes_on")
    resume_hint = output.how_to_resume() if can_resume else ""
    text = "\n".join(filter(None, [error.what.rstrip("\n"), error.action, resume_hint]))
    document = error.to_json()
    if resume_hint:
        document["request_id"] = output.request_id
    code = f"[{error.code}] " if error.code else ""
    output.error(document, f"{error.context.get('trace', '')}{code}{text}")
    return error.exit_code


def _stopped(output: Output, signals: Sequence[int]) -> int:
    """Report that the first of these signals ended the command, with the state it leaves and how to continue."""
    kind, code = ("Terminated", 143) if signals[0] == signal.SIGTERM else ("Interrupted", 130)
    what, action = " ".join(filter(None, [f"{kind}.", output.when_stopped])), output.how_to_resume()
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
    """Turn SIGTERM and SIGINT into ``KeyboardInterrupt`` while a command runs, if this is the main thread.

    So locks are released and Spark is stopped.

    Yields:
        The signals received, in order: an exception of the command after one may be a consequence.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, as under nohup
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Misused(Exception):
    """A wrong command line, with the parser that found it."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.parser, self.message = parser, message


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raises ``_Misused``."""
        raise _Misused(self, message)


def _misused(words: Sequence[str], parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Report a wrong command line, as JSON too if requested, and exit with 2 as argparse does."""
    if any(len(word) > 2 and "--json".startswith(word) for word in words):  # argparse accepts abbreviated options
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
    """The command's module, and the parsed arguments."""
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
