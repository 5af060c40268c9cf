"""Kafka and object store credentials of a job: from Airflow connections into the job's environment.

A spec holds no secret; it refers to ``${KAFKA_PASSWORD}``, which the job looks up in its environment. The connection
that provides it is the first of:

1. the one that the spec names, ``kafka_connection: orders_kafka``; it has to exist;
2. ``kafka_<application id>``, if it exists;
3. the site's, ``STATECORE_KAFKA_CONN``, if that is set; it has to exist.

``KAFKA_USERNAME`` and ``KAFKA_PASSWORD`` are its login and password; every string of its extra is passed under its own
name (``ssl_password`` becomes ``KAFKA_SSL_PASSWORD``). They are only put into the environment of ``spark-submit`` and
of the driver that it starts on the same machine: arguments and ``conf`` can be read from the process list, and on YARN
and Kubernetes the provider turns its ``env_vars`` into ``conf``.

For a repository in S3 every process uses the credentials of its own machine (boto3's chain). With
``STATECORE_AWS_CONN`` those of the driver come from that connection, through the same environment; executors on other
machines do not get them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statecore.errors import Invalid, NotFound

PREFIX = "kafka_"
"""An application's own connection is this prefix and its id."""


def kafka_environment(application_id: str, named: str | None, site: str | None) -> dict[str, str]:
    """The environment variables with an application's Kafka credentials; empty without a connection."""
    if named:
        return _variables(_required(named, f"The spec of {application_id}", application_id))
    own = _connection(f"{PREFIX}{application_id}", application_id)
    if own is not None:
        return _variables(own)
    if site:
        return _variables(_required(site, "STATECORE_KAFKA_CONN", application_id))
    return {}


def aws_environment(conn_id: str | None, application_id: str) -> dict[str, str]:
    """The environment variables with the credentials of the object store; empty without a connection."""
    if not conn_id:
        return {}
    connection = _connection(conn_id, application_id)
    if connection is None:
        raise NotFound(
            f"STATECORE_AWS_CONN names the connection {conn_id}, which does not exist.",
            code="connection-not-found",
            action=f"Define the connection {conn_id} with the access key as login, or unset STATECORE_AWS_CONN if the "
            "worker's environment, profile or role has the credentials.",
            conn_id=conn_id,
            application_id=application_id,
        )
    extra = {name: value for name, value in connection.extra_dejson.items() if value not in (None, "", {})}
    unknown = sorted(extra.keys() - _AWS_EXTRA.keys())
    if connection.conn_type not in _AWS_TYPES or not connection.login or not connection.password or unknown:
        raise Invalid(
            f"The connection {conn_id} cannot be used as credentials of an object store: it has to be of type aws or "
            f"generic, with the access key as login and the secret as password"
            + (f"; its extra has {', '.join(unknown)}, which is not supported." if unknown else "."),
            code="aws-connection-invalid",
            action="Correct it. To assume a role, give the worker a profile (AWS_PROFILE) and unset "
            "STATECORE_AWS_CONN.",
            unknown=unknown,
            conn_id=conn_id,
            application_id=application_id,
        )
    given = {_AWS_EXTRA[name]: str(value) for name, value in extra.items()}
    # Else boto3 would combine the worker's own token with this key. An empty token counts as none.
    return {
        "AWS_SESSION_TOKEN": "",
        **given,
        "AWS_ACCESS_KEY_ID": connection.login,
        "AWS_SECRET_ACCESS_KEY": connection.password,
    }


_AWS_TYPES = ("aws", "generic")
"""Airflow stores a connection as ``generic`` if it has no provider of its type: ``aws`` is of the Amazon provider."""

_AWS_EXTRA = {
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region_name": "AWS_DEFAULT_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL",
}
"""Fields of the extra of such a connection that are supported → boto3's environment variables."""


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for this process and its child processes; restores the previous values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _required(conn_id: str, who: str, application_id: str) -> Connection:
    found = _connection(conn_id, application_id)
    if found is None:
        raise NotFound(
            f"{who} names the connection {conn_id}, which does not exist.",
            code="connection-not-found",
            action=f"Define the connection {conn_id} with the Kafka login and password of {application_id}.",
            conn_id=conn_id,
            application_id=application_id,
        )
    return found


def _connection(conn_id: str, application_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except (AirflowNotFoundException, ValueError) as cause:
        # Airflow also raises it for a connection that it cannot parse.
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        if isinstance(cause, AirflowNotFoundException) and variable not in os.environ:
            return None
        raise Invalid(
            f"The connection {conn_id} cannot be parsed: it is neither a URI nor JSON of a connection.",
            code="connection-malformed",
            action='Define it as JSON, for instance {"conn_type": "generic", "login": "...", "password": "..."}.',
            conn_id=conn_id,
            application_id=application_id,
        ) from None  # the cause may quote the connection with its password


def _variables(connection: Connection) -> dict[str, str]:
    given = {name: value for name, value in connection.extra_dejson.items() if isinstance(value, str)}
    given |= {name: value for name in ("username", "password") if (value := _field(connection, name)) is not None}
    return {f"KAFKA_{re.sub(r'[^A-Z0-9]', '_', name.upper())}": value for name, value in given.items()}


def _field(connection: Connection, name: str) -> str | None:
    return connection.login if name == "username" else connection.password
