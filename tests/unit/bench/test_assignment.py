"""The fleets of the bench are what their rows say, and every one is assigned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.assignment import SETTINGS, fleets, seconds
from statecore.standby.assignment.assignor import assign


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_has_not_changed_moves_nothing_and_what_has_moves_something(replicas: int) -> None:
    found = {one.what: one for one in fleets(4, 24, replace(SETTINGS, replicas=replicas))}
    assert all(seconds(one) < 5 for one in found.values())
    same = found.pop("nothing has changed")
    found.pop("begins with empty disks")
    before = assign(same.members, same.ends, same.settings)
    assert not before.probing
    assert all(assign(one.members, one.ends, one.settings).members != before.members for one in found.values())
