"""The way to the brokers: settings, which broker is asked, what is tried again and what is refused at once."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka.errors as errors
import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest

from statecore.changelog.client import reason
from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Retryable
from statecore.formats.topic_partition import TopicPartition
from tests.harness.broker import refusing_port
from tests.harness.raising import raises
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import CLOSE, SILENT, Clock, ScriptedBrokers

Start = Callable[..., ScriptedBrokers]
PASSWORD = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "ada",
    "sasl_plain_password": "lovelace",
}


def test_a_key_with_a_password_does_not_prompt(brokers: ScriptedBrokers, connect: Connect) -> None:
    """OpenSSL asks there for the password of an encrypted key when the client gives none."""
    cluster = connect(brokers)
    cluster.list_topics()
    assert cluster.manager.config["ssl_password"] == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.KafkaConnectionError("SaslError: RealError: no such user."), "no such user"),
        (errors.KafkaConnectionError(), "KafkaConnectionError"),
        (errors.KafkaConnectionError(""), "KafkaConnectionError"),
        (errors.KafkaConnectionError("an Error: inside", "more"), "an Error: inside"),
        (OSError(5, "text"), "5"),
    ],
)
def test_an_error_in_the_fewest_words(error: Exception, words: str) -> None:
    assert reason(error) == words


def test_settings_that_the_client_does_not_know_are_named_before_anything_is_connected(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    cluster = connect(brokers, zzz=1, security=2, client_id="mine")
    assert cluster.settings == {"reconnect_backoff_ms": 0, "zzz": 1, "security": 2, "client_id": "mine"}
    with raises(Invalid, "kafka-settings-invalid", settings=["security", "zzz"]):
        cluster.list_topics()
    assert brokers.asked(ApiVersionsRequest) == []


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"security_protocol": "TLS"}, ["security_protocol"]),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "MAGIC"}, ["sasl_mechanism"]),
        ({"security_protocol": "SASL_PLAINTEXT"}, ["sasl_mechanism"]),
        ({**PASSWORD, "sasl_plain_password": ""}, ["sasl_plain_password"]),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"},
            ["sasl_plain_username", "sasl_plain_password"],
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"},
            ["sasl_plain_username", "sasl_plain_password"],
        ),
        ({"client_dns_lookup": "never"}, None),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_connected(
    brokers: ScriptedBrokers, connect: Connect, settings: dict[str, Any], wrong: list[str] | None
) -> None:
    cluster = connect(brokers, **settings)
    with raises(Invalid, "kafka-settings-invalid", bootstrap_servers=brokers.address, settings=wrong):
        cluster.list_topics()
    assert brokers.asked(ApiVersionsRequest) == []


def test_settings_of_a_password_mean_nothing_without_a_protocol_that_asks_for_it(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    assert connect(brokers, security_protocol="PLAINTEXT", sasl_mechanism="MAGIC").list_topics() == []


def test_a_client_says_its_name(brokers: ScriptedBrokers, connect: Connect) -> None:
    connect(brokers).list_topics()
    connect(brokers, client_id="mine").list_topics()
    assert [request.header.client_id for request in brokers.asked(MetadataRequest)] == ["statecore", "mine"]


def test_responses_may_be_of_more_than_a_megabyte(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    brokers.add("orders", configs={"large": "v" * 1_100_000})
    assert len(connect(brokers).describe_topics(["orders"])["orders"].configs["large"]) == 1_100_000
    with pytest.raises(Retryable):
        connect(brokers, receive_message_max_bytes=1_000_000).describe_topics(["orders"])


def test_one_of_several_servers_is_enough(start: Start, connect: Connect) -> None:
    brokers = start()
    brokers.add("orders")
    with refusing_port() as port:
        cluster = connect(brokers, address=f" 127.0.0.1:{port} ,, {brokers.address},")
        assert cluster.list_topics() == ["orders"]


def test_a_broker_that_hangs_leaves_time_for_the_others(start: Start, connect: Connect) -> None:
    brokers = start(2)
    brokers.add("orders")
    brokers.next(ApiVersionsRequest, SILENT)
    cluster = connect(brokers, address=f"{brokers.where(0)},{brokers.where(1)}", timeout=2.9)
    assert cluster.list_topics() == ["orders"]
    assert {one.node for one in brokers.seen(ApiVersionsRequest)} == {0, 1}


def test_a_cluster_that_hangs_is_given_up_in_time(brokers: ScriptedBrokers, connect: Connect) -> None:
    brokers.always(MetadataRequest, SILENT)
    with raises(Retryable, "broker-unreachable", bootstrap_servers=brokers.address) as caught:
        connect(brokers, timeout=0.2).list_topics()
    assert re.search(rf"{brokers.address} \(.*[Tt]imed out after \d+", caught.value.what)


def test_silence_is_reported_after_two_seconds_and_once_until_an_answer(
    brokers: ScriptedBrokers, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.always(MetadataRequest, SILENT)
    cluster = connect(brokers, timeout=2.1)
    for _ in range(2):
        with raises(Retryable, "broker-unreachable", seconds=2.1):
            cluster.list_topics()
    said = [record.levelname for record in caplog.records if record.name == "statecore.changelog.client"]
    assert said == ["WARNING"]


def test_a_deadline_of_zero_sends_no_request(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    with raises(Retryable, "broker-unreachable", bootstrap_servers=brokers.address):
        connect(brokers, timeout=0.0).list_topics()
    assert (brokers.asked(ApiVersionsRequest), clock.pauses) == ([], [])


def test_a_broker_that_hangs_up_is_asked_again_with_pauses_that_grow(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.always(MetadataRequest, CLOSE)
    with pytest.raises(Retryable, match=rf"{brokers.address} \(closed by the broker"):
        connect(brokers, timeout=5.5).list_topics()
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert len(brokers.asked(MetadataRequest)) == 9


def test_a_broker_that_comes_back_is_found(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    brokers.next(MetadataRequest, CLOSE, CLOSE)
    assert connect(brokers).list_topics() == []
    assert clock.pauses == [0.05, 0.1]


def test_a_broker_that_could_not_be_reached_a_moment_ago_is_not_connected_yet(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    later = {"reconnect_backoff_ms": 600_000, "reconnect_backoff_max_ms": 600_000}
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        cluster = connect(brokers, address=address, timeout=2.0, **later)
        with pytest.raises(Retryable, match=rf"{address} \(.*ECONNREFUSED\)"):  # the reason, not what follows from it
            cluster.list_topics()
        with pytest.raises(Retryable, match=rf"{address} \(not connected yet\)"):
            cluster.list_topics()


def test_connected_brokers_are_asked_before_known_ones(start: Start, connect: Connect) -> None:
    brokers = start(2)
    cluster = connect(brokers)
    cluster.list_topics()
    cluster.list_topics()
    assert [(one.node, one.connection) for one in brokers.seen(MetadataRequest)] == [(0, 1), (0, 1)]
    brokers.stop(0)
    cluster.list_topics()  # the server that was given is gone; the other one is known by now
    assert [one.node for one in brokers.seen(MetadataRequest)] == [0, 0, 1]
    cluster.list_topics()
    assert [(one.node, one.connection) for one in brokers.seen(MetadataRequest)][-2:] == [(1, 1), (1, 1)]


def test_a_password_lets_in_and_a_wrong_one_is_refused_at_once(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.password = ("ada", "lovelace")
    assert connect(brokers, **PASSWORD).list_topics() == []
    brokers.password = ("ada", "byron")
    with raises(Invalid, "broker-access-denied", broker=brokers.address) as caught:
        connect(brokers, **PASSWORD).list_topics()
    assert "Authentication failed" in caught.value.what  # the broker's own words
    assert (len(brokers.asked(SaslAuthenticateRequest)), clock.pauses) == (2, [])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
def test_a_mechanism_that_the_broker_does_not_have_is_refused_at_once(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock, mechanism: str
) -> None:
    with raises(Invalid, "broker-access-denied", broker=brokers.address) as caught:
        connect(brokers, **PASSWORD | {"sasl_mechanism": mechanism}).list_topics()
    assert mechanism in caught.value.what
    assert clock.pauses == []


def test_a_tls_port_has_its_own_error(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    brokers.always(ApiVersionsRequest, b"\x15\x03\x03\x00\x02\x02\x0a")
    with raises(Invalid, "tls-failed", broker=brokers.address):
        connect(brokers).list_topics()
    assert clock.pauses == []


def test_a_certificate_file_that_is_not_there_is_a_matter_of_the_settings(
    brokers: ScriptedBrokers, connect: Connect, tmp_path: Path
) -> None:
    settings = {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / "none.pem")}
    with raises(Invalid, "kafka-settings-invalid", broker=brokers.address):
        connect(brokers, **settings).list_topics()


def test_a_broker_too_old_for_a_request_is_refused_at_once(start: Start, connect: Connect, clock: Clock) -> None:
    brokers = start(versions={ApiVersionsRequest.API_KEY: (0, 4), MetadataRequest.API_KEY: (99, 100)})
    with raises(Invalid, "broker-access-denied", broker=brokers.address):
        connect(brokers).list_topics()
    assert clock.pauses == []


def test_a_closed_client_leaves_no_connection_and_can_be_used_again(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    with cluster as entered:
        assert entered is cluster
        cluster.list_topics()
        assert brokers.open_connections() == 1
    brokers.wait(lambda: brokers.open_connections() == 0)
    cluster.close()
    assert cluster.list_topics() == []
    assert brokers.open_connections() == 1


def test_an_unused_client_opens_no_connection() -> None:
    with Cluster("127.0.0.1:1"):
        pass


def test_the_deadline_is_the_timeout_from_now(brokers: ScriptedBrokers, connect: Connect, clock: Clock) -> None:
    assert connect(brokers, timeout=12.0).deadline() == clock.now + 12
    assert Cluster(brokers.address).timeout == 30


def test_what_the_client_needs_to_start_does_not_count(brokers: ScriptedBrokers, clock: Clock) -> None:
    class Slow(Cluster):
        def _start(self) -> None:
            clock.now += 60
            super()._start()

    with Slow(brokers.address, timeout=12.0) as cluster:
        assert cluster.deadline() == clock.now + 12
        assert cluster.list_topics() == []


def test_threads_that_ask_at_the_same_time_are_served_one_after_the_other(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    brokers.add("orders")
    cluster = connect(brokers)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(cluster.list_topics())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["orders"]] * 6


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name has an address, as on a machine without DNS; addresses do."""
    answers = socket.getaddrinfo

    def lookup(host: str, *args: Any, **named: Any) -> Any:
        if host[0].isdigit():
            return answers(host, *args, **named)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.usefixtures("names")
