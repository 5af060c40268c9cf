"""Run a job as a program: a request as JSON in, a report or an error as JSON out.

::

    python -m statecore.jobs.program VERB --report FILE --request JSON     processes of this machine do the work
    spark-submit spark_jobs/PROGRAM.py --report FILE --request JSON        Spark's executors do

With ``--local`` the parent process holds this process's standard input; when that is closed, this process exits. A
checkpoint then starts no engine: this process plans, freezes the plan, and reads the tails if they are short. If they
are long it exits with :data:`SPARK_NEEDED`; the same request under ``spark-submit`` resumes the frozen plan, so both
read the same offsets and publish the same.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

from statecore.documents import encode_json, parse_json
from statecore.errors import Invalid, StatecoreError
from statecore.faults import fault_points_from_environment
from statecore.filesystem import NotRegularFile, write_durably
from statecore.jobs.attempt import Attempt, Body, JobReport
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, HandedOver, PlanOnlyEngine
from statecore.jobs.fields.declaration import Request
from statecore.progress import MachineProgress
from statecore.system_errors import write_error
from statecore.telemetry import metered_checkpoints

SPARK_NEEDED = 64
"""Exit code of a checkpoint with ``--local`` if the tails are long; no kind of error has it."""


class Run(Protocol):
    """Runs the job of a request."""

    def __call__(self, request: Any, *engine: Any, **options: Any) -> Body:
        """Run it with ``progress``, ``faults``, ``say``, and the options of its program."""


@dataclass(frozen=True)
class Program:
    """A job as a program; its modules are loaded when it runs.

    Attributes:
        request: the class of its request, in the ``request`` module of its package.
        package: below ``statecore.jobs``; its ``run`` module has ``run_<package>``.
        has_engine: whether an engine runs its tasks.
        plans_locally: whether ``--local`` starts no engine.
        has_freshness: whether its success says how fresh the newest snapshot is.
        options: of its own, by flag; each given one is an argument of the run.
    """

    description: str
    request: str
    package: str
    has_engine: bool = True
    plans_locally: bool = False
    has_freshness: bool = False
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exit_code: Callable[[Any], int] = lambda _: 0

    def request_type(self) -> type[Request]:
        found: type[Request] = getattr(importlib.import_module(f"statecore.jobs.{self.package}.request"), self.request)
        return found

    def run(self) -> Run:
        found: Run = getattr(importlib.import_module(f"statecore.jobs.{self.package}.run"), f"run_{self.package}")
        return found


PROGRAMS: Mapping[str, Program] = {
    "restore": Program("Rebuild stores of one application.", "RestoreRequest", "restore"),
    "checkpoint": Program(
        "Advance the newest snapshot of one application.",
        "CheckpointRequest",
        "checkpoint",
        plans_locally=True,
        has_freshness=True,
        options={
            "--small-tail": {"type": int, "help": "number of offsets in all tails below which no engine is started"},
            "--continues-own-plan": {
                "action": "store_true",
                "help": "resume the plan of --local, without a note about it",
            },
        },
    ),
    "compact": Program("Merge runs of the newest snapshot.", "CompactRequest", "compact", has_engine=False),
    "fetch": Program("Place stores of a snapshot.", "FetchRequest", "fetch", has_engine=False),
    "backup": Program("Publish a state directory as a snapshot.", "BackupRequest", "backup", has_engine=False),
    "diff": Program(
        "Compare a state directory.", "DiffRequest", "diff", exit_code=lambda report: int(report.verdict.exit_code)
    ),
    "diagnose": Program("Examine state directories.", "DiagnoseRequest", "diagnose", has_engine=False),
    "repair": Program("Repair a state directory.", "RepairRequest", "repair"),
    "migrate": Program("Convert a state directory for another release.", "MigrateRequest", "migrate"),
    "recover-global": Program("Recover the global stores of a directory.", "RecoverGlobalRequest", "recover_global"),
}
"""Every job, by verb."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    verb: str | None = None,
    spark: Callable[[str | None], Engine] | None = None,
    run: Run | None = None,
) -> int:
    """Run a job; the report or the error is written to the file of ``--report``.

    Args:
        arguments: of the command line; ``None`` for this process's.
        verb: the job, if the command line does not name it.
        spark: makes the engine of a Spark master; ``None`` for processes of this machine.
        run: runs the job, in place of its own function.

    Returns:
        The exit code: that of the report (0 but for a diff), that of the error's kind, or :data:`SPARK_NEEDED`.
    """
    options = vars(_parser(verb).parse_args(arguments))
    program = PROGRAMS[verb or options["verb"]]
    if options["local"]:
        exit_with_parent_process()
    try:
        return reporting(options["report"], lambda: _run(program, options, spark, run))
    except HandedOver:
        return SPARK_NEEDED


