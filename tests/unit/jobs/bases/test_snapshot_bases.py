"""Which snapshots are tried as base of a store, in which order, and what is refused without its changelog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.jobs.bases.snapshot_bases import SnapshotBases
from statecore.repository.manifest import ReadPosition, StoredEnd
from tests.unit.repository.published import READ_AT_MS, STORE, TOPIC, Publishing

KEY: Key = ("0_0", STORE)
TOO_OLD = Reason("it is too old", "deletes-compacted")
CHANGELOG = TopicPartition(TOPIC, 0)


class Application(Publishing):
    """An application whose snapshots are looked at."""

    def __init__(self, root: Path) -> None:
        super().__init__((root / "repository").as_uri(), root)

    def candidates(
        self, refused: Mapping[tuple[Key, str], Reason] | None = None, *, is_read: bool = True, cluster_id: str = ""
    ) -> SnapshotBases:
        """Its snapshots as a job finds them.

        Args:
            refused: what an earlier round has refused.
            is_read: whether the job has read the newest snapshot, as one that publishes has.
            cluster_id: of the brokers.
        """
        if is_read:
            job = self.begin()
            entries, newest, read = job.entries, job.newest, job.task_manifests()
        else:
            entries, newest, read = self.app_repository.head().snapshots, None, {}
        return SnapshotBases(
            self.app_repository, self.spec, entries, newest, read, refused or {}, cluster_id=cluster_id
        )

    def of(self, key: Key = KEY, **asked: Any) -> list[Base | Refused]:
        return list(self.candidates(**asked).of(key))

    def damage_manifest(self, snapshot: str) -> None:
        self.app_repository.blobs.replace(self.app_repository.names.manifest(snapshot), b"{}")

    def damage_task_manifest(self, snapshot: str, task: str) -> None:
        reference = self.app_repository.manifest(self.app_repository.head().entry(snapshot)).value.reference(task)
        assert reference is not None
        extent = reference.extent
        content = bytearray(self.app_repository.blobs.get(extent.blob))
        content[extent.start + extent.bytes // 2] ^= 1
        self.app_repository.blobs.replace(extent.blob, bytes(content))


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path)


def names(found: list[Base | Refused]) -> list[str]:
    assert all(isinstance(one, Base) for one in found), found
    return [one.name for one in found if isinstance(one, Base)]


def test_the_newest_snapshot_is_tried_first_and_older_ones_where_they_end_elsewhere(application: Application) -> None:
    first = application.publish(10).snapshot
    application.publish(20, content=b"what another made up to there")
    third, fourth = application.publish(20).snapshot, application.publish(30).snapshot
    assert names(application.of()) == [fourth, third, first]
    (newest, *_) = application.of()
    assert isinstance(newest, Base)
    (end,) = newest.ends.values()
    assert (end.topic_partition, end.end, end.leader_epoch, end.read_at_ms) == (CHANGELOG, 30, 3, READ_AT_MS)


@pytest.mark.parametrize("is_read", [True, False])
def test_no_store_of_another_cluster_is_a_base(application: Application, *, is_read: bool) -> None:
    unknown, of_one = application.publish(10).snapshot, application.publish(20, cluster_id="one").snapshot
    found = application.of(cluster_id="two", is_read=is_read)
    assert [(one.base, one.why.code) for one in found if isinstance(one, Refused)] == [(of_one, "cluster-changed")]
    assert [one.name for one in found if isinstance(one, Base)] == [unknown]
    assert names(application.of(cluster_id="one", is_read=is_read)) == [of_one, unknown]
    assert names(application.of(is_read=is_read)) == [of_one, unknown], "these brokers have no id"


def test_no_more_than_five_snapshots_are_tried(application: Application) -> None:
    published = [application.publish(end).snapshot for end in range(10, 80, 10)]
    assert names(application.of()) == published[:1:-1]


def test_a_store_without_a_snapshot_has_no_base(application: Application) -> None:
    assert application.of() == []
    application.publish(10)
    assert application.of(("0_7", STORE)) == []
    assert application.of(("0_0", "other")) == []


def test_a_snapshot_without_the_task_is_skipped(application: Application) -> None:
    older = application.publish(10, (0, 1)).snapshot
    newer = application.publish(20, (1,)).snapshot
    assert names(application.of()) == [older]
    assert names(application.of(("0_1", STORE))) == [newer, older]


def test_manifests_that_the_job_has_read_are_not_read_again(application: Application) -> None:
    newest = application.publish(10).snapshot
    found = application.candidates()
    application.damage_task_manifest(newest, "0_0")
    application.damage_manifest(newest)
    assert names(list(found.of(KEY))) == [newest]
    assert found.named(KEY, newest) is not None
    assert found.task(newest, "0_0") is not None


def test_a_later_read_time_makes_a_base_younger(application: Application) -> None:
    application.publish(10)
    done = application.begin().publish(
        [], drops_other_tasks=False, read_positions={"0_0": ReadPosition(READ_AT_MS + 7, None)}
    )
    assert done is not None
    for is_read in (True, False):
        (found,) = application.of(is_read=is_read)
        assert isinstance(found, Base)
        assert (found.name, found.ends[CHANGELOG].read_at_ms) == (done.snapshot, READ_AT_MS + 7)


def test_a_refused_base_is_not_tried_again_nor_one_refused_for_the_same_reason(application: Application) -> None:
    longer, newest = application.publish(10).snapshot, application.publish(20).snapshot
    found = application.of(refused={(KEY, newest): TOO_OLD})
    first, second = found
    assert first == Refused(*KEY, newest, TOO_OLD)
    assert isinstance(second, Refused)
    assert (second.key, second.base) == (KEY, longer)
    assert (second.code, second.values) == ("same-as-newer", {"snapshot": newest})
    assert names(application.of(("0_1", STORE), refused={(KEY, newest): TOO_OLD})) == [newest, longer]


@pytest.mark.parametrize(("end", "read_at_ms"), [(30, READ_AT_MS), (10, READ_AT_MS + 1)])
def test_an_older_snapshot_that_ends_later_or_is_younger_is_tried(
    application: Application, end: int, read_at_ms: int
) -> None:
    older = application.publish(end, read_at_ms=read_at_ms).snapshot
    newest = application.begin().publish(
        [application.task_manifest(0, 20)], drops_other_tasks=False, refused=frozenset([KEY])
    )
    assert newest is not None
    refused, other = application.of(refused={(KEY, newest.snapshot): TOO_OLD})
    assert isinstance(refused, Refused)
    assert isinstance(other, Base)
    assert other.name == older


def test_a_store_that_kafka_streams_restores_is_refused(application: Application) -> None:
    nowhere = StoredEnd(*CHANGELOG, "a" * 32, OFFSET_UNKNOWN, 0, 0, 15)
    snapshot = application.publish(
        10, (0,), restored_by_kafka_streams=True, databases=(), changelogs=(nowhere,), rows=0, bytes=0
    ).snapshot
    (found,) = application.of()
    assert isinstance(found, Refused)
    assert (found.key, found.base, found.code) == (KEY, snapshot, "base-empty")


def test_a_store_that_is_declared_differently_is_refused_with_the_difference(application: Application) -> None:
    snapshot = application.publish(10).snapshot
    (store,) = application.spec.stores
    application.spec = replace(application.spec, stores=(replace(store, kind=StoreKind.TIMESTAMPED_KEY_VALUE),))
    (refused,) = application.of()
    assert isinstance(refused, Refused)
    assert (refused.key, refused.base, refused.code) == (KEY, snapshot, "snapshot-spec-mismatch")
    assert refused.values == {"field": "kind", "found": "key-value", "expected": "timestamped-key-value"}


def test_a_damaged_task_manifest_is_reported_and_an_older_snapshot_is_used(application: Application) -> None:
    older, newest = application.publish(10).snapshot, application.publish(20).snapshot
    application.damage_task_manifest(newest, "0_0")
    found = application.candidates(is_read=False)
    refused, other = found.of(KEY)
    assert isinstance(refused, Refused)
    assert refused.base == newest
    assert "The task manifest of 0_0" in refused.why
    assert isinstance(other, Base)
    assert other.name == older
    assert names(list(found.of(("0_1", STORE)))) == [newest, older]
    application.damage_task_manifest(newest, "0_0")  # the other way round, so that it is whole
    assert list(found.of(KEY)) == [refused, other], "it is not read again for each store of the task"


def test_a_damaged_manifest_is_read_once_and_refused_for_each_store(application: Application) -> None:
    older, newest = application.publish(10).snapshot, application.publish(20).snapshot
    application.damage_manifest(newest)
    found = application.candidates(is_read=False)
    for key in (KEY, ("0_1", STORE)):
        refused, other = found.of(key)
        assert isinstance(refused, Refused)
        assert (refused.key, refused.base) == (key, newest)
        assert f"manifest of snapshot {newest}" in refused.why
        assert isinstance(other, Base)
        assert other.name == older
        application.app_repository.blobs.delete(
            application.app_repository.names.manifest(newest)
        )  # "missing" would be another word


def test_the_base_of_a_plan_is_found_while_its_snapshot_is_valid_and_readable(application: Application) -> None:
    older, newest = application.publish(10).snapshot, application.publish(20).snapshot
    found = application.candidates()
    base = found.named(KEY, older)
    assert base is not None
    assert (base.name, base.ends[CHANGELOG].end) == (older, 10)
    assert found.has(older)
    assert not found.has("20261123T010203Z-0badcafe")
    assert found.named(KEY, "20261123T010203Z-0badcafe") is None
    assert found.named(("0_0", "other"), newest) is None
    application.damage_task_manifest(older, "0_0")
    assert found.named(KEY, older) is not None, "it has been read"
    assert application.candidates().named(KEY, older) is None


def test_the_task_of_a_snapshot_is_found_while_it_is_readable(application: Application) -> None:
    older, newest = application.publish(10).snapshot, application.publish(20, (0,)).snapshot
    found = application.candidates()
    task_manifest = found.task(older, "0_1")
    assert task_manifest is not None
    assert [store.changelogs[0].end for store in task_manifest.stores] == [10]
    assert found.task(newest, "0_1") is None
    assert found.task("", "0_0") is None, "there was no snapshot when the plan was made"
    application.damage_manifest(older)
    assert application.candidates().task(older, "0_1") is None
