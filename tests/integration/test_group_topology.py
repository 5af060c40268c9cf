"""Discover from what real brokers keep of a group: with topology descriptions, without them, and of a classic one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.streams_groups import DescriptionStatus, StreamsGroup, streams_group
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.streams import StreamsApplication, StreamsJvm

pytestmark = pytest.mark.integration

SETTING = "group.streams.topology.description.plugin.class"
PLUGIN = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"


@pytest.fixture(scope="module")
def describing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that keeps topology descriptions."""
    with Broker(tmp_path_factory.mktemp("describing") / "broker", settings={SETTING: PLUGIN}) as running:
        yield running


def _application(
    jvm: StreamsJvm, servers: str, application_id: str, state_dir: Path, prefix: str, **properties: str
) -> StreamsApplication:
    """Stores of every sort: logged, unlogged, behind a repartition topic, the table of a source, global."""
    names = [f"{prefix}-{what}" for what in ("stream", "table", "global")]
    for name in names:
        topics.create(servers, name, 2)

    def build(jvm: StreamsJvm) -> Any:
        streams = jvm.jvm.org.apache.kafka.streams
        serde = jvm.jvm.org.apache.kafka.common.serialization.Serdes.ByteArray()
        materialized = getattr(streams.kstream.Materialized, "as")
        consumed = getattr(streams.kstream.Consumed, "with")(serde, serde)

        def with_serdes(store: Any) -> Any:
            return store.withKeySerde(serde).withValueSerde(serde)

        builder = streams.StreamsBuilder()
        stream = builder.stream(names[0], consumed)
        stream.toTable(with_serdes(materialized("unlogged")).withLoggingDisabled())
        apart = stream.repartition(with_serdes(getattr(streams.kstream.Repartitioned, "as")("apart")))
        apart.groupByKey().count(materialized("counts").withKeySerde(serde))
        builder.table(names[1], consumed, with_serdes(materialized("profile")))
        builder.globalTable(names[2], consumed, with_serdes(materialized("products")))
        java_properties = jvm.jvm.java.util.Properties()
        for name, value in properties.items():
            java_properties.setProperty(name, value)
        return builder.build(java_properties)

    return StreamsApplication(jvm, application_id, servers, state_dir, build, properties=properties)


def _told(servers: str, application_id: str, status: DescriptionStatus) -> StreamsGroup:
    """The group, when the broker has what it is to have of it."""
    deadline = time.monotonic() + 120
    with Cluster(servers) as cluster:
        while True:
            group = streams_group(cluster, application_id)
            if group.state == "Stable" and group.description_status is status:
                return group
            assert time.monotonic() < deadline, group
            time.sleep(0.1)


def _discovered(servers: str, application_id: str, *more: Any, code: int = 0) -> dict[str, Any]:
    words = ["discover", "--bootstrap-servers", servers, "--application-id", application_id, "--json", *more]
    process = statecore_here(*words)
    assert process.returncode == code, process.stderr
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """What is found, in an order of its own; without the lines above the spec."""
    by_name = sorted(document["open"], key=lambda one: str(one["store"]))
    return {"spec": document["spec"], "beside": document["notes"]["beside"], "open": by_name}


def test_a_described_topology_is_as_good_as_its_text(
    describing: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path, tmp_path: Path
) -> None:
    servers = describing.bootstrap_servers
    properties = {"group.protocol": "streams", "topology.optimization": "all"}
    application = _application(streams_jvm, servers, application_id, state_dir, topic_name, **properties)
    with application:
        _told(servers, application_id, DescriptionStatus.AVAILABLE)
    text = tmp_path / "describe.txt"
    text.write_text(application.describe())

    # The application is down: its group is empty, and still tells it.
    from_text = _discovered(servers, application_id, "--topology", text)
    from_group = _discovered(servers, application_id)
    assert _comparable(from_group) == _comparable(from_text)
    stores = from_text["spec"]["subtopologies"]
    found = {name: store.get("changelog") for part in stores.values() for name, store in part["stores"].items()}
    assert found == {"unlogged": "?", "counts": None, "profile": f"{topic_name}-table"}
    assert set(from_text["spec"]["global_stores"]) == {"products"}
    # With the directory the kinds are certain, too.
    assert _comparable(_discovered(servers, application_id, "--state-dir", state_dir)) == _comparable(
        _discovered(servers, application_id, "--state-dir", state_dir, "--topology", text)
    )


def test_without_a_description_the_configured_topology_names_the_logged_stores(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path
) -> None:
    servers = broker.bootstrap_servers
    application = _application(
        streams_jvm, servers, application_id, state_dir, topic_name, **{"group.protocol": "streams"}
    )
    with application:
        group = _told(servers, application_id, DescriptionStatus.NOT_STORED)
    assert group.subtopologies is not None
    number = {topic: part.number for part in group.subtopologies for topic in part.changelogs}
    found = _discovered(servers, application_id)
    stores = {
        name: (int(part), store.get("changelog"))
        for part, one in found["spec"]["subtopologies"].items()
        for name, store in one["stores"].items()
    }
    assert stores == {name: (number[f"{application_id}-{name}-changelog"], None) for name in ("counts", "profile")}
    assert "global_stores" not in found["spec"]
    assert any(SETTING in line for line in found["notes"]["general"])
    # The directory tells more, and is the source where it is given.
    of_directory = _discovered(servers, application_id, "--state-dir", state_dir)["spec"]
    assert set(of_directory["global_stores"]) == {"products"}


@pytest.mark.full
def test_a_store_that_the_configured_topology_does_not_name_is_refused(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path
) -> None:
    servers = broker.bootstrap_servers
    properties = {"group.protocol": "streams", "topology.optimization": "all"}
    with _application(streams_jvm, servers, application_id, state_dir, topic_name, **properties):
        _told(servers, application_id, DescriptionStatus.NOT_STORED)
    refused = _discovered(servers, application_id, code=13)
    assert refused["context"]["topics"] == [f"{topic_name}-table"]


def test_a_classic_group_has_no_topology(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, topic_name: str, state_dir: Path
) -> None:
    servers = broker.bootstrap_servers
    with _application(streams_jvm, servers, application_id, state_dir, topic_name):
        refused = _discovered(servers, application_id, code=14)
    assert (refused["code"], refused["context"]) == ("streams-group-not-found", {"group": application_id})
    assert "not a streams group" in refused["what"]  # the broker's own words
    assert set(_discovered(servers, application_id, "--state-dir", state_dir)["spec"]["global_stores"]) == {"products"}
