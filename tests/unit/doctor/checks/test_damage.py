"""Databases whose files are not what their MANIFEST says."""

from __future__ import annotations

import shutil

import pytest

from statecore.formats.releases import RELEASES
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.damaging import PLAIN, cut_manifest, tables_of
from tests.harness.directory import read_database
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.harness.tiers import one_of
from tests.unit.doctor.golden import examined, worse

OLDER = [name for release in ("3.9", "4.2") for name in golden_names(moment="clean", release=release)]


@pytest.mark.parametrize("name", one_of(OLDER))
@pytest.mark.parametrize("release", ["own", NEWEST_RELEASE])
def test_an_older_database_that_lost_its_flush_is_a_loss(tmp_path, name, release):
    before, after = (unpacked(name, tmp_path / one) for one in ("before", "after"))
    database = after / "0_0/rocksdb" / PLAIN
    cut_manifest(database, all_files=True, between=True)
    shutil.copytree(database, tmp_path / "opened")
    assert read_database(tmp_path / "opened")["default"] == [], "RocksDB opens it without a word"
    how = RELEASES[name[:3] if release == "own" else release]
    said = [worse(examined(one, name, release=how)) for one in (before, after)]
    assert said[1] - said[0] == {("manifest-truncated", "loss", "0_0", PLAIN)}


def test_an_older_database_with_an_extra_file_is_not_reported_sound(tmp_path):
    name = golden_names(moment="clean", release="4.2")[0]
    application = unpacked(name, tmp_path)
    database = application / "0_0/rocksdb" / PLAIN
    shutil.copy(tables_of(database)[0], database / "000099.sst")
    seen = examined(application, name)
    assert worse(seen) == {("manifest-truncated", "warning", "0_0", PLAIN)}
    (what,) = [one.what for one in seen.findings if one.code == "manifest-truncated"]
    assert "000099.sst" in what
    assert "rightly" not in what
