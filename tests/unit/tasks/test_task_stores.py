"""The databases of a task are what Kafka Streams opens without wiping any of them, whatever was there before."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_OPEN
from statecore.formats.releases import CURRENT
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.journal import SWAPPING, Journal
from statecore.statedir.quarantine import quarantined
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.statedir.work_directory import JOURNAL, STALE
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.manifest_guard import remove_guard_record
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.task_stores import TaskStores, tasks_of
from tests.golden.directories import golden_directories, names, unpacked
from tests.harness.filesystems import refusing
from tests.harness.raising import raises
from tests.unit.doctor.stored import write_database
from tests.unit.tasks.standby_world import APPLICATION, TASK, World, changelog_of, spec_of, store_of

KINDS = [kind for kind in StoreKind if kind.can_be_built]


def with_status(path: Path, status: int) -> None:
    """As Kafka Streams leaves a database: with a status, and without a word of ours."""
    with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
        store._write_status(status)
        store._rows_ahead = True  # so that closing it changes no status
    remove_guard_record(path)
    assert read_database_state(path).status == status


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def opened(path: Path, spec: ApplicationSpec) -> Iterator[TaskStores]:
    world = World(path, spec)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        try:
            yield stores
        finally:
            stores.close()


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_each_kind_is_made_with_an_offset_and_closed_cleanly(
    path: Path, kind: StoreKind, exactly_once: bool
) -> None:
    spec = spec_of(store_of("one", kind), exactly_once=exactly_once)
    world = World(path, spec)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        assert stores.offsets() == {changelog_of("one"): OFFSET_UNKNOWN}
        assert [store.name for store in stores.stores] == ([] if kind.is_versioned else ["one"])
        if not kind.is_versioned:
            stores.apply("one", [], 10, stream_time=1_000_000)
        stores.close()
    databases = [one for store in world.directory.stores(TASK) for one in store.databases]
    expected = OFFSET_UNKNOWN if kind.is_versioned else 9
    assert databases
    for database in databases:
        state = read_database_state(database)
        assert (dict(state.offsets), state.status) == ({changelog_of("one"): expected}, 0)
    assert not (world.directory.task_path(TASK) / ".checkpoint").exists()
    assert (world.directory.task_path(TASK) / ".checkpoint_one").exists() == (kind is StoreKind.GRACE_BUFFER)


def test_stores_in_memory_and_stores_without_a_changelog_are_not_made(path: Path) -> None:
    spec = spec_of(store_of("memory", StoreKind.IN_MEMORY), store_of("alone", logged=False), store_of("plain"))
    assert tasks_of(spec, {changelog_of("plain").topic: 2, changelog_of("memory").topic: 9}) == ["0_0", "0_1"]
    for stores in opened(path, spec):
        assert stores.offsets() == {changelog_of("plain"): OFFSET_UNKNOWN}
        assert [one.store for one in StateDirectory(path, APPLICATION).stores(TASK)] == ["plain"]


@pytest.mark.parametrize("how", ["rows", "offset", "no offset", "open", "damaged"])
def test_a_versioned_store_is_emptied_at_minus_four_and_the_old_one_quarantined(path: Path, how: str) -> None:
    spec = spec_of(store_of("versions", StoreKind.VERSIONED_KEY_VALUE), exactly_once=True)
    world = World(path, spec)
    database = world.directory.task_path(TASK) / "rocksdb" / "versions"
    database.parent.mkdir(parents=True)
    at = changelog_of("versions")
    offsets = {"offset": {at: 7}, "no offset": {}}.get(how, {at: OFFSET_UNKNOWN})
    create_database(database, StoreKind.VERSIONED_KEY_VALUE, offsets)
    if how == "rows":
        with RocksDBStore(database, StoreKind.VERSIONED_KEY_VALUE) as store:
            store.put(b"\xff" * 8 + b"key", b"\0" * 8 + b"row")
            store.commit({at: OFFSET_UNKNOWN})
    elif how == "open":
        with_status(database, STATUS_OPEN)
    elif how == "damaged":
        next(database.glob("MANIFEST-*")).write_bytes(b"nonsense")
    for _ in range(2):
        for stores in opened(path, spec):
            assert stores.offsets() == {at: OFFSET_UNKNOWN}
        state = read_database_state(database)
        assert (dict(state.offsets), state.status) == ({at: OFFSET_UNKNOWN}, 0)
        with RocksDBStore(database, StoreKind.VERSIONED_KEY_VALUE, read_only=True) as store:
            assert next(store.scan_lists(), None) is None
        (aside,) = quarantined(world.directory, STALE)
        assert (aside.path / "rocksdb" / "versions" / "CURRENT").exists()


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.LIST])
def test_a_store_that_the_spec_calls_versioned_and_is_of_another_kind_is_not_emptied(
    path: Path, kind: StoreKind
) -> None:
    world = World(path, spec_of(store_of("prices", StoreKind.VERSIONED_KEY_VALUE), store_of("plain")))
    task = world.directory.task_path(TASK)
    with RocksDBStore(task / "rocksdb" / "prices", kind, create=True) as store:
        store.put(b"key", b"row")
        store.commit({changelog_of("prices"): 9})
    before = fingerprint(task)
    with world.directory.lock(), raises(Invalid, "kind-mismatch", stores=["prices"]):
        world.stores().open()
    assert fingerprint(task) == before
    assert not quarantined(world.directory, STALE)


@pytest.mark.parametrize("wrong", ["kind", "interval", "damage"])
def test_a_task_is_refused_before_it_is_changed(path: Path, wrong: str) -> None:
    """``a`` has expired segments, ``b`` is versioned, ``c`` has no database, and ``d`` is refused."""
    kind = StoreKind.HEADERS_KEY_VALUE if wrong == "kind" else StoreKind.WINDOW
    spec = spec_of(
        store_of("a", StoreKind.WINDOW),
        store_of("b", StoreKind.VERSIONED_KEY_VALUE),
        store_of("c"),
        store_of("d", kind),
    )
    world = World(path, spec)
    task = world.directory.task_path(TASK)
    for start in (0, 9_000_000):
        create_database(task / "a" / f"a.{start}", StoreKind.WINDOW, {changelog_of("a"): 5})
    with RocksDBStore(task / "rocksdb" / "b", StoreKind.VERSIONED_KEY_VALUE, create_if_missing=True) as store:
        store.put(b"\xff" * 8 + b"key", b"\0" * 8 + b"row")
        store.commit({changelog_of("b"): 9})
    refused = task / ("rocksdb/d" if wrong == "kind" else f"d/d.{7 if wrong == 'interval' else 0}")
    create_database(refused, StoreKind.KEY_VALUE, {changelog_of("d"): 5})
    if wrong == "damage":
        next(refused.glob("MANIFEST-*")).write_bytes(b"nonsense")
    (task / ".checkpoint").write_text("0\n0\n")
    with world.directory.lock(), pytest.raises(StatecoreError) as raised:
        world.stores().open()
    codes = {"kind": "kind-mismatch", "interval": "segment-interval-mismatch", "damage": "database-damaged"}
    assert raised.value.code == codes[wrong]
    assert all((task / one).exists() for one in ("a/a.0/CURRENT", "a/a.9000000/CURRENT", ".checkpoint"))
    assert not (task / "rocksdb" / "c").exists()
    assert read_database_state(task / "rocksdb" / "b").offsets == {changelog_of("b"): 9}
    assert not quarantined(world.directory, STALE)


@pytest.mark.parametrize("gone", ["rocksdb/plain", "clicks", "clicks/clicks.0"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_database_that_is_deleted_while_it_is_open_counts_no_more(path: Path, gone: str, how: str) -> None:
    world = World(path, spec_of(store_of("plain"), store_of("clicks", StoreKind.WINDOW)))
    task = world.directory.task_path(TASK)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        for name in ("plain", "clicks"):
            stores.apply(name, [], 6)
        stores.checkpoint()
        lost = "plain" if gone == "rocksdb/plain" else "clicks"
        (task / gone).rename(path / "gone")
        if how == "replaced":
            shutil.copytree(path / "gone", task / gone)
        with raises(Corrupted, "database-damaged", store=lost):
            stores.apply(lost, [], 8)
        assert not (task / ".checkpoint").exists()
        stores.checkpoint()
        left = "clicks" if lost == "plain" else "plain"
        assert read_offsets(task / ".checkpoint") == {changelog_of(lost): OFFSET_UNKNOWN, changelog_of(left): 5}
        (task / store_directory(left, StoreKind.WINDOW if left == "clicks" else StoreKind.KEY_VALUE)).rename(
            path / "other"
        )
        with raises(Corrupted, "database-damaged", store=left):
            stores.checkpoint()
        assert not (task / ".checkpoint").exists()
        with raises(Corrupted, "database-damaged", store=left):
            stores.close()


def test_a_store_that_lost_a_segment_while_it_was_open_is_not_continued_without_its_rows(path: Path) -> None:
    world = World(path, spec_of(store_of("clicks", StoreKind.WINDOW)))
    segments = [world.directory.task_path(TASK) / "clicks" / f"clicks.{start}" for start in (8_700_000, 9_000_000)]
    for segment in segments:
        with RocksDBStore(segment, StoreKind.WINDOW, create=True) as made:
            made.put(b"k" * 30, b"row")
            made.commit({changelog_of("clicks"): 5})
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        assert stores.offsets() == {changelog_of("clicks"): 5}
        segments[0].rename(path / "gone")
        with raises(Corrupted, "database-damaged", store="clicks", path=str(segments[0])):
            stores.apply("clicks", [], 8)
        stores.reopen("clicks")
        assert stores.store("clicks").offset is None
        stores.close()
        again = world.stores()
        again.open()
        assert again.store("clicks").offset is None, "also for the next process"
        again.reset("clicks")
        assert again.offsets() == {changelog_of("clicks"): OFFSET_UNKNOWN}
        again.close()


def test_an_expired_segment_is_not_continued_in_place_of_the_live_one_that_was_lost(path: Path) -> None:
    """A kill between commit and expiry left it, at the offset of the other."""
    world = World(path, spec_of(store_of("clicks", StoreKind.WINDOW)))
    segments = [world.directory.task_path(TASK) / "clicks" / f"clicks.{start}" for start in (0, 9_000_000)]
    for segment in segments:
        create_database(segment, StoreKind.WINDOW, {changelog_of("clicks"): 5})
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        segments[1].rename(path / "gone")
        with raises(Corrupted, "database-damaged", store="clicks"):
            stores.apply("clicks", [], 8)
        stores.reopen("clicks")
        assert (stores.store("clicks").offset, stores.store("clicks").segments) == (OFFSET_UNKNOWN, (0,))
        stores.close()
    (aside,) = [one.path / "clicks" for one in quarantined(world.directory, STALE)]
    assert [segment.name for segment in aside.iterdir()] == ["clicks.0"]


def test_segments_that_had_expired_at_the_start_are_quarantined_with_the_next_rows(path: Path) -> None:
    """Left by a kill, or of a longer retention than the spec's."""
    spec = spec_of(store_of("clicks", StoreKind.WINDOW))
    directory = StateDirectory(path, APPLICATION)
    store = directory.task_path(TASK) / "clicks"
    for start in (0, 300_000, 9_000_000):
        create_database(store / f"clicks.{start}", StoreKind.WINDOW, {changelog_of("clicks"): 5})
    for stores in opened(path, spec):
        assert len(list(store.iterdir())) == 3
        stores.apply("clicks", [], 8)
    assert [one.name for one in store.iterdir()] == ["clicks.9000000"]
    aside = [one.path / "clicks" for one in quarantined(directory, STALE)]
    assert sorted(segment.name for one in aside for segment in one.iterdir()) == ["clicks.0", "clicks.300000"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_store_without_a_changelog_that_kafka_streams_did_not_close_stops_its_task_under_exactly_once(
    path: Path, exactly_once: bool
) -> None:
    spec = spec_of(store_of("alone", logged=False), store_of("plain"), exactly_once=exactly_once)
    world = World(path, spec)
    database = world.directory.task_path(TASK) / "rocksdb" / "alone"
    database.parent.mkdir(parents=True)
    create_database(database, StoreKind.KEY_VALUE, {})
    with_status(database, STATUS_OPEN)
    if exactly_once:
        with raises(Corrupted, "unlogged-store-damaged", task=TASK, store="alone"):
            next(opened(path, spec))
        assert not (world.directory.task_path(TASK) / "rocksdb" / "plain").exists()
    else:
        for stores in opened(path, spec):
            assert stores.offsets() == {changelog_of("plain"): OFFSET_UNKNOWN}
    assert read_database_state(database).status == STATUS_OPEN


def test_stores_are_closed_also_where_the_file_of_offsets_cannot_be_deleted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(path, spec_of(store_of("plain")))
    with world.directory.lock():
        stores = world.stores()
        stores.open()

        with monkeypatch.context() as patched:
            refusing(patched, "unlink", errno.EROFS, lambda path: path.name == ".checkpoint")
            with raises(Invalid, "read-only-file-system"):
                stores.close()
        assert not stores.is_open
        again = world.stores()
        again.open()
        again.close()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_unlogged_store_with_an_expired_partly_deleted_segment_is_kept(path: Path, exactly_once: bool) -> None:
    spec = spec_of(store_of("alone", StoreKind.WINDOW, logged=False), store_of("plain"), exactly_once=exactly_once)
    place = World(path, spec).directory.task_path(TASK) / "alone"
    for start in (0, 3_000_000):
        with RocksDBStore(place / f"alone.{start}", StoreKind.WINDOW, create=True, exactly_once=True) as store:
            store.put(b"k" * 30, b"row")
            store.commit({})
    (place / "alone.0" / "CURRENT").unlink()
    for stores in opened(path, spec):
        assert stores.offsets() == {changelog_of("plain"): OFFSET_UNKNOWN}
    assert (place / "alone.3000000" / "CURRENT").exists()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_store_without_a_changelog_that_has_lost_its_current_stops_its_task(path: Path, exactly_once: bool) -> None:
    spec = spec_of(store_of("alone", logged=False), store_of("plain"), exactly_once=exactly_once)
    database = World(path, spec).directory.task_path(TASK) / "rocksdb" / "alone"
    database.parent.mkdir(parents=True)
    with RocksDBStore(database, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"key", b"row")
        store.commit({})
    (database / "CURRENT").unlink()
    with pytest.raises(Corrupted, match="would delete their files"):
        next(opened(path, spec))
    assert list(database.glob("*.sst"))


def test_a_store_without_a_changelog_that_this_library_left_open_is_closed_cleanly(path: Path) -> None:
    spec = spec_of(store_of("alone", logged=False), store_of("plain"), exactly_once=True)
    world = World(path, spec)
    database = world.directory.task_path(TASK) / "rocksdb" / "alone"
    database.parent.mkdir(parents=True)
    script = (
        "import os, signal, sys; from pathlib import Path; from statecore.formats.kinds import StoreKind;"
        "from statecore.stores.rocksdb.store import RocksDBStore;"
        "store = RocksDBStore(Path(sys.argv[1]), StoreKind.KEY_VALUE, create=True); store.open();"
        "store.put(b'key', b'row'); store.commit({}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(database)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_database_state(database).status == STATUS_OPEN
    for _ in opened(path, spec):
        pass
    assert read_database_state(database).status == 0
    with RocksDBStore(database, StoreKind.KEY_VALUE, read_only=True) as store:
        assert store.get(b"key") == b"row"


@pytest.mark.parametrize("name", names(release="4.2", moment="clean"))
def test_a_directory_of_kafka_streams_4_2_is_refused_with_what_to_do_and_nothing_is_changed(
    tmp_path: Path, name: str
) -> None:
    application = unpacked(name, tmp_path)
    spec = parse_spec(golden_directories()[name].spec)
    directory = StateDirectory(tmp_path, name)
    with directory.lock():
        for task in directory.task_directories():
            before = {str(one): one.stat().st_size for one in (application / task).rglob("*")}
            with raises(Invalid, "migration-required") as raised:
                TaskStores(spec, directory, task).open()
            assert f"migrate --to {CURRENT.name}" in raised.value.action
            assert {str(one): one.stat().st_size for one in (application / task).rglob("*")} == before


def test_a_placement_that_was_interrupted_is_settled_before_a_task_is_opened(path: Path) -> None:
    world = World(path)
    with world.directory.lock():
        work = world.directory.work_path
        (work / "placement-dead").mkdir(parents=True)
        Journal("r", "placement-dead", SWAPPING, ()).write(work)
        stores = world.stores()
        stores.open()
        assert not (work / "placement-dead").exists()
        assert not (work / JOURNAL).exists()
        (work / "placement-dead").mkdir()
        stores.close()
        stores.open()
        assert (work / "placement-dead").exists(), "only the start of a service sweeps"
        stores.close()


def test_a_changelog_of_another_name_than_in_the_spec_is_ignored(path: Path) -> None:
    spec = spec_of(store_of("plain"))
    world = World(path, spec)
    database = world.directory.task_path(TASK) / "rocksdb" / "plain"
    database.parent.mkdir(parents=True)
    create_database(database, StoreKind.KEY_VALUE, {TopicPartition("other-plain-changelog", 0): 7})
    for stores in opened(path, spec):
        assert json.loads(json.dumps(list(stores.offsets().values()))) == [OFFSET_UNKNOWN]


def test_a_database_of_the_application_s_own_class_is_neither_undeclared_nor_of_an_older_release(path: Path) -> None:
    world = World(path, spec_of(store_of("plain"), store_of("mine", StoreKind.CUSTOM)))
    own = world.directory.task_path(TASK) / "rocksdb" / "mine"
    write_database(own, {"default": [(b"k", b"v")]})
    before = fingerprint(own)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        stores.close()
    assert fingerprint(own) == before
