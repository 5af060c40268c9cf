"""Starts Spark for jobs whose rows do not pass through the JVM.

Data is processed in columns by Python workers; the JVM only schedules a few dozen tasks. So it is configured for a
quick start, not for throughput: first compiler tier only, serial collector, no web UI, few logs, and no SQL session,
whose first query costs about two seconds of class loading (``docs/architecture.md`` has the figures).

A job registers with a standalone master within a time limit. Spark itself retries for a minute if the address is not
that of a master, and logs Java exceptions for each answer that is not Spark's. Here the job reports it in one error.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.spark.executors import await_executors, executor_python
from statecore.spark.jvm import quick_start_options
from statecore.spark.masters import is_local, reach_master, same_master
from statecore.spec.spark_settings import REMOTE_PYTHON_PROPERTIES

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

DAEMON_MODULE = "statecore.spark.daemon"

CONSOLE_PROGRESS = "spark.ui.showConsoleProgress"

INTERRUPTED = "KeyboardInterrupt while sending command."
"""What py4j logs, with its stack trace, where a Ctrl-C comes while the JVM is asked."""

REGISTRATION_SECONDS = 30.0
"""How long a reachable standalone master may take to register the job."""

NOISY_LOGGERS = (
    "org.apache.spark.network.server.TransportChannelHandler",
    "org.apache.spark.network.client.TransportResponseHandler",
    "org.apache.spark.network.client.TransportClient",
    "org.apache.spark.rpc.netty.NettyRpcEnv",
    "org.apache.spark.deploy.client",
)
"""Loggers of exceptions at a port that is not a master's."""

_switched_off: set[str] = set()
"""Loggers that were switched off here, and not by the configuration."""


@contextmanager
def spark_context(
    application_name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkContext]:
    """The Spark context of a job: the active one, the one that ``spark-submit`` prepares, or a new one.

    Under ``spark-submit`` the submitted settings (master, ``--conf``, ``spark-defaults.conf``) take precedence over
    ``conf``. Otherwise ``master`` and ``conf`` take precedence over ``spark-defaults.conf``.

    Yields:
        The context, on a cluster with its executors; it is stopped afterwards, unless it was active before (a
        notebook's, a test's).
    """
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        _refuse_another_master(master, active.master)
        yield active
        return
    context = _start(application_name, master, conf or {})
    try:
        await_executors(context)
        yield context
    finally:
        stop(context)


def _start(name: str, master: str | None, given: Mapping[str, str]) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    logging.getLogger().addFilter(is_no_interrupt)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _find_java()
        reach_master(master or "local")  # before a JVM is started in vain
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
            [*quick_start_options(), f"-Dlog4j2.configurationFile={log_configuration().as_uri()}"]
        )
    # Submitted settings are in the JVM's properties, so a conf that is made before the JVM starts does not have them.
    launch = SparkConf()
    if not submitted:  # by default PySpark's JVM draws progress bars of its own
        launch.setIfMissing(CONSOLE_PROGRESS, "false")
    for key, value in given.items():
        if key.startswith("spark.driver."):  # has no effect once the JVM runs
            launch.set(key, value)
    SparkContext._ensure_initialized(conf=launch)
    conf = SparkConf()
    if master is not None and not submitted:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    runs_on = str(conf.get("spark.master"))
    for key, value in given.items():
        if key in REMOTE_PYTHON_PROPERTIES and is_local(runs_on):
            continue
        if submitted:
            conf.setIfMissing(key, value)
        else:
            conf.set(key, value)
    _complete(conf, name, submitted=submitted)
    _refuse_another_master(master, runs_on)
    reach_master(runs_on)
    context = start_registered(conf, runs_on)
    context.pythonExec = executor_python(conf)
    return context


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether a record is not py4j's stack trace of a Ctrl-C, which the command reports in one line."""
    return record.msg != INTERRUPTED


