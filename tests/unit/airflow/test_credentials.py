from __future__ import annotations

import json
import os

import pytest

from statecore.airflow.credentials import aws_environment, environment, kafka_environment
from statecore.errors import Invalid, NotFound
from tests.harness.raising import raises


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kafka_orders", "named", "site"):
        connection = {"conn_type": "generic", "login": name, "password": f"of {name}"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


@pytest.mark.parametrize(
    ("application_id", "named", "site", "expected"),
    [
        ("orders", "named", "site", "named"),
        ("orders", None, "site", "kafka_orders"),
        ("billing", None, "site", "site"),
        ("billing", None, None, None),
    ],
)
def test_the_nearest_connection_is_taken(
    application_id: str, named: str | None, site: str | None, expected: str | None
) -> None:
    found = kafka_environment(application_id, named, site)
    assert found == ({"KAFKA_USERNAME": expected, "KAFKA_PASSWORD": f"of {expected}"} if expected else {})


@pytest.mark.parametrize(("named", "site"), [("absent", None), (None, "absent")])
def test_a_connection_that_is_named_has_to_exist(named: str | None, site: str | None) -> None:
    with raises(NotFound, "connection-not-found", conn_id="absent", application_id="billing"):
        kafka_environment("billing", named, site)


@pytest.mark.parametrize("written", ["generic://o:hush@[kafka", '{"conn_type": "generic", "password": "hush"'])
def test_a_connection_that_cannot_be_read_is_no_absent_one(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", written)
    with raises(Invalid, "connection-malformed", conn_id="kafka_orders") as refused:
        kafka_environment("orders", None, "site")
    assert "hush" not in str(refused.value)


def test_the_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USERNAME", "before")
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    with environment({"KAFKA_USERNAME": "u", "KAFKA_PASSWORD": "p"}):
        assert (os.environ["KAFKA_USERNAME"], os.environ["KAFKA_PASSWORD"]) == ("u", "p")
    assert os.environ["KAFKA_USERNAME"] == "before"
    assert "KAFKA_PASSWORD" not in os.environ


def of_type_aws(monkeypatch: pytest.MonkeyPatch, **fields: object) -> dict[str, str]:
    connection = {"conn_type": "aws", "login": "AKIA", "password": "hush", **fields}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    return aws_environment("store", "orders")


def test_a_connection_of_type_aws_gives_the_credentials_of_the_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hush"}
    # A token of the worker's own would go with a key that it does not belong to.
    assert of_type_aws(monkeypatch) == {**own, "AWS_SESSION_TOKEN": ""}
    extra = {"aws_session_token": "t", "region_name": "eu-central-1", "endpoint_url": "http://s3:7070", "role_arn": ""}
    assert of_type_aws(monkeypatch, extra=extra) == {
        **own,
        "AWS_SESSION_TOKEN": "t",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://s3:7070",
    }
    assert of_type_aws(monkeypatch, conn_type="generic") == of_type_aws(monkeypatch)
    assert aws_environment(None, "orders") == {}


def test_an_empty_token_in_the_environment_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.session import Session

    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    with environment(of_type_aws(monkeypatch)):
        found = Session().get_credentials()
    assert found is not None
    assert (found.access_key, found.secret_key, found.token) == ("AKIA", "hush", None)


@pytest.mark.parametrize(
    "wrong",
    [{"conn_type": "http"}, {"login": None}, {"password": None}, {"extra": {"role_arn": "arn:aws:iam::1:role/r"}}],
    ids=str,
)
def test_a_connection_that_gives_no_credentials_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, dict[str, str]]
) -> None:
    unknown = sorted(wrong.get("extra", {}))
    with raises(Invalid, "aws-connection-invalid", conn_id="store", unknown=unknown) as refused:
        of_type_aws(monkeypatch, **wrong)
    assert "hush" not in str(refused.value)


def test_a_connection_of_the_object_store_that_is_named_has_to_exist() -> None:
    with raises(NotFound, "connection-not-found", conn_id="nowhere"):
        aws_environment("nowhere", "orders")
