"""The scratch directory of a temporary reference."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.jobs.diff.reference import scratch


def test_a_scratch_directory_goes_and_so_does_one_that_a_killed_process_left(tmp_path: Path) -> None:
    dead = tmp_path / f".statecore-diff.{socket.gethostname()}.{2**22 + 1}.0"
    another = tmp_path / f".statecore-diff.another.{2**22 + 1}.0"
    alive = tmp_path / f".statecore-diff.{socket.gethostname()}.{os.getpid()}.0"
    for one in (dead, another, alive):
        (one / "app").mkdir(parents=True)
    with scratch(tmp_path) as made:
        assert made.is_dir()
        assert not dead.exists()
        (made / "file").write_text("")
    assert not made.exists()
    assert another.is_dir()
    assert alive.is_dir()
    with pytest.raises(Invalid, match="No directory can be created"), scratch(tmp_path / "absent"):
        pass
