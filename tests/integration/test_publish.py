"""``restore --repository``: the runs of a restore are a snapshot, with any engine and any store."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid, NotFound
from statecore.faults import FaultInjected, InjectedFault
from statecore.filesystem import FILE_MODE, clone, current_umask
from statecore.images.model import Run
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.resume import NOT_PUBLISHED
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Manifest, StoreSnapshot
from statecore.repository.object_store import with_key
from statecore.repository.repository import create_repository
from tests.harness import mounts, topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.fault_action import FaultAction
from tests.harness.raising import raises
from tests.harness.s3_server import S3Server
from tests.harness.three_kinds import deletes_and_overwrites, three_kinds
from tests.harness.topics import Record
from tests.harness.verify_image import verify_image
from tests.unit.repository.encrypted import key_file

pytestmark = pytest.mark.integration

NOW = int(time.time() * 1000)


@pytest.fixture(params=one_of(["directory", "s3"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param != "directory":
        server: S3Server = request.getfixturevalue("server")
        found = server.bucket("states").below(sha256(str(tmp_path).encode()).hexdigest()[:12]).url
        if request.param == "encrypted s3":
            found = with_key(found, f"file:{key_file(tmp_path / 'key')}")
    else:
        found = (tmp_path / "repository").as_uri()
    create_repository(found)
    return found


@pytest.fixture(scope="module")
def spec(broker: Broker) -> dict[str, Any]:
    return three_kinds(broker.bootstrap_servers, f"publish-{time.time_ns()}")


def restore(
    spec: Mapping[str, Any], url: str, state_dir: Path | None = None, *, engine: Engine | None = None, **more: Any
) -> ReadReport:
    asked = {
        name: more.pop(name) for name in ("request_id", "partitions", "stores", "replace", "start_from") if name in more
    }
    asked.setdefault("start_from", "none")
    request = RestoreRequest(
        state_dir="" if state_dir is None else str(state_dir),
        repository=url,
        spec=spec,
        versioned="latest",
        memory_budget=1 << 20,
        **asked,
    )
    report = run_restore(request, engine or InProcessEngine(), **more)
    assert isinstance(report, ReadReport)
    return report


def stores_of(app_repository: ApplicationRepository) -> dict[tuple[str, str], StoreSnapshot]:
    """The stores of the newest snapshot, every file of which is looked at byte by byte."""
    newest = app_repository.head().newest
    assert newest is not None
    manifest: Manifest = app_repository.manifest(newest).value
    assert manifest.identity == newest.identity
    found = {
        (task, store.store): store
        for task, read in app_repository.task_manifests(manifest.task_manifests).items()
        for store in read.manifest.stores
    }
    for store in found.values():
        for digest, extent in store.extents:
            assert sha256(app_repository.read(extent, "a file")).hexdigest() == digest
    return found


@pytest.mark.parametrize(
    "url", ["directory", "s3", pytest.param("encrypted s3", marks=pytest.mark.full)], indirect=True
)
def test_a_snapshot_of_what_was_placed_has_its_identities_and_content(
    spec: dict[str, Any], url: str, tmp_path: Path
) -> None:
    report = restore(spec, url, tmp_path / "state", engine=ProcessEngine(2))
    app_repository = ApplicationRepository.open(url, spec["application_id"])
    assert report.published is not None
    newest = app_repository.head().newest
    assert newest is not None
    assert (newest.snapshot, newest.identity) == (report.published.snapshot, report.published.identity)
    found = stores_of(app_repository)
    assert len(found) == len(report.stores) == 3 * 3 + 1
    for store in report.stores:
        stored = found[store.task, store.store]
        assert stored.content == (store.rows, store.bytes, store.digest)
        assert {str(partition): offset for partition, offset in stored.offsets.items()} == store.offsets
        if store.store == "plain":
            path = tmp_path / "state" / spec["application_id"] / store.task / "rocksdb" / "plain"
            image = verify_image(path, stored.kind, list(stored.offsets))
            assert image.content == stored.content
    assert newest.read_at_ms is not None
    assert abs(newest.read_at_ms - time.time() * 1000) < 60_000
    (end,) = found["0_0", "plain"].changelogs
    held = topics.end_offset(spec["bootstrap_servers"], f"{spec['application_id']}-plain-changelog", 0)
    assert (end.log_start, end.end, end.log_end) == (0, held, held)
    assert len(end.topic_id) == 32
    assert end.leader_epoch >= 0
    assert not list(app_repository.blobs.list(app_repository.names.stagings))


def test_without_a_state_directory_the_same_snapshot_is_made(spec: dict[str, Any], url: str, tmp_path: Path) -> None:
    placed = restore(spec, url, tmp_path / "state")
    alone = restore(spec, url)
    assert placed.published is not None
    assert alone.published is not None
    assert alone.published.snapshot != placed.published.snapshot
    assert alone.published.identity == placed.published.identity
    assert alone.published.new_bytes == 0
    app_repository = ApplicationRepository.open(url, spec["application_id"])
    assert not list(app_repository.blobs.list(app_repository.names.stagings))


@pytest.fixture(scope="module")
def large(spec: dict[str, Any], broker: Broker) -> dict[str, Any]:
    """An application with a run that is no part of a pack."""
    application_id = f"large-{time.time_ns()}"
    topics.create(broker.bootstrap_servers, f"{application_id}-plain-changelog", 1, topics.UNCLEANED)
    records = [Record(b"key-%06d" % n, os.urandom(300), partition=0, timestamp=NOW) for n in range(8000)]
    topics.produce(broker.bootstrap_servers, f"{application_id}-plain-changelog", records)
    return {
        **{name: value for name, value in spec.items() if name != "global_stores"},
        "application_id": application_id,
        "subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}},
    }


def published_and_placed(
    spec: dict[str, Any], where: Path, query: str = "", **more: Any
) -> tuple[set[Path], set[Path]]:
    """The large files of a repository in a directory, and the SST files that were placed beside it."""
    url = (where / "repository").as_uri() + query
    create_repository(url)
    run_restore(RestoreRequest(state_dir=str(where / "state"), repository=url, spec=spec, **more), InProcessEngine())
    return set((where / "repository").rglob("files/*/*")), set((where / "state").rglob("*.sst"))


def shared_bytes(some: set[Path], others: set[Path]) -> int:
    inodes = {path.stat().st_ino for path in others}
    return sum(path.stat().st_size for path in some if path.stat().st_ino in inodes)


def test_in_a_directory_no_byte_of_a_large_run_is_copied(large: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    if clone(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system clones")
    published, placed = published_and_placed(large, tmp_path)
    assert shared_bytes(published, placed) > 2_000_000
    assert {path.stat().st_mode & 0o777 for path in published | placed} == {FILE_MODE & ~current_umask()}


@pytest.mark.parametrize("kind", sorted(mounts.CLONING))
def test_on_a_file_system_that_clones_repository_and_stores_share_room_and_no_file(
    large: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    with mounts.cloning_disk(tmp_path / "disk", kind) as disk:
        published, placed = published_and_placed(large, disk)
        assert published
        assert shared_bytes(published, placed) == 0
        assert {path.stat().st_nlink for path in published | placed} == {1}
        shared = [path for path in published | placed if "shared" in extents_of(path)]
        assert len(shared) == 2 * len(published)


def extents_of(path: Path) -> str:
    """What the file system says of a file's extents."""
    return subprocess.run(["filefrag", "-v", str(path)], check=True, capture_output=True, text=True).stdout


