"""A request that is repeated under its id finds a store in place only if it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from statecore.statedir.store_on_disk import read_database
from tests.harness import damage_functions
from tests.harness.broker import Broker
from tests.harness.small_application import small_application

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("verb", ["restore", "fetch"])
@pytest.mark.parametrize("damage", ["sst", "current"])
def test_a_damaged_store_is_placed_again(
    broker: Broker, application_id: str, tmp_path: Path, damage: str, verb: str
) -> None:
    spec, state_dir = small_application(broker, application_id), str(tmp_path / "state")
    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    run_restore(RestoreRequest(spec=spec, repository=url, start_from="none"), InProcessEngine())

    def run() -> None:
        if verb == "restore":
            request = RestoreRequest(spec=spec, state_dir=state_dir, request_id="one", replace=True)
            run_restore(request, InProcessEngine())
        else:
            run_fetch(
                FetchRequest(
                    repository=url, application_id=application_id, state_dir=state_dir, request_id="one", replace=True
                )
            )

    run()
    database = damage_functions.database_of(tmp_path / "state" / application_id, "by-id", "0_0")
    (damage_functions.tables_of(database)[-1] if damage == "sst" else database / "CURRENT").unlink()
    run()
    read_database(database, manifests=True).checked()
