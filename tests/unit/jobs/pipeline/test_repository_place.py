"""Staging in a repository: names of its blobs, and number of requests."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from statecore.errors import Invalid, NotFound, Retryable
from statecore.jobs.pipeline.repository_place import BlobsBelow, RepositoryPlace, blobs_at
from statecore.objectstore.base import Blob, Blobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.layout import Layout
from statecore.repository.repository import create_repository
from tests.harness.raising import raises


@pytest.fixture
def place(tmp_path: Path) -> RepositoryPlace:
    return RepositoryPlace(tmp_path.as_uri(), "orders", "a1")


class CountedBlobs(BlobsBelow):
    """Counts what is asked for."""

    def __init__(self, of: RepositoryPlace, asked: Counter[str]) -> None:
        super().__init__(blobs_at(of.url), Layout(of.application_id).staging(of.plan_id))
        self._asked = asked

    def head(self, name: str) -> Blob:
        self._asked[name.rpartition("/")[2]] += 1
        return super().head(name)


class Impatient(RepositoryPlace):
    """One at which failures are looked for each time."""

    interval: ClassVar[float] = 0.0


def test_its_blobs_are_below_the_plan(place: RepositoryPlace, tmp_path: Path) -> None:
    blobs = pickle.loads(pickle.dumps(place)).blobs()
    assert blobs.put_if_absent("runs/0_0/s/1.json", b"1")
    assert (tmp_path / "apps/orders/staging/a1/runs/0_0/s/1.json").read_bytes() == b"1"
    assert blobs.get("runs/0_0/s/1.json") == b"1"
    assert [blob.name for blob in blobs.list("runs/")] == ["runs/0_0/s/1.json"]
    assert blobs.head("runs/0_0/s/1.json")[:2] == ("runs/0_0/s/1.json", 1)
    assert list(blobs.directories("runs")) == ["0_0"]
    assert blobs.local_path("runs/0_0/s/1.json") is not None
    blobs.delete("runs/0_0/s/1.json")
    with pytest.raises(NotFound):
        blobs.get("runs/0_0/s/1.json")
    with pytest.raises(Invalid, match="not a valid blob name"):
        BlobsBelow(blobs, "x").get("../mark")


def test_a_worker_checks_the_marker_once(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    class Counted(RepositoryPlace):
        interval: ClassVar[float] = 3600.0

        def blobs(self) -> Blobs:
            return CountedBlobs(self, asked)

    place = Counted(tmp_path.as_uri(), "orders", "a1")
    with pytest.raises(Invalid, match="does not find the driver"):
        place.check_seen()
    place.prepare()
    asked.clear()
    for _ in range(100):
        place.check_seen()
        place.check_failure()
    assert asked == {"driver": 1, "failed": 1}


def test_a_failure_is_noticed_at_the_next_check_and_from_then_on(place: RepositoryPlace) -> None:
    place.prepare()
    place.check_failure()
    place.announce_failure()
    place.check_failure()
    looks = Impatient(place.url, place.application_id, place.plan_id)
    for _ in range(2):
        with raises(Retryable, "other-task-failed"):
            looks.check_failure()


def test_tasks_in_the_process_of_the_job_put_their_runs_by_its_client_and_others_by_one_of_their_own(
    tmp_path: Path,
) -> None:
    url = tmp_path.as_uri()
    own = blobs_at(url)
    assert blobs_at(url) is own, "one for all tasks of a process"
    create_repository(url)
    app_repository = ApplicationRepository.open(url, "orders")
    assert blobs_at(app_repository.url) is app_repository.blobs is not own
    assert blobs_at(f"{url}/another") not in (own, app_repository.blobs)
