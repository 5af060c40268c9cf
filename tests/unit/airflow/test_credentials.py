from __future__ import annotations

import json
import os

import pytest

from statecore.airflow.credentials import environment, kafka_environment
from statecore.errors import Invalid, NotFound


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
    with pytest.raises(NotFound, match="names the connection absent, which does not exist") as refused:
        kafka_environment("billing", named, site)
    assert refused.value.context["conn_id"] == "absent"


@pytest.mark.parametrize("written", ["generic://o:hush@[kafka", '{"conn_type": "generic", "password": "hush"'])
def test_a_connection_that_cannot_be_read_is_no_absent_one(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", written)
    with pytest.raises(Invalid, match="kafka_orders cannot be read") as refused:
        kafka_environment("orders", None, "site")
    assert "hush" not in str(refused.value)


def test_the_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USERNAME", "before")
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    with environment({"KAFKA_USERNAME": "u", "KAFKA_PASSWORD": "p"}):
        assert (os.environ["KAFKA_USERNAME"], os.environ["KAFKA_PASSWORD"]) == ("u", "p")
    assert os.environ["KAFKA_USERNAME"] == "before"
    assert "KAFKA_PASSWORD" not in os.environ
