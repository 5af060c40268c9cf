"""A collection of garbage: what is listed, when it is deleted, and what a publication beside it may name."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Corrupted, Retryable
from statecore.faults import COLLECTION_POINTS, FaultInjected, InjectedFault
from statecore.objectstore.base import Blob
from statecore.repository.head import Retention
from statecore.repository.layout import collection_of, printable
from statecore.repository.maintenance.collection import Amount, CollectionReport, Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.garbage import write_list
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.manifest import MANIFEST
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import APPLICATION, BOTH, FOREIGN, NOW, Clock, Snapshots

HOUR = 3600.0
DAY = 24 * HOUR
LAST = Retention(last=1, hourly=0, daily=0, weekly=0)


def collect(orders: Snapshots, clock: Clock, **more: Any) -> CollectionReport:
    """A collection, a day after whatever was before."""
    clock.now += DAY
    return Collector(orders.app_repository, **more).run()


def test_garbage_is_listed_two_collections_after_it_was_put_and_deleted_a_day_later(
    orders: Snapshots, clock: Clock
) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    first = set(orders.storage.blobs)
    orders.publish("second", {"0_0": {"left": 100, "right": 100}, "0_1": {"left": 100, "right": 100}})
    assert [one.blobs for one in (collect(orders, clock).listed, collect(orders, clock).listed)] == [0, 0]
    forget(orders.app_repository, LAST)
    listed = collect(orders, clock)
    assert (listed.deleted.blobs, listed.listed.blobs > 0, listed.snapshots) == (0, True, 1)
    assert first <= set(orders.storage.blobs)
    deleted = collect(orders, clock)
    assert (deleted.deleted, deleted.listed.blobs) == (listed.listed, 0)
    assert first - set(orders.storage.blobs)
    orders.fetched()
    assert collect(orders, clock).deleted.blobs == 0
    assert not [name for name in orders.storage.blobs if "/garbage/" in name]


def test_a_plan_changes_nothing_and_says_what_the_run_does(orders: Snapshots, clock: Clock) -> None:
    orders.upload(BOTH)
    orders.publish("first", {"0_0": {"left": 50}}, drops_other_tasks=True)
    for _ in range(4):
        clock.now += DAY
        before = dict(orders.storage.blobs), dict(orders.storage.pointers)
        planned = Collector(orders.app_repository, clock=clock).plan()
        assert (orders.storage.blobs, orders.storage.pointers) == before
        done = Collector(orders.app_repository).run()
        assert (planned.deleted, planned.listed, planned.collection) == (done.deleted, done.listed, done.collection)
    assert done.deleted.blobs + done.listed.blobs == 0


def test_a_collection_is_begun_once_in_the_least_age(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    assert [collect(orders, clock).collection, Collector(orders.app_repository).run().collection] == [1, 1]
    clock.now -= 50 * 365 * DAY  # 1976
    assert Collector(orders.app_repository).run().collection == 2, "the time of the last one was wrong"


def test_a_job_across_one_collection_publishes_and_across_two_it_uploads_again(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", {"0_0": {"left": 50, "right": 50}}, drops_other_tasks=True)
    for collections, is_refused in ((1, False), (2, True)):
        end = 100 * collections
        job = orders.begin(f"job-{collections}")
        made = orders.upload({"0_0": {"left": end, "right": end}}, every=end)
        for _ in range(collections):
            collect(orders, clock)
        if not is_refused:
            job.publish(made, drops_other_tasks=False)
            continue
        with raises(Retryable, "upload-collected"):
            job.publish(made, drops_other_tasks=False)
        again = orders.begin("again")
        again.publish(orders.upload({"0_0": {"left": end, "right": end}}, every=end), drops_other_tasks=False)
    assert orders.ends == {"0_0": {"left": 200, "right": 200}}
    for _ in range(3):
        collect(orders, clock)
    orders.fetched()


def test_what_the_head_reaches_may_be_named_however_old_it_is(orders: Snapshots, clock: Clock) -> None:
    made = orders.upload(BOTH)
    orders.begin("first").publish(made, drops_other_tasks=True)
    orders.publish("second", {"0_0": {"left": 100}})
    for _ in range(4):
        collect(orders, clock)
    job = orders.begin("third")
    job.publish([made[1]], drops_other_tasks=False)  # of the newest snapshot
    before = [one for one in made if one.task == "0_0"]
    published = orders.begin("fourth").publish(before, drops_other_tasks=False, refused={("0_0", "left")})
    assert published is not None, "of an older snapshot that the head names"
    for _ in range(3):
        collect(orders, clock)
    orders.fetched()


def test_new_blobs_have_the_number_of_the_collection(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    collect(orders, clock)
    before = set(orders.storage.blobs)
    orders.publish("second", {"0_0": {"left": 100}})
    new = {name.split("/")[2]: collection_of(name) for name in orders.storage.blobs.keys() - before}
    assert {new["task-manifests"], new.get("packs", new.get("files"))} == {1}


@pytest.mark.parametrize("point", COLLECTION_POINTS)
def test_a_killed_collection_is_gone_on_with(orders: Snapshots, clock: Clock, point: str) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    collect(orders, clock)
    if point == "collection.during-deletion":
        collect(orders, clock)
    clock.now += DAY
    with pytest.raises(FaultInjected):
        Collector(orders.app_repository, faults=InjectedFault(point)).run()
    while (done := collect(orders, clock)).deleted.blobs or done.listed.blobs:
        pass
    assert done.needed.blobs == 1 + len([name for name in orders.storage.blobs if name.startswith("apps/")])
    orders.fetched()


@pytest.mark.parametrize("kind", ["manifests", "task-manifests"])
def test_nothing_is_deleted_while_nobody_knows_what_a_snapshot_needs(
    orders: Snapshots, clock: Clock, kind: str
) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    collect(orders, clock)
    collect(orders, clock)
    name = next(name for name in orders.storage.blobs if f"/{kind}/" in name)
    content, made = orders.storage.blobs[name]
    orders.storage.blobs[name] = (content[:-1] + b"?", made)
    before = orders.storage.blobs.keys() - {name}
    for _ in range(3):
        with pytest.raises(Corrupted):
            collect(orders, clock)
    assert before <= orders.storage.blobs.keys()


def test_a_damaged_list_deletes_nothing(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    for _ in range(2):
        collect(orders, clock)
    (name,) = [name for name in orders.storage.blobs if "/garbage/" in name]
    content, made = orders.storage.blobs[name]
    orders.storage.blobs[name] = (content[:-1] + bytes([content[-1] ^ 1]), made)
    before = set(orders.storage.blobs)
    with raises(Corrupted, "garbage-list-damaged", blob=name):
        collect(orders, clock)
    assert before == set(orders.storage.blobs)
    del orders.storage.blobs[name]
    collect(orders, clock)
    assert collect(orders, clock).deleted.blobs > 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"no list", id="not compressed"),
        pytest.param(zlib.compress(b""), id="without a header"),
        pytest.param(zlib.compress(b"{" * 100), id="without a line"),
        pytest.param({"application_id": "payments"}, id="of another application"),
        pytest.param({"repository_id": "another"}, id="of another repository"),
        pytest.param("apps/payments/files/ab/abc.0", id="names another application's blob"),
        pytest.param("repository.json", id="names the descriptor"),
        pytest.param(f"apps/{APPLICATION}/HEAD", id="names the head"),
    ],
)
def test_a_list_that_this_application_cannot_have_deletes_nothing(
    orders: Snapshots, clock: Clock, content: bytes | dict[str, str] | str
) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    for _ in range(2):
        collect(orders, clock)
    (name,) = [name for name in orders.storage.blobs if "/garbage/" in name]
    lines = zlib.decompress(orders.storage.blobs.pop(name)[0]).splitlines(keepends=True)
    if isinstance(content, dict):
        lines[0] = json.dumps(json.loads(lines[0]) | content).encode() + b"\n"
    if isinstance(content, str):
        lines.append(json.dumps([content, 1]).encode() + b"\n")
    wrong = content if isinstance(content, bytes) else zlib.compress(b"".join(lines))
    orders.storage.put(f"{name.rpartition('-')[0]}-{sha256(wrong).hexdigest()}", wrong)
    before = set(orders.storage.blobs)
    with raises(Corrupted, "garbage-list-damaged"):
        collect(orders, clock)
    assert before == set(orders.storage.blobs)


def test_a_head_that_is_made_anew_names_nothing_that_is_being_deleted(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.publish("second", {"0_0": {"left": 100}})
    for _ in range(2):
        collect(orders, clock)
    forget(orders.app_repository, LAST)
    listed = collect(orders, clock)
    assert listed.listed.blobs
    del orders.storage.pointers[orders.app_repository.names.head]
    plan = plan_repair(orders.app_repository)
    apply_repair(orders.app_repository, plan)
    assert [one.code for one in plan.excluded] == ["collected"]
    assert orders.requests == ["second"]
    assert orders.app_repository.head().collection > listed.collection - 1
    assert collect(orders, clock).deleted.blobs == 0, "lists of another epoch are void"
    orders.fetched()


def test_what_this_release_does_not_make_is_left_alone(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    for name in FOREIGN:
        orders.storage.put(name, b"mine")
    clock.now += 8 * DAY
    for _ in range(4):
        done = collect(orders, clock)
    assert done.unknown == [printable(name) for name in sorted(FOREIGN)]
    assert set(FOREIGN) <= orders.storage.blobs.keys()


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_a_list_names_and_this_release_does_not_make_stays(
    orders: Snapshots, clock: Clock, *, is_gone: bool
) -> None:
    """A list of an earlier build may name what somebody had put there."""
    orders.publish("first", BOTH, drops_other_tasks=True)
    app_repository, name = orders.app_repository, f"apps/{APPLICATION}/contents/my notes.txt"
    uploaded = app_repository.names.pack("ab" * 32)
    for one in (name, uploaded):
        orders.storage.put(one, b"mine")
    blobs = [Blob(one, 4, clock.now) for one in (name, uploaded)]
    listed, path = write_list(app_repository, app_repository.head(), blobs, orders.directory)
    app_repository.blobs.put_if_absent(listed, path)
    if is_gone:
        orders.storage.delete(name)
    done = collect(orders, clock)
    assert (done.deleted.blobs, done.unknown) == (1, [] if is_gone else [name])
    assert ({name, uploaded, listed} & orders.storage.blobs.keys()) == (set() if is_gone else {name})


@pytest.mark.parametrize("name", [name for name in FOREIGN if "/garbage/" in name or "/manifests/" in name])
def test_a_foreign_name_is_no_evidence_of_a_head_that_was_lost(orders: Snapshots, name: str) -> None:
    orders.storage.put(name, b"mine")
    assert orders.app_repository.is_unpublished()
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.fetched()


def test_files_of_jobs_go_when_no_retry_uses_them_any_more(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    names = orders.app_repository.names
    for name in (names.job("request", "plan"), f"{names.staging('plan')}/result", names.in_progress_marker("request")):
        orders.storage.put(name, b"{}")
    collect(orders, clock)
    clock.now += 7 * DAY
    assert collect(orders, clock).listed.blobs == 3
    assert collect(orders, clock).deleted.blobs == 3


def test_a_file_of_a_job_that_was_written_again_since_it_was_listed_stays(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    again, left = (orders.app_repository.names.job(request, "plan") for request in ("again", "left"))
    for name in (again, left):
        orders.storage.put(name, b"{}")
    clock.now += 8 * DAY
    assert collect(orders, clock).listed.blobs == 2
    del orders.storage.blobs[again]
    orders.storage.put(again, b"{}")
    assert collect(orders, clock).deleted.blobs == 1
    assert (again in orders.storage.blobs, left in orders.storage.blobs) == (True, False)


def test_a_full_disk_is_freed_although_it_has_no_room_for_a_new_head(
    orders: Snapshots, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    for _ in range(2):
        listed = collect(orders, clock)
    assert listed.listed.blobs
    blobs, put = orders.app_repository.blobs, orders.app_repository.blobs.put_if_absent
    full = len(orders.storage.blobs)

    def put_where_there_is_room(name: str, content: Any) -> bool:
        if len(orders.storage.blobs) >= full:
            raise Capacity("The disk is full.", code="disk-full", action="Free space.")
        return put(name, content)

    monkeypatch.setattr(blobs, "put_if_absent", put_where_there_is_room)
    clock.now += DAY
    done = Collector(orders.app_repository, clock=clock).run()
    assert (done.deleted, done.collection) == (listed.listed, listed.collection + 1)
    monkeypatch.undo()
    orders.fetched()


def test_what_killed_writers_have_left_in_a_directory_is_deleted_once_it_is_old(tmp_path: Path) -> None:
    publishing = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    publishing.publish(10)
    partial = tmp_path / "repository/~partial"
    for name, age in (("old", 25), ("new", 23)):
        (partial / name).write_bytes(b".....")
        os.utime(partial / name, (NOW - age * HOUR, NOW - age * HOUR))
    for collect in (Collector.plan, Collector.run):
        assert (partial / "old").exists()
        report = collect(Collector(publishing.app_repository, clock=lambda: NOW))
        assert (report.leftovers, report.deleted.blobs) == (Amount(1, 5), 0)
    assert [path.name for path in partial.iterdir()] == ["new"]


def test_without_room_for_temporary_files_nothing_is_changed_and_the_variable_is_named(
    orders: Snapshots, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    orders.upload({"0_0": {"left": 500}})
    for _ in range(2):
        collect(orders, clock)
    (listed,) = [name for name in orders.storage.blobs if "/garbage/" in name]
    before = set(orders.storage.blobs)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    for call in (
        lambda: collect(orders, clock),
        lambda: Collector(orders.app_repository).plan(),
    ):
        with raises(Capacity, "no-space") as caught:
            call()
        assert "TMPDIR" in caught.value.action
    assert before == set(orders.storage.blobs)
    del orders.storage.pointers[orders.app_repository.names.head]
    with raises(Capacity, "no-space"):
        plan_repair(orders.app_repository)
    assert listed in orders.storage.blobs


def test_a_manifest_of_another_application_is_not_evidence_of_a_later_head(orders: Snapshots, clock: Clock) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    app_repository = orders.app_repository
    foreign = replace(orders.newest, application_id="payments", snapshot="foreign", generation=900)
    app_repository.blobs.put_if_absent(app_repository.names.manifest("foreign"), MANIFEST.encode(foreign))
    assert collect(orders, clock).applied


def test_a_list_of_garbage_proves_a_head_that_was_lost(orders: Snapshots, clock: Clock) -> None:
    """Its collection number would be given again by a first publication, and with it names that were deleted."""
    orders.publish("first", BOTH, drops_other_tasks=True)
    names = orders.app_repository.names
    orders.app_repository.blobs.put_if_absent(names.pack("ab" * 32), b"of a job that was killed")
    for _ in range(2):
        collect(orders, clock)
    assert list(orders.app_repository.blobs.list(names.garbage_lists))
    del orders.storage.pointers[names.head]
    with raises(Corrupted, "head-missing"):
        orders.begin("second")


def test_a_run_deletes_what_the_lists_of_its_plan_name_and_nothing_that_became_due_since(
    orders: Snapshots, clock: Clock
) -> None:
    for number in range(3):
        orders.publish(f"request-{number}", {"0_0": {"left": 50 * (number + 1)}}, drops_other_tasks=True)
    for _ in range(2):
        collect(orders, clock)
    forget(orders.app_repository, Retention(2, 0, 0, 0))
    collect(orders, clock)
    clock.now += HOUR
    forget(orders.app_repository, LAST)
    Collector(orders.app_repository).run()  # lists what it finds
    clock.now += 23 * HOUR
    planned = Collector(orders.app_repository, clock=clock).plan()
    clock.now += 23 * HOUR
    assert Collector(orders.app_repository, clock=clock).plan().deleted.blobs > planned.deleted.blobs > 0
    assert len(planned.lists) == 1
    assert Collector(orders.app_repository, lists=[], clock=clock).run().deleted.blobs == 0
    done = Collector(orders.app_repository, lists=planned.lists, clock=clock).run()
    assert (done.deleted, done.waiting.blobs > 0) == (planned.deleted, True)
    assert collect(orders, clock).deleted.blobs > 0