def test_where_copies_were_asked_for_nothing_is_shared(large: dict[str, Any], tmp_path: Path) -> None:
    published, placed = published_and_placed(large, tmp_path, "?copy=1")
    assert published
    assert shared_bytes(published, placed) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_is_placed_for_another_owner_leaves_the_repository_to_its_own(
    large: dict[str, Any], tmp_path: Path
) -> None:
    published, placed = published_and_placed(large, tmp_path, owner="4242:4243")
    assert published
    assert {(path.stat().st_uid, path.stat().st_gid) for path in published} == {(0, 0)}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in placed} == {(4242, 4243)}


def test_a_retry_recognises_what_was_published_and_uploads_nothing_again(
    spec: dict[str, Any], url: str, tmp_path: Path
) -> None:
    with pytest.raises(FaultInjected):
        restore(spec, url, tmp_path / "state", request_id="r", faults=InjectedFault("restore.after-publication"))
    app_repository = ApplicationRepository.open(url, spec["application_id"])
    before = {blob.name: blob.modified for blob in app_repository.blobs.list("apps/")}
    report = restore(spec, url, tmp_path / "state", request_id="r")
    assert report.published is not None
    assert report.published.earlier
    assert len(app_repository.head().snapshots) == 1
    kept = {blob.name: blob.modified for blob in app_repository.blobs.list("apps/")}
    assert {name: kept[name] for name in kept if "/staging/" not in name} == {
        name: before[name] for name in before if "/staging/" not in name
    }


@pytest.mark.parametrize("point", one_of(["publish.after-task-manifests", "restore.after-runs", "restore.after-plan"]))
def test_a_job_without_a_state_directory_resumes_after_a_kill(spec: dict[str, Any], url: str, point: str) -> None:
    with pytest.raises(FaultInjected):
        restore(spec, url, request_id="r", faults=InjectedFault(point))
    report = restore(spec, url, request_id="r")
    assert any("resumed" in note for note in report.notes)
    assert len(stores_of(ApplicationRepository.open(url, spec["application_id"]))) == 10


