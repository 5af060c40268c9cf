"""Tokens of SASL OAUTHBEARER: where they come from, how long they are used, and what an endpoint refuses."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest

from statecore.changelog.client import connection_settings
from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, Retryable
from tests.harness.broker import free_ports
from tests.harness.certificates import Authority
from tests.harness.raising import raises
from tests.harness.token_endpoint import SECRET, TokenEndpoint
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import ScriptedBrokers

PROVIDER = "sasl_oauth_token_provider"
SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that the client of the endpoint trusts."""
    authority = Authority(tmp_path / "tls")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
    return authority


@pytest.fixture
def endpoint(authority: Authority) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(authority.sign("localhost", ("127.0.0.1",))) as endpoint:
        yield endpoint


def provider(endpoint: TokenEndpoint, **changes: Any) -> Any:
    return connection_settings({**SASL, **endpoint.settings(**changes)}, "kafka:9092")[PROVIDER]


def test_a_token_is_requested_once_and_again_when_it_was_rejected(endpoint: TokenEndpoint) -> None:
    found = provider(endpoint, sasl_oauthbearer_scope="kafka")
    first = found.token()
    assert found.token() == first
    (body,) = endpoint.bodies
    assert ("grant_type=client_credentials" in body, "scope=kafka" in body, SECRET in body) == (True, True, False)
    found.forget()
    assert found.token() != first
    assert len(endpoint.bodies) == 2


def test_kafka_python_gets_no_name_that_it_does_not_know(endpoint: TokenEndpoint) -> None:
    settings = connection_settings({**SASL, **endpoint.settings()}, "kafka:9092")
    assert {name for name in settings if "oauth" in name} == {PROVIDER}
    assert connection_settings(settings, "kafka:9092") == settings
    plain = {"security_protocol": "SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert connection_settings(plain, "kafka:9092") == plain


def test_a_client_that_the_endpoint_refuses_is_invalid_and_its_secret_is_not_shown(endpoint: TokenEndpoint) -> None:
    wrong = "not the secret"
    with raises(Invalid, "token-refused", endpoint=endpoint.url) as caught:
        provider(endpoint, sasl_oauthbearer_client_credentials_client_secret=wrong).token()
    assert wrong not in str(caught.value)
    assert "invalid_client" in caught.value.what


def test_an_endpoint_that_is_down_is_worth_another_try(endpoint: TokenEndpoint, authority: Authority) -> None:
    endpoint.status = 503
    with raises(Retryable, "token-endpoint-unreachable", endpoint=endpoint.url):
        provider(endpoint).token()
    (port,) = free_ports(1)
    nowhere = f"https://127.0.0.1:{port}/token"
    with raises(Retryable, "token-endpoint-unreachable", endpoint=nowhere):
        provider(endpoint, sasl_oauthbearer_token_endpoint_url=nowhere).token()


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (401, "<html>no</html>", Invalid, "token-refused"),
        (403, "", Invalid, "token-refused"),
        (400, '{"error": "invalid_scope"}', Invalid, "token-refused"),
        (200, '{"error": "invalid_client"}', Invalid, "token-refused"),
        (404, "<html>nothing here</html>", Invalid, "kafka-settings-invalid"),
        (307, "", Invalid, "kafka-settings-invalid"),
        (429, '{"error": "too_many_requests"}', Retryable, "token-endpoint-unreachable"),
        (400, '{"error": "temporarily_unavailable"}', Retryable, "token-endpoint-unreachable"),
        (500, "", Retryable, "token-endpoint-unreachable"),
        (200, "<html>Maintenance</html>", Retryable, "token-endpoint-unreachable"),
        (200, "null", Retryable, "token-endpoint-unreachable"),
        (200, "{}", Retryable, "token-endpoint-unreachable"),
        (200, '{"access_token": null}', Retryable, "token-endpoint-unreachable"),
    ],
)
def test_what_an_endpoint_answers_decides_whether_another_try_may_succeed(
    endpoint: TokenEndpoint, status: int, body: str, kind: type[Exception], code: str
) -> None:
    endpoint.answer = status, body
    with raises(kind, code):
        provider(endpoint).token()
    assert len(endpoint.bodies) == 1, "a redirect is not followed"


def test_an_endpoint_that_repeats_the_secret_does_not_show_it(endpoint: TokenEndpoint) -> None:
    provider(endpoint).token()
    (sent,) = endpoint.authorizations
    endpoint.answer = 401, f'{{"error": "invalid_client", "error_description": "{sent} and {SECRET}"}}'
    with raises(Invalid, "token-refused") as caught:
        provider(endpoint).token()
    assert SECRET not in str(caught.value)
    assert sent.partition(" ")[2] not in str(caught.value)


@pytest.mark.parametrize(("encoded", "expected"), [(None, "a b:s+e/c&"), ("true", "a+b:s%2Be%2Fc%26")])
def test_a_client_s_secret_is_encoded_only_on_request(
    endpoint: TokenEndpoint, encoded: str | None, expected: str
) -> None:
    changes = {"client_credentials_client_id": "a b", "client_credentials_client_secret": "s+e/c&"}
    settings = {f"sasl_oauthbearer_{name}": value for name, value in changes.items()}
    with raises(Invalid, "token-refused"):
        provider(endpoint, **settings, sasl_oauthbearer_header_urlencode=encoded).token()
    assert base64.b64decode(endpoint.authorizations[0].partition(" ")[2]).decode() == expected


