"""The corpus of real directories is what its index says, and every damage damages it."""

from __future__ import annotations

import hashlib
import stat
from collections import Counter
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import inspect
from statecore.doctor.finding_catalog import CATALOG
from statecore.formats.releases import RELEASES
from statecore.spec.reader import read_spec
from statecore.statedir.state_directory import StateDirectory
from tests.golden.directories import HERE, golden_directories, names, unpacked
from tests.harness.case_selection import one_of, three_of
from tests.harness.damage_cases import AT_LEAST_ONCE, DAMAGES, EXACTLY_ONCE
from tests.harness.damage_functions import index_block, tables_of
from tests.harness.directory import databases
from tests.harness.fleet import VERSIONS, Moment

MOST_BYTES = 2_000_000


def test_the_corpus_is_small_and_whole():
    archives = {path.name.removesuffix(".tar.gz"): path.stat().st_size for path in HERE.glob("*.tar.gz")}
    assert set(archives) == set(golden_directories())
    assert sum(archives.values()) < MOST_BYTES
    runs = {(one.version, one.guarantee, one.moment) for one in golden_directories().values()}
    assert runs >= {
        (version, guarantee, moment.value)
        for version in VERSIONS.values()
        for guarantee in ("at_least_once", "exactly_once_v2")
        for moment in Moment
    }


@pytest.mark.parametrize("name", three_of(names(), by=lambda case: case[0].split("-")[0]))
def test_a_golden_directory_is_what_its_index_says(name, tmp_path):
    golden = golden_directories()[name]
    application = unpacked(name, tmp_path)
    assert application.name == golden.spec["application_id"] == name
    assert {".lock", "kafka-streams-process-metadata"} <= {path.name for path in application.iterdir()}

    spec = read_spec(golden.stores_yaml())
    inspection = inspect(StateDirectory(tmp_path, name), spec=spec)
    inside = RELEASES[golden.release].offsets_inside
    seen = {
        f"{store.task}/{store.store}" + (f"/{one.name}" if store.segmented else ""): {
            "families": sorted(set(one.families) - {"offsets"}),
            "rows": one.rows,
            "offsets": {str(partition): offset for partition, offset in one.offsets.items()},
            "status": one.status,
        }
        for store in inspection.stores
        for one in store.databases
    }
    assert seen == golden.databases
    assert all(("offsets" in one.families) is inside for store in inspection.stores for one in store.databases)
    for store in inspection.stores:
        declared = next(one for one in (*spec.stores, *spec.global_stores) if one.name == store.store)
        assert store.kind is declared.kind
        assert not any(one.broken for one in store.databases)
    assert (application / "0_0/.checkpoint").exists() is not inside


@pytest.mark.parametrize("name", names())
def test_what_a_doctor_must_find_is_in_the_catalogue(name):
    golden = golden_directories()[name]
    assert {*golden.findings, *golden.tolerated} <= set(CATALOG)
    if golden.moment == Moment.CLEAN.value:
        assert golden.findings == (("older-release",) if golden.release in ("3.9", "4.2") else ())


@pytest.mark.parametrize("name", names())
def test_offsets_are_not_past_the_ends(name):
    golden = golden_directories()[name]
    for path, database in golden.databases.items():
        for partition, offset in database["offsets"].items():
            topic, _, number = partition.rpartition("-")
            # A global store says the next offset to read.
            assert offset <= golden.ends[topic][int(number)] - (not path.startswith("global/"))


def tree(application: Path) -> dict[str, tuple[str, int, int]]:
    return {
        str(path.relative_to(application)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            stat.S_IMODE(path.lstat().st_mode),
            int(path.lstat().st_mtime) // 3600,
        )
        for path in application.rglob("*")
    }


@pytest.mark.parametrize("name", one_of(DAMAGES, by=lambda case: case[0].split("-")[0]))
def test_a_damage_is_done_where_it_says_and_nowhere_else(name, tmp_path):
    damage = DAMAGES[name]
    application = unpacked(damage.directory, tmp_path)
    before = tree(application)
    assert damage.inflict(application) is None
    after = tree(application)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed
    assert all(path.startswith(damage.task) for path in changed)
    assert not any("rocksdict" in path for path in changed) or name == "foreign-file"


def test_every_damage_names_findings_of_the_catalogue():
    for damage in DAMAGES.values():
        assert {*damage.findings, *damage.also} <= set(CATALOG)
        assert damage.directory in golden_directories()
    found = Counter(code for damage in DAMAGES.values() for code in damage.findings)
    assert len(found) >= 25


@pytest.mark.parametrize("name", [AT_LEAST_ONCE, EXACTLY_ONCE, "3.9.1-exactly-once-clean"])
def test_the_index_block_of_a_table_is_found(name, tmp_path):
    for _, _, database in databases(unpacked(name, tmp_path)):
        for table in tables_of(database):
            data = table.read_bytes()
            start, size = index_block(data)
            assert 0 < size < 200
            assert start + size + 5 < len(data)