def test_a_retry_of_a_job_that_has_published_reads_nothing(
    spec: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = restore(spec, url, request_id="r")
    monkeypatch.setattr("statecore.jobs.restore.job.read_changelogs", None)
    again = restore(spec, url, request_id="r")
    assert first.published is not None
    untold: dict[str, Any] = {"made_tasks": (), "kept_tasks": (), "dropped_tasks": ()}
    assert again.published == replace(first.published, earlier=True, **untold)
    assert again.stores == first.stores


def runs_of(store: StoreSnapshot) -> list[Run]:
    return [stored.run for database in store.databases for stored in database.runs]


def test_some_partitions_alone_leave_the_others_as_they_are(spec: dict[str, Any], url: str) -> None:
    restore(spec, url)
    app_repository = ApplicationRepository.open(url, spec["application_id"])
    before = stores_of(app_repository)
    restore(spec, url, partitions=(1,), stores=("plain",))
    after = stores_of(app_repository)
    assert after.keys() == before.keys()
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {("0_1", "plain")}
    was, now = before["0_1", "plain"], after["0_1", "plain"]  # in another pack, because it was put anew
    assert (now.identity, runs_of(now)) == (was.identity, runs_of(was))
    newest, older = (app_repository.manifest(entry).value for entry in app_repository.head().snapshots)
    assert newest.previous == older.snapshot
    assert newest.reference("0_0") == older.reference("0_0")


def produce_more(spec: Mapping[str, Any]) -> None:
    topic = f"{spec['application_id']}-plain-changelog"
    topics.produce(spec["bootstrap_servers"], topic, deletes_and_overwrites(count=30))


def test_an_older_plan_is_made_again_where_others_have_published_more_since(spec: dict[str, Any], url: str) -> None:
    with pytest.raises(FaultInjected):
        restore(spec, url, request_id="old", partitions=(0,), faults=InjectedFault("restore.after-plan"))
    produce_more(spec)
    restore(spec, url)
    ends = ends_there(spec, url)
    assert restore(spec, url, request_id="old", partitions=(0,)).published is not None
    assert ends_there(spec, url) == ends


@pytest.mark.parametrize("start_from", ["cheapest", "none"])
def test_a_restore_that_has_read_more_publishes_over_what_was_published_meanwhile(
    spec: dict[str, Any], url: str, start_from: str
) -> None:
    with pytest.raises(FaultInjected):
        restore(spec, url, request_id="old", start_from=start_from, faults=InjectedFault("restore.after-plan"))
    produce_more(spec)
    faults = FaultAction("restore.after-runs", lambda: restore(spec, url, request_id="old", start_from=start_from))
    report = restore(spec, url, start_from=start_from, faults=faults)
    assert report.published is not None
    assert report.published.concurrent == 1
    assert sum(store.records for store in report.stores) > 0
    ends = ends_there(spec, url)
    restore(spec, url, request_id="whole")
    assert ends_there(spec, url) == ends


def test_a_rebuild_that_has_read_less_than_what_was_published_meanwhile_reads_again(
    spec: dict[str, Any], url: str
) -> None:
    def overtake() -> None:
        produce_more(spec)
        restore(spec, url, request_id="other")

    report = restore(spec, url, request_id="old", faults=FaultAction("restore.after-runs", overtake))
    assert report.published is not None
    head = ApplicationRepository.open(url, spec["application_id"]).head()
    assert head.newest is not None
    assert head.newest.snapshot == report.published.snapshot
    ends = ends_there(spec, url)
    restore(spec, url, request_id="whole")
    assert ends_there(spec, url) == ends


def ends_there(spec: Mapping[str, Any], url: str) -> dict[tuple[str, str], list[int]]:
    return {key: [end.end for end in store.changelogs] for key, store in published_stores(spec, url).items()}


def published_stores(spec: Mapping[str, Any], url: str) -> dict[tuple[str, str], StoreSnapshot]:
    return stores_of(ApplicationRepository.open(url, spec["application_id"]))


def test_a_restore_leaves_a_newer_snapshot_and_succeeds(spec: dict[str, Any], url: str) -> None:
    with pytest.raises(FaultInjected):
        restore(spec, url, request_id="old", start_from="cheapest", faults=InjectedFault("restore.after-plan"))
    produce_more(spec)
    restore(spec, url)
    for _ in range(2):  # a retry under the same request id reads nothing again
        report = restore(spec, url, request_id="old", start_from="cheapest")
        assert report.published is None
        assert any(note.startswith(NOT_PUBLISHED) for note in report.notes)
    assert len(ApplicationRepository.open(url, spec["application_id"]).head().snapshots) == 1


def test_a_repository_that_is_not_there_is_refused_before_anything_is_read(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    with raises(NotFound, "repository-not-found"):
        restore(spec, (tmp_path / "nowhere").as_uri(), tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_credentials_that_are_wrong_are_refused_before_anything_is_read(
    spec: dict[str, Any], server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.bucket("states").below("of-tests").url
    create_repository(url)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with raises(Invalid, "object-store-access-denied"):
        restore(spec, url, tmp_path / "state")
    assert not (tmp_path / "state").exists()
