"""The Airflow plugin: pages *State stores* (*Stores* in the navigation) and *Statecore progress* (a tab of every run).

``plugins/statecore_plugin.py`` makes Airflow find it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from statecore.airflow import assets
from statecore.airflow.ui import progress_page, store_page
from statecore.airflow.ui.pages import airflow_path

STORES_PREFIX, PROGRESS_PREFIX = "/state-stores", "/statecore-progress"
"""Paths under which the API server mounts the pages."""


def page_address(prefix: str) -> str:
    """A page's URL path below that of ``[api] base_url``; without the trailing slash Airflow's own page answers."""
    return f"{airflow_path()}{prefix}/"


class StatecorePlugin(AirflowPlugin):
    """Adds the pages *State stores* and *Statecore progress*, and the listener that sets the group of the assets."""

    name = "statecore"
    fastapi_apps: ClassVar[list[Any]] = [
        {"app": store_page.app, "url_prefix": STORES_PREFIX, "name": "State stores"},
        {"app": progress_page.app, "url_prefix": PROGRESS_PREFIX, "name": progress_page.TITLE},
    ]
    listeners: ClassVar[list[Any]] = [assets]
    external_views: ClassVar[list[Any]] = [
        {
            "name": "Stores",  # the navigation has room for one word
            "href": page_address(STORES_PREFIX),
            "destination": "nav",
            "url_route": "state-stores",
            "nav_top_level": True,
        },
        {
            "name": progress_page.TITLE,
            "href": page_address(PROGRESS_PREFIX) + "?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "statecore-progress",
        },
        {
            "name": progress_page.TITLE,
            "href": page_address(PROGRESS_PREFIX),
            "destination": "nav",
            "category": "browse",
            "url_route": "statecore-progress-running",
        },
    ]
