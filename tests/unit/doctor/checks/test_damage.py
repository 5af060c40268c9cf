"""Damaged databases, and files that do not match their MANIFEST."""

from __future__ import annotations

import os
import shutil
from copy import deepcopy
from functools import partial

import pytest
from rocksdict import Options, Rdict

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Repair
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import RELEASES
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.case_selection import one_of
from tests.harness.damage_cases import EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import PLAIN, TASK, cut_manifest, database_of, set_status, tables_of
from tests.harness.directory import read_database
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.diagnosing import ALOS, ERROR, LOSS, NOTE, WARNING, codes, diagnose, flip, largest_sst, plain
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
    assert not what.startswith(PLAIN), "or it would be printed without its tasks"
    assert "rightly" not in what


@pytest.mark.parametrize(
    "damage",
    [partial(cut_manifest, between=True), lambda path: tables_of(path)[0].unlink(), lambda path: set_status(path, 1)],
)
def test_a_store_without_a_changelog_is_not_to_be_rebuilt(tmp_path, damage):
    application = unpacked(EXACTLY_ONCE, tmp_path)
    damage(database_of(application, STAMPED))
    declared = deepcopy(golden_directories()[EXACTLY_ONCE].spec)
    for changelog, remedies in ((None, True), ("none", False)):
        for subtopology in declared["subtopologies"].values():
            if changelog and STAMPED in subtopology["stores"]:
                subtopology["stores"][STAMPED]["changelog"] = changelog
        directory = StateDirectory(application.parent, application.name)
        found = diagnose_directory(directory, spec=parse_spec(declared), tasks=[TASK], stores=[STAMPED]).findings
        told = [one for one in found if one.severity in (LOSS, ERROR) and one.code != "store-unlogged"]
        assert told
        assert [one.remedy.startswith("Rebuild the store") for one in told] == [remedies] * len(told)
        assert [one.repair is Repair.REBUILD for one in told] == [remedies] * len(told)
        assert [one.to_json()["remedy"] for one in told] == [one.remedy for one in told]


def test_a_block_that_is_corrupt_is_found_by_a_scan(tmp_path):
    path = plain(tmp_path, rows=5000, status=1)
    plain(tmp_path, task="0_1")
    flip(largest_sst(path), largest_sst(path).stat().st_size // 2)
    assert codes(tmp_path, guarantee=ALOS) == {"store-not-closed": WARNING}
    # What is broken hides nothing of the same store, nor of others.
    assert codes(tmp_path, guarantee=ALOS, scan=True) == {"block-corrupt": LOSS, "store-not-closed": WARNING}


def spoil_manifest(path):
    flip(next(path.glob("MANIFEST*")), 20)


def lose_manifest(path):
    next(path.glob("MANIFEST*")).unlink()


def lose_rows(path):
    largest_sst(path).unlink()


def cut_rows(path):
    os.truncate(largest_sst(path), largest_sst(path).stat().st_size // 2)


def spoil_current(path):
    (path / "CURRENT").write_text("nothing\n")


def lose_current(path):
    (path / "CURRENT").unlink()


def shorten_manifest(path):
    file = next(path.glob("MANIFEST*"))
    os.truncate(file, file.stat().st_size - 5)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (spoil_manifest, "database-unreadable"),
        (lose_manifest, "file-missing"),
        (lose_rows, "file-missing"),
        (cut_rows, "database-unreadable"),
        (spoil_current, "database-unreadable"),
        (lose_current, "current-missing"),
        (shorten_manifest, "manifest-truncated"),
    ],
)
def test_damage_has_its_code_and_hides_no_other_finding(tmp_path, spoil, code):
    spoil(plain(tmp_path, rows=2000))
    plain(tmp_path, task="0_1", status=1)
    found = {(one.task, one.code) for one in diagnose(tmp_path).findings}
    assert found == {("0_0", code), ("0_1", "store-not-closed")}
    assert diagnose(tmp_path).exit_code >= 21


