"""The task ``read_specs`` of the Dags that people start: job requests from a run's parameters.

If one application is refused the whole run is refused. The task's log has the first error; the page *State stores*
shows each error with its application until it is mended (``ui/failing_applications.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from statecore.airflow.failures import Log, refused
from statecore.airflow.reports import request_id_of
from statecore.airflow.requests import Refused, is_inline
from statecore.airflow.settings import Settings
from statecore.airflow.ui import failing_applications
from statecore.errors import StatecoreError

if TYPE_CHECKING:
    from airflow.sdk import Context


class Requests(Protocol):
    """Makes the requests of a run's jobs from its parameters."""

    def __call__(self, params: Mapping[str, Any], refused: Refused, /) -> list[dict[str, Any]]:
        """Raises ``StatecoreError`` after the callback got each refused application."""


def read_specs(requests: Requests, context: Context, log: Log) -> list[dict[str, Any]]:
    """The requests of a run. Raises ``JobRefused`` or ``JobUnavailable`` if one is refused."""
    params, directory = context["params"], Settings.from_environment().reports
    dag, request_id = context["ti"].dag_id, request_id_of(context)

    def record(named: str, application_id: str | None, state_dir: str, error: StatecoreError) -> None:
        name = application_id or failing_applications.declared_application(named) or named
        kind = dag if application_id else failing_applications.UNREADABLE
        if error.code == "application-duplicated" and application_id is None:
            name, kind = named, dag  # the failure is of the second spec, not of the application
        failing_applications.record(directory, name, request_id, error.to_json(), dag=kind, state_dir=state_dir)

    try:
        entries = requests(params, _ignore if params.get("plan_only") else record)
    except StatecoreError as error:
        raise refused(error, log) from error
    specs = [*(params.get("applications") or ()), *(one["request"].get("spec_path") or "{" for one in entries)]
    names = {one for one in specs if not is_inline(one)} | {one["application_id"] for one in entries}
    failing_applications.delete(directory, names, dag=dag)
    failing_applications.delete_unreadable(directory, names)
    return entries


def _ignore(named: str, application_id: str | None, state_dir: str, error: StatecoreError) -> None:
    """Ignores refusals: a run that only plans does not mark applications as failing."""
