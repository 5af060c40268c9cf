"""The page *State stores*: each application's stores, and the attempts to restore or publish them.

It is written for a person on call: the causes of all alarms come first, each once, then the applications with an
alarm, then the others by name; failures and unfinished attempts come before older successes, and every run links to its
task in Airflow.

==================  ==================================================================================
``/``               applications, those with an alarm first; each instance with its stores
``/instance``       one instance: its store partitions, and every attempt
``/stores``         as ``/``, as JSON
``/reports``        heads of all reports, newest first, as JSON
==================  ==================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import HTMLResponse

from statecore.airflow.settings import Settings
from statecore.airflow.ui.causes import Cause, causes_of
from statecore.airflow.ui.directory_changes import last_changes
from statecore.airflow.ui.freshness import Freshness, read_checks
from statecore.airflow.ui.pages import protected_app, render
from statecore.airflow.ui.standing import Standing
from statecore.airflow.ui.state_view import (
    Filter,
    application_page,
    instance_page,
    last_published,
    last_unchanged,
    report_page,
)
from statecore.jobs.attempt import Instance, utc
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import InstanceReports, ReportIndex
from statecore.jobs.history.restored_store import restored_stores
from statecore.spec.units import format_duration

DOCUMENT_VERSION = 1
"""Version of the JSON of ``/stores`` and ``/reports``."""

app = protected_app("State stores")

_Number = Annotated[int, Query(ge=1, le=1_000_000)]
_Text = Annotated[str, Query(max_length=4096)]
_State = Annotated[str, Query(pattern="^(restored|published|unchanged|failed|begun|)$")]


@app.get("/stores")
def stores(q: _Text = "", state: _State = "", page: _Number = 1) -> dict[str, Any]:
    """A page of applications with their instances, as JSON."""
    standing = _standing()
    shown = application_page(_index(), _filter(q, state), page, is_red=_is_red(standing))
    return {
        "version": DOCUMENT_VERSION,
        "page": shown.number,
        "pages": shown.pages,
        "total": shown.total,
        "red": shown.red,
        "causes": [_cause_document(one) for one in causes_of(map(standing, shown.alarms))],
        "applications": [
            {
                "name": one.name,
                "unreadable": one.unreadable,
                "freshness": next(filter(None, (standing(own).fresh for own in one.instances)), None),
                "instances": [_instance_document(standing(instance)) for instance in one.instances],
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
    selected, standing = _filter(q, state), _standing()
    shown = application_page(_index(), selected, page, is_red=_is_red(standing))
    changes = last_changes(_index().directory) if selected.is_empty and shown.number == 1 else []
    causes = causes_of(map(standing, shown.alarms))
    return render("stores.html", filter=selected, page=shown, standing=standing, changes=changes, causes=causes)


@app.get("/instance", response_class=HTMLResponse)
def instance(
    name: _Text, application: _Text = "", host: _Text = "", state_dir: _Text = "", page: _Number = 1
) -> HTMLResponse:
    """One instance with its store partitions and attempts, as HTML."""
    selected = Instance(application, host, state_dir)
    standing = _standing()
    found = instance_page(_index(), selected, name, page, shown=lambda one: standing(one).reports)
    changes = last_changes(_index().directory, selected) if application else []
    status = 200 if found else 404
    return render("instance.html", status, name=name, instance=selected, page=found, standing=standing, changes=changes)


@cache
def _index_of(directory: Path) -> ReportIndex:
    return ReportIndex(directory)


def _index() -> ReportIndex:
    return _index_of(Settings.from_environment().reports)


def _standing() -> Callable[[InstanceReports], Standing]:
    """How instances stand, by the clock of now; those without a state directory in the repository that is checked."""
    now = time.time()
    freshness, tick_ms = _freshness(now), Settings.from_environment().checkpoint_tick_ms
    tick = "" if tick_ms is None else format_duration(tick_ms)

    def of(reports: InstanceReports) -> Standing:
        fresh = freshness(reports.instance)
        shown = reports.of_repository(fresh["repository"]) if fresh and fresh["repository"] else reports
        return Standing(shown, now, fresh, tick)

    return of


def _is_red(standing: Callable[[InstanceReports], Standing]) -> Callable[[InstanceReports], bool]:
    return lambda reports: standing(reports).is_red


def _freshness(now: float) -> Callable[[Instance], dict[str, Any] | None]:
    """The age of the snapshot of an instance; ``None`` for a state directory, or without scheduled checkpoints."""
    settings, now_ms = Settings.from_environment(), int(now * 1000)
    tick_ms = settings.checkpoint_tick_ms
    checks = {} if tick_ms is None else read_checks(settings.reports)

    @cache
    def of_application(application_id: str) -> Freshness | None:
        found = checks.get(application_id)
        if found is None:
            return None
        if (published := last_published(_index(), application_id, found.repository)) is not None:
            found = found.with_report(published)
        unchanged = last_unchanged(_index(), application_id, found.repository)
        return found if unchanged is None else found.with_unchanged(unchanged)

    def of(instance: Instance) -> dict[str, Any] | None:
        if instance.state_dir or tick_ms is None or (found := of_application(instance.application_id)) is None:
            return None
        return {
            "is_late": found.is_late(now_ms),
            "is_unchecked": found.is_unchecked(now_ms, tick_ms),
            "current": "" if found.current_ms is None else utc(found.current_ms / 1000),
            "checked": utc(found.checked_ms / 1000),
            "interval": format_duration(found.interval_ms),
            "repository": found.repository,
            "snapshot": found.snapshot,
            "published_at": found.published_at,
            "kept": found.kept,
            "kept_note": found.kept_note,
            "is_damaged": any(one.damaged for one in found.verified),
            "verified": [
                {**asdict(one), "since": "" if one.since_ms is None else utc(one.since_ms / 1000)}
                for one in found.verified
            ],
        }

    return of


def _filter(text: str, state: str) -> Filter:
    return Filter(text.strip(), ReportOutcome(state) if state else None)


def _cause_document(cause: Cause) -> dict[str, Any]:
    return {**vars(cause), "wordings": [one._asdict() for one in cause.wordings]}


def _instance_document(standing: Standing) -> dict[str, Any]:
    one = standing.reports
    last_restored, last_published = one.last_restored, one.last_published
    return {
        **one.instance._asdict(),
        "is_red": standing.is_red,
        "last": one.last.to_json(),
        "failure": standing.failure.to_json() if standing.failure else None,
        "last_restored": last_restored.to_json() if last_restored else None,
        "last_published": last_published.to_json() if last_published else None,
        "stores": [asdict(store) for store in restored_stores(one.partitions)],
        "partitions": [vars(part) for part in one.partitions],
    }
