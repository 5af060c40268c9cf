"""Registers a job with a standalone master within a time limit, and without log lines of Spark's network layer.

Spark itself retries for a minute if the address is not that of a master, and logs Java exceptions for each answer that
is not Spark's. Here the job reports it in one error.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from statecore.errors import Retryable

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

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
    """Switch ``LOUD`` off until Spark has started; after a timeout they stay off, because Spark goes on retrying."""
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
    with contextlib.suppress(Exception):
        # Else every task that is stopped with it logs an error.
        context.setLogLevel("OFF")
        context.stop()
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


def _stop_late(made: Future[Any]) -> None:
    """Stop a context that starts after the timeout; the next job must not find it active."""
    if made.exception() is None:
        stop(made.result())
