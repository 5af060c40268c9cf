"""Entry point ``apache_airflow_provider``, for ``airflow providers``."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The description of the package for Airflow's provider manager. There are no connection types of our own."""
    return {
        "package-name": "statecore",
        "name": "statecore",
        "description": "Rebuilds the state of Kafka Streams applications, as Spark jobs that Airflow schedules.",
        "operators": [
            {
                "integration-name": "statecore",
                "python-modules": ["statecore.airflow.operators", "statecore.airflow.directory_change.operator"],
            }
        ],
        "hooks": [{"integration-name": "statecore", "python-modules": ["statecore.airflow.hooks"]}],
        "integrations": [
            {"integration-name": "statecore", "external-doc-url": "https://kafka.apache.org/documentation/streams/"}
        ],
    }
