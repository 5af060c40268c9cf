from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.fields.declaration import Request, declare, declared_fields
from statecore.jobs.fields.types import Choice, FilePath, Flag, Seconds, Several, Size, Text, Value, Whole
from statecore.jobs.restore.request import RestoreRequest
from tests.harness.raising import raises
from tests.unit.jobs.requests_with_more import Depth, RequestWithOneMore, VerifyRequest


def test_a_new_field_is_in_the_json_form() -> None:
    request = RequestWithOneMore(state_dir="/s", spec_path="a", pause=2.0)
    assert request.to_json()["pause"] == 2.0
    assert RequestWithOneMore.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert RequestWithOneMore.from_json({"state_dir": "/s", "spec_path": "a", "pause": "2.5"}).pause == 2.5
    with raises(Invalid, "field-invalid", field="pause"):
        RequestWithOneMore.from_json({"state_dir": "/s", "spec_path": "a", "pause": True})
    with raises(Invalid, "field-unknown", fields=["pause"]):
        RestoreRequest.from_json({"state_dir": "/s", "spec_path": "a", "pause": 1})


def test_another_job_is_made_of_shared_fields_and_its_own() -> None:
    document = {"state_dir": "/s", "spec_path": "a", "topic": "t", "depth": "rows", "sizes": [1, "2"], "samples": None}
    request = VerifyRequest.from_json(document)
    assert (request.topic, request.depth, request.sizes, request.samples) == ("t", Depth.ROWS, (1, 2), 7)
    with raises(Invalid, "field-unknown", fields=["memory_budget"]):
        VerifyRequest.from_json({**document, "memory_budget": 1 << 20})
    with raises(Invalid, "field-missing", fields=["topic"]):
        VerifyRequest.from_json({"state_dir": "/s", "spec_path": "a"})
    with raises(Invalid, "partition-invalid"):  # what is shared is looked at everywhere
        VerifyRequest.from_json({**document, "partitions": [-1]})


def test_fields_are_in_the_order_in_which_they_read() -> None:
    assert list(declared_fields(RestoreRequest)) == [
        *("spec_path", "spec", "state_dir", "stores", "partitions"),
        "repository",
        *("staging_dir", "memory_budget"),
        *("transaction_wait", "timeout"),
        *("plan_only", "request_id"),
        *("start_from", "replace", "owner", "versioned", "accept_cluster"),
    ]
    assert list(declared_fields(RequestWithOneMore)) == [*declared_fields(RestoreRequest), "pause"]


def test_every_field_says_what_a_reader_has_to_know() -> None:
    for declared in declared_fields(RestoreRequest).values():
        said = declared.declaration
        assert said.title[0].isupper()
        assert said.help
        assert said.help[0].islower(), "it goes on after its name"
        assert not said.help.endswith(".")
        if declared.default is not None:
            assert said.value.from_json(declared.default) == declared.default


def test_a_field_without_a_declaration_is_a_defect() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgotten(Request):
        said: str = field(metadata=declare(Text(), title="Said", help="said"))
        unsaid: str = ""

    with pytest.raises(TypeError, match=r"Forgotten\.unsaid"):
        Forgotten(said="x")


@pytest.mark.parametrize(
    ("value", "word", "expected"),
    [
        (Text(), "x", "x"),
        (Whole(), "007", 7),
        (Seconds(), "2.5", 2.5),
        (Size(), "64k", 65536),
        (Size(), "1000", 1000),
        (Size(), "2G", 2 << 30),
        (Several(Whole()), "3", 3),
    ],
    ids=repr,
)
def test_words_are_read(value: Value, word: str, expected: object) -> None:
    assert value.from_word(word) == expected


@pytest.mark.parametrize(
    ("value", "word"),
    [
        *((Size(), word) for word in ("", "0", "m", "1.5g", "10t", "5m!", "-1")),
        *((Whole(), word) for word in ("", "a", "-1", "1.0", "1_0", "٣", "1234567890")),
        *((Seconds(), word) for word in ("", "soon", "nan", "1_0", "٣", " 5", "+5", "0x5", "infinity")),
        *((FilePath(), word) for word in ("", "a\0b", "a\udcff")),
        *((Text(), word) for word in ("a\0b", "a\udcff")),
    ],
    ids=repr,
)
def test_words_that_say_nothing_are_refused(value: Value, word: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        value.from_word(word)


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (Text("NAME"), "x"),
        (FilePath(), "/x"),
        (Flag(), True),
        (Whole(), 3),
        (Seconds(), 30.0),
        (Seconds(), 0.5),
        (Size(), 512 << 20),
        (Size(), 1000),
        (Size(), 3 << 30),
        (Choice(VersionedStart), VersionedStart.LATEST),
        (Several(Whole()), (1, 3)),
        (Several(Size()), (1024, 5)),
    ],
    ids=repr,
)
def test_a_value_survives_json_and_form(value: Value, given: object) -> None:
    assert value.from_json(json.loads(json.dumps(value.to_json(given)))) == given
    assert value.from_form(json.loads(json.dumps(value.to_form(given)))) == given


@pytest.mark.parametrize("text", ["1_0", "٣", " 3", "3 ", "+3", "0x3", ""], ids=ascii)
def test_a_number_that_came_as_text_is_written_in_digits(text: str) -> None:
    for value in (Whole(), Size(), Seconds()):
        with pytest.raises(ValueError, match="is not"):
            value.from_json(text)
    assert (Whole().from_json("3.0"), Size().from_json("1e3"), Seconds().from_json("-2.5")) == (3, 1000, -2.5)


def test_people_give_numbers_in_any_order_and_names_in_theirs() -> None:
    assert Several(Whole()).from_words([3, 1, 3]) == Several(Whole()).from_form([3, 1, 3]) == (1, 3)
    assert Several(Text()).from_words(["b", "a", "b"]) == Several(Text()).from_form(["b", "a", "b"]) == ("b", "a")
    assert Several(Whole()).from_json([3, 1, 3]) == (3, 1)


def test_the_spec_of_a_request_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    stores = {"counts": {"kind": "key-value"}}
    spec = {"application_id": "app", "bootstrap_servers": "b:9092", "processing_guarantee": "at_least_once"}
    file.write_text(json.dumps({**spec, "subtopologies": {"0": {"stores": stores}}}))
    request = RestoreRequest(state_dir=str(tmp_path), spec_path=str(file))
    found = request.declared_spec
    file.unlink()
    assert found is not None
    assert request.declared_spec is found
