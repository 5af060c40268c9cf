"""Verification of snapshots: which damage each level finds, who needs it, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Invalid, NotFound, Retryable
from statecore.images.model import Run, RunFormat
from statecore.progress import NullProgress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Retention
from statecore.repository.listing import list_application
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.pins import pin
from statecore.repository.maintenance.retention_record import RECORD
from statecore.repository.maintenance.verification_record import Level, read_record
from statecore.repository.maintenance.verify import ALL, Subset, VerificationReport, Verifier, verify_applications
from statecore.repository.manifest import BaseFile, Extent, StoredDatabase, StoredRun
from statecore.repository.publish.upload import LocalFile, put_files
from tests.harness.raising import raises
from tests.harness.simulated_store import Storage
from tests.unit.repository.encrypted import rewrite_sealed
from tests.unit.repository.published import STORE, Publishing, flip
from tests.unit.repository.snapshots import Snapshots

DAY = 24 * 3600.0
FILES = {"run": b"a run", "small.sst": b"a small file of RocksDB", "large.sst": b"a large one ".ljust(1 << 20, b".")}


class World:
    """Two snapshots of a task: the newest has a run and a small base file in a pack, and a large base file.

    Attributes:
        extents: where each of :data:`FILES` is.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        self.orders = Publishing(self.root.as_uri(), directory)
        self.application = self.orders.app_repository
        self.old = self.orders.publish(10, [0]).snapshot
        files = []
        for name, content in FILES.items():
            (directory / name).write_bytes(content)
            files.append(LocalFile(directory / name, sha256(content).hexdigest(), len(content)))
        found = put_files(self.application.blobs, self.application.names, files)
        self.extents = dict(zip(FILES, found, strict=True))
        run = Run(files[0].sha256, RunFormat.SST, 20, 0, 10, files[0].bytes, "0" * 32, "00", "ff", None, 0, 20)
        base = [BaseFile(f"00001{number}.sst", files[number].sha256, found[number]) for number in (1, 2)]
        database = StoredDatabase(None, (StoredRun(run, found[0]),), tuple(base))
        self.newest = self.orders.publish(20, [0], databases=(database,)).snapshot

    def path(self, name: str) -> Path:
        return self.root / name

    def task_manifest(self, snapshot: str) -> Extent:
        entry = self.application.head().entry(snapshot)
        assert entry is not None
        return self.application.manifest(entry).value.task_manifests[0].extent

    def verify(self, level: Level, subset: Subset = ALL, **more: Any) -> VerificationReport:
        return Verifier(self.application, level, subset, **more).run(list_application(self.application))

    def flip(self, file: str) -> str:
        extent = self.extents[file]
        flip(self.path(extent.blob), extent.start + extent.bytes - 1)
        return "blob-damaged"

    def remove(self, file: str) -> str:
        self.path(self.extents[file].blob).unlink()
        return "blob-missing"

    def cut(self, file: str) -> str:
        path = self.path(self.extents[file].blob)
        content = path.read_bytes()
        path.unlink()  # it may be a hard link
        path.write_bytes(content[:-1])
        return "blob-truncated"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def head_missing(world: World) -> str:
    world.path(world.application.names.head).unlink()
    return "head-missing"


def head_flipped(world: World) -> str:
    flip(world.path(world.application.names.head), 40)
    return "head-damaged"


def manifest_missing(world: World) -> str:
    world.path(world.application.names.manifest(world.newest)).unlink()
    return "blob-missing"


def manifest_flipped(world: World) -> str:
    flip(world.path(world.application.names.manifest(world.newest)), 40)
    return "manifest-damaged"


def task_manifest_missing(world: World) -> str:
    world.path(world.task_manifest(world.newest).blob).unlink()
    return "blob-missing"


def task_manifest_flipped(world: World) -> str:
    extent = world.task_manifest(world.newest)
    flip(world.path(extent.blob), extent.start + 3)
    return "manifest-damaged"


DAMAGE: list[tuple[Callable[[World], str], Level]] = [
    *((one, Level.DOCUMENTS) for one in (head_missing, head_flipped, manifest_missing, manifest_flipped)),
    *((one, Level.DOCUMENTS) for one in (task_manifest_missing, task_manifest_flipped)),
    (lambda world: world.remove("run"), Level.FILES),
    (lambda world: world.remove("large.sst"), Level.FILES),
    (lambda world: world.cut("small.sst"), Level.FILES),
    (lambda world: world.cut("large.sst"), Level.FILES),
    (lambda world: world.flip("run"), Level.BYTES),
    (lambda world: world.flip("small.sst"), Level.BYTES),
    (lambda world: world.flip("large.sst"), Level.BYTES),
]


