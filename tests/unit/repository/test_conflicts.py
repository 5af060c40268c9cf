"""Publications concurrent with others: merged, fenced, and never with a lower offset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import HEAD, encoded_head
from statecore.repository.manifest import TaskManifest
from tests.harness.raising import raises
from tests.harness.simulated_store import Storage, version_of
from tests.unit.repository.snapshots import (
    Stores,
    blobs_of,
    ends_of,
    fetched,
    publication,
    store_of,
    uploaded,
)


def test_jobs_that_touch_other_tasks_are_put_beside_each_other(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    one, other = publication(app_repository, "one"), publication(app_repository, "other")
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100, "right": 100}})
    beside = uploaded(app_repository, directory, {"0_1": {"left": 150}, "0_2": {"left": 10}})
    assert one.publish(task_manifests, whole=False).concurrent == 0
    done = other.publish(beside, whole=False)
    assert done.concurrent == 1
    assert ends_of(app_repository) == {
        "0_0": {"left": 100, "right": 100},
        "0_1": {"left": 150, "right": 50},
        "0_2": {"left": 10},
    }
    requests = [entry.request_id for entry in app_repository.head().snapshots]
    assert requests == ["other", "one", "first"]
    assert len(fetched(app_repository)) == 3


def test_two_jobs_that_make_the_head_at_the_same_time_both_count(
    app_repository: ApplicationRepository, directory: Path
) -> None:
    one, other = publication(app_repository, "one"), publication(app_repository, "other")
    one.publish(uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False)
    other.publish(uploaded(app_repository, directory, {"0_1": {"left": 50}}), whole=False)
    assert ends_of(app_repository) == {"0_0": {"left": 50}, "0_1": {"left": 50}}


@pytest.mark.parametrize("newer", [{"0_0": {"left": 150}}, {"0_0": {"right": 50}}])
@pytest.mark.parametrize("whole", [False, True])
def test_a_job_is_fenced_if_another_has_published_the_same_task(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, newer: Stores, whole: bool
) -> None:
    late = publication(app_repository, "late")
    publication(app_repository, "other").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    before = storage.pointers[app_repository.names.head]
    with raises(Fenced, "publication-conflict", application_id="orders", reason="tasks-published", tasks=["0_0"]):
        late.publish(uploaded(app_repository, directory, newer), whole=whole)
    assert storage.pointers[app_repository.names.head] == before
    assert len(blobs_of(storage, "manifests")) == 2, "what nobody will name is not left behind"


def test_a_whole_application_is_fenced_by_any_task_that_others_have_published(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    late = publication(app_repository, "late")
    publication(app_repository, "other").publish(
        uploaded(app_repository, directory, {"0_7": {"left": 10}}), whole=False
    )
    with raises(Fenced, "publication-conflict", reason="tasks-published", tasks=["0_7"]):
        late.publish(uploaded(app_repository, directory, {"0_0": {"left": 100}, "0_1": {"left": 100}}), whole=True)


def test_a_job_begun_before_the_head_was_recreated_is_fenced(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    late = publication(app_repository, "late")
    raw = storage.pointers[app_repository.names.head]
    found = HEAD.read(raw)
    anew = replace(found.value, epoch=found.value.epoch + 1, generation=found.value.generation + 1)
    storage.swap(app_repository.names.head, encoded_head(anew, found.raw), version_of(raw))
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    with raises(Fenced, "publication-conflict", reason="head-recreated"):
        late.publish(task_manifests, whole=False)
    publication(app_repository, "late").publish(task_manifests, whole=False)
    assert app_repository.head().epoch == 1


def test_a_publication_never_lowers_an_offset(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path
) -> None:
    before = dict(storage.pointers)
    for ends in ({"0_0": {"left": 49}}, {"0_1": {"left": 90, "right": 10}}):
        with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=50):
            publication(app_repository, "late").publish(uploaded(app_repository, directory, ends), whole=False)
    assert storage.pointers == before
    publication(app_repository, "same").publish(uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False)


def test_a_recreated_topic_may_have_lower_offsets(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 10}}, topic_id="1" * 32)
    publication(app_repository, "anew").publish(task_manifests, whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 10, "right": 50}


def test_a_store_that_is_empty_for_want_of_an_offset_is_behind_what_counts(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    left = TaskManifest("0_0", (store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True),))
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", offset=0, found=50):
        publication(app_repository, "left").publish([left], whole=False)


def test_offsets_of_a_versioned_store_restored_by_kafka_streams_conflict_with_none(
    app_repository: ApplicationRepository, first: None, directory: Path
) -> None:
    left = store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True)
    left = replace(left, kind=StoreKind.VERSIONED_KEY_VALUE)
    publication(app_repository, "left").publish([TaskManifest("0_0", (left,))], whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 0, "right": 50}
    publication(app_repository, "again").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 10}}), whole=False
    )
    assert ends_of(app_repository)["0_0"] == {"left": 10, "right": 50}
