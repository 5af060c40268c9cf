"""Entry point ``apache_airflow_provider``: what this package adds to Airflow, for ``airflow providers``."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The package as Airflow's provider manager wants it described.

    No connection types: the Spark master is a ``spark`` connection, and Kafka is named by the spec.
    """
    return {
        "package-name": "statecore",
        "name": "statecore",
        "description": "Rebuilds the state of Kafka Streams applications, as Spark jobs that Airflow schedules.",
        "operators": [
            {
                "integration-name": "statecore",
                "python-modules": [
                    "statecore.airflow.operators",
                    "statecore.airflow.directory_change.migrate_operator",
                ],
            },
        ],
        "hooks": [
            {"integration-name": "statecore", "python-modules": ["statecore.airflow.hooks"]},
        ],
        "integrations": [
            {"integration-name": "statecore", "external-doc-url": "https://kafka.apache.org/documentation/streams/"}
        ],
    }
