"""Directories of older releases, and releases that cannot open a directory."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.formats.releases import RELEASES
from tests.golden.directories import unpacked as golden_unpacked
from tests.harness.damage_cases import EXACTLY_ONCE
from tests.unit.doctor.diagnosing import ALOS, EOS, ERROR, NOTE, WARNING, codes, diagnose, plain, unpacked
from tests.unit.doctor.golden import examined
from tests.unit.doctor.stored import owner, write_database, write_golden


def test_an_older_directory_without_its_checkpoint_is_restored_or_deleted(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    (tmp_path / application / "0_1/.checkpoint").unlink()
    assert codes(tmp_path, application, guarantee=ALOS) == {"older-release": WARNING}
    assert codes(tmp_path, application, guarantee=EOS) == {"older-release": ERROR}
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {"offset-missing": ERROR}


def test_a_global_table_without_an_offset_is_restored_whatever_is_done(tmp_path):
    """As 3.9 leaves one with less than 10,000 records; a migration leaves it as well."""
    write_database(tmp_path / "app/global/rocksdb/products", {"default": [(b"a", b"1")]})
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert (one.code, one.severity, one.repair) == ("older-release", WARNING, Repair.REBUILD)
    assert "nothing has to" in one.what


def test_an_empty_store_at_minus_4_takes_its_task_with_it_at_the_upgrade(tmp_path):
    """Seen: 4.3.1 does not take -4 over, and under exactly-once deletes a task in which a store has no offset."""
    application = unpacked(tmp_path, "4.2.0")
    write_database(tmp_path / application / "0_1/rocksdb/empty", {"default": []})
    file = tmp_path / application / "0_1/.checkpoint"
    file.write_text(file.read_text().replace("\n2\n", f"\n3\n{application}-empty-changelog 1 -4\n"))
    assert codes(tmp_path, application, guarantee=ALOS) == {"older-release": NOTE}
    found = [one for one in diagnose(tmp_path, application, guarantee=EOS).findings if one.severity is ERROR]
    assert [(one.code, one.store) for one in found] == [("older-release", "empty")]
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {}


@pytest.mark.parametrize(
    ("made", "release", "said"),
    [
        ("4.2.0", "3.9", "reads no SST file of format 6, only up to 5"),
        ("headers-key-value", "4.2", "has no kind of store with the column family keyValueWithTimestampAndHeaders"),
        ("window", "4.2", "segments silently"),
        ("key-value", "3.9", "opens no database that has the column family offsets"),
    ],
)
def test_a_release_that_cannot_open_it(tmp_path, made, release, said):
    application = unpacked(tmp_path, made) if made[0].isdigit() else owner(made)
    if not made[0].isdigit():
        write_golden(tmp_path / application, made)
    found = diagnose(tmp_path, application, release=RELEASES[release]).findings
    assert {one.code for one in found} == {"release-cannot-open"}
    assert all(said in one.what for one in found)


@pytest.mark.parametrize("release", ["3.9", "4.2"])
def test_a_release_that_cannot_open_a_task_loses_no_buffer_in_it(tmp_path, release):
    application = golden_unpacked(EXACTLY_ONCE, tmp_path)
    found = examined(application, EXACTLY_ONCE, release=RELEASES[release])
    assert ({one.code for one in found.findings}, found.exit_code) == ({"release-cannot-open"}, 21)


def test_stores_of_two_releases_in_one_task(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    shutil.copytree(plain(tmp_path, task="0_1"), tmp_path / application / "0_1/rocksdb/new")
    shutil.rmtree(tmp_path / "app")
    assert codes(tmp_path, application)["half-migrated"] is NOTE  # its .checkpoint has the others
    (tmp_path / application / "0_1/.checkpoint").unlink()
    assert codes(tmp_path, application)["half-migrated"] is ERROR
    found = codes(tmp_path, application, release=RELEASES["4.2"])
    assert {"half-migrated", "release-cannot-open"} <= set(found)
