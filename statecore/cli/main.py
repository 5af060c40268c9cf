"""``statecore``: the entry point of all commands.

Results are printed on stdout, messages on stderr. With ``--json`` stdout has exactly one JSON document, the result or
the error, also for a wrong command line. Exit codes: 0 done, 2 wrong command line, 10 to 15 by the kind of error
(:mod:`statecore.errors`), 20 to 22 by the doctor's findings, 30 to 32 by what ``diff`` found, 1 a defect of this
program, 130 interrupted, 141 the reader of stdout has exited, 143 terminated.

A command is one module with ``add_arguments`` and ``run``. Only the module of the command is imported, and it imports
Spark, Kafka and Arrow only when it needs them, so that ``statecore --help`` is quick.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from statecore import __version__
from statecore.cli.output import Output
from statecore.errors import Capacity, Retryable, StatecoreError
from statecore.extras import explained
from statecore.system_errors import Cause, cause_of

_FIRST_GROUP = "Start here"

GROUPS: dict[str, dict[str, str]] = {
    _FIRST_GROUP: {
        "discover": "write an application's spec from its topics and topology",
        "restore": "rebuild an application's stores from its changelogs",
        "checkpoint": "keep the newest snapshot up to date, once or as a service",
        "fetch": "download stores from a snapshot into a state directory",
        "doctor": "find problems in a state directory, and say what to do",
    },
    "Rebuild state": {
        "advance": "bring a stopped application's stores to the log ends",
        "migrate": "upgrade or downgrade state for another Kafka Streams release",
        "recover-global": "rebuild global stores that would end an application in ERROR",
    },
    "Snapshots": {
        "backup": "publish a state directory, closed or in use, as a snapshot",
        "repo": "create, copy or prune a repository; show its snapshots",
    },
    "Standby": {
        "standby": "run standby tasks in a directory of their own",
        "promote": "put standby tasks into a stopped application's directory",
    },
    "Inspect and repair": {
        "info": "list restores, the holder of the lock, and snapshots",
        "inspect": "show stores: kinds, offsets, rows, sizes, problems",
        "dump": "print the rows of a store, decoded",
        "diff": "compare stores, row by row, with a copy, snapshot or changelog",
        "repair": "repair or rebuild what doctor finds",
    },
}
"""Heading → command → its description."""

REPO: dict[str, str] = {
    "init": "create a repository, after a test of the object store",
    "snapshots": "list applications, or the snapshots of one: age, size, damage",
    "show": "show one snapshot: its stores, offsets, sizes and damage",
    "pin": "keep a snapshot, however old it becomes",
    "unpin": "remove the pin of a snapshot",
    "compact": "merge the runs of databases that have many",
    "verify": "verify snapshots: documents, files, or all bytes",
    "forget": "leave snapshots out of the head, by a retention",
    "prune": "delete what no snapshot needs any more",
    "copy": "copy what is new into a replica at another place",
    "promote-replica": "make a replica a primary, for jobs to publish to",
    "rotate-key": "exchange the key of an encrypted repository",
    "repair-head": "rebuild a lost or damaged head: the list of current snapshots",
}
"""Command of ``statecore repo`` → its description."""

COMMANDS: dict[str, str] = {
    **{name: purpose for group in GROUPS.values() for name, purpose in group.items() if name != "repo"},
    **{f"repo {name}": purpose for name, purpose in REPO.items()},
}
"""Every command. Its module is ``statecore.cli.<command>``, with ``.`` for a space and ``_`` for ``-``."""

_UNLISTED: dict[str, Any] = {"metavar": "COMMAND", "required": True, "help": argparse.SUPPRESS}
"""Arguments of ``add_subparsers``: argparse lists commands in one group, so that help is made here."""

_PURPOSE = "Rebuilds, publishes and checks the state of Kafka Streams applications."
_REPO_PURPOSE = "Administers a repository of snapshots, in S3 or in a shared directory."

_FIRST_EPILOG = """\
A first restore:
  statecore discover --bootstrap-servers localhost:9092 \\
      --application-id orders --topology describe.txt --output stores.yaml
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams --plan

'statecore --help' lists all commands.
"""

_EPILOG = """\
See 'statecore COMMAND --help' for the options of a command. Each takes --json.

A first restore:
  statecore discover --bootstrap-servers localhost:9092 \\
      --application-id orders --topology describe.txt --output stores.yaml
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams --plan
  statecore restore --spec stores.yaml --state-dir /var/lib/kafka-streams

A start from a snapshot:
  statecore repo init --repository s3://states/production
  statecore checkpoint --spec stores.yaml --repository s3://states/production
  statecore fetch --repository s3://states/production --application-id orders \\
      --state-dir /var/lib/kafka-streams

migrate, promote, recover-global, repair, and repo forget, prune, repair-head,
rotate-key and promote-replica show a plan, and change nothing without --apply.
restore, advance, fetch, checkpoint, backup and repo compact act at once; with
--plan they show what they would do.

Exit codes: 0 done, 2 wrong command line, 10 try again later, 11 in use by
another, 12 corrupted, 13 invalid request, 14 not found, 15 not enough room,
1 a defect, 130 interrupted, 141 the reader of its output is gone,
143 terminated; doctor and repair: 20 warnings, 21 errors, 22 loss of data;
diff: 30 to 32.
"""


WRONG_COMMAND_LINE = ("option-missing", "options-conflict")
"""Codes of errors that are of the command line alone, as argparse's are: the exit code is 2, not that of the kind."""


