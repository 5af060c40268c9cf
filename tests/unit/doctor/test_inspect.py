"""What inspect sees and what it calls trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from statecore.doctor.diagnosis import inspect
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import read_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import application_directory, applications, check_application
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.raising import raises
from tests.unit.doctor.diagnosing import running, unpacked
from tests.unit.doctor.stored import CASES, offsets, owner, write_database, write_golden

SPEC = """\
application_id: app
bootstrap_servers: localhost:1
processing_guarantee: at_least_once
subtopologies: {{0: {{stores: {{{stores}}}}}}}
"""


def look(tmp_path, application="app", **wanted):
    return inspect(StateDirectory(tmp_path, application), **wanted)


def trouble_of(tmp_path, **wanted):
    return [one for store in look(tmp_path, **wanted).stores for one in store.problems]


def plain(tmp_path, task="0_0", offset=7, status=0, rows=3):
    families = {
        "default": [(b"k%d" % i, b"v") for i in range(rows)],
        "offsets": offsets("app-s-changelog", int(task[-1]), offset, status),
    }
    write_database(tmp_path / f"app/{task}/rocksdb/s", families)


def test_the_layout_of_a_directory_is_named(tmp_path):
    plain(tmp_path)
    assert look(tmp_path).layouts == ("4.3 or later",)
    assert look(tmp_path, unpacked(tmp_path, "4.2.0")).layouts == ("4.2 or older",)
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [(b"k", b"v")]})
    found = look(tmp_path)
    assert found.layouts == ("4.2 or older", "4.3 or later")
    assert found.to_json()["layouts"] == ["4.2 or older", "4.3 or later"]


@pytest.mark.parametrize("case", CASES)
def test_what_kafka_streams_closed_is_without_trouble_and_counted(tmp_path, case):
    made = write_golden(tmp_path / owner(case), case)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    found = look(tmp_path, owner(case))
    (store,) = found.stores
    assert store.problems == ()
    databases = made.get("segments", {made["store"]: made.get("families")})
    assert store.rows == sum(
        len(rows) for families in databases.values() for name, rows in families.items() if name != "offsets"
    )
    assert {database.name for database in store.databases} == set(databases)
    ((partition, offset),) = store.offsets.items()
    # A transaction's marker follows the last record only under exactly-once.
    assert (str(partition), offset) == (f"{made['changelog']}-0", made["log_end_offset"] - 1)
    assert found.problems == ()
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_an_estimate_is_called_one(tmp_path):
    plain(tmp_path)
    assert look(tmp_path).to_json()["rows_are"] == "counted"
    found = look(tmp_path, estimate=True)
    assert (found.to_json()["rows_are"], found.stores[0].rows) == ("estimated", 3)


def test_a_store_that_was_not_closed_is_trouble_unless_the_application_runs(tmp_path):
    plain(tmp_path, status=1)
    assert "was not closed" in trouble_of(tmp_path)[0]
    with running(tmp_path) as process:
        found = look(tmp_path)
        assert found.holder.process == process.pid
        assert found.holder.command.startswith("python")
        assert found.stores[0].problems == ()
    assert look(tmp_path).holder is None


def test_asking_who_holds_a_lock_does_not_lose_our_own(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    with directory.lock() as lock:
        assert lock_holder(directory.path / ".lock").command == "this process"
        lock.check()
        code = (
            f"import fcntl; fcntl.lockf(open({str(directory.path / '.lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        )
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 1


def test_segments_that_disagree_are_trouble_with_their_offsets(tmp_path):
    for start, offset in ((600_000, 100), (900_000, 150), (1_200_000, 150)):
        key = b"k" + (start + 1).to_bytes(8) + bytes(4)
        families = {
            "default": [],
            "keyValueWithTimestamp": [(key, bytes(8))],
            "offsets": offsets("app-s-changelog", 0, offset),
        }
        write_database(tmp_path / f"app/0_0/s/s.{start}", families)
    (store,) = look(tmp_path).stores
    assert [(one.start, one.end) for one in store.databases] == [
        (600_000, 900_000),
        (900_000, 1_200_000),
        (1_200_000, 1_500_000),
    ]
    assert set(store.offsets.values()) == {150}
    assert "100 in s.600000, 150 in s.900000 and 1 more" in store.problems[0]
    assert store.damage == store.problems


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: (path / "s").mkdir(parents=True), "has no segment"),
        (lambda path: (path / "rocksdb/s").mkdir(parents=True), "without a database"),
        (lambda path: write_database(path / "rocksdb/s", {"default": []}), "no column family offsets"),
        (lambda path: write_database(path / "rocksdb/s", {"default": [], "offsets": []}), "has no offset"),
        (
            lambda path: write_database(
                path / "rocksdb/s",
                {"default": [(b"k", b"v")], "keyValueWithTimestamp": [], "offsets": offsets("t", 0, 1)},
            ),
            "1 row in an older format",
        ),
        (
            lambda path: write_database(path / "rocksdb/s", {"default": [], "new": [], "offsets": offsets("t", 0, 1)}),
            "no store of Kafka Streams has the column families default, new, offsets",
        ),
    ],
)
def test_changes_by_the_next_start_are_reported(tmp_path, make, said):
    make(tmp_path / "app/0_0")
    assert any(said in one for one in trouble_of(tmp_path))


def unlogged(tmp_path, task="0_0", status=0):
    write_database(tmp_path / f"app/{task}/rocksdb/u", {"default": [], "offsets": [(b"status", status.to_bytes(8))]})


def test_a_store_that_is_not_logged_needs_no_offset_and_no_directory(tmp_path):
    plain(tmp_path)
    unlogged(tmp_path)
    stores = "s: {kind: key-value}, u: {kind: key-value, changelog: none}, w: {kind: window, changelog: none}"
    spec = read_spec(SPEC.format(stores=stores))
    for found in (look(tmp_path), look(tmp_path, spec=spec)):
        assert [store.problems for store in found.stores] == [(), ()]
        assert [(store.store, store.logged) for store in found.stores] == [("s", True), ("u", False)]
        assert found.problems == ()
    # Declared as logged, it lacks its offset.
    spec = read_spec(SPEC.format(stores="s: {kind: key-value}, u: {kind: key-value}"))
    assert "has no offset" in trouble_of(tmp_path, spec=spec)[0]


def test_without_an_offset_it_is_taken_for_logged_when_it_was_not_closed_or_another_task_has_one(tmp_path):
    unlogged(tmp_path, status=1)
    assert "has no offset" in trouble_of(tmp_path)[0]
    plain(tmp_path, "0_0")
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": [(b"status", bytes(8))]})
    assert any("has no offset" in one for one in trouble_of(tmp_path, stores=["s"]))


def test_a_global_store_has_its_offsets_by_partition_and_may_not_be_at_minus_4(tmp_path):
    rows = [*offsets("products", 0, 5), *offsets("products", 1, -4, None)]
    write_database(tmp_path / "app/global/rocksdb/products", {"default": [], "offsets": rows})
    (store,) = look(tmp_path).stores
    assert {str(partition): offset for partition, offset in store.offsets.items()} == {
        "products-0": 5,
        "products-1": -4,
    }
    assert "fails every start" in store.damage[0]


def test_a_broken_database_is_reported_and_the_others_are_shown(tmp_path):
    plain(tmp_path)
    plain(tmp_path, task="0_1")
    for file in (tmp_path / "app/0_0/rocksdb/s").glob("MANIFEST*"):
        file.write_bytes(b"junk")
    broken, whole = look(tmp_path).stores
    assert "0_0/rocksdb/s" in broken.problems[0]
    assert (whole.rows, whole.problems) == (3, ())


def test_only_what_needs_a_restore_is_damage(tmp_path):
    plain(tmp_path, status=1)
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": []})
    found = look(tmp_path)
    assert all(store.problems for store in found.stores)
    assert (found.exit_code, [store.damage for store in found.stores]) == (0, [(), ()])


def spoil_manifest(store):
    next(store.glob("MANIFEST*")).write_bytes(b"junk")


def spoil_rows(store):
    file = next(iter(sorted(store.glob("*.sst"))))
    data = bytearray(file.read_bytes())
    data[len(data) // 8] ^= 255
    file.write_bytes(data)


def lose_rows(store):
    next(iter(sorted(store.glob("*.sst")))).unlink()


def lose_current(store):
    (store / "CURRENT").unlink()


@pytest.mark.parametrize("spoil", [spoil_manifest, spoil_rows, lose_rows, lose_current])
def test_a_database_whose_bytes_are_wrong_is_damage(tmp_path, spoil):
    plain(tmp_path, rows=2000)
    plain(tmp_path, task="0_1")
    spoil(tmp_path / "app/0_0/rocksdb/s")
    found = look(tmp_path)
    broken, whole = found.stores
    assert found.exit_code == 12
    assert str(tmp_path / "app/0_0/rocksdb/s") in broken.damage[0]
    assert (whole.damage, broken.databases[0].error) == ((), "Corrupted")


def test_offsets_that_cannot_be_read_are_damage_wherever_they_lie(tmp_path):
    write_golden(tmp_path / "app", "grace-buffer")
    (file,) = (tmp_path / "app").rglob(".checkpoint_*")
    file.write_text("0\n7\n")
    assert look(tmp_path).exit_code == 12
    file.unlink()
    file.with_name(".checkpoint").write_text("9\n")
    found = look(tmp_path)
    assert "fails at every start" in found.damage[0]
    assert found.exit_code == 12


def test_an_unreadable_store_is_neither_healthy_nor_damaged(tmp_path):
    plain(tmp_path)
    found = look(tmp_path)
    (store,) = found.stores
    unseen = replace(store, databases=(replace(store.databases[0], broken="no rights", error="Invalid"),))
    assert (found.exit_code, replace(found, stores=(unseen,)).exit_code) == (0, 13)


def test_files_beside_the_stores_are_named_with_what_they_do(tmp_path):
    plain(tmp_path)
    (tmp_path / "app/0_0/.checkpoint").write_text("0\n1\napp-s-changelog 0 3\n")
    (tmp_path / "app/0_0/s.position").write_text("0\n0\n")
    found = look(tmp_path)
    meanings = {one.name: one.meaning for one in found.offset_files}
    assert "app-s-changelog-0 = 3" in meanings[".checkpoint"]
    assert "overrule" in meanings[".checkpoint"]
    assert set(meanings) == {".checkpoint", "s.position"}
    assert any("0_0/.checkpoint overrules" in one for one in found.problems)


def test_the_spec_is_held_against_the_directory(tmp_path):
    plain(tmp_path)
    spec = read_spec(
        SPEC.format(stores="s: {kind: timestamped-key-value}, gone: {kind: key-value}, m: {kind: in-memory}")
    )
    found = look(tmp_path, spec=spec)
    assert "timestamped-key-value" in found.stores[0].problems[0]
    (absent,) = found.problems
    assert (absent.split()[0], absent.split()[-1]) == ("gone", "0_0")
    found = look(tmp_path, spec=read_spec(SPEC.format(stores="other: {kind: key-value}")))
    assert [one.split()[0] for one in found.problems] == ["other", "s"]
    with raises(Invalid, "spec-application-mismatch", application_id="orders"):
        check_application(spec, "orders")


def test_what_is_named_and_absent_is_answered_with_what_there_is(tmp_path):
    plain(tmp_path)
    with raises(NotFound, "task-not-found", task="0_7"):
        look(tmp_path, tasks=["0_7"])
    with raises(NotFound, "store-not-found", store="zz"):
        look(tmp_path, stores=["zz"])
    with raises(NotFound, "application-not-found", application_id="ap"):
        application_directory(tmp_path, "ap")
    with raises(NotFound, "state-dir-not-found"):
        application_directory(tmp_path / "absent", "app")
    assert applications(tmp_path) == ["app"]


@pytest.mark.parametrize(("rows", "offset", "wrong"), [(0, -4, False), (1, -4, True), (1, 7, False)])
def test_rows_of_a_versioned_store_that_kafka_streams_will_replay_over_are_trouble(tmp_path, rows, offset, wrong):
    """Empty, it is what a restore leaves to Kafka Streams, and in order."""
    latest = [(b"\xff" * 8 + b"key", bytes(8) + b"value")] * rows
    families = {"default": latest, "offsets": offsets("app-s-changelog", 0, offset, 0)}
    write_database(tmp_path / "app/0_0/rocksdb/s", families)
    declared = read_spec(SPEC.format(stores="s: {kind: versioned-key-value, retention: 10m}"))
    found = trouble_of(tmp_path, spec=declared)
    assert ["replays its changelog" in one for one in found] == [True] * wrong
    (store,) = look(tmp_path, spec=declared).stores
    assert (store.rows, list(store.offsets.values())) == (rows, [offset])


def test_a_store_that_a_processor_has_open_is_no_trouble(tmp_path):
    """A processor on this library's stores holds no lock of the application."""
    path = tmp_path / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"a", b"1")
        store.commit({TopicPartition("app-s-changelog", 0): 7})
        (seen,) = look(tmp_path).stores
        assert (seen.holder and seen.holder.process, seen.closed, seen.problems) == (os.getpid(), False, ())
        assert look(tmp_path).to_json()["stores"][0]["open_by"]["process"] == os.getpid()
    (seen,) = look(tmp_path).stores
    assert (seen.holder, seen.closed, seen.problems) == (None, True, ())


