"""A copy into a replica: what it puts, in which order, what it refuses, and what is deleted there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statecore.errors import Corrupted, Fenced, Invalid
from statecore.faults import COPY_POINTS, FaultInjected, FaultPoints, InjectedFault
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import save_digest
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, Role
from statecore.repository.head import HEAD, Retention
from statecore.repository.layout import printable
from statecore.repository.maintenance import copier
from statecore.repository.maintenance.collection import CollectionReport, Collector
from statecore.repository.maintenance.copier import CopiedApplication, Copier, CopyOutcome
from statecore.repository.maintenance.forget import forget, plan_forget
from statecore.repository.maintenance.garbage import reachable_names
from statecore.repository.maintenance.head_ancestry import EPOCHS_OF_PROMOTION, Ancestry, ancestry
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.promotion import promoted
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage, flipped
from tests.unit.repository.snapshots import APPLICATION, BOTH, FOREIGN, NOW, Clock, Snapshots, publication, repository

DAY = 24 * 3600.0
LAST = Retention(last=1, hourly=0, daily=0, weekly=0)
MORE = {"0_0": {"left": 100}}


@pytest.fixture
def replica(clock: Clock, tmp_path: Path) -> Snapshots:
    """An empty replica."""
    return new_replica(clock, tmp_path)


def new_replica(clock: Clock, tmp_path: Path) -> Snapshots:
    storage = Storage(clock=clock)
    network = Network(storage, Random(0))
    opened = repository(SimulatedBlobs(network), SimulatedPointers(network), role=Role.REPLICA)
    storage.put(DESCRIPTOR_NAME, DESCRIPTOR.encode(opened.descriptor))
    return Snapshots(ApplicationRepository(opened, APPLICATION), storage, network, tmp_path / "replica")


def copy(orders: Snapshots, replica: Snapshots, **more: Any) -> CopiedApplication:
    return Copier(orders.app_repository, replica.app_repository, **more).run()


def head_of(snapshots: Snapshots) -> bytes | None:
    return snapshots.storage.pointers.get(snapshots.app_repository.names.head)


def blobs_of(snapshots: Snapshots) -> set[str]:
    return {name for name in snapshots.storage.blobs if name.startswith("apps/")}


class At(FaultPoints):
    """Does something the first time that a point is reached."""

    def __init__(self, point: str, do: Callable[[], object]) -> None:
        self._point, self._do = point, do

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self._point:
            self._point = ""
            self._do()


@pytest.mark.parametrize("piece_bytes", [16, 8 << 20])
def test_a_replica_has_the_head_and_what_it_reaches_byte_for_byte(
    orders: Snapshots, replica: Snapshots, first: None, piece_bytes: int
) -> None:
    orders.upload({"0_0": {"left": 700}})  # of a job that has not published
    orders.publish("second", MORE)
    done = copy(orders, replica, piece_bytes=piece_bytes)
    reached = set(reachable_names(orders.app_repository, orders.app_repository.head())) & orders.storage.blobs.keys()
    assert (done.outcome, done.snapshots, done.copied.blobs, done.needed) == (
        CopyOutcome.COPIED,
        2,
        len(reached),
        done.copied,
    )
    assert blobs_of(replica) == reached
    assert all(replica.storage.blobs[name][0] == orders.storage.blobs[name][0] for name in reached)
    assert head_of(replica) == head_of(orders)
    replica.fetched()


def test_the_next_copy_copies_what_is_new(orders: Snapshots, replica: Snapshots, first: None) -> None:
    copy(orders, replica)
    assert (copy(orders, replica).outcome, copy(orders, replica).copied.blobs) == (CopyOutcome.CURRENT, 0)
    before = blobs_of(orders)
    orders.publish("second", MORE)
    assert copy(orders, replica).copied.blobs == len(blobs_of(orders) - before)
    assert replica.ends == orders.ends


def test_digests_of_stores_are_copied(orders: Snapshots, replica: Snapshots, first: None) -> None:
    (store, *_) = orders.app_repository.task_manifests(orders.newest.task_manifests)["0_0"].manifest.stores
    from statecore.images.model import StoreDigest

    save_digest(orders.app_repository, store.identity, StoreDigest(1, 2, "3" * 32), "tests")
    copy(orders, replica)
    assert orders.app_repository.names.content(store.identity) in blobs_of(replica)
    save_digest(replica.app_repository, "another", StoreDigest(1, 2, "3" * 32), "tests")
    assert orders.app_repository.names.content("another") not in blobs_of(replica)


def test_an_application_without_a_head_is_nothing_to_copy(orders: Snapshots, replica: Snapshots) -> None:
    orders.upload(BOTH)
    assert copy(orders, replica).outcome is CopyOutcome.EMPTY
    assert not blobs_of(replica)


@pytest.mark.parametrize("kind", ["files", "packs", "task-manifests", "manifests"])
@pytest.mark.parametrize("piece_bytes", [16, 8 << 20])
def test_what_is_damaged_in_the_source_is_not_copied_and_the_replica_keeps_its_head(
    orders: Snapshots, replica: Snapshots, first: None, kind: str, piece_bytes: int
) -> None:
    copy(orders, replica)
    before, there = head_of(replica), blobs_of(replica)
    orders.publish("second", {"0_2": {"left": 100 if kind == "packs" else 50}})
    (name, *_) = [name for name in blobs_of(orders) - there if f"/{kind}/" in name]
    content, made = orders.storage.blobs[name]
    for damaged in (flipped(content, 9), content[:-1], None):
        del orders.storage.blobs[name]
        if damaged is not None:
            orders.storage.blobs[name] = (damaged, made)
        done = copy(orders, replica, piece_bytes=piece_bytes)
        assert (done.outcome, type(done.error), head_of(replica)) == (CopyOutcome.FAILED, Corrupted, before)
        assert name not in blobs_of(replica)
        orders.storage.blobs[name] = (content, made)
    replica.fetched()
    assert copy(orders, replica).outcome is CopyOutcome.COPIED
    replica.fetched()


@pytest.mark.parametrize("kind", ["files", "packs"])
def test_a_damaged_file_of_an_older_snapshot_does_not_keep_newer_ones_from_the_replica(
    orders: Snapshots, replica: Snapshots, kind: str
) -> None:
    orders.publish("first", {"0_2": {"left": 100 if kind == "packs" else 50}})
    older = blobs_of(orders)
    orders.begin("second").publish(orders.upload({"0_2": {"left": 700}}, every=35), drops_other_tasks=False)
    head = orders.app_repository.head()
    newest = set(reachable_names(orders.app_repository, replace(head, snapshots=head.snapshots[:1])))
    (name, *_) = [name for name in older - newest if f"/{kind}/" in name]
    reached = set(reachable_names(orders.app_repository, head)) & blobs_of(orders)
    content, made = orders.storage.blobs.pop(name)
    for damaged in (None, flipped(content, 9)):
        if damaged is not None:
            orders.storage.blobs[name] = (damaged, made)
        done = copy(orders, replica)
        assert (done.outcome, done.left_out) == (CopyOutcome.INCOMPLETE, (name,))
        assert getattr(done.error, "code", "") == ("blob-missing" if damaged is None else "blob-damaged")
        assert head_of(replica) == head_of(orders)
        assert blobs_of(replica) == reached - {name}
    orders.storage.blobs[name] = (content, made)
    assert (copy(orders, replica).outcome, name in blobs_of(replica)) == (CopyOutcome.CURRENT, True)


def test_a_lost_or_foreign_head_of_the_source_is_an_error(orders: Snapshots, replica: Snapshots, first: None) -> None:
    orders.publish("second", MORE)
    name, head = orders.app_repository.names.head, head_of(orders)
    assert head is not None
    del orders.storage.pointers[name]
    assert getattr(copy(orders, replica).error, "code", "") == "head-missing"
    orders.storage.pointers[name] = HEAD.encode(replace(HEAD.decode(head), repository_id="another"))
    assert getattr(copy(orders, replica).error, "code", "") == "head-foreign"
    assert not blobs_of(replica)


def test_a_blob_of_another_size_and_a_damaged_head_are_replaced(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    copy(orders, replica)
    for name in blobs_of(replica):
        replica.storage.blobs[name] = (replica.storage.blobs[name][0][:-1], NOW)
    replica.storage.pointers[orders.app_repository.names.head] = b"{}"
    assert copy(orders, replica).outcome is CopyOutcome.COPIED
    assert head_of(replica) == head_of(orders)
    replica.fetched()


def test_a_head_goes_forward_only(orders: Snapshots, replica: Snapshots, first: None) -> None:
    older = head_of(orders)
    orders.publish("second", MORE)
    copy(orders, replica)
    newer = head_of(orders)
    assert older is not None
    orders.storage.pointers[orders.app_repository.names.head] = older
    error = copy(orders, replica).error
    assert error is not None
    assert error.code == "replica-diverged"
    assert head_of(replica) == newer


def test_a_source_that_went_on_after_it_was_set_back_has_diverged(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    older = head_of(orders)
    orders.publish("second", MORE)
    copy(orders, replica)
    newer = head_of(orders)
    assert older is not None
    orders.storage.pointers[orders.app_repository.names.head] = older
    orders.publish("third", MORE)
    error = copy(orders, replica).error
    assert error is not None
    assert error.code == "replica-diverged"
    assert head_of(replica) == newer


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_branch_that_has_overtaken_the_replica_does_not_replace_it(
    orders: Snapshots, replica: Snapshots, first: None, *, is_rebuilt: bool
) -> None:
    """The source was set back to yesterday, with all its blobs, and has gone on; a repair begins a new epoch."""
    pointers, blobs = dict(orders.storage.pointers), dict(orders.storage.blobs)
    orders.publish("second", MORE)
    copy(orders, replica)
    newer = head_of(replica)
    orders.storage.pointers.clear()
    orders.storage.pointers.update(pointers)
    orders.storage.blobs.clear()
    orders.storage.blobs.update(blobs)
    if is_rebuilt:
        orders.storage.pointers.pop(orders.app_repository.names.head)
        apply_repair(orders.app_repository, plan_repair(orders.app_repository))
    for end in (100, 200, 300):
        orders.publish(f"to {end}", {"0_0": {"left": end}})
    error = copy(orders, replica).error
    assert error is not None
    assert error.code == "replica-diverged"
    assert head_of(replica) == newer
    replica.fetched()


def test_a_branch_that_has_forgotten_where_it_began_does_not_replace_the_replica(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    pointers, blobs = dict(orders.storage.pointers), dict(orders.storage.blobs)
    orders.publish("second", MORE)
    pin(orders.app_repository, "newest")
    orders.publish("third", MORE)
    copy(orders, replica)
    newer = head_of(replica)
    orders.storage.pointers.clear()
    orders.storage.pointers.update(pointers)
    orders.storage.blobs.clear()
    orders.storage.blobs.update(blobs)
    for end in (100, 200, 300, 400, 500):
        orders.publish(f"to {end}", {"0_0": {"left": end}})
    forget(orders.app_repository, LAST)
    error = copy(orders, replica).error
    assert error is not None
    assert (error.code, head_of(replica)) == ("replica-diverged", newer)


def test_a_replica_remembers_that_its_source_was_set_back(
    orders: Snapshots, replica: Snapshots, clock: Clock, first: None
) -> None:
    """What shows it is collected in the source later."""
    pointers, blobs = dict(orders.storage.pointers), dict(orders.storage.blobs)
    orders.publish("second", MORE)
    copy(orders, replica)
    newer = head_of(replica)
    newer_pointers, newer_blobs = dict(orders.storage.pointers), dict(orders.storage.blobs)
    orders.storage.pointers.clear()
    orders.storage.pointers.update(pointers)
    orders.storage.blobs.clear()
    orders.storage.blobs.update(blobs)
    assert copy(orders, replica).outcome is CopyOutcome.FAILED
    for end in (100, 200, 300):
        orders.publish(f"to {end}", {task: dict.fromkeys(stores, end) for task, stores in BOTH.items()})
        forget(orders.app_repository, LAST)
        for _ in range(3):
            collect(orders, clock)
    error = copy(orders, replica).error
    assert error is not None
    assert (error.code, head_of(replica)) == ("replica-diverged", newer)
    assert replica.app_repository.names.diverged not in collect(replica, clock).unknown
    orders.storage.pointers.clear()
    orders.storage.pointers.update(newer_pointers)
    orders.storage.blobs.clear()
    orders.storage.blobs.update(newer_blobs)
    orders.publish("third", {"0_0": {"left": 150}})
    assert copy(orders, replica).outcome is CopyOutcome.COPIED


def test_a_source_that_goes_on_meanwhile_is_compared_again_before_anything_is_recorded(
    orders: Snapshots, replica: Snapshots, first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection deletes the manifests that are compared."""
    copy(orders, replica)
    orders.publish("second", MORE)
    found = iter([Ancestry.OTHER_BRANCH])

    def misled(*compared: Any) -> Ancestry:
        if (misleading := next(found, None)) is None:
            return ancestry(*compared)
        orders.publish("third", {"0_0": {"left": 150}})
        return misleading

    monkeypatch.setattr(copier, "ancestry", misled)
    assert copy(orders, replica).outcome is CopyOutcome.COPIED
    assert head_of(replica) == head_of(orders)
    assert replica.app_repository.names.diverged not in replica.storage.pointers