@pytest.mark.parametrize(("damage", "found_at"), DAMAGE)
def test_a_level_finds_its_damage_and_that_of_those_before_it(
    world: World, damage: Callable[[World], str], found_at: Level
) -> None:
    code = damage(world)
    for level in Level:
        report = world.verify(level)
        if found_at not in level.included:
            assert (report.damaged, report.exit_code, report.intact) == ([], 0, world.newest)
            continue
        assert report.exit_code == Corrupted.exit_code
        assert {(one.error.code, one.level) for one in report.damaged} == {(code, found_at)}
        is_head = code.startswith("head")
        assert report.intact == (None if is_head else world.old)
        assert {one.snapshots for one in report.damaged} == ({()} if is_head else {(world.newest,)})
        with raises(Corrupted, code, intact_snapshot=report.intact, damaged=len(report.damaged)):
            report.check()


def test_nothing_is_damaged_and_each_file_counts_and_is_read_once(world: World) -> None:
    world.orders.publish(20, [1], drops_other_tasks=False)  # a third snapshot has the task of the second
    report = world.verify(Level.BYTES)
    report.check()
    assert (report.snapshots, report.damaged) == (3, [])
    assert report.read_blobs == report.blobs == 4
    old = len(b"a run of orders 0 up to 10")
    assert report.read_bytes == report.bytes == sum(map(len, FILES.values())) + 2 * old


def test_damage_names_who_needs_it_and_what_heals_it(world: World) -> None:
    world.orders.publish(20, [1], drops_other_tasks=False)
    newest = world.application.head().snapshots[0].snapshot
    world.remove("small.sst")
    head = world.application.head()
    old = world.application.task_manifests(world.application.manifest(head.snapshots[2]).value.task_manifests)
    ((_, extent),) = old["0_0"].manifest.stores[0].extents
    world.path(extent.blob).unlink()
    (first, second) = world.verify(Level.FILES).damaged
    assert (first.task, first.store, first.segment, first.blob) == ("0_0", STORE, None, world.extents["run"].blob)
    assert (first.snapshots, first.intact) == ((newest, world.newest), None)
    assert "statecore backup" in first.error.action
    assert "--from none" in first.error.action
    assert (second.snapshots, second.blob) == ((world.old,), extent.blob)
    assert "backup" not in second.error.action
    for one in (first, second):
        assert f"{world.application.forget_command}." in one.error.action
        assert "repair-head" not in one.error.action, "it removes no snapshot of a damaged file"
    assert [len(group.damaged) for group in world.verify(Level.FILES).groups] == [1, 1]
    world.orders.publish(20, [0], drops_other_tasks=False)
    report = world.verify(Level.FILES)
    assert report.intact == report.newest
    assert {one.intact for one in report.damaged} == {report.newest}


def test_damage_of_one_blob_is_said_once(orders: Snapshots) -> None:
    orders.publish("first", {"0_0": {"left": 50, "right": 50}})
    (pack,) = [name for name in orders.storage.blobs if "/packs/" in name]
    del orders.storage.blobs[pack]
    report = Verifier(orders.app_repository, Level.FILES).run(list_application(orders.app_repository))
    (group,) = report.groups
    assert [(one.task, one.store) for one in group.damaged] == [("0_0", "left"), ("0_0", "right")]
    with raises(Corrupted, "blob-missing", damaged=2) as found:
        report.check()
    assert str(found.value).count(pack) == 1


@pytest.mark.parametrize("level", [Level.FILES, Level.BYTES])
def test_archived_files_are_no_damage_and_are_reported_until_they_are_restored(
    orders: Snapshots, storage: Storage, level: Level
) -> None:
    orders.publish("first", {"0_0": {"left": 50, "right": 50}})
    (pack,) = [name for name in storage.blobs if "/packs/" in name]
    verifier = Verifier(orders.app_repository, level)
    storage.archived.add(pack)
    report = verifier.run(list_application(orders.app_repository))
    assert {(one.error.kind(), one.error.code, one.level, one.blob) for one in report.damaged} == {
        (Invalid, "blob-archived", Level.FILES, pack)
    }
    assert (report.exit_code, report.intact, report.known[Level.FILES][1]) == (13, None, 2)
    with raises(Invalid, "blob-archived", blob=pack):
        report.check()
    storage.restored.add(pack)
    report = Verifier(orders.app_repository, level).run(list_application(orders.app_repository))
    assert (report.exit_code, report.intact, report.known[Level.FILES][1]) == (0, report.newest, 0)


