"""Pages as FastAPI applications that Airflow's API server mounts, rendered from ``templates/`` by Jinja2.

Airflow does not protect applications of plugins, so each requires the right to view plugins, and FastAPI's own
documentation pages are switched off. Jinja2 escapes all values, and only a page's own style and scripts run.
"""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from airflow.sdk import conf
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from statecore.airflow.ui.state_view import run_of
from statecore.errors import kind_and_code
from statecore.jobs.attempt import age, parsed_time
from statecore.jobs.history.restored_store import restored_stores
from statecore.words import number_of, shortened_list

_TEMPLATES = Environment(
    loader=PackageLoader("statecore.airflow.ui"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(
    age=age,
    kind_and_code=kind_and_code,
    parsed_time=parsed_time,
    number=lambda number: f"{number:,}" if number >= 0 else "not counted",
    number_of=number_of,
    parameters=lambda instance, name: {
        "name": name,
        "application": instance.application_id,
        "host": instance.host,
        "state_dir": instance.state_dir,
    },
    query=lambda values: urlencode({name: value for name, value in values.items() if value}),
    run_of=run_of,
    shortened_list=shortened_list,
    stores=restored_stores,
)


def protected_app(title: str) -> FastAPI:
    return FastAPI(
        title=title,
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    text = _TEMPLATES.get_template(template).render(nonce=nonce, airflow=airflow_path(), **values)
    return HTMLResponse(text, status, headers)


def airflow_path() -> str:
    """The path of Airflow's own pages; empty without a proxy."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
