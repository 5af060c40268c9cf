"""Discover, from the real things: what Topology.describe() prints, what Kafka Streams leaves on disk, real topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.spec.reader import load_spec
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


def _topology(stream_topic: str, table_topic: str, global_topic: str) -> Any:
    """Plain, timestamped and windowed stores, a table that reuses its source topic, and a global table."""

    def build(jvm: StreamsJvm) -> Any:
        java = jvm.jvm.java
        streams = jvm.jvm.org.apache.kafka.streams
        byte_array = jvm.jvm.org.apache.kafka.common.serialization.Serdes.ByteArray()
        materialized = getattr(streams.kstream.Materialized, "as")
        consumed = getattr(streams.kstream.Consumed, "with")(byte_array, byte_array)

        def with_serdes(store: Any) -> Any:
            return store.withKeySerde(byte_array).withValueSerde(byte_array)

        builder = streams.StreamsBuilder()
        stream = builder.stream(stream_topic, consumed)
        stream.toTable(with_serdes(materialized(streams.state.Stores.persistentKeyValueStore("plain"))))
        stream.toTable(with_serdes(materialized("stamped")))
        stream.toTable(with_serdes(materialized(streams.state.Stores.inMemoryKeyValueStore("memory"))))
        grouped = stream.groupByKey(getattr(streams.kstream.Grouped, "with")(byte_array, byte_array))
        window = streams.kstream.TimeWindows.ofSizeWithNoGrace(java.time.Duration.ofMinutes(10))
        grouped.windowedBy(window).count(materialized("clicks").withKeySerde(byte_array))
        builder.table(table_topic, consumed, with_serdes(materialized("profile")))
        builder.globalTable(global_topic, consumed, with_serdes(materialized("products")))
        properties = java.util.Properties()
        properties.setProperty("topology.optimization", "all")
        return builder.build(properties)

    return build


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", pytest.param("at_least_once", marks=pytest.mark.full)])
def test_a_real_application_is_discovered(
    broker: Broker,
    streams_jvm: StreamsJvm,
    application_id: str,
    topic_name: str,
    state_dir: Path,
    tmp_path: Path,
    guarantee: str,
) -> None:
    servers = broker.bootstrap_servers
    inputs = [f"{topic_name}-{what}" for what in ("stream", "table", "global")]
    for topic in inputs:
        topics.create(servers, topic, 2)
        topics.produce(servers, topic, [Record(b"key-%d" % key, b"value", key % 2) for key in range(20)])
    application = StreamsApplication(
        streams_jvm,
        application_id,
        servers,
        state_dir,
        _topology(*inputs),
        guarantee=guarantee,
        properties={"topology.optimization": "all"},
    )
    with application:
        topics.wait_until_consumed(servers, application_id, inputs[:2])
    description = tmp_path / "describe.txt"
    description.write_text(application.describe())
    before = sorted((path, path.stat().st_mtime_ns) for path in state_dir.rglob("*"))
    base = ["discover", "--bootstrap-servers", servers, "--application-id", application_id]

    # From the topology alone: everything but the kinds.
    from_topology = tmp_path / "topology.yaml"
    process = statecore(*base, "--topology", description, "--output", from_topology)
    assert process.returncode == 0, process.stderr
    spec = load_spec(from_topology)
    assert str(spec.processing_guarantee) == guarantee
    stream_task, table_task = (_number(description.read_text(), topic) for topic in inputs[:2])
    numbers = {store.name: (store.subtopology, store.changelog) for store in spec.stores}
    expected = {
        name: (stream_task, f"{application_id}-{name}-changelog") for name in ("plain", "stamped", "memory", "clicks")
    }
    assert numbers == {**expected, "profile": (table_task, inputs[1])}
    assert [(store.name, store.changelog) for store in spec.global_stores] == [("products", inputs[2])]
    assert {str(store.kind) for store in spec.stores} == {"?"}
    assert "Replace every '?'" in from_topology.read_text()
    process = statecore("restore", "--spec", from_topology, "--state-dir", tmp_path / "none", "--plan", "--json")
    assert process.returncode == 13, process.stderr
    refused = json.loads(process.stdout)
    assert (refused["code"], "clicks" in refused["context"]["kinds"]) == ("spec-undecided", True)

    # With the state directory: the kinds that are certain too. The directory is not touched.
    process = statecore(*base, "--topology", description, "--state-dir", state_dir, "--json")
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    stores = document["spec"]["subtopologies"][str(stream_task)]["stores"]
    kinds = {name: store["kind"] for name, store in stores.items()}
    assert kinds == {
        "plain": "key-value",
        "stamped": "timestamped-key-value",
        "clicks": "timestamped-window",
        "memory": "in-memory",
    }
    assert stores["clicks"]["retention"] == "10m"
    assert document["notes"]["beside"]["memory"].startswith("in memory, ")
    assert document["spec"]["global_stores"]["products"]["kind"] == "timestamped-key-value"
    assert sorted((path, path.stat().st_mtime_ns) for path in state_dir.rglob("*")) == before

    # From the state directory alone: all but the store in memory.
    process = statecore(*base, "--state-dir", state_dir, "--json")
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    assert sorted(document["spec"]["subtopologies"][str(stream_task)]["stores"]) == ["clicks", "plain", "stamped"]
    profile = document["spec"]["subtopologies"][str(table_task)]["stores"]["profile"]
    assert profile == {"kind": "timestamped-key-value", "changelog": inputs[1]}
    assert any("memory-changelog" in line for line in document["notes"]["general"])


def _number(description: str, topic: str) -> int:
    """The subtopology whose source reads the topic."""
    before = description[: description.index(f"(topics: [{topic}])")]
    return int(before.rpartition("Sub-topology: ")[2].split()[0])


def test_an_unreachable_broker_and_an_unknown_application_have_their_own_errors(broker: Broker, tmp_path: Path) -> None:
    words = ["discover", "--application-id", "nobody", "--state-dir", tmp_path, "--json"]
    process = statecore(*words, "--bootstrap-servers", broker.bootstrap_servers)
    assert (process.returncode, json.loads(process.stdout)["error"]) == (14, "NotFound")
    process = statecore(*words, "--bootstrap-servers", "localhost:1", "--timeout", "2")
    assert (process.returncode, json.loads(process.stdout)["error"]) == (10, "Retryable")
    # From the topology alone, too: what the description names is not an application's own.
    description = tmp_path / "describe.txt"
    description.write_text("   Sub-topology: 0\n    Processor: P (stores: [counts])\n      --> none\n")
    words = ["discover", "--application-id", "nobody", "--topology", description, "--json"]
    process = statecore(*words, "--bootstrap-servers", broker.bootstrap_servers)
    assert (process.returncode, json.loads(process.stdout)["code"]) == (14, "application-not-found")
