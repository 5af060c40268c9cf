"""Which fetches a directory has seen, and what a restore of the same directory says beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.fetch.report import FETCH_SUFFIX
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.history.restores import Restores, read_history
from statecore.statedir.link_scratch import scratch
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import JOURNAL, SCRATCH_PREFIX
from tests.unit.jobs.fetch.fetching import fetch, request_for
from tests.unit.jobs.published import Shop


def seen(state_dir: Path) -> Restores:
    found = read_history(StateDirectory(state_dir, "orders"))
    json.dumps(found.to_json())
    return found


def killed(shop: Shop, state_dir: Path, point: str, request_id: str, **changes: Any) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir, request_id=request_id, **changes), faults=InjectedFault(point, "raise"))


def test_the_last_fetch_is_listed_with_its_snapshot(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="one", tasks=("0_0",))
    report = fetch(shop, state_dir, request_id="two")
    found = seen(state_dir)
    assert found.fetches.last == report
    assert found.fetches.unfinished is None
    assert (found.last, found.unfinished, found.problems) == (None, (), ())
    document = found.to_json()
    assert document["last_fetch"]["snapshot"] == report.snapshot
    assert document["unfinished_fetch"] is None


def test_a_fetch_that_was_killed_while_it_placed_is_no_restore(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="before")
    killed(shop, state_dir, "placement.after-journal", "one", replace=True)
    assert (state_dir / "orders" / ".statecore" / JOURNAL).exists()
    found = seen(state_dir)
    assert found.fetches.unfinished is not None
    assert found.fetches.unfinished.request_id == "one"
    assert found.unfinished == (), "its journal is its own"
    assert not fetch(shop, state_dir, request_id="one", replace=True).placed, "the journal has done that"
    found = seen(state_dir)
    assert found.fetches.unfinished is None
    assert found.fetches.last is not None
    assert (found.fetches.last.request_id, len(found.fetches.last.stores)) == ("one", 5)


def test_a_fetch_that_was_killed_is_forgotten_once_a_later_one_has_come_to_its_end(shop: Shop, state_dir: Path) -> None:
    killed(shop, state_dir, "fetch.after-placement", "one")
    found = seen(state_dir).fetches
    assert found.unfinished is not None
    assert found.last is None
    fetch(shop, state_dir, request_id="two", replace=True)
    found = seen(state_dir).fetches
    assert found.unfinished is None
    assert found.last is not None
    assert found.last.request_id == "two"


def test_a_report_that_is_torn_is_trouble_and_hides_no_other(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, request_id="one")
    torn = state_dir / "orders" / ".statecore" / "plans" / f"torn{FETCH_SUFFIX}"
    torn.write_text("{")
    found = seen(state_dir)
    assert found.fetches.last is not None
    (trouble,) = found.problems
    assert str(torn) in trouble


def test_scratch_directories_of_snapshots_are_recognized_live_or_killed(
    tmp_path: Path,
) -> None:
    directory = StateDirectory(tmp_path, "orders")
    dead = directory.work_path / f"{SCRATCH_PREFIX}dead"
    dead.mkdir(parents=True)
    (dead / "held").touch()
    with scratch(directory) as path:
        meanings = {left.name: left.meaning for left in seen(tmp_path).leftovers}
    assert "running backup" in meanings[path.name]
    assert "killed" in meanings[dead.name]
