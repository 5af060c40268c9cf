"""What Spark says becomes one error of a known kind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.jobs.failures import as_statecore_error, worker_died
from statecore.spark.failures import spark_failure

JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: {reason}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("reason", "kind", "code", "words"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 "
            "in stage 0.0 (TID 0): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).",
            Capacity,
            "worker-killed",
            "worker process",
        ),
        (
            "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited caused by one of the running "
            "tasks) Reason: Container killed on request. Exit code is 137",
            Capacity,
            "worker-killed",
            "worker process",
        ),
        (
            "Job aborted: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from "
            "the Python worker: Traceback (most recent call last):\n"
            "  File \"worker.py\", line 1\nModuleNotFoundError: No module named 'statecore'\n SQLSTATE: 38000",
            Invalid,
            "executor-python-unusable",
            "ModuleNotFoundError: No module named 'statecore'",
        ),
        ("Job 0 cancelled because SparkContext was shut down", Retryable, "spark-stopped", "Spark"),
        ("Could not parse Master URL: 'nonsense'", Retryable, "spark-failed", "Could not parse Master URL"),
    ],
)
def test_an_error_of_spark_is_one_clear_sentence_without_a_stack_trace(
    reason: str, kind: type[StatecoreError], code: str, words: str
) -> None:
    error = spark_failure(RuntimeError(JAVA.format(reason=reason)), "the changelogs of app were read")
    assert type(error) is kind
    assert error.code == code
    assert words in error.what
    assert "\tat " not in str(error)
    assert "\n" not in error.what
    assert "the changelogs of app were read" in error.what


CRASHED = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "0.0 (TID 0) (host executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "
    "{fatal}\n\tat org.apache.spark.api.python.PythonRunner.read(PythonRunner.scala:711)"
)
FATAL = """Fatal Python error: {signal}

Thread 0x00007fac2884ab81 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1 in wait

Current thread 0x00007fac2884ab80 (most recent call first):
{frames}  File "/site/statecore/images/key_table.py", line 104 in add
  File "/site/pyspark/worker.py", line 3622 in main

Extension modules: numpy._core (total: 1)
"""
IN_RUN = '  File "/site/statecore/kernels/library.py", line 82 in run\n'


@pytest.mark.parametrize(
    ("signal", "frames", "kind", "code", "words"),
    [
        (
            "Segmentation fault",
            IN_RUN,
            StatecoreError,
            "worker-crashed",
            "in a kernel called by /site/statecore/images/key_table.py, line 104",
        ),
        (
            "Segmentation fault",
            "",
            StatecoreError,
            "worker-crashed",
            "in machine code called by /site/statecore/images/key_table.py, line 104",
        ),
        ("Illegal instruction", IN_RUN, StatecoreError, "worker-illegal-instruction", "for another CPU"),
        ("Bus error", IN_RUN, Retryable, "worker-bus-error", "mapped file"),
    ],
)
def test_a_worker_that_died_of_a_signal_differs_from_one_out_of_memory(
    signal: str, frames: str, kind: type[StatecoreError], code: str, words: str
) -> None:
    said = JAVA.format(reason=CRASHED.format(fatal=FATAL.format(signal=signal, frames=frames)))
    error = spark_failure(RuntimeError(said), "the changelogs of app were read")
    assert (type(error), error.code) == (kind, code)
    assert f"({signal})" in error.what
    assert words in error.what
    assert "the changelogs of app were read" in error.what
    assert "\n" not in error.what
    assert error.context["trace"].splitlines()[-1].split()[0] == "/site/pyspark/worker.py:3622"
    killed = spark_failure(RuntimeError(JAVA.format(reason=CRASHED.format(fatal=""))), "x was done")
    assert (type(killed), killed.code) == (Capacity, "worker-killed")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS])
def test_both_engines_report_a_dead_process_alike(number: signal.Signals) -> None:
    program = f"import os\ndef die():\n    os.kill(os.getpid(), {int(number)})\ndie()"
    died = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, check=False
    )
    assert died.returncode == -number
    spark = spark_failure(RuntimeError(JAVA.format(reason=CRASHED.format(fatal=died.stderr))), "x was done")
    processes = worker_died("x was done", number=number, left=died.stderr)
    assert type(spark) is type(processes)
    assert spark.what == processes.what.replace("A worker process", "A worker process of Spark")
    assert (spark.code, spark.action, spark.context) == (processes.code, processes.action, processes.context)
    assert "<string>, line 3 (die)" in spark.what


def test_an_error_that_is_ours_already_stays_what_it_is() -> None:
    error = Retryable("no broker", code="test-error", action="wait")
    assert as_statecore_error(error, "anything") is error
