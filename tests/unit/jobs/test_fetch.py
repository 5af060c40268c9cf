"""A fetch, from a repository in a directory: what is placed is what was published, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.documents import encoded
from statecore.errors import Capacity, Corrupted, Fenced, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import FETCH_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.jobs import fetch as fetch_module
from statecore.jobs import fetched_files
from statecore.jobs.fetch import run_fetch
from statecore.jobs.fetch_report import FETCH_REPORT, FetchReport
from statecore.jobs.fetch_request import FetchRequest
from statecore.jobs.versioned_start import VersionedStart
from statecore.placement.database_state import read_database_state
from statecore.placement.state_directory import StateDirectory
from statecore.repository.contents import known_content
from statecore.repository.head import HEAD
from statecore.repository.manifest import StoreSnapshot
from tests.harness import mounts
from tests.unit.jobs.published import RETENTION, Shop, expected, rows_in, spec


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two snapshots, the newer with one run more; nobody changes it."""
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.publish([150, 200])
    shop.publish([150, 200, 300])
    return shop.root


@pytest.fixture
def shop(published: Path) -> Shop:
    return Shop(published)


@pytest.fixture
def own_shop(published: Path, tmp_path: Path) -> Shop:
    """The same, to be damaged."""
    shutil.copytree(published / "repository", tmp_path / "shop" / "repository")
    return Shop(tmp_path / "shop")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


def request_for(shop: Shop, state_dir: Path, **changes: Any) -> FetchRequest:
    return FetchRequest(repository=shop.url, application_id="orders", state_dir=str(state_dir), **changes)


