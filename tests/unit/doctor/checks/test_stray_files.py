"""What lies around the stores: here, what is a store and none of RocksDB's."""

from __future__ import annotations

import pytest

from statecore.doctor.repair_plan import plan_repairs
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.damaging import write_checkpoint
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.golden import examined, worse


@pytest.mark.parametrize("name", golden_names(moment="clean", release=NEWEST_RELEASE))
@pytest.mark.parametrize("place", ["index", "rocksdb/index"])
def test_a_directory_of_another_engine_is_reported_and_not_changed(tmp_path, name, place):
    application = unpacked(name, tmp_path)
    (application / "0_0" / place).mkdir()
    (application / "0_0" / place / "segments_1").write_bytes(b"of another engine")
    write_checkpoint(application / "0_0/.checkpoint_index", {f"{name}-index-changelog-0": 1_234})
    seen = examined(application, name)
    assert worse(seen) == set()
    (one,) = [one for one in seen.findings if one.store == "index"]
    assert (one.code, one.repair, one.evidence["files"]) == ("store-unread", None, ["segments_1"])
    assert f".checkpoint_index says 1,234 of {name}-index-changelog-0" in one.what
    assert plan_repairs(seen.findings, seen.stores).is_empty
