"""What the task ``read_specs`` does of the Dags that people start: requests for the jobs, or a refusal that is seen.

The whole run is refused where one application is: nothing is restored beside an error of its own. The task's log has
the first error, and the page *State stores* each of them at the application that it is about, until a later run of that
Dag can read it (``refusals.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from statecore.airflow.failures import Log, refused
from statecore.airflow.operators import request_id_of
from statecore.airflow.requests import Refused, is_inline
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications as refusals
from statecore.errors import StatecoreError

if TYPE_CHECKING:
    from airflow.sdk import Context


class Requests(Protocol):
    """From the parameters of a run to the requests of its jobs."""

    def __call__(self, params: Mapping[str, Any], refused: Refused, /) -> list[dict[str, Any]]:
        """Raises ``StatecoreError``, of which the refused applications were told."""


def read_specs(requests: Requests, context: Context, log: Log) -> list[dict[str, Any]]:
    """The requests of a run; what is refused is reported.

    Args:
        requests: makes them of the parameters.
        context: of the task.
        log: told what is refused.

    Raises:
        JobRefused, JobUnavailable: an application is refused, or a parameter.
    """
    params, directory = context["params"], Settings.from_environment().reports
    dag, request_id = context["ti"].dag_id, request_id_of(context)

    def record(named: str, application_id: str | None, error: StatecoreError) -> None:
        name = application_id or refusals.said_application(named) or named
        if error.code == "application-duplicated" and application_id is None:
            name = named  # the application itself is not the one that is wrong
        where = str(params.get("state_dir") or "")
        refusals.record(directory, name, request_id, error.to_json(), dag=dag, state_dir=where)

    try:
        entries = requests(params, _nobody if params.get("plan_only") else record)
    except StatecoreError as error:
        raise refused(error, log) from error
    named = {one for one in params["applications"] if not is_inline(one)}
    refusals.forget(directory, named | {one["application_id"] for one in entries}, dag=dag)
    return entries


def _nobody(named: str, application_id: str | None, error: StatecoreError) -> None:
    """Hears nothing: what is only planned fails no application."""
