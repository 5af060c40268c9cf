"""SIGKILL of a real process at every point of a publication, over a directory and over a real S3 server.

After each kill a retry under the same request ends well, it has published once, and everything that was ever published
can be fetched: also where another job has published in between.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.faults import PUBLISH_POINTS, VARIABLE
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import create_repository
from tests.harness.case_selection import three_of
from tests.harness.s3_server import ACCESS, SECRET, serving
from tests.unit.repository.publish.publishing_process import publish
from tests.unit.repository.snapshots import Ends, ends_of, fetched

FIRST = {"0_0": {"left": 50, "right": 50}, "0_1": {"left": 50}}
SECOND = {"0_0": {"left": 100}, "0_2": {"left": 50, "right": 100}}
BESIDE = {"0_1": {"left": 150}}
ALL = {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50}, "0_2": {"left": 50, "right": 100}}
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="module", params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A repository."""
    if request.param == "directory":
        url = (tmp_path_factory.mktemp("repository") / "r").as_uri()
        create_repository(url)
        yield url
        return
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        at = server.bucket("kills")
        url = f"s3://{at.bucket}/r?endpoint={at.endpoint}&region={at.region}"
        create_repository(url)
        yield url


def kill(url: str, application_id: str, request: str, directory: Path, ends: Ends, point: str) -> None:
    """Have a process publish that dies at a point."""
    words = [url, application_id, request, str(directory), json.dumps(ends)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.repository.publish.publishing_process", *words],
        env={**os.environ, VARIABLE: f"{point}:kill"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("point", three_of(PUBLISH_POINTS))
def test_after_a_kill_a_retry_succeeds_and_every_snapshot_is_fetchable(
    url: str, tmp_path: Path, application_id: str, point: str
) -> None:
    publish(url, application_id, "first", tmp_path, FIRST)
    kill(url, application_id, "second", tmp_path, SECOND, point)
    app_repository = ApplicationRepository.open(url, application_id)
    published = point == "publish.after-head"
    assert ends_of(app_repository) == (ALL if published else FIRST)
    assert len(fetched(app_repository)) == 1 + published

    done = publish(url, application_id, "second", tmp_path, SECOND)
    assert done.earlier == published
    assert ends_of(app_repository) == ALL
    assert fetched(app_repository).keys() == {entry.snapshot for entry in app_repository.head().snapshots}
    assert [entry.request_id for entry in app_repository.head().snapshots] == ["second", "first"]


@pytest.mark.parametrize("point", three_of(PUBLISH_POINTS))
def test_a_job_that_publishes_between_the_kill_and_the_retry_stays(
    url: str, tmp_path: Path, application_id: str, point: str
) -> None:
    """The first kill hits the job that creates the head."""
    kill(url, application_id, "second", tmp_path, SECOND, point)
    app_repository = ApplicationRepository.open(url, application_id)
    assert (app_repository.read_head() is not None) == (point == "publish.after-head")
    publish(url, application_id, "beside", tmp_path, BESIDE)
    publish(url, application_id, "second", tmp_path, SECOND)
    assert ends_of(app_repository) == {**SECOND, **BESIDE}
    assert sorted(entry.request_id for entry in app_repository.head().snapshots) == ["beside", "second"]
    assert len(fetched(app_repository)) == 2


def test_jobs_that_publish_at_the_same_time_all_count(url: str, tmp_path: Path, application_id: str) -> None:
    words = [sys.executable, "-m", "tests.unit.repository.publish.publishing_process", url, application_id]
    running = [
        subprocess.Popen(
            [*words, f"q{number}", str(tmp_path), json.dumps({f"0_{number}": {"left": 100}})], stdout=subprocess.DEVNULL
        )
        for number in range(4)
    ]
    assert [one.wait(120) for one in running] == [0] * 4
    app_repository = ApplicationRepository.open(url, application_id)
    assert ends_of(app_repository) == {f"0_{number}": {"left": 100} for number in range(4)}
    assert len(fetched(app_repository)) == 4


def test_of_several_tries_of_one_request_at_the_same_time_one_publishes(
    url: str, tmp_path: Path, application_id: str
) -> None:
    words = [sys.executable, "-m", "tests.unit.repository.publish.publishing_process", url, application_id, "one"]
    running = [
        subprocess.Popen([*words, str(tmp_path / str(number)), json.dumps(FIRST)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = [json.loads(one.communicate(timeout=1200)[0]) for one in running]
    assert [one.returncode for one in running] == [0] * 4
    app_repository = ApplicationRepository.open(url, application_id)
    assert {one["snapshot"] for one in said} == {entry.snapshot for entry in app_repository.head().snapshots}
    assert sorted(one["earlier"] for one in said) == [False, True, True, True]
    assert len(fetched(app_repository)) == 1
