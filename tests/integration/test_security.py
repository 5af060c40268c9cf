"""TLS and SASL on a real broker: what is read, what is refused and how quickly, and where a password never shows."""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.sockets import ConnectionManager
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.spark.session import spark_context
from statecore.spec.reader import load_spec
from statecore.stores.in_memory import InMemoryStore
from statecore.tasks.restoration.restore import RestoreReader, RestoreSettings, restore
from tests.harness import directory, topics
from tests.harness.case_selection import three_of
from tests.harness.certificates import Authority
from tests.harness.command import statecore
from tests.harness.on_spark import run_restore
from tests.harness.raising import code_said, raises
from tests.harness.reading import columnar, joined, plain
from tests.harness.secured import MECHANISMS, SESSION_SECONDS, SecuredBroker
from tests.harness.streams import StreamsJvm
from tests.harness.token_endpoint import TokenEndpoint
from tests.harness.topics import Record

pytestmark = [
    pytest.mark.integration,
]

TOPIC = "secured"
PROPERTIES = [
    ("SASL", "SCRAM-SHA-512"),
    pytest.param("SASL", "PLAIN", marks=pytest.mark.full),
    pytest.param("MUTUAL", "PLAIN", marks=pytest.mark.full),
]
WAYS = [
    *(("TLS", "PLAIN"), ("MUTUAL", "PLAIN"), ("TOKENS", "OAUTHBEARER")),
    *(("SASL", mechanism) for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker, with a topic that holds several codecs and aborted transactions."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", str(made.authority.file))
        servers = made.broker.bootstrap_servers
        topics.create(servers, TOPIC, 1, topics.UNCLEANED)
        chance = random.Random(7)
        for codec in ("none", "lz4", "zstd"):
            records = [Record(b"key-%d" % (n % 900), chance.randbytes(n % 700)) for n in range(3000)]
            topics.produce(servers, TOPIC, records, compression_type=codec)
            topics.produce_aborted(servers, TOPIC, records[:50], compression_type=codec)
        yield made


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
@pytest.mark.parametrize("fetch_bytes", [30_000, pytest.param(8 << 20, marks=pytest.mark.full)])
def test_a_secured_listener_reads_as_a_plain_consumer_reads(
    secured: SecuredBroker, listener: str, mechanism: str, fetch_bytes: int
) -> None:
    wanted = plain(secured.broker.bootstrap_servers, TOPIC)
    settings = secured.settings(listener, mechanism)
    with Cluster(secured.broker.address(listener), settings, timeout=300) as cluster:
        assert cluster.describe_topics([TOPIC])[TOPIC].configs["cleanup.policy"] == "compact"
        now = cluster.log_offsets([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)]
        assert (now.log_start, now.last_stable) == (0, now.log_end)
        assert joined(columnar(cluster, TOPIC, now.log_end, fetch_bytes=fetch_bytes)) == wanted
    assert len(wanted) == 9000


@pytest.mark.parametrize(("listener", "mechanism"), three_of(WAYS))
def test_a_store_is_restored_over_a_secured_listener_by_either_reader(
    secured: SecuredBroker, listener: str, mechanism: str
) -> None:
    rows = {key: value for key, value, _, _ in plain(secured.broker.bootstrap_servers, TOPIC)}
    for reader in (RestoreReader.COLUMNAR, RestoreReader.CONSUMER):
        with InMemoryStore() as store:
            restore(
                store,
                TopicPartition(TOPIC, 0),
                secured.broker.address(listener),
                RestoreSettings(reader=reader),
                kafka=secured.settings(listener, mechanism),
            )
            assert dict(store.all()) == rows


def test_a_session_that_expires_during_a_read_is_renewed(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore.changelog.wire import Wire

    connected = 0
    connect = Wire.connect.__func__  # type: ignore[attr-defined]

    def counting(cls: type[Wire], *args: Any) -> Wire:
        nonlocal connected
        connected += 1
        made: Wire = connect(cls, *args)
        return made

    monkeypatch.setattr(Wire, "connect", classmethod(counting))
    wanted = plain(secured.broker.bootstrap_servers, TOPIC)
    rows = []
    with Cluster(secured.broker.address("SHORT"), secured.settings("SHORT", "SCRAM-SHA-256"), timeout=300) as cluster:
        end = topics.end_offset(secured.broker.bootstrap_servers, TOPIC, 0)
        for number, batch in enumerate(columnar(cluster, TOPIC, end, fetch_bytes=100_000)):
            rows += batch
            if number == 0:
                time.sleep(SESSION_SECONDS + 0.5)
        assert TOPIC in cluster.list_topics()  # its connection ran out, too
    assert rows == wanted
    assert connected >= 2


SETTINGS, DENIED, TLS = "kafka-settings-invalid", "broker-access-denied", "tls-failed"


def refused(
    where: str, settings: dict[str, Any], code: str, why: str = "", kind: type[StatecoreError] = Invalid
) -> None:
    """The error comes after one try where another cannot help, and never shows a password."""
    tries = 0
    build = ConnectionManager._build_transport

    async def counting(*args: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        return await build(*args, **named)

    # What is tried until the deadline tells its last reason, if there was time for one.
    for timeout in (60.0,) if kind is Invalid else (2.0, 20.0, 200.0):
        with (
            pytest.MonkeyPatch.context() as patch,
            Cluster(where, settings, timeout=timeout) as cluster,
            raises(kind, code) as caught,
        ):
            patch.setattr(ConnectionManager, "_build_transport", counting)
            cluster.list_topics()
        if why in str(caught.value):
            break
    assert why in str(caught.value)
    assert tries <= 1 or kind is not Invalid, "it tried again what does not change"
    shown = f"{caught.value} {json.dumps(caught.value.to_json())} {caught.value.__cause__!r}"
    assert settings.get("sasl_plain_password", "\0") not in shown


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_at_once(secured: SecuredBroker, mechanism: str) -> None:
    settings = secured.settings("SASL", mechanism, sasl_plain_password="not-the-password")
    refused(secured.broker.address("SASL"), settings, DENIED, "Authentication failed")


def test_another_mechanisms_user_is_refused(secured: SecuredBroker) -> None:
    settings = secured.settings("SASL", "PLAIN") | {"sasl_mechanism": "SCRAM-SHA-512"}
    refused(secured.broker.address("SASL"), settings, DENIED)


def test_a_certificate_that_is_not_trusted_or_missing_is_refused_at_once(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    other = str(Authority(tmp_path, "other").file)
    where = secured.broker.address("TLS")
    refused(where, secured.settings("TLS", ssl_cafile=other), TLS, "certificate")
    refused(secured.broker.address("MUTUAL"), secured.settings("TLS"), TLS, "ALERT")
    refused(where, secured.settings("TLS", ssl_cafile=str(tmp_path / "absent")), SETTINGS, "No such file")
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    refused(where, secured.settings("TLS", ssl_cafile=str(empty)), SETTINGS, "no certificate")


def test_a_certificate_of_another_host_is_refused_unless_that_is_not_checked(secured: SecuredBroker) -> None:
    where = secured.broker.address("TLS").replace(
        "127.0.0.1", "127.1"
    )  # the same address, by a name it is not made for
    refused(where, secured.settings("TLS"), TLS, "mismatch")
    with Cluster(where, secured.settings("TLS", ssl_check_hostname=False), timeout=300) as cluster:
        assert TOPIC in cluster.list_topics()


def test_the_wrong_protocol_for_a_port_is_reported(secured: SecuredBroker) -> None:
    broker = secured.broker
    refused(broker.address("TLS"), {}, TLS, "port uses TLS")
    refused(broker.address("TLS"), secured.settings("SASL"), DENIED)
    # A broker that closes the connection may also be one that is starting behind a proxy: that passes.
    refused(broker.bootstrap_servers, secured.settings("TLS"), "broker-unreachable", "TLS handshake", Retryable)
    refused(broker.address("SASL"), secured.settings("TLS"), "broker-unreachable", "security_protocol", Retryable)


@pytest.mark.parametrize(
    ("changes", "why", "code"),
    [
        ({"security_protocol": "SSL_SASL"}, "security_protocol is 'SSL_SASL'", SETTINGS),
        ({"sasl_mechanism": "SCRAM"}, "sasl_mechanism is 'SCRAM'", SETTINGS),
        ({"sasl_mechanism": None}, "sasl_mechanism is None", SETTINGS),
        ({"sasl_plain_password": ""}, "PLAIN needs sasl_plain_password", SETTINGS),
        ({"sasl_mechanism": "GSSAPI"}, "127.0.0.1", DENIED),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    secured: SecuredBroker, changes: dict[str, Any], why: str, code: str
) -> None:
    settings = secured.settings("SASL", **changes)
    settings["sasl_plain_password"] = settings["sasl_plain_password"] or "\0"
    if changes.get("sasl_plain_password") == "":
        del settings["sasl_plain_password"]
    refused(secured.broker.address("SASL"), settings, code, why)


def test_a_broker_that_hangs_in_the_tls_handshake_is_retryable_within_the_deadline(secured: SecuredBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        refused(where, secured.settings("TLS"), "broker-unreachable", where, Retryable)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_log_shows_a_password(secured: SecuredBroker, caplog: pytest.LogCaptureFixture, mechanism: str) -> None:
    caplog.set_level(logging.DEBUG)
    with Cluster(secured.broker.address("SASL"), secured.settings("SASL", mechanism), timeout=300) as cluster:
        joined(columnar(cluster, TOPIC, 100))
    assert "kafka" in caplog.text
    assert secured.passwords[mechanism] not in caplog.text


@pytest.fixture
def endpoint(secured: SecuredBroker) -> Iterator[TokenEndpoint]:
    """The token endpoint, which nobody has asked yet."""
    secured.endpoint.bodies.clear()
    yield secured.endpoint
    secured.endpoint.lives[:] = [3600.0]


def test_all_connections_share_a_token(secured: SecuredBroker, endpoint: TokenEndpoint) -> None:
    with Cluster(secured.broker.address("TOKENS"), secured.settings("TOKENS"), timeout=300) as cluster:
        joined(columnar(cluster, TOPIC, 100))
        cluster.close()
        assert TOPIC in cluster.list_topics()
    assert len(endpoint.bodies) == 1


def test_a_token_that_has_expired_since_is_requested_again(secured: SecuredBroker, endpoint: TokenEndpoint) -> None:
    endpoint.lives[:] = [-1.0, 3600.0]  # the first one was revoked before anybody used it
    with Cluster(secured.broker.address("TOKENS"), secured.settings("TOKENS"), timeout=300) as cluster:
        assert TOPIC in cluster.list_topics()
        assert len(endpoint.bodies) == 2
    # At a connection for Fetch alone.
    endpoint.lives[:] = [3600.0, -1.0, 3600.0]
    with Cluster(secured.broker.address("TOKENS"), secured.settings("TOKENS"), timeout=300) as cluster:
        end = cluster.log_offsets([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)].log_end
        cluster.connection_settings["sasl_oauth_token_provider"].forget()
        assert len(joined(columnar(cluster, TOPIC, end))) == 9000
    assert len(endpoint.bodies) == 5


def test_tokens_that_are_rejected_twice_are_worth_another_try_later(
    secured: SecuredBroker, endpoint: TokenEndpoint
) -> None:
    endpoint.lives[:] = [-1.0]
    with Cluster(secured.broker.address("TOKENS"), secured.settings("TOKENS"), timeout=300) as cluster:
        with raises(Retryable, "broker-token-rejected", broker=secured.broker.address("TOKENS")):
            cluster.list_topics()
    assert len(endpoint.bodies) == 2


def test_a_client_that_the_token_endpoint_refuses_is_refused_at_once(
    secured: SecuredBroker, endpoint: TokenEndpoint
) -> None:
    wrong = {"sasl_oauthbearer_client_credentials_client_secret": "not-the-secret"}
    refused(secured.broker.address("TOKENS"), secured.settings("TOKENS", **wrong), "token-refused", "invalid_client")
    assert len(endpoint.bodies) == 1


class CommandLines(threading.Thread):
    """Looks at the arguments of all processes of this user, again and again, for a secret."""

    def __init__(self, secret: str) -> None:
        super().__init__(daemon=True)
        self._secret = secret.encode()
        self._done = threading.Event()
        self.seen: set[str] = set()
        self.found: list[str] = []

    def __enter__(self) -> CommandLines:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    line = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                self.seen.add(line.decode(errors="replace"))
                if self._secret in line:
                    self.found.append(line.decode(errors="replace"))


# PySpark leaves its gateway's sockets and pipe to the end of the process.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_whole_restore_by_password_leaves_the_password_nowhere(
    secured: SecuredBroker,
    application_id: str,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    servers, changelog = secured.broker.bootstrap_servers, f"{application_id}-plain-changelog"
    topics.create(servers, changelog, 2, topics.UNCLEANED)
    records = [Record(b"key-%d" % n, b"value %d" % n, n % 2) for n in range(2000)]
    topics.produce_committed(servers, changelog, records)
    topics.produce_aborted(servers, changelog, [Record(b"ghost", b"aborted", 0)])
    password = secured.passwords["SCRAM-SHA-512"]
    monkeypatch.setenv("RESTORE_PASSWORD", password)
    caplog.set_level(logging.DEBUG)
    declared = secured.settings("SASL", "SCRAM-SHA-512", sasl_plain_password="${RESTORE_PASSWORD}")
    spec = {
        "application_id": application_id,
        "bootstrap_servers": secured.broker.address("SASL"),
        "processing_guarantee": "exactly_once_v2",
        "kafka": declared,
        "subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}},
    }
    request = RestoreRequest(state_dir=str(state_dir), spec=spec, timeout=60.0)

    with CommandLines(password) as processes, spark_context("tests", "local[2]") as spark:
        report = run_restore(request)
        conf = spark.getConf().getAll()  # type: ignore[no-untyped-call]
        temporary = Path(spark._temp_dir).parent
        kept = [path for path in temporary.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]

    assert isinstance(report, ReadReport)
    assert report.totals["records"] == 2000
    rows = directory.read_application(state_dir / application_id)
    found = {key: value for families in rows.values() for key, value in families["default"]}
    assert found == {record.key: record.value for record in records}
    assert any("pyspark" in line or "java" in line for line in processes.seen)
    assert not processes.found
    assert not kept
    shown = "".join(
        [json.dumps(report.to_json()), json.dumps(request.to_json()), str(conf), caplog.text, *capfd.readouterr()]
    )
    assert password not in shown
    files = [path for path in state_dir.rglob("*") if path.is_file()]
    assert any(path.suffix == ".report" for path in files)
    assert not [path for path in files if password.encode() in path.read_bytes()]
    assert os.environ["RESTORE_PASSWORD"] == password


def test_a_restore_with_a_wrong_password_is_refused_before_anything_changes(
    secured: SecuredBroker, application_id: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESTORE_PASSWORD", "not-the-password")
    spec = {
        "application_id": application_id,
        "bootstrap_servers": secured.broker.address("SASL"),
        "processing_guarantee": "exactly_once_v2",
        "kafka": secured.settings("SASL", sasl_plain_password="${RESTORE_PASSWORD}"),
        "subtopologies": {"0": {"stores": {"plain": {"kind": "key-value"}}}},
    }
    with raises(Invalid, DENIED) as caught:
        run_restore(RestoreRequest(state_dir=str(state_dir), spec=spec, plan_only=True))
    assert "not-the-password" not in str(caught.value)
    assert not list(state_dir.iterdir())


@pytest.mark.parametrize(("listener", "mechanism"), PROPERTIES)
def test_the_properties_that_kafkas_own_client_takes_are_taken_by_discover(
    secured: SecuredBroker, streams_jvm: StreamsJvm, tmp_path: Path, listener: str, mechanism: str
) -> None:
    password = secured.passwords[mechanism]
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    application = f"of-properties-{listener}-{mechanism}".lower()
    properties = {
        "application.id": application,
        "bootstrap.servers": secured.broker.address(listener),
        "processing.guarantee": "exactly_once_v2",
        "dsl.store.format": "HEADERS",
        "security.protocol": "SASL_SSL" if listener == "SASL" else "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.file),
    }
    if listener == "SASL":
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required \\\n"
            f'    username="{secured.user(mechanism)}" password="{password}";'
        )
    else:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.client.keystore)}
    file = tmp_path / "application.properties"
    file.write_text("# of the application\n" + "".join(f"{name}={value}\n" for name, value in properties.items()))
    store = "KTABLE-AGGREGATE-STATE-STORE-0000000003"
    topics.create(secured.broker.bootstrap_servers, f"{application}-{store}-changelog", 1)

    java = streams_jvm.jvm.java
    loaded = java.util.Properties()
    loaded.load(java.io.FileReader(str(file)))
    admin = streams_jvm.jvm.org.apache.kafka.clients.admin.Admin.create(loaded)
    assert admin.listTopics().names().get().contains(f"{application}-{store}-changelog")
    admin.close()

    description = tmp_path / "describe.txt"
    description.write_text(f"   Sub-topology: 0\n    Processor: P (stores: [{store}])\n      --> none\n")
    spec = tmp_path / "stores.yaml"
    process = statecore("discover", "--config", file, "--topology", description, "--output", spec)
    assert process.returncode == 0, process.stderr
    assert password not in process.stdout + process.stderr + spec.read_text()
    found = load_spec(spec, environ={"KAFKA_PASSWORD": password})
    assert (found.application_id, str(found.processing_guarantee)) == (application, "exactly_once_v2")
    assert [str(one.kind) for one in found.stores] == ["headers-key-value"]
    assert ("set KAFKA_PASSWORD" in process.stderr) is (listener == "SASL")
    with Cluster(found.bootstrap_servers, found.kafka, timeout=300) as cluster:
        assert found.stores[0].changelog in cluster.list_topics()

    # A truststore that only Java reads is refused before anybody is asked, with what to do.
    file.write_text(file.read_text().replace("ssl.truststore.type=PEM", "ssl.truststore.type=JKS"))
    process = statecore("discover", "--config", file, "--topology", description)
    assert (process.returncode, code_said(process.stderr)) == (13, "config-unsupported")
    assert "keytool" in process.stderr
