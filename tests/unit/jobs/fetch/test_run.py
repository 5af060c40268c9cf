"""A fetch, from a repository in a directory: what is placed is what was published, whatever happens on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import Capacity, Corrupted, Fenced, Invalid
from statecore.faults import FETCH_POINTS
from statecore.formats.kinds import StoreKind
from statecore.jobs.fetch.report import FETCH_REPORT
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX, REPORT_SUFFIX, plan_path
from statecore.objectstore.directory import DirectoryBlobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import saved_digest
from statecore.statedir.database_state import read_database_state
from statecore.statedir.state_directory import StateDirectory
from tests.harness.case_selection import one_of, three_of
from tests.harness.filesystems import with_free_room
from tests.harness.raising import raises
from tests.unit.jobs.fetch.fetching import command, cut, fetch, files_of, refused, run, tree
from tests.unit.jobs.published import Shop, expected, rows_in


def test_an_empty_directory_gets_every_store_with_its_offsets(shop: Shop, state_dir: Path) -> None:
    report = fetch(shop, state_dir)
    assert rows_in(state_dir) == expected(300)
    assert report.placed
    assert [(store.task, store.store) for store in report.stores] == [
        *[(task, store) for task in ("0_0", "0_1") for store in ("clicks", "plain")],
        ("global", "names"),
    ]
    for store in report.stores:
        path = StateDirectory(state_dir, "orders").store_path(store.task, store.store, StoreKind(store.kind))
        for database in {found.parent for found in path.rglob("CURRENT")}:
            state = read_database_state(database)
            assert {str(partition): offset for partition, offset in state.offsets.items()} == store.offsets
            assert state.closed_cleanly
        assert set(store.offsets.values()) == ({300} if store.task == "global" else {299})
        assert store.rows == len(rows_in(state_dir)[f"{store.task}/{store.store}"])
    assert report.downloaded_bytes == sum(store.file_bytes for store in report.stores) > 0
    left = sorted(path.name for path in (state_dir / "orders" / ".statecore").iterdir())
    assert left == ["placed.json", "plans"], "what was downloaded is deleted"


def test_the_report_is_a_document_and_is_kept(shop: Shop, state_dir: Path) -> None:
    report = fetch(shop, state_dir, request_id="one")
    (kept,) = (state_dir / "orders" / ".statecore" / "plans").iterdir()
    assert FETCH_REPORT.decode(kept.read_bytes()) == report
    assert report.finished
    assert json.loads(json.dumps(report.to_json()))["version"] == 1
    assert report.read_at == "2026-11-21T09:00:00.000Z"
    assert report.age > 0


def test_a_report_of_an_older_release_is_read(shop: Shop, state_dir: Path) -> None:
    document = fetch(shop, state_dir).to_json()
    older = {"passed_over": [], **{name: value for name, value in document.items() if name != "skipped_snapshots"}}
    assert FETCH_REPORT.from_json(older).skipped_snapshots == ()


def test_replacing_twice_under_one_request_places_once(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir)
    first = fetch(shop, state_dir, replace=True, request_id="one")
    before = tree(state_dir / "orders" / "0_0")
    again = fetch(shop, state_dir, replace=True, request_id="one")
    assert (first.placed, again.placed) == (True, False)
    assert tree(state_dir / "orders" / "0_0") == before
    assert set(again.kept) == {store.task for store in first.stores}


def test_a_plan_says_it_all_and_changes_nothing(shop: Shop, state_dir: Path) -> None:
    plan = fetch(shop, state_dir, plan_only=True)
    assert not state_dir.exists()
    assert (plan.plan_only, plan.placed, plan.finished) == (True, False, "")
    assert len(plan.stores) == 5
    assert plan.downloaded_bytes == sum(store.file_bytes for store in plan.stores)
    fetch(shop, state_dir, tasks=("0_0",))
    before = tree(state_dir)
    plan = fetch(shop, state_dir, plan_only=True)
    assert tree(state_dir) == before
    assert plan.kept == ("0_0",)


def test_stores_on_bases_are_counted_on_request(shop: Shop, tmp_path: Path, state_dir: Path) -> None:
    based = Shop(tmp_path / "based")
    based.root.mkdir()
    based.publish([200, 300], based=True)
    report = fetch(based, state_dir, count=True)
    known = fetch(shop, tmp_path / "built")
    for store, same in zip(report.stores, known.stores, strict=True):
        assert (store.rows, store.bytes, store.digest) == (same.rows, same.bytes, same.digest)
    planned = fetch(based, tmp_path / "another", plan_only=True)
    assert [store.digest for store in planned.stores] == [store.digest for store in report.stores]


@pytest.mark.parametrize("snapshot", ["newest", "older"])
def test_stores_on_bases_are_built_on_what_rocksdb_wrote(tmp_path: Path, state_dir: Path, snapshot: str) -> None:
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    shop.publish([200], based=True)
    if snapshot == "newest":
        shop.publish([200, 300], based=True)
    report = fetch(shop, state_dir)
    assert rows_in(state_dir) == expected(300 if snapshot == "newest" else 200)
    assert {store.rows for store in report.stores} == {None}, "nobody has read them"
    offsets = {offset for store in report.stores for offset in store.offsets.values()}
    assert offsets == ({299, 300} if snapshot == "newest" else {199, 200})


def test_what_a_snapshot_did_not_know_of_its_stores_is_kept_beside_it(tmp_path: Path, state_dir: Path) -> None:
    shop = Shop(tmp_path / "shop", whole=False)
    shop.root.mkdir()
    shop.publish([150, 200])
    planned = fetch(shop, state_dir, plan_only=True)
    assert {store.rows for store in planned.stores} == {None}
    report = fetch(shop, state_dir)
    for store in report.stores:
        known = saved_digest(shop.app_repository, store.identity)
        assert known is not None
        assert (known.rows, known.bytes, known.digest) == (store.rows, store.bytes, store.digest)
    planned = fetch(shop, tmp_path / "another", plan_only=True)
    assert [store.rows for store in planned.stores] == [store.rows for store in report.stores]


def test_read_permission_suffices_for_a_fetch(tmp_path: Path, state_dir: Path) -> None:
    shop = Shop(tmp_path / "shop", whole=False)
    shop.root.mkdir()
    shop.publish([200])

    found = shop.app_repository.repository
    place = found.object_store._replace(blobs=ReadOnly(shop.root / "repository"))
    assert fetch(
        shop, state_dir, app_repository=ApplicationRepository(found._replace(object_store=place), "orders")
    ).placed
    assert rows_in(state_dir) == expected(200)


class ReadOnly(DirectoryBlobs):
    """Blobs that this user may only read."""

    def put_if_absent(self, name: str, content: bytes | Path) -> bool:
        raise Invalid("It may not be written.", code="permission-denied", action="Give rights.")


def test_several_processes_build_the_same(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    here = fetch(shop, tmp_path / "here", processes=1)
    there = fetch(shop, state_dir, processes=2)
    assert [(one.rows, one.digest) for one in here.stores] == [(one.rows, one.digest) for one in there.stores]
    assert rows_in(state_dir) == expected(300)


def test_a_running_application_keeps_its_directory(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, tasks=("0_0",))
    lock = state_dir / "orders" / ".lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
            "sys.stdin.read()",
            str(lock),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused(Fenced, "state-directory-in-use", shop, state_dir, replace=True)
        plan = fetch(shop, state_dir, plan_only=True)
        assert [note for note in plan.notes if f"process {holder.pid}" in note and "[state-directory-in-use]" in note]
    finally:
        holder.communicate()


def test_a_plan_ends_with_the_refusal_that_the_fetch_ends_with(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, tasks=("0_0",))
    before = tree(state_dir)
    for plan_only in (True, False):
        refused(Invalid, "application-directory-given", shop, state_dir / "orders", plan_only=plan_only)
        refused(Invalid, "state-directory-invalid", shop, Path("/proc/x"), plan_only=plan_only)
    assert tree(state_dir) == before


@pytest.mark.parametrize("point", three_of(FETCH_POINTS))
@pytest.mark.parametrize("replacing", one_of([False, True]))
def test_after_a_kill_the_same_command_ends_well_and_what_came_does_not_come_again(
    shop: Shop, state_dir: Path, point: str, replacing: bool
) -> None:
    older = shop.app_repository.head().snapshots[1].snapshot
    more = ["--replace", "--request-id", "one"] if replacing else []
    if replacing:
        fetch(shop, state_dir, snapshot=older)
    code, _ = run(command(shop, state_dir, *more), f"{point}:kill")
    assert code == -9
    if replacing and point not in ("fetch.after-placement",):
        assert rows_in(state_dir) == expected(200), "the old directories, whole"
    came = sum(file.stat().st_size for file in (state_dir / "orders" / ".statecore" / "fetched" / "files").glob("*"))
    code, report = run(command(shop, state_dir, *more))
    assert code == 0, report
    assert rows_in(state_dir) == expected(300)
    assert report["placed"] is (point != "fetch.after-placement")
    if point in ("fetch.after-download", "fetch.after-images"):
        assert report["downloaded_bytes"] == 0
    if point != "fetch.after-placement":
        assert report["at_hand_bytes"] >= came
    assert not (state_dir / "orders" / ".statecore" / "fetched").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_restore_of_the_same_request_id_keeps_its_files(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    plan = plan_path(state_dir / "orders" / ".statecore", "one")
    plan.parent.mkdir(parents=True)
    files = {plan.with_suffix(suffix): suffix.encode() for suffix in (PLAN_SUFFIX, ATTEMPT_SUFFIX, REPORT_SUFFIX)}
    for path, content in files.items():
        path.write_bytes(content)
    if fails:
        with_free_room(monkeypatch, 0)
        with raises(Capacity, "no-space"):
            fetch(shop, state_dir, request_id="one")
    else:
        assert fetch(shop, state_dir, request_id="one").placed
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("damage", [Path.unlink, cut])
def test_a_plan_passes_over_a_snapshot_that_lacks_files_as_the_fetch_does(
    own_shop: Shop, state_dir: Path, damage: Callable[[Path], None]
) -> None:
    newest, older = own_shop.app_repository.head().snapshots
    damage(files_of(own_shop)["file"])
    plan = fetch(own_shop, state_dir, plan_only=True)
    report = fetch(own_shop, state_dir)
    assert (plan.snapshot, report.snapshot) == (older.snapshot, older.snapshot)
    assert [(one.snapshot, one.code) for one in plan.skipped_snapshots] == [
        (one.snapshot, one.code) for one in report.skipped_snapshots
    ]
    assert plan.skipped_snapshots[0].snapshot == newest.snapshot
    assert fetch(own_shop, state_dir, plan_only=True).kept, "what is not downloaded is not asked for"


def test_a_plan_of_a_named_snapshot_that_lacks_files_is_refused(own_shop: Shop, state_dir: Path) -> None:
    newest, _ = own_shop.app_repository.head().snapshots
    files_of(own_shop)["file"].unlink()
    for plan_only in (True, False):
        refused(Corrupted, "blob-missing", own_shop, state_dir, snapshot=newest.snapshot, plan_only=plan_only)
