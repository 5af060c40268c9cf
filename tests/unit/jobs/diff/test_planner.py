"""Offsets of the stores that a diff compares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from statecore.formats.checkpoint import encode_checkpoint, store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.diff.planner import DiffPlanner
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.statedir.state_directory import StateDirectory
from tests.unit.doctor.stored import offsets, write_database

PART = TopicPartition("app-s-changelog", 0)


def test_a_declared_grace_buffer_has_the_offset_of_its_own_file(tmp_path: Path) -> None:
    task = tmp_path / "app" / "0_0"
    write_database(task / "rocksdb" / "s", {"default": [], "offsets": offsets(PART.topic, 0, 5)})
    (task / store_checkpoint_file("s")).write_bytes(encode_checkpoint({PART: 9}))
    request = SimpleNamespace(stores=(), tasks=())
    planner = DiffPlanner(SimpleNamespace(request=request, application_id="app", declared=None), print)  # type: ignore[arg-type]
    places = planner.places(StateDirectory(tmp_path, "app"))
    store = StoreSpec("s", StoreKind.GRACE_BUFFER, 0, PART.topic)
    declared = replace(ApplicationSpec.undeclared("app"), stores=(store,))
    assert planner.offsets(places, declared)["0_0", "s"].offsets == {PART: 9}
    assert planner.offsets(places, None)["0_0", "s"].offsets == {PART: 5}
