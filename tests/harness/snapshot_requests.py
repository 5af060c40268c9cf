"""Publishes the changelogs of an application, and fetches them into its state directory."""

from __future__ import annotations

from typing import Any

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from tests.harness.rebuilding import KindsWorld
from tests.harness.tables import World


def publish(spec: Any, url: str, **more: Any) -> str:
    """A snapshot of an application, made where there is no state directory."""
    request = RestoreRequest(state_dir="", spec=spec, repository=url, transaction_wait=5.0, **more)
    report = run_restore(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert report.published is not None
    return report.published.snapshot


def fetch(world: KindsWorld | World, url: str, **more: Any) -> FetchReport:
    """Fetch the newest snapshot into the application's state directory."""
    asked: dict[str, Any] = {"bootstrap_servers": world.servers, **more}
    return run_fetch(
        FetchRequest(repository=url, application_id=world.application_id, state_dir=str(world.state_dir), **asked)
    )
