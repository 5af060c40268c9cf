"""How far tasks lag behind their changelogs, for a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statecore.cli.inspect import show_sums
from statecore.doctor.task_lag import inspect_offset_sums
from statecore.formats.kinds import StoreKind
from statecore.spec.model import StoreSpec
from statecore.statedir.database_state import create_database
from statecore.tasks.excluded_stores import empty_versioned_store
from tests.unit.tasks.startup_tasks_world import KV, WINDOW, World, changelog, spec_of

HISTORY = "history"
VERSIONED = StoreSpec(HISTORY, StoreKind.VERSIONED_KEY_VALUE, 0, changelog(HISTORY).topic, retention_ms=60_000)
SPEC = replace(spec_of(), stores=(*spec_of().stores, VERSIONED))
ENDS = {changelog(KV): 5, changelog(WINDOW): 5, changelog(HISTORY): 16}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "state")
    world.put_task("0_0", 4)
    return world


def test_a_copy_that_is_caught_up_lags_nothing_for_the_versioned_store_that_it_does_not_follow(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with world.directory.lock():
        empty_versioned_store(
            world.directory, "0_0", VERSIONED, changelog(HISTORY), world.directory.work_path / "made", 0
        )
    sums = inspect_offset_sums(world.directory, SPEC, ends=lambda *_: ENDS)
    (task,) = sums.to_json()["tasks"]
    assert (task["offset_sum"], task["end_offset_sum"], task["lag"]) == (10, 10, 0)
    assert {store["store"]: store["is_followed"] for store in task["stores"]} == {
        KV: True, WINDOW: True, HISTORY: False,
    }  # fmt: skip
    show_sums(sums)
    assert "history not followed" in capsys.readouterr().out


def test_a_versioned_store_that_an_application_has_filled_counts_as_the_others_do(world: World) -> None:
    path = world.directory.store_path("0_0", HISTORY, StoreKind.VERSIONED_KEY_VALUE)
    create_database(path, StoreKind.VERSIONED_KEY_VALUE, {changelog(HISTORY): 11})
    (task,) = inspect_offset_sums(world.directory, SPEC, ends=lambda *_: ENDS).to_json()["tasks"]
    assert (task["offset_sum"], task["end_offset_sum"], task["lag"]) == (22, 26, 4)
