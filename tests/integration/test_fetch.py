"""What is fetched from an S3 server is opened by real Kafka Streams, which restores nothing but what came since."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, NotFound
from statecore.jobs.fetch import run_fetch
from statecore.jobs.fetch_report import FetchReport
from statecore.jobs.fetch_request import FetchRequest
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.report import RestoreReport
from statecore.jobs.request import RestoreRequest
from statecore.jobs.restore import run_restore
from statecore.repository.repository import make_repository
from tests.harness import directory, s3_server, topics
from tests.harness.broker import Broker
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World
from tests.harness.tiers import first_of

pytestmark = pytest.mark.integration

GUARANTEES = first_of(("exactly_once_v2", "at_least_once"))


@pytest.fixture(scope="module")
def server() -> Iterator[s3_server.S3Server]:
    """A server; credentials are in the environment, as on any machine."""
    before = dict(os.environ)
    os.environ.update(AWS_ACCESS_KEY_ID=s3_server.ACCESS, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
    try:
        with s3_server.serving() as running:
            yield running
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def url(server: s3_server.S3Server) -> str:
    """A repository of its own."""
    found = server.bucket("states").below(uuid.uuid4().hex).url
    make_repository(found)
    return found


@pytest.fixture
def world(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path) -> World:
    return World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")


def publish(spec: Any, url: str, **more: Any) -> str:
    """A snapshot of an application, made where there is no state directory."""
    request = RestoreRequest(state_dir="", spec=spec, repository=url, transaction_wait=5.0, **more)
    report = run_restore(request, ProcessEngine(2))
    assert isinstance(report, RestoreReport)
    assert report.published is not None
    return report.published.snapshot


def fetch(world: World, url: str, **more: Any) -> FetchReport:
    asked: dict[str, Any] = {"bootstrap_servers": world.servers, **more}
    return run_fetch(
        FetchRequest(repository=url, application_id=world.application_id, state_dir=str(world.state_dir), **asked)
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_kafka_streams_opens_what_was_fetched_restores_nothing_and_answers_as_before(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    world.feed()
    before, rows = world.live(), world.rows()
    snapshot = publish(world.request().spec, url)
    world.lose()
    report = fetch(world, url)
    assert (report.snapshot, report.placed, report.passed_over) == (snapshot, True, ())
    assert world.rows() == rows
    assert world.reopen() == (before, 0)
    again = fetch(world, url)
    assert (again.placed, again.kept) == (False, ("0_0", "0_1")), "as an init container at the next start"
    assert world.reopen() == (before, 0)


@pytest.mark.parametrize("guarantee", first_of(("at_least_once", "exactly_once_v2")))
def test_kafka_streams_restores_the_tail_and_no_more(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    world.feed()
    world.live()
    publish(world.request().spec, url)
    world.feed(rounds=1, keys=50)  # and ten deletes, in two stores
    before = world.live()
    world.lose()
    report = fetch(world, url)
    assert report.placed
    answers, tail = world.reopen()
    assert answers == before
    assert 0 < tail <= 2 * 60


def test_an_instance_gets_its_share_and_restores_the_rest(world: World, url: str) -> None:
    world.feed()
    before = world.live()
    publish(world.request().spec, url)
    world.lose()
    report = fetch(world, url, instance="1/2")
    assert {store.task for store in report.stores} == {"0_1"}
    with world.application() as running:
        tails = running.restored_records()
        assert world.answers(running) == before
    assert {partition for (_, partition), records in tails.items() if records} == {0}


@pytest.mark.full
def test_a_store_that_the_snapshot_lacks_does_not_cost_its_task_the_other(world: World, url: str) -> None:
    world.feed()
    before = world.live()
    publish(world.request().spec, url, stores=("stamped",))
    world.lose()
    fetch(world, url)
    with world.application() as running:
        tails = running.restored_records()
        assert world.answers(running) == before
    assert {store for (store, _), records in tails.items() if records} == {"plain"}


@pytest.mark.full
def test_a_running_application_makes_the_fetch_refuse(world: World, url: str) -> None:
    world.feed()
    with world.application():
        topics.wait_until_consumed(world.servers, world.application_id, [world.input])
        publish(world.request().spec, url)
        with pytest.raises(Fenced, match="in use"):
            fetch(world, url, replace=True)


def refused(world: World, url: str, match: str, kind: type[Exception] = Invalid, **more: Any) -> None:
    before = directory.files(world.state_dir)
    with pytest.raises(kind, match=match):
        fetch(world, url, **more)
    assert directory.files(world.state_dir) == before


def test_topics_that_the_snapshot_does_not_fit_are_said_and_nothing_is_changed(world: World, url: str) -> None:
    world.feed()
    world.live()
    publish(world.request().spec, url)
    new = publish(world.request().spec, url)
    world.lose()
    changelog = f"{world.application_id}-plain-changelog"
    topics.delete(world.servers, changelog)
    refused(world, url, "None of the 2 snapshots")
    refused(world, url, f"topics that do not exist: .*{changelog}", snapshot=new)
    topics.create(world.servers, changelog, 2)
    refused(world, url, f"{changelog}-1 is of a topic that was created anew")
    assert not (world.state_dir / world.application_id).exists()
    assert fetch(world, url, bootstrap_servers=None, plan_only=True).snapshot == new, "nobody has asked"


def test_credentials_buckets_and_prefixes_that_are_wrong_are_refused_each_by_its_name(
    world: World, url: str, server: s3_server.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.feed()
    world.live()
    publish(world.request().spec, url)
    world.lose()
    refused(world, server.bucket("states").below("elsewhere").url, "There is no repository", NotFound)
    refused(world, url.replace("s3://states/", "s3://nowhere/"), "bucket", Invalid)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    refused(world, url, r"rights|signature|credentials|key", Invalid)
