"""Filters and pages of the page *State stores*: applications, those with an alarm first, and reports, newest first.

An instance is one application on one host below one state directory (``statecore.jobs.attempt.Instance``). A run may
restore some stores or partitions only, so the latest report of a store partition may be older than that of its
instance. Nothing here reads Airflow's database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from urllib.parse import quote

from statecore.jobs.attempt import Instance
from statecore.jobs.history.report_head import ReportHead, ReportOutcome, RestoredPartition
from statecore.jobs.history.report_index import (
    KEPT,
    ApplicationReports,
    InstanceReports,
    ReportIndex,
    directory_name,
)

APPLICATIONS_A_PAGE = 100
REPORTS_A_PAGE = 50
PARTITIONS_A_PAGE = 200


@dataclass(frozen=True)
class Filter:
    """Selects instances.

    Attributes:
        text: part of the application id, the host or the state directory; empty for all.
        outcome: outcome of the latest attempt; ``None`` for any. ``failed`` also selects what is red.
    """

    text: str = ""
    outcome: ReportOutcome | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text and self.outcome is None

    def selects(self, one: InstanceReports, is_red: Callable[[InstanceReports], bool]) -> bool:
        named = not self.text or any(self.text.lower() in part.lower() for part in one.instance)
        if self.outcome is ReportOutcome.FAILED and named and is_red(one):
            return True
        return named and (self.outcome is None or one.last.outcome is self.outcome)


@dataclass(frozen=True)
class ApplicationPage:
    """A page of applications.

    Attributes:
        applications: the selected instances by application, those with an alarm first, then by name.
        number: the page, from 1.
        total, red: selected applications on all pages, and those of them with an alarm.
        alarms: the selected instances with an alarm, of all pages.
    """

    applications: tuple[ApplicationReports, ...]
    number: int
    pages: int
    total: int
    red: int
    alarms: tuple[InstanceReports, ...] = ()


@dataclass(frozen=True)
class InstancePage:
    """A page of the partitions and attempts of one instance, which may end on different pages."""

    reports: InstanceReports
    partitions: tuple[RestoredPartition, ...]
    attempts: tuple[ReportHead, ...]
    number: int
    pages: int


@dataclass(frozen=True)
class ReportPage:
    """A page of report heads.

    Attributes:
        reports: newest first.
        next: offset of the next page; ``None`` after the last.
    """

    reports: tuple[ReportHead, ...]
    next: int | None


def application_page(
    index: ReportIndex,
    selected: Filter | None = None,
    number: int = 1,
    size: int = APPLICATIONS_A_PAGE,
    *,
    is_red: Callable[[InstanceReports], bool] = lambda one: one.last.outcome is ReportOutcome.FAILED,
) -> ApplicationPage:
    """A page of applications."""
    found = [index.application(name) for name in index.names()]
    if selected is not None and not selected.is_empty:
        found = [one for one in (_only(one, selected, is_red) for one in found) if one.instances]
    alarms = {one.name: tuple(filter(is_red, one.instances)) for one in found}
    red = {name for name, instances in alarms.items() if instances}
    found.sort(key=lambda one: (one.name not in red, one.name))
    pages = max(1, -(-len(found) // size))
    number = min(max(number, 1), pages)
    shown, with_alarm = tuple(found[(number - 1) * size : number * size]), tuple(chain(*alarms.values()))
    return ApplicationPage(shown, number, pages, len(found), len(red), with_alarm)


def _only(
    application: ApplicationReports, selected: Filter, is_red: Callable[[InstanceReports], bool]
) -> ApplicationReports:
    instances = (one for one in application.instances if selected.selects(one, is_red))
    return ApplicationReports(application.name, tuple(instances), ())


def instance_page(
    index: ReportIndex,
    instance: Instance,
    name: str,
    number: int = 1,
    *,
    shown: Callable[[InstanceReports], InstanceReports] = lambda one: one,
) -> InstancePage | None:
    """A page of the instance whose reports are in the directory ``name``; ``None`` without any.

    ``shown`` restricts its reports to a repository.
    """
    found = next((one for one in index.application(name).instances if one.instance == instance), None)
    if found is None:
        return None
    found = shown(found)
    pages = max(-(-len(found.partitions) // PARTITIONS_A_PAGE), -(-len(found.attempts) // REPORTS_A_PAGE), 1)
    number = min(number, pages)
    partitions = found.partitions[(number - 1) * PARTITIONS_A_PAGE : number * PARTITIONS_A_PAGE]
    attempts = found.attempts[(number - 1) * REPORTS_A_PAGE : number * REPORTS_A_PAGE]
    return InstancePage(found, partitions, attempts, number, pages)


def report_page(
    index: ReportIndex,
    application: str = "",
    host: str = "",
    state_dir: str = "",
    offset: int = 0,
    *,
    size: int = REPORTS_A_PAGE,
    limit: int = KEPT,
) -> ReportPage:
    """A page of reports, newest first."""
    found: list[ReportHead] = []
    heads = index.heads((lambda name: name == application) if application else (lambda _: True), offset)
    read = 0
    for head in heads:
        if len(found) == size or read == limit:
            return ReportPage(tuple(found), offset + read)
        read += 1
        if head is None or (host and head.attempt.host != host) or (state_dir and head.attempt.state_dir != state_dir):
            continue
        found.append(head)
    return ReportPage(tuple(found), None)


def last_published(index: ReportIndex, application_id: str, repository: str) -> ReportHead | None:
    """The report of the snapshot of an application that was published last in a repository; ``None`` without one."""
    heads = (head for head in _successes(index, application_id, repository) if head.snapshot)
    return max(heads, key=lambda head: head.published_at, default=None)


def last_unchanged(index: ReportIndex, application_id: str, repository: str) -> ReportHead | None:
    """The report of the last checkpoint of an application that found nothing new; ``None`` without one."""
    heads = (head for head in _successes(index, application_id, repository) if head.unchanged)
    return max(heads, key=lambda head: head.read_at_ms or 0, default=None)


def _successes(index: ReportIndex, application_id: str, repository: str) -> Iterator[ReportHead]:
    for one in index.application(directory_name(application_id)).instances:
        if one.instance.application_id == application_id:
            yield from (head for head in one.attempts if head.succeeded and head.repository == repository)


# A checkpoint that compacts and then rebuilds stores has a request of its own for that.
_REQUEST = re.compile(r"(?P<dag>[^/]+)/(?P<run>.+)/(?P<task>[^/]+)/(?P<index>-?\d+)(?:-rebuilt)?")


@dataclass(frozen=True)
class Run:
    """The Airflow task instance that made a request.

    Attributes:
        map_index: its map index; -1 if it is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @property
    def path(self) -> str:
        """Its page in Airflow's UI, below the path of ``[api] base_url``."""
        dag, run, task = self._quoted()
        mapped = f"/mapped/{self.map_index}" if self.map_index >= 0 else ""
        return f"/dags/{dag}/runs/{run}/tasks/{task}{mapped}"

    @property
    def api_path(self) -> str:
        """Its path in Airflow's REST API, below the version."""
        dag, run, task = self._quoted()
        return f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/{self.map_index}"

    def _quoted(self) -> tuple[str, ...]:
        return tuple(quote(part, safe="") for part in (self.dag_id, self.run_id, self.task_id))


def run_of(request_id: str) -> Run | None:
    """The task instance in a request id of the operator (``dag/run/task/map index``); ``None`` for other ids."""
    named = _REQUEST.fullmatch(request_id)
    return Run(named["dag"], named["run"], named["task"], int(named["index"])) if named else None