def test_the_cure_that_is_named_for_files_of_older_snapshots_cures_them(world: World) -> None:
    world.orders.publish(20, [1], drops_other_tasks=False)
    head = world.application.head()
    old = world.application.task_manifests(world.application.manifest(head.snapshots[2]).value.task_manifests)
    ((_, extent),) = old["0_0"].manifest.stores[0].extents
    world.path(extent.blob).unlink()
    (found,) = world.verify(Level.BYTES).damaged
    assert found.error.action.count(world.application.forget_command) == 1
    forget(world.application, snapshots=found.snapshots)
    report = world.verify(Level.BYTES)
    assert (report.damaged, report.known[Level.BYTES][1]) == ([], 0)


def test_documents_are_healed_by_the_head(world: World) -> None:
    task_manifest_flipped(world)
    (found,) = world.verify(Level.DOCUMENTS).damaged
    assert (found.task, found.blob) == ("0_0", world.task_manifest(world.newest).blob)
    assert "repair-head" in found.error.action


def test_what_another_release_wrote_is_no_damage_and_no_success(world: World) -> None:
    head = world.path(world.application.names.head)
    from statecore.documents import encode_json, parse_json
    from statecore.repository.head import HEAD

    head.write_bytes(encode_json(HEAD.sealed({**parse_json(head.read_bytes()), "version": 9})))
    report = world.verify(Level.FILES)
    assert report.exit_code == Invalid.exit_code
    with raises(Invalid, "format-unsupported"):
        report.check()


class Forgets(NullProgress):
    """Forgets and deletes all but the newest snapshot when a phase begins."""

    def __init__(self, world: World, phase: str) -> None:
        self._world, self._phase = world, phase

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        if name != self._phase:
            return
        head = self._world.application.head()
        (read,) = self._world.application.task_manifests(
            self._world.application.manifest(head.snapshots[1]).value.task_manifests
        ).values()
        forget(self._world.application, Retention(last=1, hourly=0, daily=0, weekly=0))
        for _, extent in read.manifest.stores[0].extents:
            self._world.path(extent.blob).unlink()


@pytest.mark.parametrize("phase", ["sizes", "bytes"])
def test_what_is_forgotten_and_deleted_meanwhile_is_no_damage(world: World, phase: str) -> None:
    report = world.verify(Level.BYTES, progress=Forgets(world, phase))
    assert (report.damaged, report.intact) == ([], world.newest)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_rotation_reads_everything_in_as_many_runs(world: World, parts: int) -> None:
    now = 100 * DAY
    for number in range(2 * parts):
        report = world.verify(Level.BYTES, Subset(None, parts), clock=lambda: now + number)  # noqa: B023
        assert report.parts == parts
    verified = [one for one in read_record(world.application).verified if one.level == Level.BYTES]
    assert [one.part for one in verified] == [*range(1, parts + 1)]
    assert {one.at_ms for one in verified} == {int((now + parts + number) * 1000) for number in range(parts)}
    read = [world.verify(Level.BYTES, Subset(part + 1, parts)) for part in range(parts)]
    assert sum(one.read_blobs for one in read) == read[0].blobs
    assert sum(one.read_bytes for one in read) == read[0].bytes
    world.flip("large.sst")
    assert sum(len(world.verify(Level.BYTES, Subset(None, parts)).damaged) for _ in range(parts)) == 1


def test_damage_counts_once_in_all_parts_together(world: World) -> None:
    world.remove("large.sst")
    world.flip("run")
    for _ in range(7):
        world.verify(Level.BYTES, Subset(None, 7))
    assert read_record(world.application).known(1 << 60)[Level.BYTES][1] == 2


def test_a_run_records_each_level_that_it_includes(world: World) -> None:
    world.remove("large.sst")
    world.flip("run")
    world.verify(Level.BYTES, clock=lambda: DAY)
    record = read_record(world.application)
    found = {one.level: (one.part, one.parts, one.at_ms, one.snapshot, one.damaged) for one in record.verified}
    assert found == {
        level.value: (1, 1, int(DAY * 1000), world.newest, damaged)
        for level, damaged in zip(Level, (0, 1, 2), strict=True)
    }


