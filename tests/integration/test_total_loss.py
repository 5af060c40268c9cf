"""Discover after a total loss: nothing is left but the topology's text and the topics."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore, statecore_on_a_terminal
from tests.harness.feeds import EVENTS, LEFT, MINUTE, RIGHT, feed
from tests.harness.queries import Row, StoreQuery
from tests.harness.sources import RETENTION, Sources
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

TABLE, FOREIGN = "table", "foreign"


HEADERS = {"dsl.store.format": "HEADERS"}


def _topology(names: dict[str, str], properties: dict[str, str]) -> Any:
    """Stores whose names Kafka Streams generates, and some with names of the application's own."""

    def build(jvm: StreamsJvm) -> Any:
        builder = jvm.jvm.org.apache.kafka.streams.StreamsBuilder()
        at = Sources(jvm, builder, names)
        serdes = jvm.jvm.org.apache.kafka.common.serialization.Serdes
        strings = getattr(at.kstream.Consumed, "with")(serdes.String(), serdes.String())
        own = builder.table(names[TABLE], strings)
        other = builder.table(names[FOREIGN], strings)
        extract = jvm.functions.instance("java.util.function.Function", jvm.functions.identity("java.lang.Object"))
        own.join(other, extract, at.joiner())
        own.join(other, extract, at.joiner(), getattr(at.kstream.TableJoined, "as")("named"))
        at.grouped(EVENTS).reduce(at.reducer())
        at.grouped(EVENTS).reduce(at.reducer(), at.materialized("latest"))
        windowed = at.grouped(EVENTS).windowedBy(at.tumbling()).count()
        unbounded = at.kstream.Suppressed.BufferConfig.unbounded()
        windowed.suppress(at.kstream.Suppressed.untilWindowCloses(unbounded))
        windowed.suppress(at.kstream.Suppressed.untilWindowCloses(unbounded).withName("held"))
        at.grouped(EVENTS).windowedBy(at.sessions()).reduce(at.reducer(), at.materialized("visits", retention=True))
        left, right = at.stream(LEFT), at.stream(RIGHT)
        serde = getattr(at.kstream.StreamJoined, "with")(serdes.ByteArray(), serdes.String(), serdes.String())
        left.leftJoin(right, at.joiner(), at.join_windows(), serde)
        given = jvm.jvm.java.util.Properties()
        for name, value in properties.items():
            given.setProperty(name, value)
        return builder.build(given)

    return build


def test_what_names_topics_and_records_tell_is_decided_and_the_rest_is_asked_at_once(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    names = {role: f"{application_id}-{role}" for role in (TABLE, FOREIGN, EVENTS, LEFT, RIGHT)}
    for topic in names.values():
        topics.create(servers, topic, 2)
    for role in (TABLE, FOREIGN):
        topics.produce(servers, names[role], [Record(b"key-%d" % i, b"key-%d" % (i // 2), i % 2) for i in range(20)])
    base = _now()
    for role, records in feed(base, 2):
        if role in (EVENTS, LEFT, RIGHT):
            topics.produce(servers, names[role], records)

    def application(**properties: str) -> StreamsApplication:
        made = StreamsApplication(
            streams_jvm,
            application_id,
            servers,
            state_dir,
            _topology(names, properties),
            guarantee="exactly_once_v2",
            properties=properties,
        )
        made.stores["latest"] = StoreQuery(timestamped=True, value="String", headers=bool(properties))
        return made

    def latest(running: StreamsApplication) -> list[Row]:
        found = [row for p in range(2) for row in running.query_rows("latest", p)]
        return [(key, value.removesuffix(b"[]"), time) for key, value, time in found]

    with application() as running:
        description = running.describe()
        topics.wait_until_consumed(servers, application_id, list(names.values()))
        rows = latest(running)
    (tmp_path / "describe.txt").write_text(description)
    shutil.rmtree(state_dir / application_id)

    words = ["discover", "--bootstrap-servers", servers, "--application-id", application_id]
    words += ["--topology", str(tmp_path / "describe.txt")]
    process = statecore(*words, "--json")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    kinds = {
        _stem(name, names): one["kind"]
        for part in found["spec"]["subtopologies"].values()
        for name, one in part["stores"].items()
    }
    assert kinds == {
        "table-STATE-STORE": "timestamped-key-value",
        "foreign-STATE-STORE": "timestamped-key-value",
        "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE": "timestamped-key-value",
        "named-subscription-store": "timestamped-key-value",
        "KSTREAM-REDUCE-STATE-STORE": "timestamped-key-value",
        "latest": "?",
        "KSTREAM-AGGREGATE-STATE-STORE": "?",
        "KTABLE-SUPPRESS-STATE-STORE": "in-memory",
        "held-store": "in-memory",
        "visits": "?",
        "KSTREAM-JOINTHIS-store": "join-window",
        "KSTREAM-OUTEROTHER-store": "join-window",
        "KSTREAM-OUTERSHARED-store": "list",
    }
    left = {_stem(one["store"], names): set(one["kinds"]) for one in found["open"]}
    assert left == {
        # Changelogs that are equal byte by byte.
        "latest": {"key-value", "timestamped-key-value", "headers-key-value"},
        "KSTREAM-AGGREGATE-STATE-STORE": {
            "timestamped-window",
            "emit-final-window",
            "emit-final-sliding-window",
        },
        "visits": {"session", "headers-session", "emit-final-session", "headers-emit-final-session"},
    }
    asked = next(at for at, line in enumerate(found["notes"]["general"]) if "Replace every '?'" in line)
    listed = " ".join(found["notes"]["general"][asked : asked + 4])
    assert all(word in listed for word in ("latest", "visits", "of its records", "cleanup.policy compact,delete"))
    assert "dsl.store.format=HEADERS" in " ".join(found["notes"]["general"])

    # What was decided is right: with the answers to the rest the application has nothing to restore.
    answers = {"latest": "timestamped-key-value", "visits": "session"}
    kinds_told = [f"--kind={one['store']}={answers.get(one['store'], 'timestamped-window')}" for one in found["open"]]
    spec = tmp_path / "stores.yaml"
    process = statecore(*words, *kinds_told, "--output", spec)
    assert process.returncode == 0, process.stderr
    assert "?" not in spec.read_text()
    typed_in = tmp_path / "typed.yaml"
    typed = "".join(f"{answers.get(one['store'], 'timestamped-window')}\n" for one in found["open"])
    code, shown = statecore_on_a_terminal(typed, *words, "--output", typed_in)
    assert code == 0, shown
    assert shown.count("Kind of ") == len(found["open"])
    assert typed_in.read_text() == spec.read_text()
    process = statecore("restore", "--spec", spec, "--state-dir", state_dir, "--engine", "processes")
    assert process.returncode == 0, process.stderr
    # The default format is right for an application with headers, too: it converts what it touches.
    for properties in ({}, HEADERS):
        with application(**properties) as running:
            restored = {_stem(store, names) for (store, _), count in running.restored_records().items() if count}
            assert restored <= {"KTABLE-SUPPRESS-STATE-STORE", "held-store"}
            assert latest(running) == rows


def _now() -> int:
    """A time in ms, long enough ago for all records of the feed to be past, and within the retention of topics."""

    return (int(time.time() * 1000) - 3 * RETENTION) // MINUTE * MINUTE


def _stem(store: str, names: dict[str, str]) -> str:
    """A store's name without the numbers that Kafka Streams counts, nor the application's id."""

    for role, topic in names.items():
        store = store.replace(topic, role)
    return re.sub(r"-[0-9]{10}", "", store)
