from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow.requests import restore_requests, snapshot_requests
from statecore.errors import Invalid, NotFound
from tests.harness.raising import raises
from tests.unit.airflow.stub import spec


def params(*applications: Any, **fields: Any) -> dict[str, Any]:
    named = [one if isinstance(one, str) else json.dumps(one) for one in applications]
    return {"applications": named, "stores": [], "partitions": [], "state_dir": "/state", "replace": False, **fields}


def test_a_spec_file_is_passed_on_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text(json.dumps(spec()))
    assert restore_requests(params(str(file), partitions=[3, 1, 3], replace=True)) == [
        {
            "application_id": "orders",
            "request": {
                "spec_path": str(file),
                "stores": [],
                "partitions": [1, 3],
                "state_dir": "/state",
                "replace": True,
            },
            "kafka_conn_id": None,
        }
    ]


def test_an_inline_spec_is_passed_on_whole() -> None:
    (entry,) = restore_requests(params(spec("orders")))
    assert entry["request"]["spec"] == spec("orders")
    assert "spec_path" not in entry["request"]


def test_limits_are_passed_on_only_when_they_are_set() -> None:
    (entry,) = restore_requests(params(spec(), memory_budget="512m", transaction_wait=0))
    assert entry["request"]["memory_budget"] == 512 * 1024 * 1024
    assert entry["request"]["transaction_wait"] == 0.0
    (entry,) = restore_requests(params(spec(), memory_budget=None, transaction_wait=None))
    assert not {"memory_budget", "transaction_wait"} & set(entry["request"])


@pytest.mark.parametrize("field", ["state_dir", "staging_dir"])
@pytest.mark.parametrize("path", ["state", "./state", "~/state", " /state"])
def test_a_relative_directory_is_refused(field: str, path: str) -> None:
    with raises(Invalid, "path-relative", **{field: path}):
        restore_requests(params(spec(), **{field: path}))


def test_staging_directory_and_plan_are_passed_on_only_when_they_are_asked_for() -> None:
    (entry,) = restore_requests(params(spec(), staging_dir="/shared/staging", plan_only=True))
    assert (entry["request"]["staging_dir"], entry["request"]["plan_only"]) == ("/shared/staging", True)
    (entry,) = restore_requests(params(spec(), staging_dir=None, plan_only=False))
    assert not {"staging_dir", "plan_only"} & set(entry["request"])


def test_the_connection_that_a_spec_names_goes_with_its_application() -> None:
    first, second = restore_requests(params({**spec("a"), "kafka_connection": "team/a"}, spec("b")))
    assert (first["kafka_conn_id"], second["kafka_conn_id"]) == ("team/a", None)


def test_what_a_run_says_of_spark_wins_over_the_spec() -> None:
    declared = {
        **spec("a"),
        "spark": {"executor_memory": "1g", "executor_python": "/opt/a/python", "conf": {"spark.cores.max": 4}},
    }
    said = {"spark_conf": ["spark.cores.max=2"], "executor_memory": "2g", "executor_cores": None}
    first, second = restore_requests(params(declared, spec("b"), **said))
    assert first["conf"] == {
        "spark.cores.max": "2",
        "spark.executor.memory": "2g",
        "spark.pyspark.python": "/opt/a/python",
    }
    assert second["conf"] == {"spark.cores.max": "2", "spark.executor.memory": "2g"}
    (plain,) = restore_requests(params(spec("b")))
    assert "conf" not in plain


def test_a_line_that_is_no_property_of_sparks_is_refused() -> None:
    with raises(Invalid, "spark-property-invalid"):
        restore_requests(params(spec(), spark_conf=["cores 8"]))


def test_secrets_of_a_spec_are_neither_needed_nor_resolved_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    kafka = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    secret = {"sasl_plain_username": "${NOWHERE_SET}", "sasl_plain_password": "${KAFKA_PASSWORD}"}
    entries = restore_requests(params({**spec(), "kafka": kafka | secret}))
    assert entries[0]["request"]["spec"]["kafka"]["sasl_plain_password"] == "${KAFKA_PASSWORD}"
    assert "hush" not in json.dumps(entries)


def test_named_stores_go_to_the_applications_that_have_them() -> None:
    named = params(spec("a", ("x", "y")), spec("b", ("y", "z")), spec("c", ("w",)), stores=["y", "z"])
    assert [(entry["application_id"], entry["request"]["stores"]) for entry in restore_requests(named)] == [
        ("a", ["y"]),
        ("b", ["y", "z"]),
    ]


