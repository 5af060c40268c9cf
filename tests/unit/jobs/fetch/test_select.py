"""Which snapshot is fetched, and what is said where none can be: "none there" is never "could not look"."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.documents import Document, encode_json
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.application_repository import ApplicationRepository, ReadTaskManifest
from statecore.repository.descriptor import DESCRIPTOR_NAME
from statecore.repository.head import HEAD, ReadHead, SnapshotEntry, encoded_head
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.manifest import Extent, Manifest, TaskManifest, TaskManifestReference
from statecore.repository.object_store import object_store_of
from statecore.repository.publish.publication import Publication
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.unit.jobs.fetch.fetching import Topics, cut, fetch, files_of, flipped, refused
from tests.unit.jobs.published import CUT, Shop, expected, rows_in


def test_named_tasks_are_fetched_and_no_others(shop: Shop, state_dir: Path) -> None:
    report = fetch(shop, state_dir, tasks=("0_1",))
    assert rows_in(state_dir) == {name: rows for name, rows in expected(300).items() if name.startswith("0_1/")}
    assert {store.task for store in report.stores} == {"0_1"}
    error = refused(Invalid, "snapshot-task-missing", shop, state_dir, tasks=("0_7",))
    assert error.context["tasks"] == ["0_7"]


def test_a_snapshot_without_tasks_has_none_to_name(own_shop: Shop, state_dir: Path) -> None:
    publication = Publication(
        own_shop.app_repository, own_shop.declared, request="none", origin="restore", clock=lambda: CUT + 3600
    )
    publication.publish([], drops_other_tasks=True)
    error = refused(Invalid, "snapshot-task-missing", own_shop, state_dir, tasks=("0_0",))
    assert own_shop.app_repository.list_command in error.action


def test_the_shares_of_all_instances_are_all_tasks_each_once_and_the_global_stores_everywhere(
    shop: Shop, tmp_path: Path
) -> None:
    shares = [
        {store.task for store in fetch(shop, tmp_path / str(number), instance=f"{number}/3").stores}
        for number in range(3)
    ]
    assert shares == [{"0_0", "global"}, {"0_1", "global"}, {"global"}]


DAMAGED: dict[tuple[str, Callable[[Path], None]], str] = {
    ("manifest", flipped): "manifest-damaged",
    ("manifest", cut): "manifest-damaged",
    ("manifest", Path.unlink): "blob-missing",
    ("task manifest", flipped): "manifest-damaged",
    ("task manifest", cut): "manifest-damaged",
    ("task manifest", Path.unlink): "blob-missing",
    ("file", flipped): "blob-damaged",
    ("file", cut): "blob-truncated",
    ("file", Path.unlink): "blob-missing",
}
"""The code of the error by what of a snapshot is damaged, and how."""


@pytest.mark.parametrize("damage", [flipped, cut, Path.unlink])
@pytest.mark.parametrize("of", ["manifest", "task manifest", "file"])
def test_a_damaged_snapshot_is_passed_over_aloud_and_is_refused_where_it_was_named(
    own_shop: Shop, state_dir: Path, of: str, damage: Callable[[Path], None]
) -> None:
    new, old = own_shop.app_repository.head().snapshots
    damage(files_of(own_shop)[of])
    error = refused(Corrupted, DAMAGED[of, damage], own_shop, state_dir, snapshot=new.snapshot)
    said_by = {"manifest": {"snapshot"}, "task manifest": {"task"}, "file": {"task", "store"}}[of]
    assert said_by | {"repository", "blob"} <= error.context.keys()
    said: list[str] = []
    report = fetch(own_shop, state_dir, said.append)
    assert report.snapshot == old.snapshot
    assert [(one.snapshot, one.code, one.is_removed) for one in report.skipped_snapshots] == [
        (new.snapshot, DAMAGED[of, damage], False)
    ]
    assert any(new.snapshot in line for line in said)
    assert any(new.snapshot in note for note in report.notes)
    assert rows_in(state_dir) == expected(200)


def thin(shop: Shop, *dropped: str) -> None:
    """Swap the head for one that does not name these snapshots any more, and collect their manifests."""
    found = shop.app_repository.read_head()
    assert found is not None
    left = tuple(entry for entry in found.head.snapshots if entry.snapshot not in dropped)
    document = encoded_head(replace(found.head, generation=found.head.generation + 1, snapshots=left), found.raw)
    assert shop.app_repository.pointers.swap(shop.app_repository.names.head, document, found.version)
    for one in dropped:
        shop.app_repository.blobs.delete(shop.app_repository.names.manifest(one))


class Watched(ApplicationRepository):
    """Lets something happen before something is read of the repository for the first time.

    Args:
        shop: whose snapshots they are.
        before: the method that reads.
        call: what happens.
    """

    def __init__(self, shop: Shop, before: str, call: Callable[[], object]) -> None:
        super().__init__(shop.app_repository.repository, "orders")
        self._before, self._calls = before, [call]

    def _reads(self, what: str) -> None:
        if what == self._before and self._calls:
            self._calls.pop()()

    def read_head(self) -> ReadHead | None:
        self._reads("head")
        return super().read_head()

    def manifest(self, entry: SnapshotEntry) -> Document[Manifest]:
        self._reads("manifest")
        return super().manifest(entry)

    def task_manifests(self, references: Sequence[TaskManifestReference]) -> dict[str, ReadTaskManifest]:
        self._reads("task_manifests")
        return super().task_manifests(references)

    def read(self, extent: Extent, what: str, **context: Any) -> bytes:
        self._reads("file")
        return super().read(extent, what)


@pytest.mark.parametrize(
    ("before", "gone"), [("manifest", "manifest"), ("task_manifests", "task manifest"), ("file", "file")]
)
@pytest.mark.parametrize("followed", [True, False])
def test_a_snapshot_that_is_collected_while_it_is_fetched_is_no_damage_and_the_newest_of_now_is_next(
    own_shop: Shop, state_dir: Path, before: str, gone: str, followed: bool
) -> None:
    new, old = own_shop.app_repository.head().snapshots
    file = files_of(own_shop)[gone]
    later: list[str] = []

    def collected() -> None:
        later.append(own_shop.publish([150, 200, 400]).snapshot if followed else old.snapshot)
        thin(own_shop, new.snapshot)
        file.unlink(missing_ok=True)

    said: list[str] = []
    report = fetch(own_shop, state_dir, said.append, app_repository=Watched(own_shop, before, collected))
    assert [report.snapshot] == later
    (passed,) = report.skipped_snapshots
    assert (passed.snapshot, passed.code, passed.is_removed) == (new.snapshot, "blob-missing", True)
    assert any(new.snapshot in line and passed.why in line for line in said)
    assert rows_in(state_dir) == expected(400 if followed else 200)


def test_a_snapshot_that_was_named_and_is_collected_meanwhile_is_not_replaced_by_another(
    own_shop: Shop, state_dir: Path
) -> None:
    new, _ = own_shop.app_repository.head().snapshots

    def collected() -> None:
        task_manifest = files_of(own_shop)["task manifest"]
        thin(own_shop, new.snapshot)
        task_manifest.unlink()

    app_repository = Watched(own_shop, "task_manifests", collected)
    error = refused(
        Invalid, "snapshot-missing", own_shop, state_dir, snapshot=new.snapshot, app_repository=app_repository
    )
    assert error.context["snapshot"] == new.snapshot


def test_where_the_snapshots_that_a_thinned_head_names_are_damaged_all_are_named(
    own_shop: Shop, state_dir: Path
) -> None:
    new, old = own_shop.app_repository.head().snapshots
    flipped(own_shop.root / "repository" / "apps" / "orders" / "manifests" / f"{old.snapshot}.json")
    app_repository = Watched(own_shop, "manifest", lambda: thin(own_shop, new.snapshot))
    error = refused(Corrupted, "manifest-damaged", own_shop, state_dir, app_repository=app_repository)
    assert skipped(error) == [(new.snapshot, "blob-missing", True), (old.snapshot, "manifest-damaged", False)]


def skipped(error: StatecoreError) -> list[tuple[str, str, bool]]:
    """The snapshots that an error names as passed over, each with the code and whether it was removed."""
    return [(one["snapshot"], one["code"], one["is_removed"]) for one in error.context["skipped_snapshots"]]


@pytest.fixture
def stored(own_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The same repository on a real server, and the directory in which that keeps its bytes."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
    with s3_server.serving() as server:
        url = server.bucket("states").url
        place, root = object_store_of(url), own_shop.root / "repository"
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            if not (name := str(file.relative_to(root))).startswith("~"):
                assert place.blobs.put_if_absent(name, file)
        yield url, server.root / "data" / "states"


@pytest.mark.parametrize("of", one_of(["manifest", "task manifest", "file"]))
def test_a_snapshot_of_which_a_bit_turned_in_an_object_store_is_passed_over(
    own_shop: Shop, stored: tuple[str, Path], state_dir: Path, of: str
) -> None:
    url, data = stored
    new, old = own_shop.app_repository.head().snapshots
    request = FetchRequest(repository=url, application_id="orders", state_dir=str(state_dir))
    flipped(data / files_of(own_shop)[of].relative_to(own_shop.root / "repository"))
    with raises(Corrupted, DAMAGED[of, flipped]):
        run_fetch(replace(request, snapshot=new.snapshot), say=lambda _: None)
    report = run_fetch(request, say=lambda _: None)
    assert (report.snapshot, [one.snapshot for one in report.skipped_snapshots]) == (old.snapshot, [new.snapshot])
    assert rows_in(state_dir) == expected(200)


@pytest.mark.full
def test_a_head_or_descriptor_with_a_flipped_bit_is_recreated(
    own_shop: Shop, stored: tuple[str, Path], state_dir: Path
) -> None:
    url, data = stored
    newest, head = own_shop.app_repository.head().snapshots[0], own_shop.app_repository.names.head
    request = FetchRequest(repository=url, application_id="orders", state_dir=str(state_dir))
    flipped(data / head)
    with raises(Corrupted, "head-damaged"):
        run_fetch(request, say=lambda _: None)
    app_repository = ApplicationRepository.open(url, "orders")
    apply_repair(app_repository, plan_repair(app_repository))
    flipped(data / DESCRIPTOR_NAME)
    with raises(Corrupted, "repository-descriptor-damaged"):
        run_fetch(request, say=lambda _: None)
    made = create_repository(url)
    assert (made.is_id_restored, made.repository.descriptor.id) == (True, app_repository.repository.descriptor.id)
    assert run_fetch(request, say=lambda _: None).snapshot == newest.snapshot


def test_every_bit_of_a_manifest_and_a_part_counts(own_shop: Shop, state_dir: Path) -> None:
    files = files_of(own_shop)
    new, old = own_shop.app_repository.head().snapshots
    for name in ("manifest", "task manifest"):
        whole = files[name].read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            files[name].write_bytes(data)
            assert fetch(own_shop, state_dir, plan_only=True).snapshot == old.snapshot
        files[name].write_bytes(whole)
    assert fetch(own_shop, state_dir, plan_only=True).snapshot == new.snapshot


def test_a_snapshot_that_contradicts_itself_is_passed_over_before_anything_is_brought(
    own_shop: Shop, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = own_shop.app_repository.head().snapshots
    store = own_shop.store("0_0", "plain", StoreKind.KEY_VALUE, [0], [350, 400])
    (database,) = store.databases
    turned = replace(store, databases=(replace(database, runs=database.runs[::-1]),))
    publication = Publication(
        own_shop.app_repository, own_shop.declared, request="wrong", origin="restore", clock=lambda: CUT
    )
    with monkeypatch.context() as unchecked:
        unchecked.setattr("statecore.repository.publish.publication.check_consistent", lambda task_manifests: None)
        wrong = publication.publish([TaskManifest("0_0", (turned,))], drops_other_tasks=False)
    refused(Corrupted, "manifest-inconsistent", own_shop, state_dir, snapshot=wrong.snapshot)
    report = fetch(own_shop, state_dir)
    assert report.snapshot == whole.snapshot
    assert [(one.snapshot, one.code) for one in report.skipped_snapshots] == [(wrong.snapshot, "manifest-inconsistent")]
    assert all(word in report.skipped_snapshots[0].why for word in ("'plain'", "0_0", "400"))
    assert rows_in(state_dir) == expected(300)


def test_where_no_snapshot_is_whole_all_are_named(own_shop: Shop, state_dir: Path) -> None:
    for manifest in (own_shop.root / "repository" / "apps" / "orders" / "manifests").iterdir():
        flipped(manifest)
    error = refused(Corrupted, "manifest-damaged", own_shop, state_dir)
    assert skipped(error) == [
        (entry.snapshot, "manifest-damaged", False) for entry in own_shop.app_repository.head().snapshots
    ]
    assert all(entry.snapshot in error.what for entry in own_shop.app_repository.head().snapshots)


def test_a_snapshot_that_says_what_is_not_there_is_passed_over(own_shop: Shop, state_dir: Path) -> None:
    third = Shop(own_shop.root, whole=True)
    store = third.store("0_0", "plain", StoreKind.KEY_VALUE, [0], [350])
    (database,) = store.databases
    runs = tuple(replace(one, run=replace(one.run, store="lie")) for one in database.runs)
    lie = replace(store, store="lie", rows=7, databases=(replace(database, runs=runs),))
    third.publish([350], task_0_0={"lie": lie})
    report = fetch(own_shop, state_dir)
    assert [one.code for one in report.skipped_snapshots] == ["content-digest-mismatch"]
    assert rows_in(state_dir) == expected(300)


def test_no_repository_no_application_and_no_snapshot_are_not_found(
    shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    refused(NotFound, "repository-not-found", Shop(tmp_path / "nowhere"), state_dir)
    (tmp_path / "empty").mkdir()
    empty = Shop(tmp_path / "empty")
    empty.app_repository  # noqa: B018
    refused(NotFound, "snapshots-not-found", empty, state_dir)
    refused(Invalid, "snapshot-missing", shop, state_dir, snapshot="nothing")
    with raises(NotFound, "snapshots-not-found", application_id="other"):
        run_fetch(FetchRequest(repository=shop.url, application_id="other", state_dir=str(state_dir)))
    assert not state_dir.exists()


@pytest.mark.parametrize("asked", ["head", "manifest", "task_manifests", "file"])
def test_an_unreachable_repository_is_not_empty_and_skips_no_snapshot(shop: Shop, state_dir: Path, asked: str) -> None:
    def nobody() -> None:
        raise Retryable("It does not answer.", code="object-store-unreachable", action="Try again.")

    refused(Retryable, "object-store-unreachable", shop, state_dir, app_repository=Watched(shop, asked, nobody))


def test_a_format_that_is_not_known_is_refused_by_name(own_shop: Shop, state_dir: Path) -> None:
    head = own_shop.root / "repository" / "apps" / "orders" / "HEAD"
    (file,) = [head] if head.is_file() else list(head.rglob("*"))
    found = own_shop.app_repository.read_head()
    assert found is not None
    swapped = encode_json(HEAD.sealed({**found.raw, "version": 9}))
    assert own_shop.app_repository.pointers.swap(own_shop.app_repository.names.head, swapped, found.version)
    assert file.exists()
    refused(Invalid, "format-unsupported", own_shop, state_dir)


def test_the_head_of_another_repository_is_refused(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other")
    app_repository = other.app_repository
    shutil.copytree(shop.root / "repository" / "apps", other.root / "repository" / "apps")
    assert app_repository.repository.descriptor.id != shop.app_repository.repository.descriptor.id
    refused(Invalid, "head-foreign", other, state_dir)


def test_brokers_that_do_not_answer_are_no_reason_to_pass_a_snapshot_over(shop: Shop, state_dir: Path) -> None:
    def away(_: TopicPartition) -> int:
        raise Retryable("None answers.", code="broker-unreachable", action="Try again.")

    refused(Retryable, "broker-unreachable", shop, state_dir, bootstrap_servers="localhost:9", cluster=Topics(away))


def test_a_snapshot_that_does_not_fit_the_topics_is_passed_over_and_refused_where_none_is_left(
    shop: Shop, state_dir: Path
) -> None:
    new, old = shop.app_repository.head().snapshots
    fits_old: Any = {"bootstrap_servers": "b:9", "cluster": Topics(lambda _: 200)}
    fits_none: Any = {"bootstrap_servers": "b:9", "cluster": Topics(lambda _: 150)}
    planned = fetch(shop, state_dir, plan_only=True, **fits_old)
    assert planned.snapshot == old.snapshot
    grown: Any = {**fits_old, "cluster": Topics(lambda _: 250)}
    doubtful = fetch(shop, state_dir, plan_only=True, snapshot=old.snapshot, **grown)
    assert any("has grown by 50 since" in note for note in doubtful.notes)
    assert not state_dir.exists()
    error = refused(Invalid, "snapshot-topics-mismatch", shop, state_dir, **fits_none)
    assert skipped(error) == [(one.snapshot, "snapshot-topics-mismatch", False) for one in (new, old)]
    refused(Invalid, "snapshot-topics-mismatch", shop, state_dir, snapshot=new.snapshot, **fits_none)
    report = fetch(shop, state_dir, **fits_old)
    assert report.snapshot == old.snapshot
    assert rows_in(state_dir) == expected(200)


def test_the_newest_is_what_is_asked_for_unless_another_is_named(own_shop: Shop, state_dir: Path) -> None:
    new, old = own_shop.app_repository.head().snapshots
    assert fetch(own_shop, state_dir, plan_only=True, snapshot="newest").snapshot == new.snapshot
    flipped(files_of(own_shop)["manifest"])
    assert fetch(own_shop, state_dir, plan_only=True, snapshot="newest").snapshot == old.snapshot


def test_a_damaged_newest_snapshot_and_tasks_missing_in_older_ones_are_reported(
    own_shop: Shop, state_dir: Path
) -> None:
    (own_shop.root / "runs").mkdir(exist_ok=True)
    more = own_shop.store("0_0", "plain", StoreKind.KEY_VALUE, [0], [350])
    task_manifests = [TaskManifest("0_2", (more,))]
    publication = Publication(
        own_shop.app_repository, own_shop.declared, request="wider", origin="restore", clock=lambda: CUT + 3600
    )
    newest = publication.publish(task_manifests, drops_other_tasks=False).snapshot
    flipped(own_shop.root / "repository" / "apps" / "orders" / "manifests" / f"{newest}.json")
    older = [(one.snapshot, "snapshot-task-missing", False) for one in own_shop.app_repository.head().snapshots[1:]]
    error = refused(Corrupted, "manifest-damaged", own_shop, state_dir, tasks=("0_2",))
    assert skipped(error) == [(newest, "manifest-damaged", False), *older]


def test_an_instance_without_a_share_has_nothing_to_fetch_and_that_is_no_failure(
    tmp_path: Path, state_dir: Path
) -> None:
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    publication = Publication(shop.app_repository, shop.declared, request="one", origin="restore", clock=lambda: CUT)
    publication.publish(
        [TaskManifest("0_0", (shop.store("0_0", "plain", StoreKind.KEY_VALUE, [0], [50]),))], drops_other_tasks=True
    )
    asked: tuple[dict[str, Any], ...] = ({}, {"plan_only": True})
    for options in asked:
        report = fetch(shop, state_dir, instance="5/7", **options)
        assert (report.placed, report.stores, report.kept) == (False, (), ())
        assert len(report.notes) == 1
    assert fetch(shop, state_dir, instance="0/7").placed


@pytest.mark.parametrize("where", ["after-lock", "after-plan", "during-download", "after-download", "after-images"])
def test_what_is_gone_on_the_way_does_not_say_that_there_is_no_snapshot(
    shop: Shop, state_dir: Path, where: str
) -> None:
    class Gone(FaultPoints):
        def reach(self, point: str) -> None:
            if point == f"fetch.{where}":
                raise NotFound("It is gone.", code="blob-not-found", action="Look for it.", path="gone")

    error = refused(Retryable, "snapshot-deleted", shop, state_dir, faults=Gone())
    assert error.context["path"] == "gone"


def test_an_unverifiable_older_snapshot_does_not_replace_a_mismatching_newer_one(
    tmp_path: Path, state_dir: Path
) -> None:
    shop = Shop(tmp_path / "shop")
    shop.root.mkdir()
    shop.publish([50])
    app_repository = shop.app_repository
    (known,) = app_repository.head().snapshots
    task_manifests = [
        read.manifest
        for read in app_repository.task_manifests(app_repository.manifest(known).value.task_manifests).values()
    ]

    def publish(request: str, later: int, topic_id: str) -> str:
        """The same, of topics of this id, of which nobody knows when their ends were read."""
        changed = [
            replace(
                task_manifest,
                stores=tuple(
                    replace(
                        one,
                        read_at_ms=None,
                        changelogs=tuple(replace(end, topic_id=topic_id) for end in one.changelogs),
                    )
                    for one in task_manifest.stores
                ),
            )
            for task_manifest in task_manifests
        ]
        publication = Publication(
            app_repository, shop.declared, request=request, origin="backup", clock=lambda: CUT + later
        )
        return publication.publish(changed, drops_other_tasks=True).snapshot

    unsure = publish("unsure", 60, "")
    ends = {
        end.topic_partition: end.end
        for task_manifest in task_manifests
        for one in task_manifest.stores
        for end in one.changelogs
    }
    brokers: Any = {"bootstrap_servers": "b:9", "cluster": Topics(ends.__getitem__)}
    assert fetch(shop, state_dir, plan_only=True, **brokers).snapshot == unsure, "with a doubt"
    other = publish("of other topics", 120, "f" * 32)
    report = fetch(shop, state_dir, plan_only=True, **brokers)
    assert [one.snapshot for one in report.skipped_snapshots] == [other, unsure]
    assert {one.code for one in report.skipped_snapshots} == {"snapshot-topics-mismatch"}
    assert "newer snapshot" in report.skipped_snapshots[1].why
    error = refused(Invalid, "snapshot-topics-mismatch", shop, state_dir, snapshot=other, **brokers)
    assert {one["code"] for one in error.context["problems"]} == {"topic-recreated"}
    assert report.snapshot == known.snapshot
