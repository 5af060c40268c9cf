"""What a store says of itself: here, that a part of it is another's."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.offsets import check_offsets
from statecore.doctor.inspection import DatabaseView, StoreView, TaskView
from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.known_files import OffsetFileContent
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.damage import WINDOWS
from tests.harness.damaging import segments_of
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.harness.tiers import one_of
from tests.unit.doctor.golden import examined, worse


@pytest.mark.parametrize("name", golden_names(moment="clean", release=NEWEST_RELEASE))
@pytest.mark.parametrize("segment", one_of([0, -1]))
def test_a_segment_of_another_partition_among_the_stores_own_is_a_loss(tmp_path, name, segment):
    application = unpacked(name, tmp_path)
    own = segments_of(application, WINDOWS, "0_0")[segment]
    shutil.rmtree(own)
    shutil.copytree(application / "0_1" / WINDOWS / own.name, own)
    seen = examined(application, name)
    assert worse(seen) == {("offset-foreign", "loss", "0_0", WINDOWS)}
    assert [one.tasks for one in plan_repairs(seen.findings, seen.stores).rebuilds] == [("0_0",)]


PLAIN, BUFFER, OWN = StoreKind.KEY_VALUE, StoreKind.GRACE_BUFFER, TopicPartition("app-s-changelog", 0)


@pytest.mark.parametrize(
    ("kind", "own_file", "task_file", "is_missing"),
    [
        (BUFFER, {OWN: 7}, {}, False),
        (BUFFER, {}, {OWN: 7}, False),
        (BUFFER, {}, {OWN: -4}, True),
        (PLAIN, {}, {OWN: 7}, False),
        (PLAIN, {}, {TopicPartition(OWN.topic, 1): 7}, True),
        (PLAIN, {OWN: 7}, {}, True),
    ],
)
def test_an_offset_counts_only_in_the_file_that_a_start_reads(kind, own_file, task_file, is_missing):
    database = DatabaseView("s", None, None, {}, 0, 3, 100, ("default", "offsets"))
    store = StoreView("0_0", "s", kind, "", kind is BUFFER, (database,), own_file)
    files = {"s": OffsetFileContent(own_file)} if own_file else {}
    task = TaskView("0_0", OffsetFileContent(task_file, bool(task_file)), files)
    found = check_offsets(store, task, CheckContext("app"))
    assert [one.code for one in found] == (["offset-missing"] if is_missing else [])
