"""The page *State stores*: a protected FastAPI application that Airflow's API server mounts.

Airflow does not protect applications of plugins, so the dependency below requires the right to view plugins, and
FastAPI's own documentation pages are switched off. The content comes from files that jobs wrote; ``store_markup``
escapes it.

==================  ==================================================================================
``/``               applications, last written first; each instance with its stores
``/instance``       one instance: its store partitions, and every attempt
``/stores``         as ``/``, as JSON
``/reports``        heads of all reports, newest first, as JSON
==================  ==================================================================================
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from airflow.sdk import conf
from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse

from statecore.airflow.settings import Settings
from statecore.airflow.ui import state_view as restored
from statecore.airflow.ui import store_markup
from statecore.airflow.ui.state_view import Filter
from statecore.jobs.attempt import Instance
from statecore.jobs.history.report_head import Outcome
from statecore.jobs.history.report_index import InstanceReports, ReportIndex
from statecore.jobs.history.restored_store import restored_stores

DOCUMENT_VERSION = 1
"""Version of the JSON of ``/stores`` and ``/reports``."""

app = FastAPI(
    title="State stores",
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)

_Number = Annotated[int, Query(ge=1, le=1_000_000)]
_Text = Annotated[str, Query(max_length=4096)]
_State = Annotated[str, Query(pattern="^(restored|published|unchanged|failed|begun|)$")]


@app.get("/stores")
def stores(q: _Text = "", state: _State = "", page: _Number = 1) -> dict[str, Any]:
    """A page of applications with their instances, as JSON."""
    shown = restored.application_page(_index(), _filter(q, state), page)
    return {
        "version": DOCUMENT_VERSION,
        "page": shown.number,
        "pages": shown.pages,
        "total": shown.total,
        "applications": [
            {
                "name": one.name,
                "unreadable": one.unreadable,
                "instances": [_instance_document(instance) for instance in one.instances],
            }
            for one in shown.applications
        ],
    }


@app.get("/reports")
def reports(
    application: _Text = "", host: _Text = "", state_dir: _Text = "", offset: Annotated[int, Query(ge=0)] = 0
) -> dict[str, Any]:
    """Heads of reports, newest first, as JSON; ``next`` is the offset of the next page."""
    shown = restored.report_page(_index(), application, host, state_dir, offset)
    return {
        "version": DOCUMENT_VERSION,
        "reports": [head.to_json() for head in shown.reports],
        "next": shown.next,
    }


@app.get("/", response_class=HTMLResponse)
def page(q: _Text = "", state: _State = "", page: _Number = 1) -> HTMLResponse:
    """A page of applications, as HTML."""
    wanted = _filter(q, state)
    shown = restored.application_page(_index(), wanted, page)
    return _answer(store_markup.overview(shown, wanted, _airflow()))


@app.get("/instance", response_class=HTMLResponse)
def instance(
    name: _Text, application: _Text = "", host: _Text = "", state_dir: _Text = "", page: _Number = 1
) -> HTMLResponse:
    """One instance with its store partitions and attempts, as HTML."""
    wanted = Instance(application, host, state_dir)
    found = restored.find_instance(_index(), wanted, name)
    if found is None:
        return _answer(store_markup.absent(wanted), status=404)
    return _answer(store_markup.details(name, found, page, _airflow()))


@cache
def _index_of(directory: Path) -> ReportIndex:
    return ReportIndex(directory)


def _index() -> ReportIndex:
    return _index_of(Settings.from_environment().reports)


def _airflow() -> str:
    """The path of Airflow's own pages; empty without a proxy."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


def _filter(text: str, state: str) -> Filter:
    return Filter(text.strip(), Outcome(state) if state else None)


def _instance_document(one: InstanceReports) -> dict[str, Any]:
    last_restored, last_published = one.last_restored, one.last_published
    return {
        **one.instance._asdict(),
        "last": one.last.to_json(),
        "last_restored": last_restored.to_json() if last_restored else None,
        "last_published": last_published.to_json() if last_published else None,
        "stores": [asdict(store) for store in restored_stores(one.partitions)],
        "partitions": [vars(part) for part in one.partitions],
    }


def _answer(body: str, status: int = 200) -> HTMLResponse:
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'self'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return HTMLResponse(store_markup.document(body, nonce), status, headers)
