"""The plugin: the page *State stores*, under *Stores* in Airflow's navigation.

``plugins/statecore_plugin.py`` makes Airflow find it.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import conf

from statecore.airflow.store_page import app

PREFIX = "/state-stores"
"""Where the API server mounts the page's application."""


def page_address() -> str:
    """The page's address as the browser sees it, below the path of ``[api] base_url`` when it has one.

    The slash at the end is needed: without it Airflow's own page answers.
    """
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + f"{PREFIX}/"


class StatecorePlugin(AirflowPlugin):
    """Adds the page *State stores*."""

    name = "statecore"
    fastapi_apps: ClassVar[list[Any]] = [{"app": app, "url_prefix": PREFIX, "name": "State stores"}]
    external_views: ClassVar[list[Any]] = [
        {
            "name": "Stores",  # the navigation has room for one word
            "href": page_address(),
            "destination": "nav",
            "url_route": "state-stores",
            "nav_top_level": True,
        }
    ]
