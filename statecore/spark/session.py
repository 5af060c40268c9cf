"""Starting Spark for a job that moves no rows through the JVM.

All data of a job flows inside Python workers, in columns; the JVM only schedules a few dozen tasks. So it is started
for a quick start, not for long running: the first compiler tier alone, the serial collector, no web UI, quiet logs, and
no SQL session, whose first query costs about two seconds of class loading (``docs/architecture.md`` has the figures).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.errors import Retryable
from statecore.spark.jvm import quick_start_options

if TYPE_CHECKING:
    from pyspark import SparkContext

DAEMON_MODULE = "statecore.spark.daemon"


@contextmanager
def spark_context(application_name: str, master: str | None = None) -> Iterator[SparkContext]:
    """The Spark context of a job: one that is active already, the one ``spark-submit`` prepares, or a new one.

    Args:
        application_name: shown in Spark's and the cluster manager's UI.
        master: Spark master for a context of our own (``local[*]``, ``spark://host:7077``); ``None`` under
            ``spark-submit``, which has decided it.

    Yields:
        The context; it is stopped afterwards, unless it was active before (a notebook's, a test's).
    """
    from pyspark import SparkConf, SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        yield active
        return
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
            [*quick_start_options(), f"-Dlog4j2.configurationFile={log_configuration().as_uri()}"]
        )
    conf = SparkConf().setAppName(application_name)
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    conf.set("spark.python.daemon.module", DAEMON_MODULE)
    conf.setIfMissing("spark.ui.enabled", "false")
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    # Loopback in local mode: a laptop's host name often resolves to nothing.
    if str(conf.get("spark.master")).startswith("local"):
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
    context = SparkContext(conf=conf)
    try:
        yield context
    finally:
        _stop(context)


class SparkStart:
    """Starts Spark in the background while the driver plans, because each takes about as long as the other.

    A refusal does not wait for it: the start is abandoned, and a context that comes up later is stopped at once.
    """

    def __init__(self, name: str, master: str | None) -> None:
        self._manager = spark_context(name, master)
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
        except BaseException as error:  # handed to whoever asks for the context
            self._error = error
            return
        with self._guard:
            self._context = context
            if self._abandoned:
                self._manager.__exit__(None, None, None)

    def context(self) -> SparkContext:
        """The context, when it is there.

        Raises:
            Retryable: Spark did not start.
        """
        self._thread.join()
        if self._context is None:
            raise Retryable(
                f"Spark did not start: {self._error}",
                action="Look at the lines above, check the master, and that Java 17 or 21 is on the PATH.",
            ) from self._error
        return self._context

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._abandoned = True
            if self._context is not None:
                self._manager.__exit__(None, None, None)


def _stop(context: SparkContext) -> None:
    """Stop Spark without the second that PySpark waits for its accumulator server to look up from its socket."""
    server, context._accumulatorServer = context._accumulatorServer, None
    # A JVM that is gone cannot be stopped; saying so would hide how the job ended.
    with contextlib.suppress(Exception):
        # Tasks that are stopped with it would each be an error in the log, beside the one sentence that says why.
        context.setLogLevel("OFF")
        context.stop()
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


def log_configuration() -> Path:
    """The log4j2 configuration that ships with the package: warnings and errors only."""
    return Path(__file__).with_name("log4j2.properties")
