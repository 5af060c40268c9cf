"""A head that was put back to an older version: what shows it, what the repair names, and that nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.documents import encode_json, parse_json
from statecore.errors import Corrupted, Fenced, Invalid
from statecore.objectstore.base import Blob
from statecore.objectstore.directory import DirectoryBlobs
from statecore.objectstore.s3_location import S3Location
from statecore.repository.application_repository import ApplicationRepository, published_in
from statecore.repository.head import Head, Retention
from statecore.repository.listing import list_application
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget, plan_forget
from statecore.repository.maintenance.head_repair import HeadRepairPlan, apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.retention_record import read_retention, record_pinned
from statecore.repository.maintenance.reverted_head import why_reverted
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import Verifier
from statecore.repository.manifest import MANIFEST
from tests.harness import s3_server
from tests.harness.raising import raises
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import fetched, publication


class Kept:
    """An application whose head is kept, and put back later, as a restored bucket does."""

    def __init__(self, url: str, scratch: Path) -> None:
        self.publishing = Publishing(url, scratch)
        self.app_repository, self.directory = self.publishing.app_repository, scratch / "repository"

    def publish(self, *ends: int) -> list[str]:
        """Snapshots up to these offsets, newest first."""
        return [self.publishing.publish(end).snapshot for end in ends][::-1]

    def pin(self, snapshot: str, note: str = "") -> None:
        pin(self.app_repository, snapshot, note)

    def pin_between(self, snapshot: str) -> None:
        """A pin that had checked the head just before it was put back."""
        record_pinned(self.app_repository, self.head, self.head.entry(snapshot))  # type: ignore[arg-type]

        def pinned(head: Head) -> Head:
            entries = tuple(replace(one, pinned=one.pinned or one.snapshot == snapshot) for one in head.snapshots)
            return replace(head, generation=head.generation + 1, snapshots=entries)

        self.app_repository.change_head(pinned)

    def collect(self, times: int = 1) -> None:
        for _ in range(times):
            Collector(self.app_repository, min_age_ms=0).run()

    @property
    def head(self) -> Head:
        return self.app_repository.head()

    @property
    def content(self) -> bytes:
        return self._pointer[0]

    @property
    def names(self) -> list[str]:
        return [entry.snapshot for entry in self.head.snapshots]

    @property
    def blobs(self) -> set[str]:
        return {blob.name for blob in self.app_repository.blobs.list(self.app_repository.names.root)}

    def put_back(self, content: bytes) -> None:
        """An older version takes the place of the head."""
        name = self.app_repository.names.head
        assert self.app_repository.pointers.swap(name, content, self._pointer[1]) is not None

    def lose(self) -> None:
        """The head of a directory is lost."""
        (self.directory / self.app_repository.names.head).unlink()

    @property
    def _pointer(self) -> tuple[bytes, str]:
        found = self.app_repository.pointers.read(self.app_repository.names.head)
        assert found is not None
        return found.content, found.version

    def verified(self) -> list[str]:
        """Codes of the damage that a verification of the documents finds."""
        report = Verifier(self.app_repository, Level.DOCUMENTS).run(list_application(self.app_repository))
        assert (report.record is None, report.not_recorded) == (False, "")
        return [one.error.code for one in report.damaged]

    def repaired(self) -> HeadRepairPlan:
        """The plan, which changes nothing, then done: all that the new head names is whole."""
        before = self.content
        plan = plan_repair(self.app_repository, jump=lambda: 1)
        assert self.content == before
        apply_repair(self.app_repository, plan)
        assert self.head == plan.head
        assert list(fetched(self.app_repository)) == self.names
        return plan


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Location]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        with s3_server.serving() as server:
            yield server.bucket("states")


@pytest.fixture(params=["directory", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "s3":
        url = request.getfixturevalue("bucket").below(tmp_path.name.replace("_", "-")).url
    else:
        url = (tmp_path / "repository").as_uri()
    return Kept(url, tmp_path)


def codes(plan: HeadRepairPlan) -> dict[str, str]:
    return {one.snapshot: one.code for one in plan.excluded}


def test_what_was_published_after_it_counts_again_with_the_pins_and_the_retention_that_it_has(kept: Kept) -> None:
    second, first = kept.publish(10, 20)
    kept.pin(first, "before the migration")
    forget(kept.app_repository, Retention(last=3, hourly=0, daily=0, weekly=0))
    old, before = kept.content, kept.head
    sixth, fifth, fourth, third = kept.publish(30, 40, 50, 60)
    job = kept.publishing.begin()
    kept.put_back(old)
    assert kept.names == [second, first]
    with raises(Corrupted, "head-reverted"):
        kept.collect()
    assert kept.verified() == ["head-reverted"]
    plan = kept.repaired()
    assert plan.code == "head-reverted"
    assert kept.verified() == []
    assert kept.names == [sixth, fifth, fourth, first]
    assert codes(plan) == {third: "older", second: "older"}
    assert (kept.head.snapshots[-1].pinned, kept.head.snapshots[-1].note) == (True, "before the migration")
    assert kept.head.keep == before.keep
    assert (kept.head.epoch, kept.head.generation, kept.head.collection) == (1, 9, 1)
    with raises(Fenced, "publication-conflict", reason="head-recreated"):
        job.publish([kept.publishing.task_manifest(0, 70)], drops_other_tasks=False)
    kept.publish(70)
    kept.collect(4)
    fetched(kept.app_repository)


def test_what_was_published_for_it_counts_where_jobs_went_on(kept: Kept) -> None:
    """Its stores are further, and instances may have started from them."""
    second, first = kept.publish(10, 20)
    old = kept.content
    seventh, sixth, fifth, fourth, third = kept.publish(30, 40, 50, 60, 62)
    kept.put_back(old)
    kept.pin_between(second)
    on, in_between = kept.publish(65, 70)
    plan = kept.repaired()
    assert plan.code == "head-reverted"
    assert kept.names == [on, in_between, second, first]
    assert [entry.pinned for entry in kept.head.snapshots] == [False, False, True, False]
    assert codes(plan) == {
        **dict.fromkeys((seventh, sixth), "other-branch"),
        **dict.fromkeys((fifth, fourth), "superseded"),
        third: "not-connected",
    }
    assert kept.head.generation == 8
    last = kept.publish(80)
    kept.collect(4)
    assert kept.names == [*last, on, in_between, second, first]
    fetched(kept.app_repository)


def test_what_was_deleted_since_is_left_out(kept: Kept) -> None:
    third, second, first = kept.publish(10, 20, 30)
    old = kept.content
    forget(kept.app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    kept.collect()  # which lists the manifests of the first two
    kept.put_back(old)
    assert kept.names == [third, second, first]
    blobs = kept.blobs
    with raises(Corrupted, "head-reverted") as caught:
        kept.collect()
    assert kept.blobs == blobs
    assert "repo repair-head" in caught.value.action
    plan = kept.repaired()
    assert codes(plan) == {second: "collected", first: "collected"}
    assert kept.names == [third]
    assert kept.head.keep == Retention(), "that of the older head"
    assert kept.head.collection == 2
    kept.publish(40)
    kept.collect(5)
    fetched(kept.app_repository)
    assert not any(name in blob for name in (second, first) for blob in kept.blobs)


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_what_the_deletion_left_of_an_older_head_is_left_out(kept: Kept) -> None:
    third, second, first = kept.publish(10, 20, 30)
    old = kept.content
    forget(kept.app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    kept.collect(3)
    newer = kept.publish(40, 50)
    kept.put_back(old)
    plan = kept.repaired()
    assert plan.code == "head-reverted"
    assert kept.names == [*newer, third]
    assert codes(plan) == {second: "blob-missing", first: "blob-missing"}


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_pinned_snapshot_stays_beside_another_of_its_generation(kept: Kept) -> None:
    kept.publish(10, 20)
    old = kept.content
    *_, third = kept.publish(30, 40, 50)
    first_branch = kept.content
    kept.put_back(old)
    (mine,) = kept.publish(35)
    kept.pin_between(mine)
    other_branch = kept.content
    kept.put_back(first_branch)
    newest, _ = kept.publish(60, 70)
    kept.put_back(other_branch)
    plan = kept.repaired()
    assert kept.names[0] == newest
    assert codes(plan) == {}
    assert third in kept.names
    assert [entry.snapshot for entry in kept.head.snapshots if entry.pinned] == [mine]


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_pins_and_the_retention_that_are_later_than_the_head_are_those_of_the_record(kept: Kept) -> None:
    kept.publish(10, 20)
    old = kept.content
    *_, third = kept.publish(30, 40, 50)
    kept.pin(third, "audit")
    forget(kept.app_repository, Retention(last=15, monthly=24))
    kept.put_back(old)
    (mine,) = kept.publish(60)
    plan = kept.repaired()
    assert plan.code == "head-reverted"
    assert kept.names[0] == mine, "it is the later branch, whatever generation the pinned one has"
    assert [(entry.snapshot, entry.note) for entry in kept.head.snapshots if entry.pinned] == [(third, "audit")]
    assert kept.head.keep == Retention(last=15, monthly=24)
    kept.collect(4)
    fetched(kept.app_repository)


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_lost_pin_shows_it_where_as_many_jobs_have_published_since(kept: Kept) -> None:
    kept.publish(10)
    old = kept.content
    (pinned,) = kept.publish(20)
    kept.pin(pinned)
    kept.put_back(old)
    newest = kept.publish(30, 40, 50)
    kept.collect(4)
    assert kept.verified() == ["pin-lost"]
    kept.repaired()
    assert kept.names[: len(newest)] == newest
    assert [entry.snapshot for entry in kept.head.snapshots if entry.pinned] == [pinned]
    kept.collect(4)
    assert kept.verified() == []
    unpin(kept.app_repository, pinned)
    assert plan_repair(kept.app_repository).problem is None


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_pin_whose_snapshot_is_damaged_stops_no_collection_for_ever(kept: Kept) -> None:
    (pinned, first) = kept.publish(10, 20)
    kept.pin(pinned)
    manifest = kept.app_repository.manifest(kept.head.snapshots[0]).value
    kept.app_repository.blobs.delete(manifest.task_manifests[0].extent.blob)
    kept.repaired()
    assert kept.names == [first]
    kept.publish(30)
    kept.collect(4)


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_what_was_published_since_stays_beside_lists_of_the_other_branch(kept: Kept) -> None:
    kept.publish(10, 20)
    old = kept.content
    kept.publish(30, 40, 50)
    forget(kept.app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    kept.collect()
    kept.put_back(old)
    (mine,) = kept.publish(60)
    kept.repaired()
    assert kept.names[0] == mine


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_manifest_that_a_killed_job_has_left_shows_nothing(kept: Kept) -> None:
    newest = kept.publish(10, 20)[0]
    kept.publishing.forge("20231114T000000Z-00000009", newest, generation=3)
    plan = plan_repair(kept.app_repository)
    assert (plan.problem, codes(plan)) == (None, {"20231114T000000Z-00000009": "not-named"})
    kept.collect()
    kept.publishing.forge("20231114T000000Z-0000000a", newest, generation=kept.head.generation + 2)
    assert plan_repair(kept.app_repository).code == "head-reverted"


class _Denied(DirectoryBlobs):
    """Blobs some of which this process may not read."""

    denied: frozenset[str] = frozenset()

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        if name in self.denied:
            raise Invalid("Permission denied.", code="system-refused", action="Grant it.")
        return super().get(name, start, end)


def unreadable(kept: Kept, snapshots: Sequence[str], how: str) -> ApplicationRepository:
    """The application as a process sees it that cannot read the manifests of these snapshots."""
    repository, names = kept.app_repository.repository, kept.app_repository.names
    blobs = _Denied(kept.directory)
    for snapshot in snapshots if how != "denied" else ():
        file = kept.directory / names.manifest(snapshot)
        newer = {"version": 2} if how == "version" else {"needs": {"read": ["feature-2"], "write": []}}
        file.write_bytes(encode_json(MANIFEST.sealed({**parse_json(file.read_bytes()), **newer})))
    if how == "denied":
        blobs.denied = frozenset(map(names.manifest, snapshots))
    place = repository.object_store._replace(blobs=blobs)
    return ApplicationRepository(repository._replace(object_store=place), kept.app_repository.application_id)


UNREADABLE = pytest.mark.parametrize(
    ("how", "code"), [("denied", "system-refused"), ("version", "format-unsupported"), ("needs", "format-unsupported")]
)


@UNREADABLE
@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_later_snapshots_that_cannot_be_read_stop_whatever_would_delete_or_hide_them(
    kept: Kept, how: str, code: str
) -> None:
    *_, first = kept.publish(10, 20)
    old = kept.content
    later = kept.publish(30, 40, 50)
    kept.put_back(old)
    blind, blobs = unreadable(kept, later, how), kept.blobs
    for change in (
        lambda: Collector(blind, min_age_ms=0).plan(),
        lambda: Collector(blind, min_age_ms=0).run(),
        lambda: pin(blind, first),
        lambda: unpin(blind, first),
        lambda: forget(blind, Retention(last=1)),
        lambda: plan_repair(blind),
    ):
        with raises(Invalid, code):
            change()
    assert (kept.blobs, kept.content) == (blobs, old)
    report = Verifier(blind, Level.DOCUMENTS).run(list_application(blind))
    assert [one.error.code for one in report.damaged] == [code]


@UNREADABLE
@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_where_no_manifest_can_be_read_a_missing_head_is_not_one_that_never_was(
    kept: Kept, how: str, code: str
) -> None:
    snapshots = kept.publish(10, 20)
    kept.lose()
    blind = unreadable(kept, snapshots, how)
    for use in (blind.head, lambda: publication(blind), lambda: plan_repair(blind)):
        with raises(Invalid, code):
            use()
    error = list_application(blind).error
    assert error is not None
    assert error.code == code
    assert published_in(blind.repository) == [blind.application_id]


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_damaged_manifest_or_a_foreign_name_beside_it_stops_nothing(kept: Kept) -> None:
    kept.publish(10)
    names = kept.app_repository.names
    (kept.directory / names.manifest("20231114T000000Z-00000009")).write_bytes(b'{"version": 2}')
    (kept.directory / names.manifests / "my notes").write_bytes(b"")
    pin(kept.app_repository, "newest")
    kept.lose()
    assert kept.app_repository.has_lost_head()


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_head_that_has_gone_back_is_not_swapped_by_pins_or_retention(kept: Kept) -> None:
    """Each swap raises its generation, and after as many as it has lost nothing shows it any more."""
    *_, first = kept.publish(10, 20)
    kept.pin(first)
    old = kept.content
    kept.publish(30, 40, 50)
    kept.put_back(old)
    app_repository = kept.app_repository
    before = read_retention(app_repository)
    for change in (
        lambda: pin(app_repository, "newest"),
        lambda: unpin(app_repository, first),
        lambda: forget(app_repository, Retention(last=1)),
        lambda: forget(app_repository, snapshots=[first]),
        lambda: plan_forget(app_repository),
    ):
        with raises(Corrupted, "head-reverted"):
            change()
    assert (kept.content, read_retention(app_repository)) == (old, before)


class _Busy(DirectoryBlobs):
    """Jobs publish while the manifests are listed."""

    publish = staticmethod(lambda: None)

    def list(self, prefix: str = "") -> Iterator[Blob]:
        if prefix.endswith("manifests/") and "task-manifests" not in prefix:
            self.publish()
        return super().list(prefix)


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_head_that_jobs_swap_meanwhile_has_not_gone_back(kept: Kept, tmp_path: Path) -> None:
    kept.publish(10)
    repository, ends = kept.app_repository.repository, iter(range(20, 1000, 10))
    blobs = _Busy(tmp_path / "repository")
    blobs.publish = lambda: kept.publish(next(ends), next(ends), next(ends))  # type: ignore[method-assign]
    place = repository.object_store._replace(blobs=blobs)
    busy = ApplicationRepository(repository._replace(object_store=place), kept.app_repository.application_id)
    assert plan_repair(busy).problem is None
    Collector(busy, min_age_ms=0).run()


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_damaged_head_keeps_the_pins_that_can_be_read(kept: Kept) -> None:
    second, first = kept.publish(10, 20)
    kept.pin(first, "for the audit")
    document = parse_json(kept.content)
    kept.put_back(encode_json({**document, "generation": document["generation"] + 1}))
    plan = kept.repaired()
    assert plan.code == "head-damaged"
    assert kept.names == [second, first]
    assert [(entry.pinned, entry.note) for entry in kept.head.snapshots] == [(False, ""), (True, "for the audit")]
    kept.put_back(encode_json({**document, "snapshots": [7, {"pinned": True}, {"pinned": True, "snapshot": second}]}))
    kept.repaired()
    assert [entry.pinned for entry in kept.head.snapshots] == [True, True], "the first by the retention record"
    kept.put_back(encode_json({"snapshots": 7}))
    kept.repaired()
    assert kept.names == [second, first]


@pytest.mark.parametrize(
    ("epoch", "generation", "shows"), [(1, 6, False), (1, 7, True), (2, 1, True), (0, 99, False), (1, 5, False)]
)
def test_only_what_was_made_for_a_later_head_shows_it(epoch: int, generation: int, *, shows: bool) -> None:
    head = Head("r", "orders", 1, 5, ())
    assert (why_reverted(head, {"s": (epoch, generation), "older": (0, 1)}, []) is not None) is shows
    assert (why_reverted(head, {}, [(0, 1), (epoch, generation - 1)]) is not None) is shows
    assert why_reverted(replace(head, epoch=epoch, generation=generation), {}, [(epoch, generation)]) is None


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_no_clock_decides_where_nobody_has_published_since(kept: Kept) -> None:
    kept.publish(10, 20)
    old = kept.content
    kept.publishing.first_second -= 3600
    fourth, third = kept.publish(30, 40)
    kept.put_back(old)
    kept.repaired()
    assert kept.names[:2] == [fourth, third]


@pytest.mark.parametrize("kept", ["directory"], indirect=True)
def test_a_repair_after_a_repair_keeps_what_counts_beside_a_pin_of_the_other_branch(kept: Kept) -> None:
    kept.publish(10, 20)
    old = kept.content
    (lost,) = kept.publish(30)
    kept.pin(lost)
    kept.publish(40)
    kept.put_back(old)
    kept.publish(50, 60)
    kept.repaired()
    kept.publish(70)
    before = kept.names
    assert lost in before
    kept.lose()
    apply_repair(kept.app_repository, plan_repair(kept.app_repository))
    assert sorted(kept.names) == sorted(before)
