"""What is fetched from an S3 server is opened by real Kafka Streams, which restores nothing but what came since."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, NotFound, StatecoreError
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.object_store import object_store_of, with_key
from statecore.repository.repository import create_repository
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.harness.s3_server import S3Server
from tests.harness.shop_application import Shop
from tests.harness.snapshot_requests import fetch, publish
from tests.harness.streams import StreamsJvm
from tests.harness.tables import Lived, World
from tests.unit.repository.encrypted import key_file

pytestmark = pytest.mark.integration


@pytest.fixture
def url(server: S3Server) -> str:
    """A repository of its own."""
    found = server.bucket("states").below(uuid.uuid4().hex).url
    create_repository(found)
    return found


@pytest.fixture(scope="module")
def lived(broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """An exactly-once application that was fed and closed."""
    name = f"fetch-{uuid.uuid4().hex[:8]}"
    return Lived.of(World(broker, streams_jvm, name, tmp_path_factory.mktemp("lived"), "exactly_once_v2"))


@pytest.fixture
def world(lived: Lived, state_dir: Path) -> World:
    """The same, after its directory was lost."""
    return lived.lost(state_dir)


@pytest.fixture
def shop(broker: Broker, tmp_path: Path, url: str) -> Shop:
    return Shop(broker.bootstrap_servers, tmp_path, url=url, has_global=False)


def test_kafka_streams_opens_what_was_fetched_restores_nothing_and_answers_as_before(
    lived: Lived, world: World, url: str
) -> None:
    opens_what_is_fetched(lived, world, url)


@pytest.mark.full
def test_kafka_streams_opens_what_was_fetched_without_transactions(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, state_dir: Path, url: str
) -> None:
    lived = Lived.of(World(broker, streams_jvm, application_id, tmp_path / "lived", "at_least_once"))
    opens_what_is_fetched(lived, lived.lost(state_dir), url)


@pytest.mark.full
def test_kafka_streams_opens_what_was_fetched_from_an_encrypted_repository_that_tells_the_server_nothing(
    lived: Lived, world: World, server: S3Server, tmp_path: Path
) -> None:
    place = server.bucket("states").below(uuid.uuid4().hex).url
    url = with_key(place, f"file:{key_file(tmp_path / 'key')}")
    create_repository(url)
    opens_what_is_fetched(lived, world, url)
    stored = object_store_of(place).blobs
    names = [blob.name for blob in stored.list("apps/")]
    assert {name.split("/")[2] for name in names} >= {"HEAD", "manifests", "task-manifests"}
    secrets = (b"key-1", b"round ", b"plain", b"stamped", b"changelog", b"rocksdb", world.application_id.encode())
    for name in names:
        content = stored.get(name)
        assert [secret for secret in secrets if secret in content or secret in name.split("/", 2)[2].encode()] == []


def opens_what_is_fetched(lived: Lived, world: World, url: str) -> None:
    snapshot = publish(world.spec(), url)
    report = fetch(world, url)
    assert (report.snapshot, report.placed, report.skipped_snapshots) == (snapshot, True, ())
    assert world.rows() == lived.rows
    assert world.reopen() == (lived.answers, 0)
    again = fetch(world, url)
    assert (again.placed, again.kept) == (False, ("0_0", "0_1")), "as an init container at the next start"
    assert world.reopen() == (lived.answers, 0)


@pytest.mark.parametrize("guarantee", one_of(("at_least_once", "exactly_once_v2")))
def test_kafka_streams_restores_the_tail_and_no_more(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, url: str, guarantee: str
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    world.feed()
    world.live()
    publish(world.spec(), url)
    world.feed(rounds=1, keys=50)  # and ten deletes, in two stores
    before = world.live()
    world.lose()
    report = fetch(world, url)
    assert report.placed
    answers, tail = world.reopen()
    assert answers == before
    assert 0 < tail <= 2 * 60


def test_an_instance_gets_its_share_and_restores_the_rest(lived: Lived, world: World, url: str) -> None:
    publish(world.spec(), url)
    report = fetch(world, url, instance="1/2")
    assert {store.task for store in report.stores} == {"0_1"}
    with world.application() as running:
        tails = running.restored_records()
        assert world.answers(running) == lived.answers
    assert {partition for (_, partition), records in tails.items() if records} == {0}


@pytest.mark.full
def test_a_store_that_the_snapshot_lacks_does_not_cost_its_task_the_other(lived: Lived, world: World, url: str) -> None:
    publish(world.spec(), url, stores=("stamped",))
    fetch(world, url)
    with world.application() as running:
        tails = running.restored_records()
        assert world.answers(running) == lived.answers
    assert {store for (store, _), records in tails.items() if records} == {"plain"}


@pytest.mark.full
def test_a_running_application_makes_the_fetch_refuse(lived: Lived, state_dir: Path, url: str) -> None:
    world = lived.copied(state_dir)
    publish(world.spec(), url)
    with world.application(), raises(Fenced, "state-directory-in-use"):
        fetch(world, url, replace=True)


def fetch_of(shop: Shop, url: str = "", **more: Any) -> FetchReport:
    asked: dict[str, Any] = {"bootstrap_servers": shop.servers, **more}
    state_dir = str(shop.scratch / "state")
    return run_fetch(
        FetchRequest(repository=url or shop.url, application_id=shop.application_id, state_dir=state_dir, **asked)
    )


@contextmanager
def refused(shop: Shop, kind: type[StatecoreError], code: str, **context: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    with raises(kind, code, **context) as caught:
        yield caught
    assert not (shop.scratch / "state" / shop.application_id).exists()


def test_topics_that_do_not_match_the_snapshot_are_reported_and_nothing_is_changed(shop: Shop) -> None:
    shop.write()
    older = publish(shop.spec, shop.url)
    new = publish(shop.spec, shop.url)
    topics.delete(shop.servers, shop.changelog())
    with refused(shop, Invalid, "changelog-topic-missing") as caught:
        fetch_of(shop)
    assert [one["snapshot"] for one in caught.value.context["skipped_snapshots"]] == [new, older]
    with refused(shop, Invalid, "changelog-topic-missing", topics=[shop.changelog()]):
        fetch_of(shop, snapshot=new)
    topics.create(shop.servers, shop.changelog(), shop.partitions)
    with refused(shop, Invalid, "snapshot-topics-mismatch") as caught:
        fetch_of(shop, snapshot=new)
    assert {(one["code"], one["topic"], one["partition"]) for one in caught.value.context["problems"]} == {
        ("topic-recreated", shop.changelog(), partition) for partition in range(shop.partitions)
    }
    assert fetch_of(shop, bootstrap_servers=None, plan_only=True).snapshot == new, "nobody has asked"


def test_credentials_buckets_and_prefixes_that_are_wrong_are_refused_each_by_its_name(
    shop: Shop, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write()
    publish(shop.spec, shop.url)
    with refused(shop, NotFound, "repository-not-found"):
        fetch_of(shop, server.bucket("states").below("elsewhere").url)
    with refused(shop, Invalid, "bucket-unknown"):
        fetch_of(shop, shop.url.replace("s3://states/", "s3://nowhere/"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with refused(shop, Invalid, "object-store-access-denied"):
        fetch_of(shop)
