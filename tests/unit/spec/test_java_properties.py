"""The application's own properties, in kafka-python's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.spec.bootstrap_servers import parse_bootstrap_servers
from statecore.spec.client_settings import client_settings
from statecore.spec.java_properties import load_java_configuration, parse_properties, translate
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.spec.reader import read_spec
from statecore.spec.writer import spec_to_yaml

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="orders" password="p;\\"w\\\\ä" ;'
SECURED = {
    "application.id": "orders",
    "bootstrap.servers": "kafka:9093",
    "processing.guarantee": "exactly_once_v2",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": SCRAM,
    "ssl.truststore.location": "/etc/ca.pem",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.location": "/etc/client.pem",
    "ssl.keystore.type": "PEM",
    "ssl.key.password": "secret",
    "ssl.endpoint.identification.algorithm": "",
    "request.timeout.ms": "5000",
    "num.stream.threads": "4",
}


def test_the_format_of_java_properties_is_read():
    text = (
        "# a comment\n! another\n\n  application.id = orders \n"
        "a:b\nc d e\nempty=\nalone\nlong=one,\\\n    two\nback\\\\=x\\\\\nkey\\ with\\:signs=\\u00e4\\t!\nc last\n"
    )
    assert parse_properties(text) == {
        "application.id": "orders ",
        "a": "b",
        "c": "last",
        "empty": "",
        "alone": "",
        "long": "one,two",
        "back\\": "x\\",
        "key with:signs": "ä\t!",
    }


@pytest.mark.parametrize(("value", "found"), [("true", True), (" TRUE ", True), ("false", False), ("", False)])
def test_whether_state_stores_are_transactional(value, found):
    told = translate({**SECURED, "enable.transactional.statestores": value}, "app.properties")
    assert told.transactional_state_stores is found
    assert translate(SECURED, "app.properties").transactional_state_stores is False


def test_everything_about_the_connection_is_translated_and_secrets_are_apart():
    found = translate(SECURED, "app.properties")
    assert (found.application_id, found.bootstrap_servers) == ("orders", "kafka:9093")
    assert found.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert found.client == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "orders",
        "sasl_plain_password": "${KAFKA_PASSWORD}",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_certfile": "/etc/client.pem",
        "ssl_keyfile": "/etc/client.pem",
        "ssl_password": "${KAFKA_KEY_PASSWORD}",
        "ssl_check_hostname": "false",
        "request_timeout_ms": "5000",
    }
    assert found.secrets == {"KAFKA_PASSWORD": 'p;"w\\ä', "KAFKA_KEY_PASSWORD": "secret"}
    assert "secret" not in repr(found)
    assert sum("set KAFKA_" in remark for remark in found.remarks) == 2
    expanded, declared = client_settings(found.client, found.secrets, source="--config")
    assert expanded["sasl_plain_password"] == 'p;"w\\ä'
    assert declared["sasl_plain_password"] == "${KAFKA_PASSWORD}"


def test_the_restore_consumers_settings_win_and_the_environment_is_named_as_here():
    found = translate(
        {
            "bootstrap.servers": "one:1",
            "consumer.bootstrap.servers": "two:2",
            "restore.consumer.bootstrap.servers": "three:3",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "PlainLoginModule required username=u password='${env:APP_PASSWORD}';",
        },
        "app.properties",
    )
    assert found.bootstrap_servers == "three:3"
    assert found.client["security_protocol"] == "SASL_PLAINTEXT"
    assert (found.client["sasl_plain_password"], found.secrets) == ("${APP_PASSWORD}", {})


def test_kerberos_needs_no_password():
    found = translate({"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"}, "x")
    assert found.client == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }


ENDPOINT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
}


@pytest.mark.parametrize(
    "client",
    [
        {
            "sasl.jaas.config": 'OAuthBearerLoginModule required clientId="app" clientSecret="s;1" scope="kafka";',
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
            "OAuthBearerLoginCallbackHandler",
        },
        {
            "sasl.jaas.config": "OAuthBearerLoginModule required;",
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "s;1",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer."
            "ClientCredentialsJwtRetriever",
        },
    ],
    ids=["jaas", "KIP-1139"],
)
def test_client_credentials_are_translated_and_the_secret_is_apart(client):
    found = translate({**ENDPOINT, **client}, "x")
    assert found.client == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
        "sasl_oauthbearer_client_credentials_client_id": "app",
        "sasl_oauthbearer_client_credentials_client_secret": "${KAFKA_CLIENT_SECRET}",
        "sasl_oauthbearer_scope": "kafka",
    }
    assert found.secrets == {"KAFKA_CLIENT_SECRET": "s;1"}
    assert len([remark for remark in found.remarks if "set KAFKA_CLIENT_SECRET" in remark]) == 1
    expanded, _ = client_settings(found.client, found.secrets, source="--config")
    assert expanded["sasl_oauthbearer_client_credentials_client_secret"] == "s;1"


def test_sasl_extensions_are_translated_but_for_those_that_cannot_be_written_in_a_list():
    jaas = 'Module required clientId="app" clientSecret="s" extension_logicalCluster="lkc-1" extension_b="x=y" '
    found = translate({**ENDPOINT, "sasl.jaas.config": f'{jaas} extension_c="1,2";'}, "x")
    assert found.client["sasl_oauthbearer_extensions"] == "logicalCluster=lkc-1,b=x=y"
    assert [remark.split()[0] for remark in found.remarks if "extension_" in remark] == ["extension_c"]


@pytest.mark.parametrize(
    "iam",
    [
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        },
    ],
    ids=["AWS_MSK_IAM", "OAUTHBEARER"],
)
def test_the_classes_of_msk_are_translated_to_its_mechanism(iam):
    found = translate({"security.protocol": "SASL_SSL", "sasl.jaas.config": "IAMLoginModule required;", **iam}, "x")
    assert found.client == {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ssl.truststore.type": "JKS"}, "has the type JKS, which only Java reads; convert it to PEM (keytool"),
        ({"ssl.truststore.certificates": "-----BEGIN"}, "save that as a PEM file"),
        ({"ssl.keystore.type": "PKCS12"}, "ssl.keystore.location /etc/client.pem has the type PKCS12"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "DIGEST-MD5 is not supported; supported: PLAIN"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER has no sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.x.Y"}, "names a Java class"),
        ({"sasl.jaas.config": "${file:/etc/secrets:jaas}"}, "comes from a config provider"),
        ({"sasl.jaas.config": "Module required;"}, "has no username and password"),
        ({"sasl.login.callback.handler.class": "com.x.Y"}, "names a Java class"),
        ({"processing.guarantee": "exactly_once_beta"}, "supports at_least_once and exactly_once_v2"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_what_to_do(changed, said):
    with pytest.raises(Invalid) as refused:
        translate({**SECURED, **changed}, "app.properties")
    assert said in refused.value.what
    assert "secret" not in str(refused.value)


def test_what_does_not_concern_the_connection_is_no_matter():
    found = translate({"ssl.truststore.location": "/etc/trust.jks", "dsl.store.format": "headers"}, "x")
    assert (found.client, found.dsl_store_format, found.in_memory) == ({}, "HEADERS", False)
    assert translate({"default.dsl.store": "in_memory"}, "x").in_memory


def test_an_absent_file_is_not_found(tmp_path):
    with pytest.raises(NotFound, match=r"no file .*app\.properties"):
        load_java_configuration(tmp_path / "app.properties")
    (tmp_path / "app.properties").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="cannot be read"):
        load_java_configuration(tmp_path / "app.properties")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kafka:9092", ("kafka:9092",)),
        ("SASL_SSL://kafka-1:9093, SASL_SSL://[::1]:9094,", ("kafka-1:9093", "[::1]:9094")),
        ("kafka", None),
        ("kafka:0", None),
        ("http://kafka:9092/x", None),
        ('"kafka:9092"', None),
        (" , ", None),
    ],
)
def test_bootstrap_servers_are_read_as_kafkas_clients_read_them(text, found):
    assert parse_bootstrap_servers(text) == found


HOSTS = st.sampled_from(["kafka", "kafka-1.example.com", "10.0.0.1", "[::1]"])
SERVERS = st.lists(
    st.tuples(st.sampled_from(["", "SASL_SSL://", "PLAINTEXT://"]), HOSTS, st.integers(1, 65535)),
    min_size=1,
    max_size=3,
)
VALUES = st.text("abzAZ09._-$#:=!'\"\\ ;{}[]&*,\u00e4\u20ac", min_size=1, max_size=10)
# What the environment fills in is another matter.
SECRETS = VALUES.filter(lambda value: "${" not in value)


@st.composite
def property_files(draw):
    """A properties file as its author may write it, and what it says."""
    servers = draw(SERVERS)
    user, password, mechanism = draw(SECRETS), draw(SECRETS), draw(st.sampled_from(["PLAIN", "SCRAM-SHA-512"]))
    pairs = {
        "application.id": draw(st.text("abzAZ09._-", min_size=1, max_size=9).filter(lambda name: name.strip("."))),
        "bootstrap.servers": ", ".join(f"{protocol}{host}:{port}" for protocol, host, port in servers),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"Module required username={quoted(user)} password={quoted(password)};",
        "ssl.truststore.location": draw(VALUES).strip() or "ca",
        "ssl.truststore.type": "PEM",
        "request.timeout.ms": str(draw(st.integers(1, 99999))),
    }
    separator = draw(st.sampled_from(["=", ": ", " = ", " "]))
    lines = [f"{name}{separator}{escaped(value)}" for name, value in draw(st.permutations(list(pairs.items())))]
    return "\n".join(lines) + "\n", pairs, [f"{host}:{port}" for _, host, port in servers], user, password


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def escaped(text):
    text = text.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode()
    return text.replace("\\xe4", "\\u00e4").replace(" ", "\\ ", 1 if text.startswith(" ") else 0)


@given(property_files())
def test_the_spec_of_a_properties_file_is_read_back_with_the_same_connection(case):
    text, pairs, servers, user, password = case
    java = translate(parse_properties(text), "app.properties")
    expanded, declared = client_settings(java.client, java.secrets, source="--config")
    spec = ApplicationSpec(
        application_id=java.application_id,
        bootstrap_servers=java.bootstrap_servers,
        processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE,
        stores=(StoreSpec("s", StoreKind.KEY_VALUE, 0, f"{java.application_id}-s-changelog", None),),
        kafka_declared=declared,
    )
    found = read_spec(spec_to_yaml(spec), environ=java.secrets)
    assert (found.application_id, found.bootstrap_servers) == (pairs["application.id"], ",".join(servers))
    assert found.kafka == expanded
    assert (found.kafka["sasl_plain_username"], found.kafka["sasl_plain_password"]) == (user, password)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('application.id=orders\nbootstrap.servers = "kafka:9092"\n', "app.properties:2:21"),
        ("bootstrap.servers=kafka:1\nrestore.consumer.security.protocol='SSL'\n", "app.properties:2:36"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=Module required \\\n"
            '    username="u" \\\n    password="p;\n',
            "app.properties:5:14",
        ),
        ('sasl.jaas.config=\\u0020M username="u\\\\"x" password=p";\n', "app.properties:1:53"),
    ],
)
def test_a_stray_quote_is_reported_with_its_place(text, place):
    with pytest.raises(Invalid) as refused:
        translate(parse_properties(text), "app.properties")
    (problem,) = refused.value.context["problems"]
    assert problem.startswith(f"{place}: ")
    assert "p;" not in problem
