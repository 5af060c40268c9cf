from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from statecore.cli.request_options import add_request_options, request_of
from statecore.errors import Invalid
from statecore.extras import EXTRAS
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.fields.declaration import declared_fields
from statecore.jobs.restore.request import RestoreRequest
from tests.harness.raising import raises


def test_a_request_survives_its_json_form() -> None:
    request = RestoreRequest(state_dir="/s", spec_path="a.yaml", stores=("x", "y"), partitions=(1, 2), request_id="r")
    assert RestoreRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


def test_stores_that_are_advanced_where_they_lie_are_not_replaced() -> None:
    with raises(Invalid, "options-conflict", options=["replace", "start_from"]):
        RestoreRequest(spec_path="a", start_from="directory", state_dir="/s", replace=True)
    with raises(Invalid, "option-missing", option="state_dir"):
        RestoreRequest(spec_path="a", start_from="directory", repository="s3://b/p")


def test_a_cluster_is_accepted_only_where_there_are_snapshots_to_replace() -> None:
    assert RestoreRequest(spec_path="a", repository="s3://b/p", accept_cluster="c").accept_cluster == "c"
    with raises(Invalid, "option-missing", option="repository"):
        RestoreRequest(spec_path="a", state_dir="/s", accept_cluster="c")


def test_the_words_of_a_request_ask_for_the_same_and_name_no_default() -> None:
    request = RestoreRequest(
        state_dir="/s", spec_path="/a.yaml", request_id="r", stores=("x", "y y"), partitions=(1, 2), replace=True,
        memory_budget=256 << 20, transaction_wait=2.5, versioned=VersionedStart.LATEST, repository="s3://b/p",
    )  # fmt: skip
    words = request.to_words({"spec_path"})
    assert "--spec" not in words
    parser = argparse.ArgumentParser()
    add_request_options(parser, RestoreRequest)
    assert request_of(RestoreRequest, parser.parse_args(["--spec", "/a.yaml", *words])) == request
    assert RestoreRequest(state_dir="/s", spec_path="a").to_words({"spec_path", "request_id"}) == ("--state-dir", "/s")


def test_null_fields_take_their_defaults() -> None:
    request = RestoreRequest.from_json({"state_dir": "/s", "spec_path": "a", "stores": None, "memory_budget": None})
    assert request.stores == ()
    assert request.memory_budget == 512 * 1024 * 1024


