from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from statecore.errors import Invalid, NotFound
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.spec.model import ProcessingGuarantee
from statecore.tasks.commit_policy import CommitSettings
from statecore.tasks.properties import ProcessorSettings

LEAST = {"application.id": "app", "bootstrap.servers": "a:1,b:2"}


def test_what_is_not_named_has_kafka_streams_defaults() -> None:
    settings = ProcessorSettings.from_properties(LEAST)
    assert (settings.application_id, settings.bootstrap_servers) == ("app", "a:1,b:2")
    assert settings.state_dir == Path(tempfile.gettempdir(), "kafka-streams")
    assert not settings.guarantee.is_exactly_once
    assert settings.restore.isolation is IsolationLevel.READ_UNCOMMITTED
    assert settings.commit == CommitSettings(30_000, 64 << 20)
    assert (settings.checkpoint.interval_ms, settings.store.uncommitted_max_bytes) == (300_000, 64 << 20)
    assert settings.kafka == {}


def test_a_properties_file_is_read_and_unknown_names_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text(
        "application.id = orders\nbootstrap.servers=kafka\\:9093\nstate.dir=/var/lib/ks\n"
        "processing.guarantee=exactly_once_v2\ncommit.interval.ms= 250 \nnum.stream.threads=4\n"
        "statestore.uncommitted.max.bytes=-1\nstatestore.checkpoint.interval.ms=0\nmy.own=x\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nrequest.timeout.ms=5000\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
        "ssl.truststore.location=${env:CERTIFICATES}/ca.pem\nssl.truststore.type=PEM\n"
    )
    settings = ProcessorSettings.from_properties(path, {"CERTIFICATES": "/etc/certs"})
    assert settings.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert settings.restore.isolation is IsolationLevel.READ_COMMITTED
    assert settings.commit == CommitSettings(250, -1)
    assert (settings.checkpoint.interval_ms, settings.store.uncommitted_max_bytes) == (0, -1)
    assert settings.kafka == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
        "ssl_cafile": "/etc/certs/ca.pem",
        "request_timeout_ms": 5000,
    }
    assert "'p'" not in repr(settings)
    assert settings.changelog("clicks", 3) == TopicPartition("orders-clicks-changelog", 3)
    assert settings.store_path("clicks", "0_3") == Path("/var/lib/ks/orders/0_3/rocksdb/clicks")


def test_a_properties_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("application.id=orders\nbootstrap.servers=kafka:9093\n")
    assert ProcessorSettings.from_properties(str(path)) == ProcessorSettings.from_properties(path)


def test_exactly_once_commits_every_tenth_of_a_second() -> None:
    settings = ProcessorSettings.from_properties({**LEAST, "processing.guarantee": "exactly_once_v2"})
    assert settings.commit.interval_ms == 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"application.id": ""},
        {"application.id": 5},
        {"bootstrap.servers": " "},
        {"state.dir": ""},
        {"processing.guarantee": "exactly_once"},
        {"commit.interval.ms": "fast"},
        {"commit.interval.ms": -1},
        {"statestore.checkpoint.interval.ms": -1},
        {"statestore.checkpoint.interval.ms": "x"},
        {"statestore.uncommitted.max.bytes": -2},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
    ],
    ids=str,
)
def test_what_is_malformed_is_refused_by_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=list(wrong)[-1]):
        ProcessorSettings.from_properties({**LEAST, **wrong})


@pytest.mark.parametrize("name", sorted(LEAST))
def test_application_and_cluster_have_no_default(name: str) -> None:
    with pytest.raises(Invalid, match=f"{name} is missing"):
        ProcessorSettings.from_properties({key: value for key, value in LEAST.items() if key != name})


def test_a_file_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        ProcessorSettings.from_properties(tmp_path / "app.properties")


def test_a_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    (tmp_path / "app.properties").write_text("application.id=shop\nbootstrap.servers=b:1\n")
    assert ProcessorSettings.from_properties(f"{tmp_path}/app.properties").application_id == "shop"


def test_a_refusal_does_not_speak_of_a_command_line() -> None:
    given = {"application.id": "a", "bootstrap.servers": "b:1", "processing.guarantee": "exactly_once"}
    with pytest.raises(Invalid, match="Kafka Streams 4 supports") as refused:
        ProcessorSettings.from_properties(given)
    assert "--" not in str(refused.value)
