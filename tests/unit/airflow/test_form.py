from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Param

from statecore.airflow.form import applications_param, fields_of, object_schema, params_of, spark_params
from statecore.errors import Invalid
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.restore.request import RestoreRequest
from tests.harness.raising import raises
from tests.unit.jobs.requests_with_more import RequestWithOneMore, VerifyRequest

FORM = params_of(RestoreRequest)


def test_a_new_field_is_in_the_form() -> None:
    new = params_of(RequestWithOneMore)["pause"]
    assert "pause" not in FORM
    assert new.value == 1.5
    assert new.schema == {"type": ["null", "number"], "minimum": 0, "title": "Pause", "section": "Limits"}
    assert (new.description or "").endswith("Seconds. Empty: 1.5.")
    assert fields_of(RequestWithOneMore, {"pause": 3})["pause"] == 3.0


@pytest.mark.parametrize("request_type", [RestoreRequest, CheckpointRequest, MigrateRequest, RecoverGlobalRequest])
def test_every_field_has_a_label_in_sentence_case_and_a_description(request_type: type[Any]) -> None:
    form = {**params_of(request_type), **spark_params(), "applications": applications_param([])}
    names = ("application_id", "state_dir", "spec_path")
    nested = object_schema(MigrateRequest, names, names)["properties"]
    fields = [(param.schema["title"], param.description or "") for param in form.values()]
    for label, description in [*fields, *((one["title"], one["description"]) for one in nested.values())]:
        assert label[0].isupper()
        assert all(word.islower() or word in ("Spark", "Python") for word in label.split()[1:])
        assert description.endswith(".")
        assert "--" not in description  # an option of the command line


def test_another_job_has_its_form() -> None:
    form = params_of(VerifyRequest)
    assert {"state_dir", "stores", "samples", "sizes", "topic", "depth"} <= set(form)
    assert "memory_budget" not in form
    assert fields_of(VerifyRequest, {"topic": "t", "depth": "rows", "sizes": ["1k"], "samples": 0}) == {
        "stores": [],
        "partitions": [],
        "topic": "t",
        "depth": "rows",
        "sizes": [1024],
        "samples": 0,
    }


def test_the_form_shows_every_field_but_those_that_the_dag_itself_gives() -> None:
    hidden = {"spec_path", "spec", "timeout", "request_id"}
    shown = set(RestoreRequest(state_dir="/s", spec_path="a").to_json()) - hidden
    assert set(FORM) == shown


def test_the_defaults_are_those_of_the_request_or_of_the_site() -> None:
    form = params_of(RestoreRequest, staging_dir="/shared", state_dir=None)
    values = {name: param.value for name, param in form.items() if name != "state_dir"}
    assert values == {
        "stores": [],
        "partitions": [],
        "repository": None,
        "staging_dir": "/shared",
        "memory_budget": "512m",
        "transaction_wait": 30,
        "plan_only": False,
        "start_from": "cheapest",
        "replace": False,
        "owner": None,
        "versioned": "history",
        "accept_cluster": None,
    }
    assert form["state_dir"].resolve() is None
    assert params_of(RestoreRequest, state_dir="/srv/state")["state_dir"].resolve() == "/srv/state"


def test_what_the_form_says_by_itself_is_what_the_request_is_without_it() -> None:
    said = fields_of(RestoreRequest, {name: param.value for name, param in FORM.items() if name != "state_dir"})
    common = {"spec_path": "a", "state_dir": "/s", "request_id": "r"}
    assert RestoreRequest.from_json({**common, **said}) == RestoreRequest.from_json(common)


def test_params_are_airflow_s_own_and_plain_json() -> None:
    """Airflow keeps them in its database, and knows them by their class."""
    for param in params_of(RestoreRequest, state_dir="/s").values():
        assert type(param) is Param
        assert plain(param.value)
        assert plain(param.schema)


def plain(value: Any) -> bool:
    """Whether it is of JSON's own types all through: a member of an enumeration is a text of another class."""
    if isinstance(value, dict):
        return all(type(name) is str and plain(one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize("empty", [None, "", False])
def test_empty_fields_use_the_default_of_the_job(empty: Any) -> None:
    assert fields_of(RestoreRequest, dict.fromkeys(FORM, empty)) == {"stores": [], "partitions": []}
    assert fields_of(RestoreRequest, {}) == {"stores": [], "partitions": []}


def test_a_parameter_that_is_not_of_its_form_is_refused_with_what_to_do() -> None:
    with raises(Invalid, "parameter-invalid", parameter="memory_budget") as refused:
        fields_of(RestoreRequest, {"memory_budget": "much"})
    assert "512MiB" in refused.value.action


def test_a_dag_may_need_a_field_and_have_no_use_for_others() -> None:
    form = params_of(RestoreRequest, needed=("repository",), without={"state_dir", "replace"})
    assert set(FORM) - set(form) == {"state_dir", "replace"}
    assert not form["repository"].has_value
    assert "section" not in form["repository"].schema
    assert form["repository"].schema["type"] == "string"
    assert "nothing is published" not in (form["repository"].description or "")
    assert params_of(RestoreRequest, needed=("repository",), repository="file:///r")["repository"].value == "file:///r"
