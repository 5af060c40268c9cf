"""Registering a job with a standalone master: within a limit, and without pages of Spark's network layer.

Spark itself tries a master that is none for a minute. What it logs meanwhile depends on what listens there: nothing,
or an exception of Java for each answer that is not Spark's. The job says it in one sentence of its own.
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
"""How long a standalone master that can be reached may take to answer, before it counts as none."""

LOUD = (
    "org.apache.spark.network.server.TransportChannelHandler",
    "org.apache.spark.network.client.TransportResponseHandler",
    "org.apache.spark.network.client.TransportClient",
    "org.apache.spark.rpc.netty.NettyRpcEnv",
    "org.apache.spark.deploy.client",
)
"""The loggers of what Spark meets at a port that is no master's."""

_switched_off: set[str] = set()
"""Those of them that were switched off here, and not by the configuration."""


def registered(conf: SparkConf, master: str, seconds: float = REGISTRATION_SECONDS) -> SparkContext:
    """A new context, on a standalone master within so many seconds.

    Raises:
        Retryable: what listens at the master's address does not take the job.
    """
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
                f"What listens at {master} did not take the job within {seconds:g} s.",
                code="spark-master-not-responding",
                action="Check that it is the port of a Spark master (7077, not that of its page), of the same release "
                "of Spark, and that it can reach this host.",
                master=master,
            ) from None


@contextmanager
def _quiet(jvm: Any, conf: SparkConf) -> Iterator[None]:
    """Switch ``LOUD`` off until Spark has started. Where the master is none they stay off: Spark goes on trying."""
    if jvm is None:  # no JVM of Spark's, so nobody who logs
        yield
        return
    # Spark configures its logging anew at the first line it logs after a submission, and forgets all levels then.
    conf._jconf.initializeLogIfNecessary(False)
    log4j = jvm.org.apache.logging.log4j
    loggers = log4j.LogManager.getContext(False)
    for name in LOUD:
        if not loggers.getConfiguration().getLoggers().containsKey(name):  # else the operator has said what he wants
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
    """Let them inherit their level again."""
    while _switched_off:
        loggers.getConfiguration().removeLogger(_switched_off.pop())
    loggers.updateLoggers()


def stop(context: SparkContext) -> None:
    """Stop Spark without the second that PySpark waits for its accumulator server to look up from its socket."""
    server, context._accumulatorServer = context._accumulatorServer, None
    # A JVM that is gone cannot be stopped; saying so would hide how the job ended.
    with contextlib.suppress(Exception):
        # Tasks that are stopped with it would each be an error in the log, beside the one sentence that says why.
        context.setLogLevel("OFF")
        context.stop()
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


def _stop_late(made: Future[Any]) -> None:
    """Stop a context that comes up when nobody waits for it any more; the next job must not find it active."""
    if made.exception() is None:
        stop(made.result())