def test_numbers_that_came_as_text_from_a_template_are_numbers() -> None:
    request = RestoreRequest.from_json(
        {"state_dir": "/s", "spec_path": "a", "partitions": ["3"], "transaction_wait": "2.5"}
    )
    assert (request.partitions, request.transaction_wait) == ((3,), 2.5)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"state_dir": "/s"}, "exactly one"),
        ({"state_dir": "/s", "spec_path": "a", "spec": {}}, "exactly one"),
        ({"state_dir": "", "spec_path": "a"}, "No state directory"),
        ({"spec_path": "a"}, "state_dir"),
        ({"state_dir": "/s", "spec_path": "a", "sotres": []}, "unknown fields: sotres"),
        ({"state_dir": "/s", "spec_path": "a", "partitions": ["one"]}, "not well-formed"),
        ({"state_dir": "/s", "spec_path": "a", "memory_budget": 10}, "too small"),
        ({"state_dir": "/s", "spec_path": "a", "memory_budget": True}, "whole number"),
        ({"state_dir": "/s", "spec_path": "a", "replace": "false"}, "'false' is not true or false"),
        ({"state_dir": "/s", "spec_path": "a", "plan_only": 0}, "true or false"),
        ({"state_dir": "/s", "spec_path": "a", "stores": "orders"}, "'orders' is not a list"),
        ({"state_dir": "/s", "spec_path": "a", "partitions": "12"}, "not a list"),
        ({"state_dir": "/s", "spec_path": "a", "partitions": [1.5]}, "whole number"),
        ({"state_dir": "/s", "spec_path": "a", "partitions": [-1]}, "-1"),
        ({"state_dir": "/s", "spec": "orders.yaml"}, "not a mapping"),
        ({"state_dir": 7, "spec_path": "a"}, "7 is not text"),
        ({"state_dir": "/s", "spec_path": "a", "timeout": "nan"}, "not a number|finite"),
        ({"state_dir": "/s", "spec_path": "a", "timeout": 0}, "finite"),
        ({"state_dir": "/s", "spec_path": "a", "timeout": 1e10}, "longer than a system can"),
        ({"state_dir": "/s\0", "spec_path": "a"}, "is not text"),
        ({"state_dir": "/s\udcff", "spec_path": "a"}, "is not text"),
        ({"state_dir": "/s", "spec_path": "a", "transaction_wait": -1}, "finite"),
        ({"state_dir": "/s", "spec_path": "a", "transaction_wait": "inf"}, "finite"),
        ({"state_dir": "/s", "spec_path": "a", "request_id": ""}, "request id"),
        ([], "not a JSON object"),
    ],
)
def test_a_malformed_request_is_refused_with_what_is_wrong(document: object, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        RestoreRequest.from_json(document)


def test_two_requests_have_two_ids() -> None:
    ids = {RestoreRequest(state_dir="/s", spec_path="a").request_id for _ in range(2)}
    assert len(ids) == 2


def test_every_field_has_a_check_of_its_json_form() -> None:
    request = RestoreRequest(state_dir="/s", spec_path="a")
    assert set(request.to_json()) == set(declared_fields(RestoreRequest))


def test_a_request_with_everything_survives_its_json_form() -> None:
    request = RestoreRequest(
        state_dir="/s",
        spec={"application_id": "a"},
        replace=True,
        memory_budget=64 << 20,
        transaction_wait=2.5,
        timeout=7.0,
        plan_only=True,
        staging_dir="/t",
        versioned=VersionedStart.LATEST,
        owner="kafka:kafka",
    )
    found = RestoreRequest.from_json(json.loads(json.dumps(request.to_json())))
    assert found == request
    assert found.versioned is VersionedStart.LATEST


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("replace", "false", "replace: 'false' is not true or false"),
        ("memory_budget", "512m", r"memory_budget \(bytes\): '512m' is not a whole number"),
        ("timeout", "soon", r"timeout \(seconds\): 'soon' is not a number"),
        ("partitions", [None], "partitions: None is not a whole number"),
        ("versioned", "now", "versioned: 'now' is none of history, latest"),
        ("stores", [1], "stores: 1 is not text"),
    ],
)
def test_an_invalid_value_is_reported_by_field_and_unit(field: str, value: object, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        RestoreRequest.from_json({"state_dir": "/s", "spec_path": "a", field: value})


def test_what_is_missing_is_named() -> None:
    with raises(Invalid, "option-missing", option="state_dir") as lacking:
        RestoreRequest.from_json({"spec_path": "a"})
    assert "or a repository (--repository)" in lacking.value.action
    assert RestoreRequest.from_json({"spec_path": "a", "repository": "s3://b/p"}).state_dir == ""
    with raises(Invalid, "repository-url-invalid"):
        RestoreRequest.from_json({"spec_path": "a", "repository": "ftp://b"})
    with raises(Invalid, "request-not-json"):
        RestoreRequest.from_json("a")


def test_reading_the_declaration_takes_neither_an_extra_nor_time() -> None:
    """Airflow parses a file of Dags again and again."""
    code = "import sys\nimport statecore.jobs.restore.request\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {*(package for packages in EXTRAS.values() for package in packages), "yaml", "kafka", "rich"}
    assert {name for name in done.stdout.split() if name.startswith("statecore.")} <= {
        "statecore.errors",
        "statecore.jobs",
        "statecore.jobs.fields",
        "statecore.jobs.fields.declaration",
        "statecore.jobs.restore",
        "statecore.jobs.restore.request",
        "statecore.jobs.fields.types",
        "statecore.jobs.fields.catalog",
        "statecore.spec",
        "statecore.spec.units",
        "statecore.repository",
        "statecore.repository.layout",
        "statecore.objectstore",
        "statecore.objectstore.base",
        "statecore.objectstore.checksum",
        "statecore.objectstore.content",
    }