def test_a_copy_goes_on_after_a_month_of_which_the_source_has_forgotten_all(
    orders: Snapshots, replica: Snapshots, clock: Clock, first: None
) -> None:
    copy(orders, replica)
    for end in (100, 200, 300):
        orders.begin(f"to {end}").publish(
            orders.upload({task: dict.fromkeys(stores, end) for task, stores in BOTH.items()}), drops_other_tasks=True
        )
        forget(orders.app_repository, LAST)
        for _ in range(3):
            collect(orders, clock)
    assert copy(orders, replica).outcome is CopyOutcome.COPIED
    assert head_of(replica) == head_of(orders)


def test_a_source_without_any_file_of_an_application_is_no_empty_one(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    copy(orders, replica)
    orders.storage.pointers.clear()
    orders.storage.blobs.clear()
    error = copy(orders, replica).error
    assert error is not None
    assert error.code == "head-missing"
    assert head_of(replica) is not None


def test_a_slower_copy_does_not_set_the_replica_back(orders: Snapshots, replica: Snapshots, first: None) -> None:
    def newer() -> None:
        orders.publish("second", MORE)
        copy(orders, replica)

    assert copy(orders, replica, faults=At("copy.before-head", newer)).outcome is CopyOutcome.CURRENT
    assert head_of(replica) == head_of(orders)


def test_a_copy_goes_on_with_the_next_head_if_the_source_deletes_what_it_copies(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    first_blobs = blobs_of(orders)

    def delete() -> None:
        orders.publish(
            "second", {task: dict.fromkeys(stores, 100) for task, stores in BOTH.items()}, drops_other_tasks=True
        )
        forget(orders.app_repository, LAST)
        for name in first_blobs - set(reachable_names(orders.app_repository, orders.app_repository.head())):
            orders.storage.delete(name)

    with patched_to_one_at_a_time():
        done = copy(orders, replica, faults=At("copy.after-blob", delete))
    assert (done.outcome, head_of(replica)) == (CopyOutcome.COPIED, head_of(orders))
    replica.fetched()


def patched_to_one_at_a_time() -> Any:
    from unittest.mock import patch

    from statecore.repository import blob_verification

    return patch.object(blob_verification, "CONCURRENT_REQUESTS", 1)


@pytest.mark.parametrize(
    "point", [point for point in COPY_POINTS if point not in ("copy.after-descriptor", "copy.after-list")]
)
def test_a_killed_copy_is_gone_on_with(orders: Snapshots, replica: Snapshots, first: None, point: str) -> None:
    copy(orders, replica)
    orders.publish("second", MORE)
    before = head_of(replica)
    with pytest.raises(FaultInjected):
        copy(orders, replica, faults=InjectedFault(point))
    assert head_of(replica) == (head_of(orders) if point == "copy.after-head" else before)
    replica.fetched()
    kept = blobs_of(replica)
    assert copy(orders, replica).copied.blobs == len(blobs_of(replica) - kept)
    assert head_of(replica) == head_of(orders)
    replica.fetched()


def test_a_copy_into_a_replica_that_was_promoted_meanwhile_is_fenced(
    orders: Snapshots, replica: Snapshots, first: None
) -> None:
    def promoted() -> None:
        descriptor = replace(replica.app_repository.repository.descriptor, role=Role.PRIMARY)
        replica.storage.replace(DESCRIPTOR_NAME, DESCRIPTOR.encode(descriptor))

    with raises(Fenced, "repository-replaced"):
        copy(orders, replica, faults=At("copy.before-head", promoted))
    assert head_of(replica) is None


WRITERS: dict[str, Callable[[Snapshots], object]] = {
    "publish": lambda replica: publication(replica.app_repository),
    "rights": lambda replica: replica.app_repository.check_writable(),
    "pin": lambda replica: pin(replica.app_repository, "newest"),
    "unpin": lambda replica: unpin(replica.app_repository, "newest"),
    "forget": lambda replica: forget(replica.app_repository, LAST),
    "plan to forget": lambda replica: plan_forget(replica.app_repository, LAST),
    "repair": lambda replica: plan_repair(replica.app_repository),
}


@pytest.mark.parametrize("what", WRITERS)
def test_nothing_else_writes_to_a_replica_or_reads_it_first(
    orders: Snapshots, replica: Snapshots, first: None, what: str
) -> None:
    copy(orders, replica)
    before = dict(replica.storage.blobs), dict(replica.storage.pointers)
    asked: list[None] = []
    replica.network.pause = lambda: asked.append(None)
    with raises(Invalid, "repository-is-replica", copy_of="memory:///primary"):
        WRITERS[what](replica)
    assert not asked
    assert before == (replica.storage.blobs, replica.storage.pointers)


@pytest.fixture
def collected(orders: Snapshots, replica: Snapshots, clock: Clock, first: None) -> set[str]:
    """A replica with a snapshot that the source has forgotten, and deleted; the names of its blobs."""
    copy(orders, replica)
    there = blobs_of(replica)
    orders.publish(
        "second", {task: dict.fromkeys(stores, 100) for task, stores in BOTH.items()}, drops_other_tasks=True
    )
    forget(orders.app_repository, LAST)
    for _ in range(4):
        collect(orders, clock)
    assert not there <= blobs_of(orders)
    return there - blobs_of(orders)


def collect(snapshots: Snapshots, clock: Clock, **more: Any) -> CollectionReport:
    clock.now += DAY
    return Collector(snapshots.app_repository, **more).run()


def test_what_the_source_has_deleted_is_listed_by_a_copy_and_deleted_a_day_later(
    orders: Snapshots, replica: Snapshots, clock: Clock, collected: set[str]
) -> None:
    assert collect(replica, clock).deleted.blobs == 0
    assert copy(orders, replica).listed.blobs == len(collected)
    assert copy(orders, replica).listed.blobs == 0, "it is in a list"
    number = replica.app_repository.head().collection
    assert Collector(replica.app_repository).run().waiting.blobs == len(collected)
    assert collect(replica, clock).deleted.blobs == len(collected)
    assert not collected & blobs_of(replica)
    assert head_of(replica) == head_of(orders), "the number is not raised"
    assert number == orders.app_repository.head().collection
    assert blobs_of(replica) <= blobs_of(orders)
    replica.fetched()


def test_foreign_names_in_a_replica_are_left_alone_and_named(
    orders: Snapshots, replica: Snapshots, clock: Clock, collected: set[str]
) -> None:
    for name in FOREIGN:
        replica.storage.put(name, b"mine")
        orders.storage.put(name, b"mine")
    done = copy(orders, replica)
    assert (done.outcome, done.listed.blobs) == (CopyOutcome.COPIED, len(collected))
    assert done.unknown == tuple(printable(name) for name in sorted(FOREIGN))
    assert collect(replica, clock).deleted.blobs == len(collected)
    assert set(FOREIGN) <= replica.storage.blobs.keys()


def test_a_replica_of_a_replica_is_rid_of_what_the_primary_has_deleted(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, collected: set[str]
) -> None:
    far = new_replica(clock, tmp_path / "far")
    copy(replica, far)
    for name in collected:  # it has them from an earlier copy
        far.storage.blobs[name] = replica.storage.blobs[name]
    assert copy(replica, far).listed.blobs == 0, "the replica still has them, and no list of it says why"
    copy(orders, replica)
    assert copy(replica, far).listed.blobs == len(collected)
    assert copy(replica, far).listed.blobs == 0, "it is in a list"
    clock.now += DAY
    assert Collector(far.app_repository).run().deleted.blobs == len(collected)
    assert blobs_of(far) <= blobs_of(replica)
    far.fetched()


def test_what_a_replica_never_had_is_not_deleted_in_a_replica_of_it(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, collected: set[str]
) -> None:
    """The primary may still have it, and name it again."""
    far = new_replica(clock, tmp_path / "far")
    copy(orders, far)
    for name in collected:
        far.storage.blobs[name] = replica.storage.blobs.pop(name)
    copy(orders, replica)
    assert copy(replica, far).listed.blobs == 0


def test_a_killed_list_is_not_needed(orders: Snapshots, replica: Snapshots, collected: set[str]) -> None:
    with pytest.raises(FaultInjected):
        copy(orders, replica, faults=InjectedFault("copy.after-list"))
    assert copy(orders, replica).listed.blobs == 0


def test_what_jobs_of_a_collection_left_in_a_replica_goes(
    orders: Snapshots, replica: Snapshots, clock: Clock, first: None
) -> None:
    copy(orders, replica)
    replica.storage.put(f"{replica.app_repository.names.staging('collection')}/left", b"")
    clock.now += 8 * DAY
    assert [collect(replica, clock).listed.blobs, collect(replica, clock).deleted.blobs] == [1, 1]


def test_what_the_source_may_name_again_stays_in_the_replica(
    orders: Snapshots, replica: Snapshots, clock: Clock, first: None
) -> None:
    """A rebuilt head names what an earlier one had forgotten: a late delete in the replica must not meet it."""
    orders.publish(
        "second", {task: dict.fromkeys(stores, 100) for task, stores in BOTH.items()}, drops_other_tasks=True
    )
    copy(orders, replica)
    forget(orders.app_repository, LAST)
    for _ in range(3):
        with suppress(FaultInjected):  # it never lists
            collect(orders, clock, faults=InjectedFault("collection.after-head"))
    assert copy(orders, replica).listed.blobs == 0
    collect(replica, clock)
    for name in (orders.app_repository.names.head, orders.app_repository.names.retention):
        del orders.storage.pointers[name]
    delete_all = SimulatedBlobs.delete_all

    def late(blobs: SimulatedBlobs, names: list[str]) -> None:
        apply_repair(orders.app_repository, plan_repair(orders.app_repository))
        copy(orders, replica)
        delete_all(blobs, names)

    replica.app_repository.blobs.delete_all = late.__get__(replica.app_repository.blobs)  # type: ignore[method-assign]
    collect(replica, clock)
    del replica.app_repository.blobs.delete_all
    if head_of(orders) is None:
        apply_repair(orders.app_repository, plan_repair(orders.app_repository))
        copy(orders, replica)
    assert len(replica.fetched()) == 2


def _five_minutes_each(orders: Snapshots, ends: range) -> None:
    for end in ends:
        orders.publish(f"to {end}", {"0_0": {"left": end}}, clock=lambda end=end: NOW + 300 * (end - 100))  # type: ignore[misc]


def test_a_replica_of_a_replica_goes_on_however_much_the_primary_has_forgotten(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, first: None
) -> None:
    """The replica has only the manifests that heads named when they were copied."""
    far = new_replica(clock, tmp_path / "far")
    copy(orders, replica)
    copy(replica, far)
    _five_minutes_each(orders, range(100, 150))
    copy(orders, replica)
    assert copy(replica, far).outcome is CopyOutcome.COPIED
    assert head_of(far) == head_of(orders)


def test_a_replica_that_is_only_behind_changes_nothing_and_nothing_is_recorded(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, first: None
) -> None:
    far = new_replica(clock, tmp_path / "far")
    copy(orders, replica)
    orders.publish("second", MORE)
    copy(orders, far)
    newer = head_of(far)
    assert copy(replica, far).outcome is CopyOutcome.AHEAD
    assert head_of(far) == newer
    assert far.app_repository.names.diverged not in far.storage.pointers
    copy(orders, replica)
    assert copy(replica, far).outcome is CopyOutcome.CURRENT


def promoted_source(replica: Snapshots) -> Snapshots:
    """A replica, promoted."""
    primary = repository(SimulatedBlobs(replica.network), SimulatedPointers(replica.network))
    replica.storage.replace(DESCRIPTOR_NAME, DESCRIPTOR.encode(primary.descriptor))
    opened = ApplicationRepository(primary, APPLICATION)
    assert opened.change_head(promoted).epoch == EPOCHS_OF_PROMOTION
    return replace(replica, app_repository=opened)


@pytest.mark.parametrize("published", [0, 1])
def test_a_promoted_replica_does_not_replace_one_that_is_ahead_of_it(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, first: None, published: int
) -> None:
    """The primary died during a copy: the manifests of what is newer are there, and no head has named them."""
    far = new_replica(clock, tmp_path / "far")
    copy(orders, replica)
    orders.publish("second", MORE)
    copy(orders, far)
    newer = head_of(far)
    with pytest.raises(FaultInjected):
        copy(orders, replica, faults=InjectedFault("copy.before-head"))
    source = promoted_source(replica)
    for end in range(published):
        source.publish(f"to {end}", {"0_0": {"left": 100 + end}})
    error = copy(source, far).error
    assert error is not None
    assert (error.code, head_of(far)) == ("replica-diverged", newer)
    del far.storage.pointers[far.app_repository.names.head]  # the cure that it names, if the source is right
    done = copy(source, far)
    assert (done.outcome, head_of(far)) == (CopyOutcome.COPIED, head_of(source))
    far.fetched()


def test_a_promoted_replica_is_copied_to_one_that_is_hours_older(
    orders: Snapshots, replica: Snapshots, clock: Clock, tmp_path: Path, first: None
) -> None:
    far = new_replica(clock, tmp_path / "far")
    copy(orders, far)
    _five_minutes_each(orders, range(100, 150))
    copy(orders, replica)
    assert copy(promoted_source(replica), far).outcome is CopyOutcome.COPIED
