"""What a store says of itself: here, that a part of it is another's."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.repair_plan import plan_repairs
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
