"""Markers, failure and progress that tasks and driver share through a staging place."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statecore.changelog.model import OffsetRange
from statecore.errors import Invalid, Retryable
from statecore.jobs.pipeline.staging_place import DirectoryPlace, ReadingProgress, StagingPlace
from tests.harness.http_blobs import BlobServer, HttpPlace, serving

FIRST, SECOND = OffsetRange("topic", 0, 0, 100), OffsetRange("topic", 0, 100, 200)
LONG = "s" * 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BlobServer]:
    with serving(tmp_path / "of-the-server") as started:
        yield started


@pytest.fixture(params=["directory", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StagingPlace:
    if request.param == "directory":
        return DirectoryPlace(str(tmp_path / "plan"))
    server: BlobServer = request.getfixturevalue("server")
    return HttpPlace(server.port)


def reading(
    place: StagingPlace, span: OffsetRange, store: str = LONG, clock: Callable[[], float] = time.monotonic
) -> ReadingProgress:
    """What a worker has, which got its place by a message."""
    return ReadingProgress(pickle.loads(pickle.dumps(place)), "0_0", store, span, clock)


def test_a_worker_checks_that_it_finds_the_driver_s_marker(place: StagingPlace) -> None:
    with pytest.raises(Invalid, match=str(place)):
        place.check_seen()
    place.prepare()
    place.check_seen()


def test_the_driver_adds_up_the_progress_of_all_ranges(place: StagingPlace) -> None:
    assert place.offsets_done() == 0
    place.prepare()
    assert place.offsets_done() == 0
    one, other = reading(place, FIRST), reading(place, SECOND)
    for offsets in (10, 20, 20):
        one.report(offsets, now=True)
    other.report(100, now=True)
    assert place.offsets_done() == 120
    reading(place, FIRST, "another").report(7, now=True)
    assert place.offsets_done() == 127
    place.prepare()
    assert place.offsets_done() == 0


def test_the_ranges_of_a_batch_report_their_progress_together(place: StagingPlace) -> None:
    place.prepare()
    batch = reading(place, FIRST, clock=lambda: 1.0)
    for _ in range(3):
        batch.report(60)
        batch.finish(100)
    assert place.offsets_done() == 60, "the first word, and no more of them until it is time"
    batch.close()
    assert place.offsets_done() == 300
    reading(place, SECOND).close()
    assert place.offsets_done() == 300


def test_a_batch_without_a_read_range_reports_no_progress(place: StagingPlace) -> None:
    reading(place, FIRST).close()
    assert not list(place.blobs().list())


def test_progress_is_reported_once_an_interval(place: StagingPlace) -> None:
    place.prepare()
    one = reading(place, FIRST, clock=lambda: 1.0)
    for offsets in (10, 20, 30):
        one.report(offsets)
    assert place.offsets_done() == 10
    one.report(100, now=True)
    assert place.offsets_done() == 100


def test_a_failure_stops_all_tasks_until_the_driver_prepares_again(place: StagingPlace) -> None:
    place.prepare()
    one = reading(place, FIRST)
    one.report(10, now=True)
    place.announce_failure()
    place.announce_failure()
    with pytest.raises(Retryable, match="Another task"):
        place.check_failure()
    with pytest.raises(Retryable, match="Another task"):
        one.report(20, now=True)
    place.prepare()
    place.check_failure()
    one.report(30, now=True)


def test_a_worker_without_the_driver_s_marker_announces_no_failure(place: StagingPlace) -> None:
    place.announce_failure()
    assert not list(place.blobs().list())
    if isinstance(place, DirectoryPlace):
        assert not Path(place.directory).exists()


def test_an_attempt_has_a_directory_that_is_deleted_with_it(place: StagingPlace) -> None:
    place.prepare()
    with place.scratch() as one, place.scratch() as other:
        assert one != other
        (one / "file").write_bytes(b"bytes")
    assert not one.exists()
    assert not other.exists()


def test_attempts_in_a_directory_are_where_its_blobs_are_and_others_are_not(tmp_path: Path, server: BlobServer) -> None:
    place = DirectoryPlace(str(tmp_path / "plan"))
    place.prepare()
    with place.scratch() as inside, HttpPlace(server.port).scratch() as outside:
        assert tmp_path / "plan" in inside.parents
        assert tmp_path not in outside.parents


def test_progress_costs_the_requests_that_the_place_says(server: BlobServer) -> None:
    place = HttpPlace(server.port)
    place.prepare()
    server.asked.clear()
    one = reading(place, FIRST, clock=lambda: 1.0)
    for offsets in (10, 20, 30):
        one.report(offsets, now=True)
    assert server.asked == {("PUT", "progress"): 3, ("DELETE", "progress"): 2, ("POST", "failed"): 3}
    server.asked.clear()
    assert place.offsets_done() == 30
    assert server.asked == {("OPTIONS", "progress"): 1}


def test_a_range_is_read_on_while_the_store_of_progress_is_unreachable(server: BlobServer) -> None:
    place = HttpPlace(server.port)
    place.prepare()
    server.shutdown()
    server.server_close()
    reading(place, FIRST).report(10, now=True)
    place.announce_failure()
    with pytest.raises(Retryable):
        place.check_seen()
