from __future__ import annotations

from datetime import timedelta
from typing import Any

import jsonschema
import pytest

from statecore.airflow.directory_change.change import approved_within
from statecore.airflow.directory_change.migration import Migration
from statecore.airflow.form import spark_params
from statecore.errors import Invalid
from statecore.jobs.migrate.request import MigrateRequest
from tests.harness.raising import raises

MIGRATION = Migration()
ORDERS = {"application_id": "orders", "state_dir": "/srv/state"}


def params(*directories: dict[str, Any], **fields: Any) -> dict[str, Any]:
    form = {name: param.value for name, param in MIGRATION.params(None).items() if param.has_value}
    return {**form, "directories": list(directories), "to": "4.3", **fields}


def test_the_form_has_the_fields_of_the_request_but_those_of_a_directory_and_of_a_step() -> None:
    form = MIGRATION.params(None)
    fields = set(MigrateRequest(application_id="a", state_dir="/s", to="4.3").to_json()) - {"request_id"}  # type: ignore[arg-type]
    assert fields - set(form) == {"application_id", "state_dir", "spec_path", "apply", "approved"}
    assert set(form) - fields == {"directories", "approve", "approve_within", "engine", *spark_params()}
    assert not form["to"].has_value
    assert not form["directories"].has_value
    assert form["to"].schema["enum"] == ["3.9", "4.2", "4.3", "4.4"]


def test_the_spec_can_supply_the_guarantee() -> None:
    form = MIGRATION.params(None)["processing_guarantee"]
    assert form.resolve() is None
    assert form.schema["enum"] == [None, "at_least_once", "exactly_once_v2"]
    assert "Empty: " in (form.description or "")


@pytest.mark.parametrize(
    ("directory", "fits"),
    [
        (ORDERS, True),
        ({**ORDERS, "spec_path": "/a.yaml", "host": "a", "queue": "q"}, True),
        ({"application_id": "orders"}, False),
        ({**ORDERS, "statedir": "/x"}, False),
        ({**ORDERS, "application_id": ""}, False),
    ],
)
def test_a_directory_is_compared_with_its_schema(directory: dict[str, Any], fits: bool) -> None:
    schema = MIGRATION.params(None)["directories"].schema
    assert jsonschema.Draft202012Validator(schema).is_valid([directory]) is fits


def test_with_the_site_s_state_dir_a_directory_needs_none() -> None:
    schema = MIGRATION.params("/srv/all")["directories"].schema
    assert jsonschema.Draft202012Validator(schema).is_valid([{"application_id": "orders"}])
    first, second = MIGRATION.entries(
        params({"application_id": "orders"}, {**ORDERS, "application_id": "b"}), "/srv/all"
    )
    assert (first["request"]["state_dir"], second["request"]["state_dir"]) == ("/srv/all", "/srv/state")


def test_an_entry_is_the_request_of_a_directory_with_what_the_form_says() -> None:
    said = {"processing_guarantee": "at_least_once", "lose_headers": True, "tasks": ["0_1"], "executor_memory": "2g"}
    named = {**ORDERS, "spec_path": "/a.yaml", "host": "host-a"}
    (entry,) = MIGRATION.entries(params(named, engine="spark", **said))
    assert entry == {
        "title": "orders",
        "name": "statecore migrate orders",
        "application_id": "orders",
        "host": "host-a",
        "engine": "spark",
        "conf": {"spark.executor.memory": "2g"},
        "request": {
            **ORDERS,
            "spec_path": "/a.yaml",
            "to": "4.3",
            "tasks": ["0_1"],
            "processing_guarantee": "at_least_once",
            "lose_headers": True,
        },
    }
    assert not MigrateRequest.from_json(entry["request"]).apply


def test_directories_of_one_application_have_distinct_names() -> None:
    names = [
        entry["title"]
        for entry in MIGRATION.entries(
            params(
                {**ORDERS, "host": "a"},
                {**ORDERS, "host": "b"},
                {**ORDERS, "state_dir": "/other"},
                {**ORDERS, "application_id": "x"},
            )
        )
    ]
    assert names == [*(f"orders in /srv/state on {host}" for host in "ab"), "orders in /other", "x"]


@pytest.mark.parametrize(
    ("given", "code", "context"),
    [
        (
            params(ORDERS, {**ORDERS, "state_dir": "/srv/state/"}),
            "state-directory-duplicated",
            {"state_dir": "/srv/state"},
        ),
        (params({**ORDERS, "state_dir": "state"}), "path-relative", {"state_dir": "state"}),
        (params({**ORDERS, "spec_path": "a.yaml"}), "path-relative", {"spec_path": "a.yaml"}),
        (params({**ORDERS, "application_id": "../orders"}), "application-id-invalid", {"application_id": "../orders"}),
        (params(ORDERS, tasks=["nonsense"]), "task-invalid", {}),
        (params(ORDERS, approve_within="soon"), "parameter-invalid", {"parameter": "approve_within"}),
        (params(ORDERS, approve_within="0s"), "parameter-invalid", {"parameter": "approve_within"}),
        (params(ORDERS, aprove="none"), "parameter-unknown", {"parameters": ["aprove"]}),
        (params(ORDERS, applications=[]), "parameter-unknown", {"parameters": ["applications"]}),
        (params(ORDERS, apply=True), "parameter-unknown", {"parameters": ["apply"]}),
        (params(ORDERS, to="5.0"), "parameter-invalid", {"parameter": "to"}),
    ],
)
def test_invalid_parameters_are_refused_before_any_inspection(
    given: dict[str, Any], code: str, context: dict[str, Any]
) -> None:
    with raises(Invalid, code, **context):
        MIGRATION.entries(given)


def test_an_answer_has_its_time() -> None:
    assert approved_within({"approve_within": "30m"}) == timedelta(minutes=30)
