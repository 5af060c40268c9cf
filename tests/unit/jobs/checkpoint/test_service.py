from __future__ import annotations

from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, Retryable, StatecoreError
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.service import run_service
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.read_report import ReadReport
from statecore.repository.application_repository import ApplicationRepository
from tests.harness.raising import raises
from tests.unit.jobs.published import Shop


class Service:
    """Checkpoints that end as they are told to; time passes where somebody waits, and where one takes some."""

    def __init__(self, *ends: Exception | float) -> None:
        self.ends = list(ends)
        self.now = 0.0
        self.waited: list[float] = []
        self.requests: list[str] = []
        self.opened: list[ApplicationRepository] = []
        self.began: list[float] = []
        self.said: list[str] = []
        self.made: list[ReadReport] = []

    def run(
        self, request: CheckpointRequest, *_: Any, shared_repository: ApplicationRepository, **__: Any
    ) -> ReadReport:
        self.requests.append(request.request_id)
        self.opened.append(shared_repository)
        self.began.append(self.now)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        self.now += end
        return ReadReport("orders", "", "at_least_once", "", end, {}, ())

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds

    def follow(self, shop: Shop, interval: float) -> None:
        assert shop.app_repository  # there is a repository
        request = CheckpointRequest(
            spec={
                "application_id": "orders",
                "bootstrap_servers": "localhost:9",
                "processing_guarantee": "at_least_once",
                "subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}},
            },
            repository=shop.url,
            request_id="first",
        )
        run_service(
            request,
            InProcessEngine(),
            interval,
            self.made.append,
            say=self.said.append,
            clock=lambda: self.now,
            sleep=self.sleep,
            run=self.run,
        )


def over() -> Invalid:
    return Invalid("Over.", code="test-error", action="None.")


def test_the_interval_is_counted_from_beginning_to_beginning(tmp_path) -> None:
    service = Service(2.0, 7.0, 12.0, 1.0, over())
    with pytest.raises(Invalid, match=r"Over\."):
        service.follow(Shop(tmp_path), 10.0)
    assert service.began == [0.0, 10.0, 20.0, 32.0, 42.0]
    assert len(service.made) == 4
    assert len(set(service.requests)) == 5


def test_what_passes_by_itself_is_tried_again_under_the_same_request(tmp_path) -> None:
    away = Retryable("Away.", code="test-error", action="Wait.")
    service = Service(away, away, away, 1.0, over())
    with pytest.raises(Invalid):
        service.follow(Shop(tmp_path), 300.0)
    assert service.requests[:4] == ["first"] * 4
    assert service.waited[:3] == [1.0, 2.0, 4.0]
    assert [line.startswith("Away. Wait.") for line in service.said[:3]] == [True] * 3
    assert [f" {pause} s" in line for pause, line in zip((1, 2, 4), service.said, strict=False)] == [True] * 3


def test_waiting_reports_the_freshness_of_the_state(tmp_path) -> None:
    service = Service(1.0, Retryable("The broker is away.", code="test-error", action="Wait."), over())
    with pytest.raises(Invalid):
        service.follow(Shop(tmp_path), 300.0)
    assert "newest checkpoint is of 20" in service.said[0]


def test_the_service_waits_for_another_running_job(tmp_path) -> None:
    shop = Shop(tmp_path)
    service = Service(1.0, over())
    shop.app_repository.blobs.replace(shop.app_repository.names.in_progress_marker("other"), b"In progress.\n")
    waited = service.sleep

    def sleep(seconds: float) -> None:
        waited(seconds)
        if len(service.waited) == 3:
            shop.app_repository.blobs.delete(shop.app_repository.names.in_progress_marker("other"))

    service.sleep = sleep
    with pytest.raises(Invalid):
        service.follow(shop, 300.0)
    assert service.began[0] == sum(service.waited[:3]) > 0
    assert "in progress" in service.said[0]


def test_patience_grows_no_longer_than_the_interval(tmp_path) -> None:
    service = Service(*[Retryable("Away.", code="test-error", action="Wait.")] * 10, over())
    with pytest.raises(Invalid):
        service.follow(Shop(tmp_path), 5.0)
    assert max(service.waited) == 5.0


def test_an_overtaken_job_starts_again(tmp_path) -> None:
    service = Service(Fenced("Another was first.", code="test-error", action="Start a new job."), 1.0, over())
    with pytest.raises(Invalid):
        service.follow(Shop(tmp_path), 10.0)
    assert service.requests[0] == "first"
    assert service.requests[1] != "first"
    assert service.opened[0] is not service.opened[1], "the place may have become another repository"
    assert service.opened[1] is service.opened[2]


@pytest.mark.parametrize(
    ("ends", "kind", "code"),
    [((), Invalid, "token-refused"), ((1.0,), Retryable, "token-credentials-expired")],
    ids=["at-its-start", "later"],
)
def test_a_client_whose_secret_was_replaced_ends_the_service_so_that_it_is_started_again(
    tmp_path, ends: tuple[float, ...], kind: type[StatecoreError], code: str
) -> None:
    refused = Invalid("Refused.", code="token-refused", action="Correct the secret.")
    with raises(kind, code):
        Service(*ends, refused).follow(Shop(tmp_path), 10.0)


def test_what_does_not_pass_by_itself_ends_the_service(tmp_path) -> None:
    service = Service(over())
    with pytest.raises(Invalid, match=r"Over\."):
        service.follow(Shop(tmp_path), 10.0)
    assert not service.waited
