"""The phases of a job."""

from __future__ import annotations

import pytest

from statecore.jobs.phases import Phases


def test_a_phase_that_fails_is_reached_and_has_no_time() -> None:
    phases = Phases()
    with phases.phase("read"):
        pass
    with pytest.raises(ValueError, match="torn"), phases.phase("build"):
        raise ValueError("torn")
    assert phases.reached == "build"
    assert phases.wall.keys() == phases.cpu.keys() == {"read"}
    assert phases.elapsed >= phases.wall["read"]
