"""The one reader of a store's databases: compared with what golden directories record, and with the doctor."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import create_database
from statecore.statedir.readonly_database import Database
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_database, read_store, untrusted_in
from statecore.statedir.store_places import store_places
from statecore.statedir.task_layout import StoreDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.case_selection import three_of
from tests.harness.damage_cases import AT_LEAST_ONCE, DAMAGES, EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import change_offsets, cut, cut_manifest, database_of, manifest_of
from tests.harness.raising import raises
from tests.unit.tasks.startup_tasks_world import KV, World

CHANGELOG = TopicPartition("app-s-changelog", 0)
BY_READING_ALL_ROWS = "block-corrupt"


def places(application: Path) -> Iterator[StoreDirectory]:
    yield from store_places(StateDirectory(application.parent, application.name))


@pytest.mark.parametrize("name", three_of(golden_names()))
def test_golden_databases_are_read_as_kafka_streams_left_them(name: str, tmp_path: Path) -> None:
    application, golden = unpacked(name, tmp_path), golden_directories()[name]
    found = {}
    for place in places(application):
        for one in read_store(place).checked().databases:
            found[one.path.relative_to(application).as_posix().replace("rocksdb/", "")] = one.state
            with Database(one.path) as database:
                assert one.state == database.state
    assert found.keys() <= golden.databases.keys()
    for path, state in found.items():
        recorded = golden.databases[path]
        assert {str(part): offset for part, offset in state.offsets.items()} == recorded["offsets"], path
        families = set(state.column_families) - {OFFSETS_COLUMN_FAMILY}
        assert (families, state.status) == (set(recorded["families"]), recorded["status"]), path


@pytest.mark.parametrize("name", three_of(sorted(name for name, damage in DAMAGES.items() if not damage.needs)))
def test_it_finds_a_database_damaged_where_the_doctor_does(name: str, tmp_path: Path) -> None:
    damage = DAMAGES[name]
    application = unpacked(damage.directory, tmp_path)
    damage.inflict(application)
    by_doctor, unlooked = {}, set()
    for store in diagnose_directory(StateDirectory(tmp_path, application.name)).stores:
        for database in store.databases:
            key = store.task, store.store, database.name
            by_doctor[key] = bool(database.broken or database.lost_end or database.foreign_log)
            unlooked |= {key} if database.cause == BY_READING_ALL_ROWS else set()
    found = {}
    for place in store_places(StateDirectory(tmp_path, application.name)):
        for one in read_store(place, manifests=True).databases:
            found[place.task, place.store, one.path.name] = one.damage is not None
    assert not [key for key, is_damaged in found.items() if is_damaged and not by_doctor[key]]
    assert not {key for key, is_damaged in by_doctor.items() if is_damaged and not found.get(key, True)} - unlooked


def test_a_manifest_that_lost_its_end_is_damage_that_rocksdb_opens(tmp_path: Path) -> None:
    for offset in range(2):
        with RocksDBStore(tmp_path / "s", StoreKind.KEY_VALUE, create=not offset) as store:
            for number in range(5):
                store.put(b"key%d" % number, b"value" * 20)
            store.commit({CHANGELOG: offset})
    cut(manifest_of(tmp_path / "s"), -60)
    found = read_database(tmp_path / "s")
    assert (found.opens, found.refused, isinstance(found.damage, Corrupted)) == (True, True, True)
    assert found.opened() == found.state
    with pytest.raises(Corrupted):
        found.checked()


def test_a_manifest_of_kafka_streams_that_lost_its_end_is_damage_for_who_asks(tmp_path: Path) -> None:
    database = database_of(unpacked(AT_LEAST_ONCE, tmp_path), STAMPED)
    cut_manifest(database, between=True)
    found = read_database(database, manifests=True)
    assert found.manifest is not None
    assert (found.opens, found.manifest.lost_end != "", found.refused) == (True, True, False)
    with raises(Corrupted, "database-damaged", store_path=str(database)):
        found.checked()
    assert read_database(database).damage is None


@pytest.fixture
def segments(tmp_path: Path) -> StoreDirectory:
    for start, offset in ((0, 5), (60_000, 9), (120_000, None)):
        offsets = {} if offset is None else {CHANGELOG: offset}
        create_database(tmp_path / "w" / f"w.{start}", StoreKind.WINDOW, offsets)
    return StoreDirectory("w", tmp_path / "w", True)


def test_policies_differ_where_segments_do(segments: StoreDirectory, tmp_path: Path) -> None:
    found = read_store(segments)
    assert [one.path.name for one in found.databases] == ["w.0", "w.60000", "w.120000"]
    assert found.smallest_offsets == {CHANGELOG: 5}
    assert found.agreed_offsets is None
    assert (found.keeps_no_offset, found.damage) == (False, None)
    change_offsets(tmp_path / "w" / "w.60000", lambda _: 5)
    shutil.rmtree(tmp_path / "w" / "w.120000")
    assert read_store(segments).agreed_offsets == {CHANGELOG: 5}
    assert read_store(StoreDirectory("x", tmp_path / "x", True)).agreed_offsets is None


def test_damage_of_one_segment_is_that_of_the_store_and_hides_no_other(segments: StoreDirectory) -> None:
    next((segments.path / "w.0").glob("MANIFEST-*")).write_bytes(b"nonsense")
    found = read_store(segments)
    assert isinstance(found.damage, Corrupted)
    assert [dict(one.state.offsets) for one in found.databases[1:]] == [{CHANGELOG: 9}, {}]
    with pytest.raises(Corrupted):
        found.checked()


def test_a_store_that_is_open_is_read_as_it_was_flushed_and_is_trusted(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "s", StoreKind.KEY_VALUE, create=True, settings=KEEP_FILES) as store:
        store.put(b"key", b"value")
        store.commit({CHANGELOG: 7})
        store.flush()
        found = read_database(tmp_path / "s")
        assert (found.damage, found.state.closed_cleanly, found.trusted) == (None, False, True)
        assert dict(found.state.offsets) == {CHANGELOG: 7}


def test_files_that_lie_elsewhere_are_no_damage_of_the_database(tmp_path: Path) -> None:
    create_database(tmp_path / "s", StoreKind.KEY_VALUE, {CHANGELOG: 7})
    with RocksDBStore(tmp_path / "s", StoreKind.KEY_VALUE, settings=KEEP_FILES) as store:
        store.put(b"key", b"value")
        store.commit({CHANGELOG: 8})
        store.flush()
    for file in (tmp_path / "s").glob("*.sst"):
        file.unlink()
    found = read_database(tmp_path / "s")
    assert isinstance(found.damage, Invalid)
    with raises(Invalid, "not-readable-here"):
        found.checked()


def test_one_that_kafka_streams_left_open_is_not_trusted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put_task("0_0", 4)
    assert untrusted_in(world.path("0_0")) is None
    world.leave_open("0_0")
    assert untrusted_in(world.path("0_0")) == world.path("0_0") / "rocksdb" / KV


def test_one_that_this_library_was_killed_in_is_trusted_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "0_0" / "rocksdb" / "one"
    path.parent.mkdir(parents=True)
    script = (
        "import os, signal, sys; from pathlib import Path; from statecore.formats.kinds import StoreKind;"
        "from statecore.stores.rocksdb.store import RocksDBStore;"
        "store = RocksDBStore(Path(sys.argv[1]), StoreKind.KEY_VALUE, create=True); store.open();"
        "store.put(b'key', b'row'); store.commit({}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    before = {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()}
    assert not read_database(path).opened().closed_cleanly
    assert untrusted_in(tmp_path / "0_0") is None
    assert {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()} == before


def test_no_task_is_trusted_with_a_database_whose_manifest_lost_its_end(tmp_path: Path) -> None:
    database = database_of(unpacked(EXACTLY_ONCE, tmp_path), STAMPED)
    task = database.parent.parent
    assert untrusted_in(task) is None
    cut_manifest(database, between=True)
    with raises(Corrupted, "database-damaged", store_path=str(database)):
        untrusted_in(task)