def test_a_broker_gets_the_extensions_with_each_token(
    endpoint: TokenEndpoint, brokers: ScriptedBrokers, connect: Connect
) -> None:
    settings = endpoint.settings(sasl_oauthbearer_extensions="logicalCluster=lkc-1, identityPoolId=pool-a b=")
    assert connect(brokers, security_protocol="SASL_PLAINTEXT", **settings).list_topics() == []
    prefix, token, *extensions = brokers.asked(SaslAuthenticateRequest)[0].auth_bytes.split(b"\x01")
    assert (prefix, token.partition(b" ")[0]) == (b"n,,", b"auth=Bearer")
    assert extensions == [b"logicalCluster=lkc-1", b"identityPoolId=pool-a b=", b"", b""]


@pytest.mark.parametrize("wrong", ["lkc-1", "a=1,", "auth=x", "a=1,a=2", "a_b=1", "a=\x01b=2", "a="])
def test_what_is_no_extension_is_refused_and_not_shown(endpoint: TokenEndpoint, wrong: str) -> None:
    with raises(Invalid, "kafka-settings-invalid", settings=["sasl_oauthbearer_extensions"]) as caught:
        provider(endpoint, sasl_oauthbearer_extensions=wrong)
    assert wrong not in caught.value.what


def test_an_endpoint_without_tls_gets_no_secret(endpoint: TokenEndpoint) -> None:
    with raises(Invalid, "kafka-settings-invalid"):
        provider(endpoint, sasl_oauthbearer_token_endpoint_url=endpoint.url.replace("https", "http")).token()
    assert endpoint.bodies == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with token providers."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "company_tokens.py").write_text(
        "import itertools\n"
        "from kafka.net.sasl.oauth import AbstractTokenProvider\n"
        "made = itertools.count(1)\n"
        "class Tokens(AbstractTokenProvider):\n"
        "    def __init__(self):\n"
        "        self.number = next(made)\n"
        "    def token(self):\n"
        "        return f'token {self.number}'\n"
        "    def extensions(self):\n"
        "        return {'logicalCluster': 'lkc-1'}\n"
    )
    info = tmp_path / "company_tokens-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: company-tokens\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[statecore.token_providers]\ncompany = company_tokens:Tokens\nwrong = builtins:object\n"
    )


@pytest.mark.usefixtures("package")
def test_a_provider_of_another_package_is_made_again_after_a_refusal() -> None:
    found = connection_settings({**SASL, PROVIDER: "company"}, "kafka:9092")[PROVIDER]
    first = found.token()
    assert (found.token(), found.extensions()) == (first, {"logicalCluster": "lkc-1"})
    found.forget()
    assert found.token() != first


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({PROVIDER: "absent"}, [PROVIDER]),
        ({PROVIDER: "wrong"}, [PROVIDER]),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://idp/token"},
            [f"sasl_oauthbearer_client_credentials_client_{part}" for part in ("id", "secret")],
        ),
    ],
)
def test_settings_without_a_source_of_tokens_are_refused(settings: dict[str, Any], wrong: list[str]) -> None:
    with raises(Invalid, "kafka-settings-invalid", settings=wrong):
        Cluster("127.0.0.1:1", {**SASL, **settings}).list_topics()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with a key of AWS, and nothing else of it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    return monkeypatch


def msk(bootstrap_servers: str) -> Any:
    settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
    found = connection_settings(settings, bootstrap_servers)
    assert found["sasl_mechanism"] == "OAUTHBEARER"
    return found[PROVIDER]


def signed(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


@pytest.mark.parametrize(
    "servers",
    ["b-1.orders.a1.c2.kafka.eu-west-1.amazonaws.com:9098", "boot-x.c3.kafka-serverless.eu-west-1.amazonaws.com:9098"],
)
def test_a_token_of_msk_is_signed_for_the_region_of_the_brokers(aws: pytest.MonkeyPatch, servers: str) -> None:
    aws.setenv("AWS_REGION", "us-east-1")
    found = signed(msk(servers).token())
    assert found.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIATESTS" in found


def test_rotated_keys_of_aws_sign_the_next_token_of_msk(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_REGION", "us-east-1")
    found = msk("kafka.internal:9098")
    assert "AKIATESTS" in signed(found.token())
    aws.setenv("AWS_ACCESS_KEY_ID", "AKIAROTATED")
    assert "AKIATESTS" in signed(found.token())
    found.forget()
    assert "AKIAROTATED" in signed(found.token())


def test_msk_without_a_region_or_a_key_is_refused(aws: pytest.MonkeyPatch) -> None:
    with raises(Invalid, "kafka-settings-invalid"):
        msk("kafka.internal:9098").token()
    aws.setenv("AWS_REGION", "us-east-1")
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    with raises(Invalid, "kafka-settings-invalid"):
        msk("kafka.internal:9098").token()
