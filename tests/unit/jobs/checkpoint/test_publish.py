"""What a checkpoint publishes where another job has published the same task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Fenced
from statecore.jobs.checkpoint.publish import rebased
from statecore.repository.manifest import TaskManifest
from tests.unit.jobs.checkpoint.reconciling import NEW_END, PLAIN, World


def test_what_was_compared_is_put_upon_the_parent_alone(world: World) -> None:
    below = TaskManifest("0_0", (world.stores[PLAIN],))
    mine = world.published(PLAIN, world.reconcile(PLAIN))
    (made,) = mine.stores
    assert rebased(mine, below, below, {PLAIN}) == mine
    (database,) = below.stores[0].databases
    other = replace(below.stores[0], identity="f" * 64, databases=(replace(database, runs=database.runs[:1]),))
    theirs = TaskManifest("0_0", (other,))
    assert rebased(mine, theirs, below, {PLAIN}) == mine, "with the runs that it was compared with"
    assert rebased(mine, theirs, below, {}) != mine, "which is what a tail becomes"
    further = replace(other, changelogs=tuple(replace(one, end=NEW_END, offset=NEW_END - 1) for one in made.changelogs))
    assert rebased(mine, TaskManifest("0_0", (further,)), below, {PLAIN}) is None
    with pytest.raises(Fenced):
        rebased(mine, TaskManifest("0_0", ()), below, {PLAIN})