def test_every_length_of_a_manifest_is_found_or_refused(tmp_path):
    """RocksDB opens some of them, without a word, as an older or an empty database."""
    whole = tmp_path / "whole"
    path = whole / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True, settings=KEEP_FILES) as store:
        for offset in range(3):
            store.put(b"a%d" % offset, b"1")
            store.commit({TopicPartition("app-s-changelog", 0): offset})
            store.flush()
    (path / "statecore-witness").unlink()  # as of Kafka Streams
    assert codes(whole) == {}
    (manifest,) = path.glob("MANIFEST-*")
    data = manifest.read_bytes()
    between = {read_manifest(data[:length]).valid_bytes for length in range(len(data))}  # entries that are whole
    silent = []
    for length in sorted({*between, 5, len(data) // 2, len(data) - 1}):
        if length in between and read_manifest(data[:length]).files == read_manifest(data).files:
            continue  # what was cut off says nothing of rows: which log is behind
        copy = tmp_path / f"cut-{length}"
        shutil.copytree(whole, copy)
        os.truncate(copy / manifest.relative_to(whole), length)
        found = codes(copy)
        if not set(found) & {"manifest-truncated", "database-unreadable", "file-missing"}:
            silent.append((length, found))
    assert silent == []


def test_an_unreadable_database_is_neither_healthy_nor_damaged(tmp_path, monkeypatch):
    plain(tmp_path)
    plain(tmp_path, task="0_1", status=1)
    symlink = os.symlink

    def refused(file, link, *options):
        if "0_0" in str(file):
            raise PermissionError(13, os.strerror(13), str(file))
        symlink(file, link, *options)

    monkeypatch.setattr(os, "symlink", refused)
    found = diagnose(tmp_path, guarantee=ALOS)
    assert {(one.task, one.code) for one in found.findings} == {("0_0", "database-unseen"), ("0_1", "store-not-closed")}
    assert found.exit_code == 21


@pytest.mark.parametrize(
    ("names", "severity", "said", "unsaid"),
    [
        (["000011.sst"], WARNING, ["1 SST file ", "000011.sst"], ["ldb repair"]),
        (
            ["000012.log", "MANIFEST-000005"],
            NOTE,
            ["ldb repair", "000012.log, MANIFEST-000005", "is whole"],
            ["rows are gone", "restore"],
        ),
        (
            ["000011.sst", "000012.log"],
            WARNING,
            ["ldb repair", "could not read 000011.sst", "rows are gone"],
            ["did not name"],
        ),
    ],
)
def test_files_that_were_kept_aside(tmp_path, names, severity, said, unsaid):
    path = plain(tmp_path)
    (path / "lost").mkdir()
    for name in names:
        (path / "lost" / name).write_bytes(b"")
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.evidence["files"]) == ("files-set-aside", severity, names)
    assert one.repair is (Repair.REBUILD if severity is WARNING else None)
    assert [word for word in said if word not in one.what] == [word for word in unsaid if word in one.what] == []


def test_a_whole_file_that_a_kill_left_is_a_note(tmp_path):
    path = plain(tmp_path)
    shutil.copy(largest_sst(path), path / "000099.sst")
    (path / "000098.sst").write_bytes(b"half a file")
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.evidence["unnamed"]) == ("manifest-truncated", NOTE, ["000099.sst"])


@pytest.mark.parametrize("broken", [True, False])
def test_a_repair_by_rocksdb_itself_costs_nothing_if_it_read_every_file(tmp_path, broken):
    path = plain(tmp_path)
    if broken:
        flip(largest_sst(path), -1)
    Rdict.repair(str(path), Options(raw_mode=True))
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    found = {one.code: one.severity for one in diagnose(tmp_path).findings}
    assert found["files-set-aside"] is (WARNING if broken else NOTE)
    assert (set(found) == {"files-set-aside"}) is not broken