def test_without_the_right_to_write_it_is_not_recorded_and_goes_by_the_day(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Invalid("No.", code="object-store-access-denied", action="Ask.")

    monkeypatch.setattr(world.application.pointers, "swap", refuse)
    parts = []
    for day in range(3):
        report = world.verify(Level.BYTES, Subset(None, 3), clock=lambda: day * DAY)  # noqa: B023
        assert (report.record, bool(report.not_recorded), report.exit_code) == (None, True, 0)
        parts.append(report.part)
    assert parts == [1, 2, 3]


def test_all_applications_are_verified_or_one(world: World, tmp_path: Path) -> None:
    repository = world.application.repository
    Publishing(world.application.url, tmp_path, "payments").publish(10)
    repository.object_store.blobs.put_if_absent("apps/begun/staging/x/y", b"")
    assert [one.application_id for one in verify_applications(repository, None, Level.FILES)] == ["orders", "payments"]
    assert [one.application_id for one in verify_applications(repository, "orders", Level.FILES)] == ["orders"]
    for absent in ("begun", "absent"):
        with raises(NotFound, "snapshots-not-found"):
            list(verify_applications(repository, absent, Level.FILES))


def test_a_repository_without_snapshots_is_not_found(tmp_path: Path) -> None:
    empty = Publishing((tmp_path / "repository").as_uri(), tmp_path).app_repository.repository
    with raises(NotFound, "snapshots-not-found"):
        list(verify_applications(empty, None, Level.FILES))


def test_an_unreachable_object_store_is_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise Retryable("No answer.", code="object-store-unreachable", action="Wait.")

    monkeypatch.setattr(world.application.blobs, "head", unreachable)
    with raises(Retryable, "object-store-unreachable"):
        world.verify(Level.FILES)
    assert read_record(world.application).verified == ()


@pytest.mark.parametrize("text", ["", "7", "0/7", "8/7", "1/0", "/0", "/1001", "-1/7", "1/7/9", "a/7", "2/", "1/7\n"])
def test_what_is_no_subset(text: str) -> None:
    assert Subset.parse(text) is None


def test_a_subset_is_parsed() -> None:
    assert (Subset.parse("2/7"), Subset.parse("/7"), Subset.parse("1/1")) == (Subset(2, 7), Subset(None, 7), ALL)


@pytest.mark.parametrize("damage", [head_missing, head_flipped])
def test_a_head_that_cannot_be_used_is_known_damage_beside_what_was_known(
    world: World, damage: Callable[[World], str]
) -> None:
    world.verify(Level.BYTES, clock=lambda: DAY)
    world.remove("run")
    world.verify(Level.FILES, clock=lambda: 2 * DAY)
    damage(world)
    report = world.verify(Level.FILES, clock=lambda: 3 * DAY)
    day_ms = int(DAY * 1000)
    assert report.known == {
        Level.DOCUMENTS: (2 * day_ms, 1),
        Level.FILES: (2 * day_ms, 2),
        Level.BYTES: (day_ms, 0),
    }


def test_damage_that_cannot_be_recorded_is_known_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise Invalid("It may not write.", code="system-refused", action="None.")

    monkeypatch.setattr(world.application.pointers, "swap", refused)
    world.remove("run")
    report = world.verify(Level.FILES)
    assert (report.record, bool(report.not_recorded), report.known[Level.FILES][1]) == (None, True, 1)


def test_an_application_that_cannot_be_verified_keeps_no_other_from_being_verified(
    world: World, tmp_path: Path
) -> None:
    for application_id in ("alpha", "beta", "zeta"):
        Publishing(world.root.as_uri(), tmp_path, application_id).publish(10)
    pin(ApplicationRepository(world.application.repository, "alpha"), "newest")
    rewrite_sealed(world.path("apps/alpha/retention"), RECORD, version=2)
    world.path(world.application.names.head).write_bytes(b"{}")
    next(world.path("apps/zeta/files").rglob("*.0")).unlink()
    found = {one.application_id: one for one in verify_applications(world.application.repository, None, Level.FILES)}
    assert {name: one.exit_code for name, one in found.items()} == {"alpha": 13, "beta": 0, "orders": 12, "zeta": 12}
    with raises(Invalid, "format-unsupported"):
        found["alpha"].check()
    assert [one.error.code for one in found["alpha"].damaged] == ["format-unsupported"]
    (alone,) = verify_applications(world.application.repository, "alpha", Level.FILES)
    assert alone.exit_code == 13