@pytest.mark.parametrize("applications", [[spec("a", ("x",))], [spec("a", ("x",)), spec("b", ("y",))]])
def test_an_unknown_store_is_refused(applications: list[Any]) -> None:
    with raises(NotFound, "store-not-declared", stores=["nope"]):
        restore_requests(params(*applications, stores=["x", "nope"]))


def test_an_application_named_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text(json.dumps(spec("orders")))
    with raises(Invalid, "application-duplicated", application_id="orders"):
        restore_requests(params(str(file), spec("orders")))


def test_an_application_may_have_several_directories(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text(json.dumps(spec("orders")))
    one = {"spec_path": str(file), "state_dir": "/srv/a"}
    places = [one, {**one, "host": "b"}, {**one, "state_dir": "/srv/c"}]
    entries = restore_requests({**params(spec("orders")), "directories": places})
    assert [entry["request"]["state_dir"] for entry in entries] == ["/srv/a", "/srv/a", "/srv/c", "/state"]
    assert [entry.get("host") for entry in entries] == [None, "b", None, None]
    with raises(Invalid, "application-duplicated"):
        restore_requests({**params(), "directories": [one, one]})
    with raises(Invalid, "path-relative"):
        restore_requests({**params(), "directories": [{**one, "state_dir": "srv"}]})


def test_no_directory_is_left_out_because_of_named_stores(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text(json.dumps(spec("a", ("x",))))
    place = {"spec_path": str(file), "state_dir": "/srv/a"}
    with raises(NotFound, "store-not-declared", application_id="a"):
        restore_requests({**params(spec("b", ("y",)), stores=["y"]), "directories": [place]})


def test_no_application_is_refused() -> None:
    with raises(Invalid, "applications-missing"):
        restore_requests(params())


@pytest.mark.parametrize(
    ("named", "kind", "code", "word"),
    [
        ("stores.yaml", Invalid, "path-relative", "stores.yaml"),
        ("/nowhere/stores.yaml", NotFound, "spec-not-found", "/nowhere/stores.yaml"),
        ('{"application_id": "orders"', Invalid, "spec-invalid", "<inline spec>"),
        ("{application_id: orders}", Invalid, "spec-invalid", "<inline spec>"),
        ('{"application_id": "orders"}', Invalid, "spec-invalid", "bootstrap_servers"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused_with_the_reason(named: str, kind: Any, code: str, word: str) -> None:
    with raises(kind, code) as refused:
        restore_requests(params(named))
    assert word in refused.value.what


@pytest.mark.parametrize(("text", "number"), [("2000000", 2_000_000), ("2048k", 2 << 20), ("2G", 2 << 30)])
def test_memory_is_written_with_a_unit(text: str, number: int) -> None:
    (entry,) = restore_requests(params(spec(), memory_budget=text))
    assert entry["request"]["memory_budget"] == number


@pytest.mark.parametrize("text", ["0", "m", "1.5g", "10t", "5m!", "-1"])
def test_other_amounts_of_memory_are_refused(text: str) -> None:
    with raises(Invalid, "parameter-invalid", parameter="memory_budget"):
        restore_requests(params(spec(), memory_budget=text))


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [("store", ["by-id"], "stores"), ("planonly", True, "plan_only"), ("executor_core", 2, "executor_cores")],
)
def test_a_parameter_of_no_such_name_is_refused_and_not_passed_over(field: str, value: Any, meant: str) -> None:
    with raises(Invalid, "parameter-unknown", parameters=[field]) as caught:
        restore_requests(params(spec(), **{field: value}))
    assert f"'{meant}'" in caught.value.what


def test_a_snapshot_is_asked_for_without_a_state_directory() -> None:
    said = {"applications": [json.dumps(spec())], "repository": "file:///srv/states", "stores": None}
    (entry,) = snapshot_requests(said)
    assert entry["request"] == {"spec": spec(), "stores": [], "partitions": [], "repository": "file:///srv/states"}


@pytest.mark.parametrize("name", ["state_dir", "staging_dir", "replace", "owner"])
def test_a_snapshot_has_no_parameter_of_placing(name: str) -> None:
    said = {"applications": [json.dumps(spec())], "repository": "file:///srv/states", name: "/x"}
    with raises(Invalid, "parameter-unknown", parameters=[name]):
        snapshot_requests(said)