class Command(Protocol):
    """The interface of a command's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, arguments: argparse.Namespace, output: Output) -> int:
        """Run the command; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code, or raises ``SystemExit`` with code 2, as argparse."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape characters that the locale's encoding does not have
        sys.stdout.reconfigure(errors="backslashreplace")
    command, parsed = parse(words)
    with _stoppable() as stopped, Output(json=parsed.json) as output:
        try:
            return command.run(parsed, output)
        except KeyboardInterrupt:
            return _stopped(output, stopped or [signal.SIGINT])
        except StatecoreError as error:
            # Ctrl-C on a terminal also reaches Spark's workers, so their death may be reported first.
            return _stopped(output, stopped) if stopped else _refused(output, error, parsed)
        except BrokenPipeError:
            # The reader of stdout has exited; redirect it, so that the interpreter does not flush into it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 128 + signal.SIGPIPE
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


def _refused(output: Output, error: StatecoreError, arguments: argparse.Namespace | None = None) -> int:
    """Print the error and what to do; returns its exit code."""
    waits = error.code == "broker-unreachable" and hasattr(arguments, "timeout")
    timeout_hint = "--timeout SECONDS waits longer for an answer." if waits else ""
    can_resume = isinstance(error, (Retryable, Capacity)) or error.context.get("goes_on")
    resume_hint = output.how_to_resume() if can_resume else ""
    text = "\n".join(filter(None, [error.what.rstrip("\n"), error.action, timeout_hint, resume_hint]))
    document = error.to_json()
    if error.code in WRONG_COMMAND_LINE:
        document |= {"error": "Misused", "exit_code": 2}
    if resume_hint:
        document["request_id"] = output.request_id
    code = f"[{error.code}] " if error.code else ""
    output.error(document, f"{error.context.get('trace', '')}{code}{text}")
    return int(document["exit_code"])


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
        raise _Misused(self, message)


def _misused(words: Sequence[str], misused: _Misused, *, with_help: bool) -> NoReturn:
    """Report a wrong command line, as JSON too if requested, and exit with 2 as argparse does."""
    parser = misused.parser
    if any(len(word) > 2 and "--json".startswith(word) for word in words):  # argparse accepts abbreviated options
        document = {
            "error": "Misused",
            "code": "arguments-invalid",
            "exit_code": 2,
            "what": misused.message,
            "action": f"See {parser.prog} --help.",
            "context": {"command": parser.prog},
        }
        print(json.dumps(document), flush=True)
    show = parser.print_help if with_help else parser.print_usage
    show(sys.stderr)
    parser.exit(2, f"{parser.prog}: error: {misused.message}\n")


def parse(words: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command's module, and the parsed arguments. A wrong command line raises ``SystemExit`` with code 2."""
    named = [word for word in words if not word.startswith("-")]
    chosen = " ".join(named[:2] if named[:1] == ["repo"] else named[:1])
    parser = _with_commands(_Parser(prog="statecore"), _PURPOSE, GROUPS, _EPILOG)
    parser.add_argument("--version", action="version", version=f"statecore {__version__}")
    subparsers = {"": parser.add_subparsers(prog="statecore", **_UNLISTED)}
    repo = subparsers[""].add_parser("repo")
    subparsers["repo"] = repo.add_subparsers(prog="statecore repo", **_UNLISTED)
    _with_commands(repo, _REPO_PURPOSE, {"Commands": REPO}, "See 'statecore repo COMMAND --help'.")
    command: Command | None = None
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name, purpose in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        sub = subparsers[group].add_parser(last, description=f"{purpose[0].upper()}{purpose[1:]}.")
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        parsers[name] = sub
        if name == chosen:
            command = importlib.import_module(f"statecore.cli.{name.replace(' ', '.').replace('-', '_')}")
            command.add_arguments(sub)
    try:
        parsed = parser.parse_args(words, argparse.Namespace(command=chosen))
    except _Misused as misused:
        if misused.parser is parser and chosen in parsers:  # argparse reports unknown options by the outermost parser
            misused = _Misused(parsers[chosen], misused.message + _near_options(parsers[chosen], words))
        elif named and chosen not in ("", "repo", *COMMANDS):
            near = difflib.get_close_matches(chosen, COMMANDS, n=1)
            misused.message += f"; did you mean {near[0]}?" if near else ""
        elif chosen in parsers:  # an option that is required may be misspelt
            misused.message += _near_options(parsers[chosen], words)
        elif not named:  # what fits a terminal with the error; 2, as a script with an empty variable has not succeeded
            _with_commands(parser, _PURPOSE, {_FIRST_GROUP: GROUPS[_FIRST_GROUP]}, _FIRST_EPILOG)
        _misused(words, misused, with_help=chosen in ("", "repo"))
    assert command is not None  # argparse refuses the other names
    return command, parsed


def _near_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The options that the unknown ones may have been meant to be."""
    known = [option for action in parser._actions for option in action.option_strings]
    unknown = [name for word in words if (name := word.partition("=")[0]).startswith("--") and name not in known]
    near = dict.fromkeys(match for name in unknown for match in difflib.get_close_matches(name, known, n=1))
    return f"; did you mean {' and '.join(near)}?" if near else ""


def _with_commands(
    parser: argparse.ArgumentParser, purpose: str, groups: Mapping[str, Mapping[str, str]], epilog: str
) -> argparse.ArgumentParser:
    """Give a parser a help that lists commands by group."""
    listed = (
        "\n".join([f"{heading}:", *(f"  {name:<15} {about}" for name, about in group.items())])
        for heading, group in groups.items()
    )
    parser.usage = f"{parser.prog} COMMAND [OPTIONS]"
    parser.description, parser.epilog = "\n\n".join([purpose, *listed]), epilog
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


if __name__ == "__main__":
    sys.exit(main())
