"""The page *State stores*: each application's stores, and the attempts to restore or publish them.

It is written for a person on call: the last written application comes first, failures and unfinished attempts come
before older successes, and every run links to its task in Airflow.

==================  ==================================================================================
``/``               applications, last written first; each instance with its stores
``/instance``       one instance: its store partitions, and every attempt
``/stores``         as ``/``, as JSON
``/reports``        heads of all reports, newest first, as JSON
==================  ==================================================================================
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import HTMLResponse

from statecore.airflow.settings import Settings
from statecore.airflow.ui.pages import protected_app, render
from statecore.airflow.ui.state_view import Filter, application_page, instance_page, report_page
from statecore.jobs.attempt import Instance
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import InstanceReports, ReportIndex
from statecore.jobs.history.restored_store import restored_stores

DOCUMENT_VERSION = 1
"""Version of the JSON of ``/stores`` and ``/reports``."""

app = protected_app("State stores")

_Number = Annotated[int, Query(ge=1, le=1_000_000)]
_Text = Annotated[str, Query(max_length=4096)]
_State = Annotated[str, Query(pattern="^(restored|published|unchanged|failed|begun|)$")]


@app.get("/stores")
def stores(q: _Text = "", state: _State = "", page: _Number = 1) -> dict[str, Any]:
    """A page of applications with their instances, as JSON."""
    shown = application_page(_index(), _filter(q, state), page)
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
    shown = report_page(_index(), application, host, state_dir, offset)
    return {"version": DOCUMENT_VERSION, "reports": [head.to_json() for head in shown.reports], "next": shown.next}


@app.get("/", response_class=HTMLResponse)
def page(q: _Text = "", state: _State = "", page: _Number = 1) -> HTMLResponse:
    """A page of applications, as HTML."""
    selected = _filter(q, state)
    return render("stores.html", filter=selected, page=application_page(_index(), selected, page))


@app.get("/instance", response_class=HTMLResponse)
def instance(
    name: _Text, application: _Text = "", host: _Text = "", state_dir: _Text = "", page: _Number = 1
) -> HTMLResponse:
    """One instance with its store partitions and attempts, as HTML."""
    selected = Instance(application, host, state_dir)
    found = instance_page(_index(), selected, name, page)
    return render("instance.html", 200 if found else 404, name=name, instance=selected, page=found)


@cache
def _index_of(directory: Path) -> ReportIndex:
    return ReportIndex(directory)


def _index() -> ReportIndex:
    return _index_of(Settings.from_environment().reports)


def _filter(text: str, state: str) -> Filter:
    return Filter(text.strip(), ReportOutcome(state) if state else None)


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