def fetch(shop: Shop, state_dir: Path, say: Callable[[str], None] = lambda _: None, **changes: Any) -> FetchReport:
    return run_fetch(request_for(shop, state_dir, **changes), say=say)


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a path, by inode and bytes."""
    return {
        str(file.relative_to(path)): (file.stat().st_ino, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file()
    }


def refused(kind: type[StatecoreError], match: str, shop: Shop, state_dir: Path, **changes: Any) -> StatecoreError:
    """The fetch is refused for this reason, and nothing in the state directory was changed by it."""
    before = tree(state_dir)
    with pytest.raises(kind, match=match) as caught:
        fetch(shop, state_dir, **changes)
    after = {name: file for name, file in tree(state_dir).items() if "/.statecore/" not in name or name in before}
    assert {name for name in after if not name.endswith("/.lock")} == {n for n in before if not n.endswith("/.lock")}
    assert all(after[name] == before[name] for name in before)
    assert caught.value.action
    return caught.value


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
    assert report.cut == "2026-11-21T09:00:00.000Z"
    assert report.age > 0


def test_named_tasks_are_fetched_and_no_others(shop: Shop, state_dir: Path) -> None:
    report = fetch(shop, state_dir, tasks=("0_1",))
    assert rows_in(state_dir) == {name: rows for name, rows in expected(300).items() if name.startswith("0_1/")}
    assert {store.task for store in report.stores} == {"0_1"}
    refused(NotFound, "has no task 0_7", shop, state_dir, tasks=("0_7",))


def test_the_shares_of_all_instances_are_all_tasks_each_once_and_the_global_stores_everywhere(
    shop: Shop, tmp_path: Path
) -> None:
    shares = [
        {store.task for store in fetch(shop, tmp_path / str(number), instance=f"{number}/3").stores}
        for number in range(3)
    ]
    assert shares == [{"0_0", "global"}, {"0_1", "global"}, {"global"}]


@pytest.mark.parametrize(("task", "of_three"), [("0_0", 0), ("1_0", 1), ("2_5", 1), ("__north__/1_1", 2), ("10_11", 0)])
def test_a_task_is_the_share_of_one_instance(tmp_path: Path, task: str, of_three: int) -> None:
    wanting = [
        number
        for number in range(3)
        if FetchRequest(
            repository="file:///r", application_id="a", state_dir=str(tmp_path), instance=f"{number}/3"
        ).wants(task)
    ]
    assert wanting == [of_three]


@pytest.mark.parametrize("instance", ["3/3", "1", "-1/3", "0/0", "a/b", "0/3/4"])
def test_what_is_no_instance_is_refused(tmp_path: Path, instance: str) -> None:
    with pytest.raises(Invalid, match="is no instance"):
        FetchRequest(repository="file:///r", application_id="a", state_dir=str(tmp_path), instance=instance)


@pytest.mark.parametrize("changes", [{"tasks": ("0",)}, {"tasks": ("0_0",), "instance": "0/1"}, {"processes": 0}])
def test_requests_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        FetchRequest(repository="file:///r", application_id="a", state_dir=str(tmp_path), **changes)


def test_a_task_that_is_there_is_kept_as_it_is_and_that_is_said(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, tasks=("0_0",))
    before = tree(state_dir / "orders" / "0_0")
    said: list[str] = []
    report = fetch(shop, state_dir, said.append)
    assert tree(state_dir / "orders" / "0_0") == before
    assert report.kept == ("0_0",)
    assert any("has 0_0 already" in line for line in said)
    assert rows_in(state_dir) == expected(300)
    before = tree(state_dir / "orders" / "0_1")
    again = fetch(shop, state_dir, said.append)
    assert tree(state_dir / "orders" / "0_1") == before
    assert (again.placed, again.kept, again.stores) == (False, ("0_0", "0_1", "global"), ())


def test_an_older_snapshot_is_not_put_over_newer_state(shop: Shop, state_dir: Path) -> None:
    older = shop.shelf.head().snapshots[1].snapshot
    fetch(shop, state_dir)
    report = fetch(shop, state_dir, snapshot=older)
    assert not report.placed
    assert rows_in(state_dir) == expected(300)


def test_a_task_that_is_kept_and_lacks_a_store_is_named(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir)
    shutil.rmtree(state_dir / "orders" / "0_1" / "rocksdb" / "plain")
    report = fetch(shop, state_dir)
    assert any("Task 0_1, which is kept, lacks the store plain" in note for note in report.notes)


def test_replacing_moves_no_byte_of_the_files_that_are_there(shop: Shop, state_dir: Path) -> None:
    older, newer = reversed(shop.shelf.head().snapshots)
    first = fetch(shop, state_dir, snapshot=older.snapshot)
    assert rows_in(state_dir) == expected(200)
    second = fetch(shop, state_dir, replace=True)
    assert (second.snapshot, second.placed) == (newer.snapshot, True)
    assert rows_in(state_dir) == expected(300)
    # Runs that were linked are there byte for byte; what was merged is not.
    assert second.downloaded_bytes < sum(store.file_bytes for store in second.stores)
    assert second.at_hand_bytes > 0
    third = fetch(shop, state_dir, replace=True, snapshot=older.snapshot)
    assert third.at_hand_bytes > 0
    assert third.downloaded_bytes + third.at_hand_bytes == first.downloaded_bytes
    assert rows_in(state_dir) == expected(200)


def test_replacing_twice_under_one_request_places_once(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir)
    first = fetch(shop, state_dir, replace=True, request_id="one")
    before = tree(state_dir / "orders" / "0_0")
    again = fetch(shop, state_dir, replace=True, request_id="one")
    assert (first.placed, again.placed) == (True, False)
    assert tree(state_dir / "orders" / "0_0") == before
    assert any("An earlier try of this request has placed" in note for note in again.notes)


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
        known = known_content(shop.shelf, store.identity)
        assert known is not None
        assert (known.rows, known.bytes, known.digest) == (store.rows, store.bytes, store.digest)
    planned = fetch(shop, tmp_path / "another", plan_only=True)
    assert [store.rows for store in planned.stores] == [store.rows for store in report.stores]


def test_whoever_may_only_read_fetches_all_the_same(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path / "shop", whole=False)
    shop.root.mkdir()
    shop.publish([200])

    def refuse(*_: object) -> None:
        raise Invalid("It may not be written.", action="Give rights.")

    monkeypatch.setattr("statecore.blobs.directory.DirectoryBlobs.put_if_absent", _but_for(shop, refuse))
    assert fetch(shop, state_dir).placed
    assert rows_in(state_dir) == expected(200)


def _but_for(shop: Shop, refuse: Callable[..., None]) -> Callable[..., Any]:
    from statecore.blobs.directory import DirectoryBlobs

    put = DirectoryBlobs.put_if_absent

    def put_elsewhere(self: DirectoryBlobs, name: str, content: Any) -> bool:
        if self._root == shop.root / "repository":
            refuse()
        return put(self, name, content)

    return put_elsewhere


def versioned(shop: Shop, *, left: bool) -> StoreSnapshot:
    """A versioned store, as rows: what they say is of no matter here."""
    shop.shelf  # noqa: B018  (made)
    store = shop.store("0_0", "history", StoreKind.KEY_VALUE, [0], [200])
    kind, (database,) = StoreKind.VERSIONED_KEY_VALUE, store.databases
    runs = tuple(replace(stored, run=replace(stored.run, kind=kind)) for stored in database.runs)
    (end,) = store.changelogs
    more: dict[str, Any] = {"kind": kind, "retention_ms": RETENTION, "segment_interval_ms": 60_000}
    if left:
        end = replace(end, offset=OFFSET_UNKNOWN)
        return replace(store, changelogs=(end,), databases=(), left_to_restore=True, rows=None, digest=None, **more)
    return replace(store, databases=(replace(database, runs=runs),), **more)


@pytest.mark.parametrize(
    ("left", "start", "empty"),
    [
        (False, VersionedStart.HISTORY, True),
        (False, VersionedStart.LATEST, False),
        (True, VersionedStart.HISTORY, True),
        (True, VersionedStart.LATEST, True),
    ],
)
def test_versioned_stores_are_placed_empty_unless_their_latest_values_are_enough(
    tmp_path: Path, state_dir: Path, left: bool, start: VersionedStart, empty: bool
) -> None:
    shop = Shop(tmp_path / "shop", spec(history={"kind": "versioned-key-value", "retention": "10m"}))
    shop.root.mkdir()
    shop.publish([200], task_0_0={"history": versioned(shop, left=left)})
    report = fetch(shop, state_dir, versioned=start)
    (store,) = [store for store in report.stores if store.store == "history"]
    assert store.left_to_restore is empty
    database = state_dir / "orders" / "0_0" / "rocksdb" / "history"
    assert set(read_database_state(database).offsets.values()) == ({OFFSET_UNKNOWN} if empty else {199})
    assert bool(list(database.glob("*.sst"))) is True, "its offset, at least"
    rows = rows_in(state_dir)["0_0/history"]
    assert bool(rows) is not empty


def test_under_exactly_once_a_store_that_is_not_in_the_snapshot_is_made_without_data(
    tmp_path: Path, state_dir: Path
) -> None:
    shop = Shop(tmp_path / "shop", spec("exactly_once_v2", other={"kind": "timestamped-key-value"}))
    shop.root.mkdir()
    shop.publish([200])
    fetch(shop, state_dir)
    for task in ("0_0", "0_1"):
        state = read_database_state(state_dir / "orders" / task / "rocksdb" / "other")
        assert set(state.offsets.values()) == {OFFSET_UNKNOWN}


def test_several_processes_build_the_same(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    here = fetch(shop, tmp_path / "here", processes=1)
    there = fetch(shop, state_dir, processes=2)
    assert [(one.rows, one.digest) for one in here.stores] == [(one.rows, one.digest) for one in there.stores]
    assert rows_in(state_dir) == expected(300)


# What is damaged


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def files_of(shop: Shop, newest: bool = True) -> dict[str, Path]:
    """A file of each kind that the newest snapshot has and the older one does not."""
    root = shop.root / "repository" / "apps" / "orders"
    new, old = shop.shelf.head().snapshots
    names: dict[str, set[str]] = {}
    for entry in (new, old):
        manifest = shop.shelf.manifest(entry).value
        names[entry.snapshot] = {part.extent.blob for part in manifest.parts} | {
            extent.blob
            for read in shop.shelf.parts(manifest.parts).values()
            for store in read.part.stores
            for _, extent in store.extents
        }
    mine = sorted(names[new.snapshot] - names[old.snapshot])
    return {
        "manifest": root / "manifests" / f"{new.snapshot}.json",
        "part": next(shop.root / "repository" / name for name in mine if "/parts/" in name),
        "file": next(shop.root / "repository" / name for name in mine if "/parts/" not in name),
    }


@pytest.mark.parametrize("damage", [flipped, cut, Path.unlink])
@pytest.mark.parametrize("of", ["manifest", "part", "file"])
def test_a_damaged_snapshot_is_passed_over_aloud_and_is_refused_where_it_was_named(
    own_shop: Shop, state_dir: Path, of: str, damage: Callable[[Path], None]
) -> None:
    new, old = own_shop.shelf.head().snapshots
    damage(files_of(own_shop)[of])
    said_of_it = "is not what was written|is missing|is shorter"
    refused(Corrupted, said_of_it, own_shop, state_dir, snapshot=new.snapshot)
    said: list[str] = []
    report = fetch(own_shop, state_dir, said.append)
    assert report.snapshot == old.snapshot
    assert [one.snapshot for one in report.passed_over] == [new.snapshot]
    assert any(f"{new.snapshot} is passed over" in line for line in said)
    assert any(new.snapshot in note for note in report.notes)
    assert rows_in(state_dir) == expected(200)


def test_every_bit_of_a_manifest_and_a_part_counts(own_shop: Shop, state_dir: Path) -> None:
    files = files_of(own_shop)
    new, old = own_shop.shelf.head().snapshots
    for name in ("manifest", "part"):
        whole = files[name].read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            files[name].write_bytes(data)
            assert fetch(own_shop, state_dir, plan_only=True).snapshot == old.snapshot
        files[name].write_bytes(whole)
    assert fetch(own_shop, state_dir, plan_only=True).snapshot == new.snapshot


def test_where_no_snapshot_is_whole_all_are_named(own_shop: Shop, state_dir: Path) -> None:
    for manifest in (own_shop.root / "repository" / "apps" / "orders" / "manifests").iterdir():
        flipped(manifest)
    error = refused(Corrupted, "None of the 2 snapshots", own_shop, state_dir)
    for entry in own_shop.shelf.head().snapshots:
        assert entry.snapshot in error.what


def test_a_snapshot_that_says_what_is_not_there_is_passed_over(own_shop: Shop, state_dir: Path) -> None:
    third = Shop(own_shop.root, whole=True)
    store = third.store("0_0", "plain", StoreKind.KEY_VALUE, [0], [350])
    third.publish([350], task_0_0={"lie": replace(store, store="lie", rows=7)})
    report = fetch(own_shop, state_dir)
    assert len(report.passed_over) == 1
    assert "holds" in report.passed_over[0].why
    assert rows_in(state_dir) == expected(300)


# What is not there, and what nobody could look at


def test_no_repository_no_application_and_no_snapshot_are_not_found(
    shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    refused(NotFound, "no repository", Shop(tmp_path / "nowhere"), state_dir)
    (tmp_path / "empty").mkdir()
    empty = Shop(tmp_path / "empty")
    empty.shelf  # noqa: B018
    refused(NotFound, "There is no snapshot of orders", empty, state_dir)
    refused(NotFound, "has no snapshot nothing", shop, state_dir, snapshot="nothing")
    with pytest.raises(NotFound, match="It has snapshots of orders"):
        run_fetch(FetchRequest(repository=shop.url, application_id="other", state_dir=str(state_dir)))
    assert not state_dir.exists()


@pytest.mark.parametrize(
    "asked",
    [
        "statecore.blobs.directory_pointers.DirectoryPointers.read",
        "statecore.repository.shelf.Shelf.manifest",
        "statecore.repository.shelf.Shelf.parts",
        "statecore.repository.shelf.Shelf.read",
    ],
)
def test_who_cannot_look_does_not_say_that_there_is_nothing_and_passes_nothing_over(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise Retryable("The object store does not answer.", action="Try again.")

    monkeypatch.setattr(asked, nobody)
    refused(Retryable, "does not answer", shop, state_dir)


def test_a_format_that_is_not_known_is_refused_by_name(own_shop: Shop, state_dir: Path) -> None:
    head = own_shop.root / "repository" / "apps" / "orders" / "head"
    (file,) = [head] if head.is_file() else list(head.rglob("*"))
    found = own_shop.shelf.read_head()
    assert found is not None
    swapped = encoded(HEAD.sealed({**found.raw, "version": 9}))
    assert own_shop.shelf.pointers.swap(own_shop.shelf.names.head, swapped, found.version)
    assert file.exists()
    refused(Invalid, "of version 9", own_shop, state_dir)


def test_the_head_of_another_repository_is_refused(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other")
    shelf = other.shelf
    shutil.copytree(shop.root / "repository" / "apps", other.root / "repository" / "apps")
    assert shelf.repository.mark.id != shop.shelf.repository.mark.id
    refused(Invalid, "Somebody has copied it here", other, state_dir)


def test_a_spec_of_another_application_or_with_another_kind_is_refused(
    shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "stores.yaml"
    text = (
        "application_id: orders\nbootstrap_servers: localhost:9\nprocessing_guarantee: at_least_once\n"
        'subtopologies: {"0": {stores: {plain: {kind: timestamped-key-value}}}}\n'
    )
    path.write_text(text)
    refused(Invalid, "declares it as timestamped-key-value", shop, state_dir, spec_path=str(path))
    path.write_text(text.replace("orders", "others"))
    refused(Invalid, "is the spec of others", shop, state_dir, spec_path=str(path))


def test_brokers_that_do_not_answer_are_no_reason_to_pass_a_snapshot_over(shop: Shop, state_dir: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_module, "Cluster", _cluster(Retryable("No broker answered.", action="Try again.")))
        refused(Retryable, "No broker answered", shop, state_dir, bootstrap_servers="localhost:9")


def _cluster(error: StatecoreError) -> Any:
    class Unreachable:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Unreachable:
            raise error

        def __exit__(self, *_: object) -> None: ...

    return Unreachable


def test_a_snapshot_that_does_not_fit_the_topics_is_passed_over_and_refused_where_none_is_left(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = shop.shelf.head().snapshots
    unfit = {new.snapshot}

    def checked(self: Any, todo: Any) -> tuple[str, ...]:
        if todo.found.entry.snapshot in unfit:
            raise Invalid("The snapshot does not fit the topics.", action="Rebuild.")
        return ("a doubt",)

    monkeypatch.setattr(fetch_module._Fetch, "_checked", checked)
    planned = fetch(shop, state_dir, plan_only=True)
    assert planned.snapshot == old.snapshot
    assert not state_dir.exists()
    unfit.add(old.snapshot)
    refused(Invalid, "None of the 2 snapshots", shop, state_dir)
    refused(Invalid, "does not fit", shop, state_dir, snapshot=new.snapshot)
    unfit.remove(old.snapshot)
    report = fetch(shop, state_dir)
    assert report.snapshot == old.snapshot
    assert "a doubt" in report.notes
    assert rows_in(state_dir) == expected(200)


def test_too_little_room_is_said_before_anything_comes(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ensure(path: Path, needed: int) -> None:
        asked.append(needed)
        raise Capacity("The disk is full.", action="Make room.")

    monkeypatch.setattr(fetched_files, "ensure_room", ensure)
    error = refused(Capacity, "full", shop, state_dir)
    assert "--task" in error.action
    assert asked[0] > 1.1 * fetch(shop, state_dir, plan_only=True).downloaded_bytes
    assert not state_dir.exists(), "who was refused leaves no trace"


def test_files_that_are_here_need_room_where_they_cannot_be_placed_as_they_are(
    shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(shop, state_dir)
    asked: list[int] = []
    monkeypatch.setattr(fetched_files, "ensure_room", lambda _, needed: asked.append(needed))
    here = fetch(shop, state_dir, replace=True).at_hand_bytes
    assert here > 0
    (state_dir / "orders").chmod(0o770)
    fetch(shop, state_dir, replace=True)
    assert asked[1] - asked[0] == pytest.approx(1.1 * here, rel=0.01)


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
        refused(Fenced, "is in use", shop, state_dir, replace=True)
    finally:
        holder.communicate()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[mounts.Disk]:
    with mounts.disk(tmp_path / "disk", "16m") as mounted:
        yield mounted


def test_a_disk_that_is_read_only_is_refused_before_anything_comes(shop: Shop, disk: mounts.Disk) -> None:
    disk.remount("ro")
    refused(Invalid, "mounted read-only", shop, disk.path)


def test_a_disk_that_fills_up_on_the_way_is_no_damage_and_the_same_command_goes_on(
    shop: Shop, disk: mounts.Disk
) -> None:
    full = mounts.FullFrom(disk, "fetch.after-plan", leave=64 << 10)
    with pytest.raises(Capacity):
        run_fetch(request_for(shop, disk.path), faults=full)
    assert not (disk.path / "orders" / "0_0").exists()
    assert full.filler is not None
    full.filler.unlink()
    report = fetch(shop, disk.path)
    assert (report.placed, report.passed_over) == (True, ())
    assert rows_in(disk.path) == expected(300)


# Kills


def command(shop: Shop, state_dir: Path, *more: str) -> list[str]:
    where = ["--repository", shop.url, "--application-id", "orders", "--state-dir", str(state_dir)]
    return [sys.executable, "-m", "statecore.cli.main", "fetch", "--json", *where, *more]


def run(words: list[str], fault: str = "") -> tuple[int, dict[str, Any]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        **({"STATECORE_FAULT": fault} if fault else {}),
    }
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.parametrize("point", FETCH_POINTS)
@pytest.mark.parametrize("replacing", [False, True])
def test_after_a_kill_the_same_command_ends_well_and_what_came_does_not_come_again(
    shop: Shop, state_dir: Path, point: str, replacing: bool
) -> None:
    older = shop.shelf.head().snapshots[1].snapshot
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


@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_kill_in_the_middle_of_the_download_keeps_what_came_whole(shop: Shop, state_dir: Path, after: int) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.during-download", "raise", after))
    kept = {
        file.name: file.stat().st_ino for file in (state_dir / "orders" / ".statecore" / "fetched" / "files").iterdir()
    }
    assert kept
    inodes: dict[str, int] = {}

    def look(*_: object) -> None:
        files = state_dir / "orders" / ".statecore" / "fetched" / "files"
        inodes.update({file.name: file.stat().st_ino for file in files.iterdir()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_module._Fetch, "_compare", look)
        report = fetch(shop, state_dir)
    assert {name: inodes[name] for name in kept} == kept
    assert report.at_hand_bytes > 0
    assert rows_in(state_dir) == expected(300)


def test_what_was_brought_is_found_by_another_request_for_other_tasks(shop: Shop, state_dir: Path) -> None:
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.after-download"))
    report = fetch(shop, state_dir, tasks=("0_1",))
    assert (report.downloaded_bytes, report.placed) == (0, True)


@pytest.fixture
def killed_with_bases(tmp_path: Path, state_dir: Path) -> Shop:
    """A fetch was killed when all had come."""
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    shop.publish([200, 300], based=True)
    with pytest.raises(FaultInjected):
        run_fetch(request_for(shop, state_dir), faults=InjectedFault("fetch.after-download"))
    return shop


@pytest.mark.parametrize("of", ["base", "run"])
@pytest.mark.parametrize("damage", [flipped, cut])
def test_what_was_damaged_on_this_disk_since_it_came_is_brought_again(
    killed_with_bases: Shop, state_dir: Path, of: str, damage: Callable[[Path], None]
) -> None:
    shelf = killed_with_bases.shelf
    parts = shelf.parts(shelf.manifest(shelf.head().snapshots[0]).value.parts)
    database = parts["0_0"].part.stores[1].databases[0]
    sha256 = next(
        iter(
            [file.sha256 for file in database.base if file.name.endswith(".sst")]
            if of == "base"
            else [stored.run.sha256 for stored in database.runs]
        )
    )
    damage(state_dir / "orders" / ".statecore" / "fetched" / "files" / sha256)
    report = fetch(killed_with_bases, state_dir)
    assert report.passed_over == ()
    assert report.downloaded_bytes > 0
    assert rows_in(state_dir) == expected(300)
