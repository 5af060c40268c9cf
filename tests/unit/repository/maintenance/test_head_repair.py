"""A head is recreated from the existing manifests, and jobs begun before are fenced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statecore.documents import encode_json, parse_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound, Retryable
from statecore.objectstore.base import Blob
from statecore.objectstore.directory import DirectoryBlobs
from statecore.repository.application_repository import ApplicationRepository, published_in
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD, Head
from statecore.repository.listing import list_application
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_repair import HeadRepairPlan, apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import Verifier, verify_applications
from statecore.repository.manifest import MANIFEST
from tests.harness import s3_server
from tests.harness.raising import raises
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.published import Publishing, flip


class Lost:
    """A directory repository with snapshots, as something happens to it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        scratch = directory / "scratch"
        scratch.mkdir(parents=True)
        self.publishing = Publishing(self.root.as_uri(), scratch)
        self.app_repository = self.publishing.app_repository
        self.head_file = self.root / self.app_repository.names.head

    def publish(self, *ends: int) -> list[str]:
        """Snapshots up to these offsets, newest first."""
        return [self.publishing.publish(end).snapshot for end in ends][::-1]

    def manifest_file(self, snapshot: str) -> Path:
        return self.root / self.app_repository.names.manifest(snapshot)

    def repaired(self) -> HeadRepairPlan:
        """The plan, which was printed, then done."""
        before = self.head_file.read_bytes() if self.head_file.exists() else None
        plan = plan_repair(self.app_repository, jump=lambda: 1)
        assert (self.head_file.read_bytes() if self.head_file.exists() else None) == before, "a plan changes nothing"
        apply_repair(self.app_repository, plan)
        assert self.app_repository.read_head().head == plan.head  # type: ignore[union-attr]
        return plan


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    """A repository with two snapshots, for tests that leave it as it was."""
    lost = Lost(tmp_path_factory.mktemp("two"))
    lost.publish(10, 20)
    return lost


def names(head: Head) -> list[str]:
    return [entry.snapshot for entry in head.snapshots]


def reasons(plan: HeadRepairPlan) -> dict[str, str]:
    return {one.snapshot: one.why for one in plan.excluded}


def codes(plan: HeadRepairPlan) -> dict[str, str]:
    return {one.snapshot: one.code for one in plan.excluded}


def test_a_healthy_head_is_left_alone(lost: Lost) -> None:
    newest, first = lost.publish(10, 20)
    lost.publishing.forge("20231114T000000Z-00000009", newest)
    before = lost.head_file.read_bytes()
    plan = plan_repair(lost.app_repository)
    assert (plan.problem, names(plan.head)) == (None, [newest, first])
    assert codes(plan) == {"20231114T000000Z-00000009": "not-named"}
    apply_repair(lost.app_repository, plan)
    assert lost.head_file.read_bytes() == before


def test_a_lost_head_is_recreated_as_it_was(lost: Lost) -> None:
    lost.publish(10, 20)
    lost.publishing.publish(30, [1], drops_other_tasks=False)
    before = lost.app_repository.head()
    lost.head_file.unlink()
    with raises(Corrupted, "head-missing") as caught:
        lost.app_repository.head()
    assert "statecore repo repair-head" in caught.value.action
    plan = lost.repaired()
    assert plan.code == "head-missing"
    assert plan.excluded == ()
    assert plan.head == replace(before, epoch=1, generation=4, collection=1), "every entry, with its bytes that are new"
    assert lost.publishing.publish(40).snapshot == lost.app_repository.head().snapshots[0].snapshot
    assert lost.app_repository.manifest(lost.app_repository.head().snapshots[0]).value.epoch == 1


def test_a_recreated_head_keeps_as_few_snapshots_as_the_lost_one(lost: Lost) -> None:
    snapshots = lost.publish(*range(1, 20))
    before = lost.app_repository.head()
    assert names(before) == snapshots[:12]
    lost.head_file.unlink()
    plan = lost.repaired()
    assert plan.head.snapshots == before.snapshots
    assert codes(plan) == dict.fromkeys(snapshots[12:], "older")


