"""The application's own properties, in kafka-python's words."""

from __future__ import annotations

import pytest

from statecore.errors import Invalid, NotFound
from statecore.spec.client_settings import client_settings
from statecore.spec.java_properties import load_java_configuration, parse_properties, translate
from statecore.spec.model import ProcessingGuarantee

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