def test_an_advertised_name_that_does_not_resolve_is_named_with_its_broker(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    brokers.add("orders")
    brokers.advertised_host = "kafka-0.internal"
    advertised = f"kafka-0.internal:{brokers.ports[0]}"
    cluster = connect(brokers, timeout=3.0)
    assert cluster.list_topics() == ["orders"]
    with raises(
        Retryable,
        "broker-name-unresolved",
        host="kafka-0.internal",
        broker=advertised,
        bootstrap_servers=brokers.address,
    ) as caught:
        cluster.log_offsets([TopicPartition("orders", 0)])
    assert "advertised.listeners" in caught.value.action


@pytest.mark.usefixtures("names")
def test_a_bootstrap_name_that_does_not_resolve_is_named(
    brokers: ScriptedBrokers, connect: Connect, clock: Clock
) -> None:
    with raises(Retryable, "broker-name-unresolved", host="kafka", broker="kafka:9092") as caught:
        connect(brokers, address="kafka:9092", timeout=3.0).list_topics()
    assert "bootstrap_servers" in caught.value.action
    # One that answers is enough.
    assert connect(brokers, address=f"kafka:9092,{brokers.address}").list_topics() == []


def test_an_unknown_broker_has_only_an_id(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    cluster.list_topics()
    assert (cluster.where(0), cluster.where(9)) == (brokers.address, "broker 9")