def _find_java() -> None:
    """Check that there is Java; PySpark's own error only says that its gateway has exited."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise Invalid(
            "Spark needs Java, and there is no Java on the PATH.",
            code="java-missing",
            action="Install Java 17 or 21, or set JAVA_HOME; or use --engine processes, which needs no Java.",
        )


def _complete(conf: SparkConf, name: str, *, submitted: bool) -> None:
    # Without a name spark-submit uses that of the job's file.
    if not submitted or str(conf.get("spark.app.name", ".py")).endswith(".py"):
        conf.setAppName(name)
    conf.set("spark.python.daemon.module", DAEMON_MODULE)
    # Reports a worker's crash in native code, which otherwise looks like a lack of memory.
    conf.setIfMissing("spark.python.worker.faulthandler.enabled", "true")
    conf.setIfMissing("spark.ui.enabled", "false")
    conf.setIfMissing(CONSOLE_PROGRESS, "false")
    # Loopback in local mode: a laptop's host name often resolves to nothing.
    if is_local(str(conf.get("spark.master"))):
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")


def _refuse_another_master(asked: str | None, runs_on: str) -> None:
    if asked is not None and not is_local(asked) and not same_master(asked, runs_on):
        raise Invalid(
            f"The job has to run on {asked}, but Spark runs on {runs_on} here.",
            code="spark-master-mismatch",
            action=f"Submit it with the master {asked}, or stop the Spark context that is active in this process.",
            asked=asked,
            master=runs_on,
        )


def start_registered(conf: SparkConf, master: str, seconds: float = REGISTRATION_SECONDS) -> SparkContext:
    """A new context, registered with a standalone master within a time limit."""
    from pyspark import SparkContext

    if not master.startswith("spark://"):
        return SparkContext(conf=conf)
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(SparkContext(conf=conf))
        except BaseException as error:
            made.set_exception(error)

    with _quiet(SparkContext._jvm, conf):
        threading.Thread(target=make, name="spark-register", daemon=True).start()
        try:
            return made.result(seconds)
        except TimeoutError:
            made.add_done_callback(_stop_late)
            raise Retryable(
                f"The process at {master} did not register the job within {seconds:g} s.",
                code="spark-master-not-responding",
                action="Check that it is the port of a Spark master (7077, not that of its web UI) of the same Spark "
                "release, and that it can reach this host.",
                master=master,
            ) from None


@contextmanager
def _quiet(jvm: Any, conf: SparkConf) -> Iterator[None]:
    """Switch :data:`NOISY_LOGGERS` off until Spark has started.

    After a timeout they stay off, because Spark goes on retrying.
    """
    if jvm is None:  # without a JVM there is no logging
        yield
        return
    # Spark resets its logging configuration, with all levels, at the first line it logs after a submission.
    conf._jconf.initializeLogIfNecessary(False)
    log4j = jvm.org.apache.logging.log4j
    loggers = log4j.LogManager.getContext(False)
    for name in NOISY_LOGGERS:
        if not loggers.getConfiguration().getLoggers().containsKey(name):  # else the site has configured it
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
            _switched_off.add(name)
    try:
        yield
    except Retryable:
        raise
    except BaseException:
        _switch_on(loggers)
        raise
    _switch_on(loggers)


def _switch_on(loggers: Any) -> None:
    """Remove the levels set here, so that the loggers inherit theirs."""
    while _switched_off:
        loggers.getConfiguration().removeLogger(_switched_off.pop())
    loggers.updateLoggers()


def stop(context: SparkContext) -> None:
    """Stop Spark without the second that PySpark waits for its accumulator server."""
    server, context._accumulatorServer = context._accumulatorServer, None
    # An error of a JVM that has exited would hide how the job ended.
    with suppress(Exception):
        # Else every task that is stopped with it logs an error.
        context.setLogLevel("OFF")
        context.stop()
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


def _stop_late(made: Future[Any]) -> None:
    """Stop a context that starts after the timeout; the next job must not find it active."""
    if made.exception() is None:
        stop(made.result())


class SparkStart:
    """Starts Spark in the background while the driver plans; both take about as long.

    If the job is refused meanwhile the start is abandoned, and a context that starts later is stopped at once.
    """

    def __init__(self, name: str, master: str | None, conf: Mapping[str, str] | None = None) -> None:
        self._manager = spark_context(name, master, conf)
        self._context: SparkContext | None = None
        self._error: BaseException | None = None
        self._guard = threading.Lock()
        self._abandoned = False
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    def __enter__(self) -> SparkStart:
        self._thread.start()
        return self

    def _start(self) -> None:
        try:
            context = self._manager.__enter__()
        except BaseException as error:  # raised by context()
            self._error = error
            return
        with self._guard:
            self._context = context
            if self._abandoned:
                self._manager.__exit__(None, None, None)

    def context(self) -> SparkContext:
        self._thread.join()
        if isinstance(self._error, StatecoreError):
            raise self._error
        if self._context is None:
            raise Retryable(
                f"Spark did not start: {self._error}",
                code="spark-start-failed",
                action="See the log lines above; check the master, and that Java 17 or 21 is on the PATH.",
            ) from self._error
        return self._context

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._abandoned = True
            if self._context is not None:
                self._manager.__exit__(None, None, None)


def log_configuration() -> Path:
    """The packaged log4j2 configuration: warnings and errors only."""
    return Path(__file__).with_name("log4j2.properties")