def test_files_that_were_kept_aside_are_named(tmp_path):
    path = tmp_path / "app" / "0_0" / "rocksdb" / "orders"
    path.parent.mkdir(parents=True)
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.commit({TopicPartition("app-orders-changelog", 0): 1})
    (path / "lost").mkdir()
    for number in range(7):
        (path / "lost" / f"00001{number}.sst").write_bytes(b"")
    (found,) = look(tmp_path).stores
    (trouble,) = found.problems
    assert all(said in trouble for said in ("7 SST files", "orders/lost", "000010.sst"))
    assert found.damage == ()
    assert len(found.databases[0].lost) == 7


def test_a_manifest_that_lost_its_end_is_damage(tmp_path):
    """RocksDB opens such a database without a word, as an older store."""
    path = tmp_path / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True, settings=KEEP_FILES) as store:  # no late merge
        for offset in range(3):
            store.put(b"a%d" % offset, b"1")
            store.commit({TopicPartition("app-s-changelog", 0): offset})
            store.flush()
    assert trouble_of(tmp_path) == []
    (manifest,) = path.glob("MANIFEST-*")
    os.truncate(manifest, manifest.stat().st_size - 200)  # the last entry may be later than the last flush
    before = sorted((file.name, file.read_bytes()) for file in path.iterdir())
    found = look(tmp_path)
    assert "MANIFEST" in found.stores[0].damage[0]
    assert found.exit_code == Corrupted.exit_code
    assert sorted((file.name, file.read_bytes()) for file in path.iterdir()) == before