@settings(deadline=None, max_examples=25)
@given(at=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_head_with_a_flipped_bit_is_recreated(two: Lost, at: int, bit: int) -> None:
    good = two.head_file.read_bytes()
    before = two.app_repository.head()
    try:
        flip(two.head_file, at % len(good), bit)
        with pytest.raises((Corrupted, Invalid)):
            two.app_repository.head()
        plan = two.repaired()
        assert plan.problem
        assert plan.head.snapshots == before.snapshots
        assert plan.head.epoch > before.epoch
        assert plan.head.generation > before.generation
    finally:
        two.head_file.write_bytes(good)


def test_a_head_of_another_repository_is_recreated(lost: Lost, tmp_path: Path) -> None:
    snapshots = lost.publish(10)
    other = Lost(tmp_path / "other")
    other.publish(10, 20, 30)
    lost.head_file.write_bytes(other.head_file.read_bytes())
    plan = lost.repaired()
    assert plan.code == "head-foreign"
    assert names(plan.head) == snapshots
    assert plan.head.generation == 4, "above what the copied head said"


def test_the_head_of_another_application_is_not_taken_for_a_damaged_one(lost: Lost) -> None:
    """As in a directory that ignores case, where both are one."""
    lost.publish(10, 20)
    (lost.root / "apps" / "Orders").symlink_to("orders")
    other = ApplicationRepository(lost.app_repository.repository, "Orders")
    before = lost.head_file.read_bytes()
    with raises(Invalid, "head-foreign", application_id="Orders", found_application_id="orders"):
        plan_repair(other)
    assert lost.head_file.read_bytes() == before
    lost.head_file.unlink()
    with raises(Invalid, "manifest-foreign", application_id="Orders", found_application_ids=["orders"]):
        plan_repair(other)
    assert len(lost.repaired().head.snapshots) == 2


@pytest.mark.parametrize("generation", [-1, 1 << 53, "7", True, None])
def test_an_impossible_generation_of_a_damaged_head_is_ignored(lost: Lost, generation: object) -> None:
    snapshots = lost.publish(10, 20)
    document = parse_json(lost.head_file.read_bytes())
    lost.head_file.write_bytes(encode_json({**document, "generation": generation}))
    plan = lost.repaired()
    assert names(plan.head) == snapshots
    assert plan.head.generation == 3


def test_unreadable_snapshots_of_a_head_are_left_out(lost: Lost) -> None:
    fourth, third, second, first = lost.publish(10, 20, 30, 40)
    document = parse_json(lost.head_file.read_bytes())
    lost.head_file.write_bytes(encode_json(HEAD.sealed({**document, "more": 7})))
    lost.manifest_file(fourth).unlink()
    flip(lost.manifest_file(second), 100)
    with pytest.raises(Corrupted):
        lost.publishing.begin()
    plan = lost.repaired()
    assert plan.code == "snapshots-damaged"
    assert names(plan.head) == [third, first]
    assert (plan.head.epoch, plan.head.generation) == (1, 5)
    assert codes(plan) == {fourth: "blob-missing", second: "manifest-damaged"}
    assert parse_json(lost.head_file.read_bytes())["more"] == 7, "what this release does not know of the head stays"
    lost.publish(50)


def test_a_head_with_a_damaged_task_manifest_refuses_publications_until_repaired(lost: Lost) -> None:
    second, first = lost.publish(10, 20)
    task_manifest = lost.app_repository.manifest(lost.app_repository.head().snapshots[0]).value.task_manifests[1]
    flip(lost.root / task_manifest.extent.blob, task_manifest.extent.start + 5)
    with pytest.raises(Corrupted):
        lost.publish(30)
    plan = lost.repaired()
    assert names(plan.head) == [first]
    assert codes(plan)[second] == "manifest-damaged"
    assert "0_1" in reasons(plan)[second]
    lost.publish(30)


def test_manifests_with_flipped_bits_are_left_out(lost: Lost) -> None:
    third, second, first = lost.publish(10, 20, 30)
    lost.head_file.unlink()
    flip(lost.manifest_file(second), 200, 3)
    plan = lost.repaired()
    assert names(plan.head) == [third, first], "the predecessor of the second is unknown: the newest of the rest"
    assert list(reasons(plan)) == [second]


@settings(deadline=None, max_examples=25)
@given(at=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_manifest_with_a_flipped_bit_is_left_out_wherever_it_is(two: Lost, at: int, bit: int) -> None:
    head = two.head_file.read_bytes()
    newest, first = names(two.app_repository.head())
    manifest = two.manifest_file(newest).read_bytes()
    try:
        two.head_file.unlink()
        flip(two.manifest_file(newest), at % len(manifest), bit)
        assert names(plan_repair(two.app_repository).head) == [first]
    finally:
        two.head_file.write_bytes(head)
        two.manifest_file(newest).write_bytes(manifest)


def test_every_flipped_bit_of_a_manifest_is_found_without_a_head(two: Lost) -> None:
    content = two.manifest_file(names(two.app_repository.head())[0]).read_bytes()
    assert MANIFEST.decode(content).epoch == 0
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            with pytest.raises(Invalid):
                MANIFEST.decode(bytes(flipped))


def test_a_snapshot_without_a_task_manifest_or_file_is_left_out_of_the_chain(lost: Lost) -> None:
    fourth, third, second, first = lost.publish(10, 20, 30, 40)
    entries = {entry.snapshot: entry for entry in lost.app_repository.head().snapshots}
    task_manifests = {name: lost.app_repository.manifest(entry).value.task_manifests for name, entry in entries.items()}
    (lost.root / task_manifests[third][0].extent.blob).unlink()
    ((_, file),) = lost.app_repository.task_manifests(task_manifests[second])["0_1"].manifest.stores[0].extents
    (lost.root / file.blob).write_bytes(b"short")
    lost.head_file.unlink()
    plan = lost.repaired()
    assert names(plan.head) == [fourth, first]
    assert codes(plan) == {third: "blob-missing", second: "blob-truncated"}
    assert plan.head.snapshots[0].new_bytes == entries[fourth].new_bytes


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lost, list[str]]:
    """A repository with eight snapshots, of three epochs."""
    lost = Lost(tmp_path_factory.mktemp("eight"))
    for end in range(10, 90, 10):
        if end in (40, 70):
            lost.head_file.unlink()
            lost.repaired()
        lost.publish(end)
    return lost, names(lost.app_repository.head())


@settings(deadline=None, max_examples=40)
@given(fates=st.lists(st.sampled_from(["kept", "lost", "flipped", "task manifest", "file"]), min_size=8, max_size=8))
def test_without_a_head_every_snapshot_that_is_whole_is_found_and_no_other(
    eight: tuple[Lost, list[str]], fates: list[str]
) -> None:
    assume(set(fates) != {"lost"})  # there would be nothing of the application
    lost, snapshots = eight
    good = lost.head_file.read_bytes()
    head = lost.app_repository.head()
    changed: dict[Path, bytes] = {}
    try:
        for entry, fate in zip(head.snapshots, fates, strict=True):
            manifest = lost.app_repository.manifest(entry).value
            task_manifest = manifest.task_manifests[0]
            ((_, extent),) = (
                lost.app_repository.task_manifests([task_manifest])[task_manifest.task].manifest.stores[0].extents
            )
            blob = {"task manifest": task_manifest.extent.blob, "file": extent.blob}.get(
                fate, lost.app_repository.names.manifest(entry.snapshot)
            )
            if fate != "kept":
                changed[lost.root / blob] = (lost.root / blob).read_bytes()
                (lost.root / blob).unlink() if fate != "flipped" else flip(lost.root / blob, 99)
        lost.head_file.unlink()
        plan = plan_repair(lost.app_repository)
    finally:
        for file, content in {**changed, lost.head_file: good}.items():
            file.write_bytes(content)
    kept = [name for name, fate in zip(snapshots, fates, strict=True) if fate == "kept"]
    assert names(plan.head) == kept
    gone = {name for name, fate in zip(snapshots, fates, strict=True) if fate in ("flipped", "task manifest", "file")}
    assert reasons(plan).keys() == gone
    before = {entry.snapshot: replace(entry, new_bytes=0) for entry in head.snapshots}
    assert all(replace(entry, new_bytes=0) == before[entry.snapshot] for entry in plan.head.snapshots)


@pytest.mark.parametrize("followed", [False, True], ids=["newest of all", "followed by another"])
def test_of_two_manifests_of_one_generation_one_counts(lost: Lost, followed: bool) -> None:
    """A writer that lost its race, and died before it could take its manifest away."""
    second, first = lost.publish(10, 20)
    chain = [*(lost.publish(30) if followed else []), second, first]
    early, late = "20231114T000000Z-0000000e", "20231114T000000Z-0000000f"
    lost.publishing.forge(early, second, created_at="2000-01-01T00:00:00.000Z", request_id="another")
    lost.head_file.unlink()
    plan = lost.repaired()
    assert names(plan.head) == chain, "the one that was made last, where nobody follows; else the one that is followed"
    assert codes(plan) == {early: "superseded"}
    assert second in reasons(plan)[early]
    lost.publishing.forge(late, second, created_at="2999-01-01T00:00:00.000Z", request_id="another")
    lost.head_file.unlink()
    assert names(lost.repaired().head) == (chain if followed else [late, first])


def test_a_higher_epoch_is_newer_whatever_the_generation(lost: Lost) -> None:
    second, first = lost.publish(10, 20)
    lost.head_file.unlink()
    lost.repaired()
    (third,) = lost.publish(30)
    lost.publishing.forge("20231114T000000Z-0000000f", second, generation=99)  # of a writer that was fenced
    lost.head_file.unlink()
    plan = lost.repaired()
    assert names(plan.head) == [third, second, first]
    assert (plan.head.epoch, plan.head.generation) == (2, 100)


def test_a_manifest_of_another_place_or_name_is_left_out(lost: Lost, tmp_path: Path) -> None:
    (mine,) = lost.publish(10)
    other = Lost(tmp_path / "other")
    (theirs, _) = other.publish(10, 20)
    lost.manifest_file(theirs).write_bytes(other.manifest_file(theirs).read_bytes())
    copy = "20231114T000000Z-0000000c"
    lost.manifest_file(copy).write_bytes(lost.manifest_file(mine).read_bytes())
    (lost.root / lost.app_repository.names.manifests / "notes.txt").write_text("not a manifest")
    lost.head_file.unlink()
    plan = lost.repaired()
    assert names(plan.head) == [mine]
    said = codes(plan)
    assert (said[theirs], said[copy]) == ("manifest-foreign", "copy")
    assert mine in reasons(plan)[copy]
    assert said["notes.txt"] == "blob-name-invalid"


def test_what_is_no_manifest_is_named_and_left_alone(lost: Lost) -> None:
    (mine,) = lost.publish(10)
    foreign = ["my notes.txt", f"{mine}.json~"]
    for name in foreign:
        (lost.root / lost.app_repository.names.manifests / name).write_text("mine")
    lists = lost.root / lost.app_repository.names.garbage_lists
    lists.mkdir()
    (lists / "list~").write_text("mine")
    assert codes(plan_repair(lost.app_repository)).keys() == set(foreign)
    lost.head_file.unlink()
    plan = lost.repaired()
    assert names(plan.head) == [mine]
    assert codes(plan) == dict.fromkeys(foreign, "blob-name-invalid")


def test_an_application_that_has_nothing_but_foreign_names_does_not_exist(tmp_path: Path) -> None:
    lost = Lost(tmp_path)
    lost.publish(10)
    lost.head_file.unlink()
    for path in (lost.root / lost.app_repository.names.manifests).iterdir():
        path.rename(f"{path}~")
    with raises(NotFound, "application-not-found"):
        plan_repair(lost.app_repository)


def test_a_lost_head_refuses_publications(lost: Lost) -> None:
    lost.publish(10, 20)
    lost.head_file.unlink()
    with raises(Corrupted, "head-missing") as refused:
        lost.publishing.begin()
    assert "statecore repo repair-head" in refused.value.action
    assert not lost.head_file.exists()


def test_a_head_that_is_lost_while_a_job_is_at_work_is_not_made_by_it(lost: Lost) -> None:
    lost.publish(10, 20)
    job = lost.publishing.begin()
    lost.head_file.unlink()
    with raises(Corrupted, "head-missing"):
        job.publish([lost.publishing.task_manifest(7, 30)], drops_other_tasks=False)
    assert not lost.head_file.exists()


def test_a_first_publication_that_was_killed_is_no_lost_head(lost: Lost) -> None:
    (first,) = lost.publish(10)
    lost.head_file.unlink()
    lost.publish(20)
    assert first not in names(lost.app_repository.head())


@pytest.mark.parametrize("what", ["pinned", "verified"])
def test_a_record_shows_that_there_was_a_head(lost: Lost, what: str) -> None:
    (first,) = lost.publish(10)
    if what == "pinned":
        pin(lost.app_repository, first)
    else:
        Verifier(lost.app_repository, Level.DOCUMENTS).run(list_application(lost.app_repository))
    lost.head_file.unlink()
    for use in (lost.app_repository.head, lost.publishing.begin):
        with raises(Corrupted, "head-missing"):
            use()
    (report,) = verify_applications(lost.app_repository.repository, None, Level.DOCUMENTS)
    assert [one.error.code for one in report.damaged] == ["head-missing"]
    assert published_in(lost.app_repository.repository) == [lost.app_repository.application_id]
    assert names(lost.repaired().head) == [first]


def test_a_head_of_which_only_a_record_is_left_is_rebuilt_without_snapshots(lost: Lost) -> None:
    (first,) = lost.publish(10)
    pin(lost.app_repository, first)
    lost.head_file.unlink()
    lost.manifest_file(first).unlink()
    with raises(Corrupted, "head-missing"):
        lost.publishing.begin()
    assert lost.repaired().head.snapshots == ()
    assert len(lost.publish(20)) == 1


def test_no_record_is_written_before_the_first_head(lost: Lost) -> None:
    (first,) = lost.publish(10)
    lost.head_file.unlink()  # as after a first job that was killed just before it
    app_repository = lost.app_repository
    for use in (
        lambda: pin(app_repository, first),
        lambda: unpin(app_repository, first),
        lambda: forget(app_repository),
        lambda: Collector(app_repository).run(),
    ):
        with raises(NotFound, "head-not-found"):
            use()
    with raises(NotFound, "snapshots-not-found"):
        list(verify_applications(app_repository.repository, None, Level.DOCUMENTS))
    assert [name for name in app_repository.names.records if (lost.root / name).exists()] == []


def test_a_damaged_list_of_garbage_matters_only_without_a_head(lost: Lost) -> None:
    snapshots = lost.publish(10, 20, 30)
    for _ in range(2):
        Collector(lost.app_repository, min_age_ms=0).run()
    forget(lost.app_repository, snapshots=snapshots[1:])
    Collector(lost.app_repository, min_age_ms=0).run()
    (listed,) = (lost.root / lost.app_repository.names.garbage_lists).iterdir()
    flip(listed, listed.stat().st_size // 2)
    assert plan_repair(lost.app_repository).problem is None
    lost.head_file.unlink()
    with raises(Corrupted, "garbage-list-damaged") as caught:
        plan_repair(lost.app_repository)
    assert "repo repair-head" in caught.value.action
    listed.unlink()
    assert names(lost.repaired().head) == snapshots, "their files are still there"


def test_a_job_begun_before_the_repair_is_fenced(lost: Lost) -> None:
    snapshots = lost.publish(10, 20)
    job = lost.publishing.begin()
    lost.head_file.unlink()
    lost.repaired()
    with pytest.raises(Fenced):
        job.publish(
            [lost.publishing.task_manifest(0, 30), lost.publishing.task_manifest(1, 30)], drops_other_tasks=True
        )
    assert names(lost.app_repository.head()) == snapshots
    with pytest.raises(Fenced):  # and again: the epoch does not come back
        job.publish([lost.publishing.task_manifest(0, 30)], drops_other_tasks=False)


def test_a_concurrent_swap_of_the_head_is_kept(lost: Lost) -> None:
    lost.publish(10)
    lost.head_file.unlink()
    plan = plan_repair(lost.app_repository, jump=lambda: 1)
    apply_repair(lost.app_repository, plan_repair(lost.app_repository, jump=lambda: 1))
    apply_repair(lost.app_repository, plan)  # it says the very same
    lost.publish(20)
    before = lost.head_file.read_bytes()
    with raises(Fenced, "head-changed"):
        apply_repair(lost.app_repository, plan)
    assert lost.head_file.read_bytes() == before


def test_a_damaged_head_without_a_usable_manifest_becomes_empty(lost: Lost) -> None:
    (only,) = lost.publish(10)
    lost.manifest_file(only).unlink()
    with pytest.raises(Corrupted):
        lost.publish(20)
    assert lost.repaired().head.snapshots == ()
    assert lost.publish(20) == names(lost.app_repository.head())


def test_without_head_and_manifests_there_is_nothing_to_repair(lost: Lost) -> None:
    lost.publish(10)
    absent = ApplicationRepository(lost.app_repository.repository, "payments")
    with raises(NotFound, "application-not-found", application_id="payments", applications=["orders"]):
        plan_repair(absent)


class _Failing(DirectoryBlobs):
    """Blobs whose listing breaks off."""

    def list(self, prefix: str = "") -> Iterator[Blob]:
        yield from islice(super().list(prefix), 1)
        raise Retryable("The listing broke off.", code="test-error", action="Try again.")


def test_a_listing_that_fails_stops_it(lost: Lost) -> None:
    lost.publish(10, 20)
    lost.head_file.unlink()
    repository = lost.app_repository.repository
    place = repository.object_store._replace(blobs=_Failing(lost.root))
    with pytest.raises(Retryable, match="broke off"):
        plan_repair(ApplicationRepository(repository._replace(object_store=place), lost.app_repository.application_id))
    assert not lost.head_file.exists()


@pytest.mark.parametrize("what", ["head", "manifest"])
def test_what_a_newer_release_wrote_is_not_taken_for_damage(lost: Lost, what: str) -> None:
    newest, _ = lost.publish(10, 20)
    file, kind = (lost.head_file, HEAD) if what == "head" else (lost.manifest_file(newest), MANIFEST)
    file.write_bytes(encode_json(kind.sealed({**parse_json(file.read_bytes()), "version": 7})))  # type: ignore[attr-defined]
    if what == "manifest":
        lost.head_file.unlink()
    with pytest.raises(Invalid, match="it has version 7, and this release supports 1"):
        plan_repair(lost.app_repository)


def test_a_lost_head_is_recreated_on_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving() as server:
        location = server.bucket("states").below("production")
        publishing = Publishing(location.url, tmp_path)
        app_repository = publishing.app_repository
        snapshots = [publishing.publish(end).snapshot for end in (10, 20, 30)][::-1]
        before = app_repository.head()
        job = publishing.begin()
        server.client().delete_object(Bucket="states", Key=f"production/{app_repository.names.head}")
        app_repository.blobs.delete(app_repository.names.manifest(snapshots[1]))
        plan = plan_repair(app_repository)
        assert app_repository.read_head() is None
        apply_repair(app_repository, plan)
        assert names(app_repository.head()) == [snapshots[0], snapshots[2]]
        assert app_repository.head().epoch == before.epoch + 1
        with pytest.raises(Fenced):
            job.publish([publishing.task_manifest(0, 40)], drops_other_tasks=False)
        last = publishing.publish(40).snapshot
        client = server.client()
        head = client.get_object(Bucket="states", Key=f"production/{app_repository.names.head}")["Body"].read()
        client.put_object(
            Bucket="states",
            Key=f"production/{app_repository.names.head}",
            Body=re.sub(rb'"tasks": 2', rb'"tasks": 3', head),
        )
        with pytest.raises(Corrupted):
            app_repository.head()
        apply_repair(app_repository, plan_repair(app_repository))
        assert names(app_repository.head()) == [last, snapshots[0], snapshots[2]]
        assert app_repository.head().epoch == before.epoch + 2


def test_a_place_that_became_another_repository_gets_no_repaired_head(lost: Lost) -> None:
    lost.publish(10)
    lost.head_file.unlink()
    plan = plan_repair(lost.app_repository)
    mark = lost.root / DESCRIPTOR_NAME
    mark.write_bytes(DESCRIPTOR.encode(replace(lost.app_repository.repository.descriptor, id="another")))
    with raises(Fenced, "repository-replaced", found_repository_id="another"):
        apply_repair(lost.app_repository, plan)
    assert not lost.head_file.exists()


def test_the_collection_number_leaps_over_those_of_which_nothing_is_left(lost: Lost) -> None:
    lost.publish(10)
    lost.head_file.unlink()
    numbers = [plan_repair(lost.app_repository).head.collection for _ in range(3)]
    assert len({*numbers}) == 3
    assert all(0 < one <= 1 << 40 for one in numbers)
    assert plan_repair(lost.app_repository, jump=lambda: 7).head.collection == 7
