"""The first stage of a job on a cluster: checks whether every executor can run its tasks.

Without it an executor that lacks statecore, or that cannot access the staging directory, fails in the middle of the
job with a stack trace after four tries. Here each executor is checked once, before anything is read, and the error
names the hosts.

The check runs in a process that the executor starts (``JavaRDD.pipe``), not in a Python worker: workers are forked by
statecore's daemon, which an interpreter without statecore cannot run. Each task of the stage is placed on one executor
by Spark's preferred locations. In local mode there is no check, because the driver is the executor.
"""

from __future__ import annotations

import json
import shlex
import sys
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from statecore import __version__
from statecore.errors import Invalid, Retryable
from statecore.filesystem import make_directories
from statecore.jobs.engine.protocol import WorkerRequirements
from statecore.spark import probe
from statecore.spark.daemon import PRELOADED
from statecore.spark.executors import Executor, executors_of
from statecore.spark.failures import spark_failure
from statecore.spark.masters import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

REACH_SECONDS = 5.0
"""Timeout of an executor's connection to a broker."""

_MODULES = tuple(name for name in PRELOADED if not name.startswith("pyspark"))


def check_executors(context: SparkContext, required: WorkerRequirements) -> tuple[Executor, ...]:
    """Check every executor, and refuse if one cannot run tasks; in local mode returns the driver, unchecked."""
    if is_local(context.master):
        return executors_of(context)
    token = None
    if required.directory is not None:
        token = required.directory / f"executors-{uuid.uuid4().hex}"
        make_directories(required.directory)
        token.write_text(token.name)
    reached = set(required.brokers) - set(probe.unreachable(required.brokers, REACH_SECONDS))
    asked = {
        "token": None if token is None else str(token),
        "files": list(required.files),
        "brokers": sorted(reached | set(required.bootstrap)),
        "seconds": REACH_SECONDS,
        "modules": _MODULES,
        "sys_path": list(context._python_includes),
    }
    try:
        executors = executors_of(context)
        answers = _ask(context, executors, asked)
    finally:
        if token is not None:
            token.unlink(missing_ok=True)
    wrong: dict[Problem, list[str]] = defaultdict(list)
    for executor, answer in zip(executors, answers, strict=True):
        for problem in problems_of(answer, context.pythonExec, token, required):
            if executor.host not in wrong[problem]:
                wrong[problem].append(executor.host)
    if wrong:
        raise Invalid(
            "Not all executors can run tasks: "
            + "; ".join(f"on {', '.join(hosts)} {one.what}" for one, hosts in wrong.items())
            + ".",
            code="executors-unfit",
            action=" ".join(dict.fromkeys(one.action for one in wrong)),
            hosts=sorted({host for hosts in wrong.values() for host in hosts}),
            problems=[{**one._asdict(), "hosts": hosts} for one, hosts in wrong.items()],
            master=context.master,
        )
    return executors


def _ask(context: SparkContext, executors: Sequence[Executor], asked: Mapping[str, Any]) -> list[str]:
    """The output of each executor's probe process, in the order of the executors."""
    if not executors:
        raise Retryable(
            f"The executors on {context.master} are gone.",
            code="executors-lost",
            action="Check the cluster, then start the job again.",
            master=context.master,
        )
    jvm = context._jvm
    text = json.dumps(asked)
    elements = [jvm.scala.Tuple2(text, jvm.PythonUtils.toSeq([f"executor_{one.host}_{one.id}"])) for one in executors]
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    source = shlex.quote(Path(probe.__file__).read_text())
    # Errors go to standard output too, because only that is returned.
    command = f"{shlex.quote(context.pythonExec)} -c {source} 2>&1 || true"
    try:
        placed = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(elements), kind).toJavaRDD()
        answers = placed.pipe(["/bin/sh", "-c", command]).glom().collect()
    except Exception as error:
        raise spark_failure(error, "the executors were checked") from error
    return ["\n".join(lines) for lines in answers]


class Problem(NamedTuple):
    """A problem of an executor, and what to do about it."""

    code: str
    what: str
    action: str


def problems_of(output: str, python: str, token: Path | None, required: WorkerRequirements) -> list[Problem]:
    """The problems of an executor, from the output of its probe process."""
    line = next((one for one in output.splitlines() if one.startswith(probe.OUTPUT_PREFIX)), None)
    choose = (
        "Install this release there (pip install '.[pipeline]' in a checkout), and name its interpreter "
        "(executor_python, STATECORE_EXECUTOR_PYTHON or spark.pyspark.python), or send a packed "
        "environment along (spark.archives)."
    )
    if line is None:
        last = next((one.strip() for one in reversed(output.splitlines()) if one.strip()), "it printed nothing")
        return [Problem("interpreter-not-runnable", f"the interpreter {python} cannot be run ({last})", choose)]
    answer = json.loads(line.removeprefix(probe.OUTPUT_PREFIX))
    found: list[Problem] = []

    def add(code: str, what: str, action: str) -> None:
        found.append(Problem(code, what, action))

    mine = list(sys.version_info[:2])
    if answer["python"] != mine:
        versions = [".".join(map(str, version)) for version in (answer["python"], mine)]
        add("python-mismatch", f"{python} is Python {versions[0]} and the driver's is {versions[1]}", choose)
    if answer["statecore"] is None:
        add("statecore-missing", f"{python} has no statecore ({answer['why']})", choose)
    elif answer["statecore"] != __version__:
        what = f"{python} has statecore {answer['statecore']} and the driver has {__version__}"
        add("release-mismatch", what, choose)
    elif answer["why"] is not None:
        add("kernels-not-loadable", f"statecore's kernels cannot be loaded ({answer['why']})", choose)
    if answer["token"] != (None if token is None else token.name):
        add(
            "staging-not-shared",
            f"the staging directory {required.directory} is not the driver's",
            "Give a staging directory (staging_dir) on a file system that all executors share with the driver under "
            "the same path, and the right to read and write there.",
        )
    elif not answer["writable"]:
        add(
            "staging-directory-not-writable",
            f"the user {answer['user']} may not write to the staging directory {required.directory}",
            "Run the executors as the driver's user, or give them the right to write there.",
        )
    if answer["files"]:
        what = f"{', '.join(answer['files'])} cannot be read"
        add("file-not-readable", what, "Put the files that the spec names on every host.")
    lost: dict[str, str] = answer["brokers"]
    needed = [one for one in required.brokers if one in lost]
    if all(one in lost for one in required.bootstrap):
        needed += required.bootstrap
    if needed:
        add(
            "broker-unreachable",
            "no broker can be reached at " + ", ".join(f"{one} ({lost[one]})" for one in dict.fromkeys(needed)),
            "Use bootstrap servers and advertised listeners that can also be reached from the executors' hosts.",
        )
    return found
