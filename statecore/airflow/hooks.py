"""The Spark hook with a check of the master before submission, and with job progress.

**Master.** ``SparkSubmitHook`` falls back to ``yarn`` when the connection does not exist or cannot be parsed
(``spark://local[2]`` written as a URI, for instance), and the job then fails minutes later with an error about YARN.
``checked_master`` validates the connection before anything is started.

**Progress.** A job prints lines of ``statecore.progress.MachineProgress`` on its standard output. In local and client
modes the hook reads that output line by line; ``ProgressHook`` takes those lines out of the log and passes them to a
callback. In cluster modes the driver's output is elsewhere, and there is no progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from statecore.errors import Invalid
from statecore.progress import parse_machine_line
from statecore.spark.masters import is_master

EXAMPLE = """AIRFLOW_CONN_{name}='{{"conn_type": "spark", "host": "local[*]", "extra": {{"deploy-mode": "client"}}}}'"""


class ProgressHook(SparkSubmitHook):
    """A ``SparkSubmitHook`` that passes progress lines to ``on_progress`` instead of logging them.

    It overrides a private method of the provider, because no public one sees the output; a unit test fails when that
    method no longer reads it.
    """

    on_progress: Callable[[dict[str, Any]], None] | None = None

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        try:
            super()._process_spark_submit_log(self._without_progress(itr))
        finally:
            # The pipe to the process, which the provider leaves open.
            if hasattr(itr, "close"):
                itr.close()

    def _without_progress(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            progress = parse_machine_line(line)
            if progress is None:
                yield line
            elif self.on_progress is not None:
                self.on_progress(progress)


def checked_master(conn_id: str) -> str:
    """The Spark master of a connection, as the hook will resolve it: the provider says it in ``_connection`` only."""
    example = EXAMPLE.format(name=conn_id.upper())
    try:
        connection = BaseHook.get_connection(conn_id)
    except (AirflowNotFoundException, ValueError) as cause:
        raise Invalid(
            f"The Spark connection {conn_id} does not exist or cannot be parsed ({cause}); "
            "spark-submit would fall back to YARN.",
            code="spark-connection-missing",
            action=f"Define the connection as JSON, for instance {example}.",
            conn_id=conn_id,
        ) from cause
    master = SparkSubmitHook(conn_id=conn_id)._connection["master"]
    meant = connection.host == master or connection.conn_type != "spark" or connection.port
    if not is_master(master) or not meant:
        raise Invalid(
            f"The Spark connection {conn_id} resolves to {master!r}, which is not a Spark master: local, local[N], "
            "spark://host:port, k8s://… or yarn.",
            code="spark-connection-invalid",
            action=f"Define the connection as JSON, for instance {example}.",
            conn_id=conn_id,
            master=master,
        )
    return str(master)