def exit_with_parent_process() -> None:
    """From now on exit when standard input ends, which the parent process holds, and on SIGTERM like ``sys.exit``."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)  # scratch directories are removed on exit
    threading.Thread(target=_exit_at_end_of_input, name="parent-process", daemon=True).start()


def _exit_on_sigterm(*_: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _exit_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(128 + signal.SIGHUP)


def _parser(verb: str | None) -> argparse.ArgumentParser:
    module = getattr(sys.modules["__main__"], "__spec__", None)
    name = Path(sys.argv[0]).name if module is None else f"python -m {module.name}"
    if verb is not None:
        return _with_options(argparse.ArgumentParser(prog=name, description=PROGRAMS[verb].description), PROGRAMS[verb])
    parser = argparse.ArgumentParser(prog=name, description="Run a job.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for one, program in PROGRAMS.items():
        _with_options(verbs.add_parser(one, help=program.description, description=program.description), program)
    return parser


def _with_options(parser: argparse.ArgumentParser, program: Program) -> argparse.ArgumentParser:
    parser.add_argument("--request", required=True, help=f"a {program.request} as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the report, or for the error")
    parser.add_argument("--master", help="the requested Spark master; running on another one is an error")
    local = "start no engine; if one is needed, exit with 64" if program.plans_locally else "start no Spark"
    parser.add_argument("--local", action="store_true", help=f"end with the process that started it, and {local}")
    for flag, declared in program.options.items():
        parser.add_argument(flag, **declared)
    return parser


def _engine(program: Program, options: Mapping[str, Any], spark: Callable[[str | None], Engine] | None) -> Engine:
    if options["local"] and program.plans_locally:
        return PlanOnlyEngine(options["master"])
    return ProcessEngine() if spark is None or options["local"] else spark(options["master"])


def reporting(report: Path, work: Callable[[], int]) -> int:
    """Run a program that writes a report, if it can be written; otherwise returns the exit code of that error."""
    try:
        _check_report(report)
        return work()
    except StatecoreError as error:
        say(f"statecore: [{error.code}] {error}")
        return error.exit_code


def write_report(path: Path, document: Mapping[str, Any]) -> None:
    """Write a report. Raises ``StatecoreError`` if the system refuses."""
    try:
        write_durably(path, encode_json(document))
    except OSError as error:
        raise write_error(path, error) from error


def _check_report(path: Path) -> None:
    """Create the directory of a report, and check that a file can be created there; an existing report stays."""
    partial = path.with_name(path.name + ".tmp")  # the temporary name of a durable write
    try:
        if path.exists() and not path.is_file():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) if path.is_dir() else NotRegularFile(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.open("wb").close()
        partial.unlink()
    except OSError as error:
        raise write_error(path, error) from error


def _run(
    program: Program, options: Mapping[str, Any], spark: Callable[[str | None], Engine] | None, run: Run | None
) -> int:
    starter = os.getppid()
    begun: JobReport[Body] = JobReport(program.package, Attempt.begin("", "", ""))
    try:
        request: Any = program.request_type().from_json(_parsed(options["request"]))
        attempt = Attempt.begin("", getattr(request, "state_dir", ""), getattr(request, "request_id", ""))
        begun = replace(begun, attempt=attempt)
        spec = None if getattr(request, "application_id", None) else request.declared_spec
        application_id = getattr(request, "application_id", None) or ("" if spec is None else spec.application_id)
        begun = replace(begun, attempt=replace(attempt, application_id=application_id))
        # Written first, so that a killed job leaves a report.
        write_report(options["report"], begun.to_json())
        faults = fault_points_from_environment()
        engine = (_engine(program, options, spark),) if program.has_engine else ()
        own = {flag.strip("-").replace("-", "_") for flag in program.options}
        given = {name: value for name, value in options.items() if name in own and value is not None}
        tags = {"application-id": application_id}
        with metered_checkpoints(MachineProgress(), tags, say) as (progress, metrics):
            result = (run or program.run())(request, *engine, progress=progress, faults=faults, say=say, **given)
            if program.has_freshness:
                last = importlib.import_module(f"statecore.jobs.{program.package}.last_checkpoint")
                last.record_checkpoint(metrics, request, result, request.declared_spec.checkpoint_interval_ms)
    except StatecoreError as error:
        # What fails unexpectedly because the starter was killed, as spark-submit's JVM, is no defect: the report stays
        # that of a job that was killed.
        if error.code != "defect" or os.getppid() == starter:
            write_report(options["report"], begun.failed(error).to_json())
        say(f"{error}\n{error.context.get('trace', '')}".rstrip("\n"))
        return error.exit_code
    write_report(options["report"], JobReport.of(program.package, result, begun.attempt).to_json())
    return program.exit_code(result)


def say(line: str) -> None:
    """Write a line to stderr for the operator, unless its reader is gone."""
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{line}\n")


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Invalid(
            f"The request is not JSON: {error}.", code="request-not-json", action="Give one JSON object to --request."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
