"""JSON documents: what is read is what was written, or it is refused by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from statecore.documents import DocumentType, compact, encode_json, parse_json
from statecore.errors import Invalid
from tests.harness.raising import raises


@dataclass(frozen=True)
class Part:
    name: str
    size: int = 0


@dataclass(frozen=True)
class Whole:
    title: str
    parts: tuple[Part, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 called the title a name."""
    return {"title" if name == "name" else name: value for name, value in fields.items()}


STRICT = DocumentType("thing", 3, Whole, "Make it anew.", older={1: renamed})
OPEN = DocumentType("thing", 3, Whole, "Make it anew.", older={1: renamed}, is_open=True)
VALUE = Whole("t", (Part("a", 1), Part("b")), {"x": 0.5})
DOCUMENT = {
    "version": 3,
    "title": "t",
    "parts": [{"name": "a", "size": 1}, {"name": "b", "size": 0}],
    "notes": {"x": 0.5},
}


SEALED = DocumentType("thing", 3, Whole, "Make it anew.", is_sealed=True)


def test_whatever_changed_in_a_sealed_document_it_is_refused() -> None:
    data = SEALED.encode(VALUE)
    assert SEALED.decode(data) == VALUE
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            if flipped.split() == data.split():  # another kind of space between two words
                continue
            with pytest.raises(Invalid, match="thing cannot be read"):
                SEALED.decode(flipped)


def test_a_damaged_document_is_none_and_a_whole_one_of_another_release_is_refused() -> None:
    data = SEALED.encode(VALUE)
    intact = SEALED.read_intact(data)
    assert intact is not None
    assert intact.value == VALUE
    for damaged in (b"", data[:-3], data.replace(b'"version": 3', b'"version": 4')):
        assert SEALED.read_intact(damaged) is None
    with raises(Invalid, "format-unsupported"):
        SEALED.read_intact(encode_json(SEALED.sealed({**json.loads(data), "version": 4})))


def test_a_document_that_was_never_sealed_is_refused_where_a_seal_is_expected() -> None:
    with pytest.raises(Invalid, match="its SHA-256 differs"):
        SEALED.decode(STRICT.encode(VALUE))
    with pytest.raises(Invalid, match="field seal"):
        STRICT.decode(SEALED.encode(VALUE))


@pytest.mark.parametrize("kind", [STRICT, OPEN])
def test_a_value_comes_back(kind: DocumentType[Whole]) -> None:
    assert kind.to_json(VALUE) == json.loads(kind.encode(VALUE)) == DOCUMENT
    assert kind.decode(kind.encode(VALUE)) == VALUE
    assert list(kind.to_json(VALUE)) == ["version", "title", "parts", "notes"]


@pytest.mark.parametrize("kind", [STRICT, OPEN])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"version": 3, "title": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"3", "not a JSON object"),
        (b'{"version": 2, "title": "t"}', "version 2, and this release supports 1, 3"),
        (b'{"version": "3", "title": "t"}', "version 3"),
        (b'{"version": true, "title": "t"}', "version True"),
        (b'{"version": null, "title": "t"}', "version None"),
        (b'{"version": 3}', "title"),
        (b'{"version": 3, "title": 7}', "title"),
        (b'{"version": 3, "title": "t", "parts": [{"name": "a", "size": "1"}]}', "size"),
    ],
)
def test_what_is_no_such_document_is_refused_with_the_reason(kind: DocumentType[Whole], data: bytes, why: str) -> None:
    code = "format-unsupported" if why.startswith("version") else "document-invalid"
    with raises(Invalid, code, document=kind.name) as refused:
        kind.decode(data)
    assert why in refused.value.what
    assert refused.value.action == "Make it anew."


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({**DOCUMENT, "colour": "red"}, "colour"),
        ({**DOCUMENT, "parts": [{"name": "a"}, {"name": "b", "weight": 2}]}, r"parts\[1\]\.weight"),
    ],
)
def test_an_unknown_field_is_refused_except_in_open_documents(document: dict[str, Any], name: str) -> None:
    with raises(Invalid, "document-invalid") as refused:
        STRICT.from_json(document)
    assert re.search(rf"\b{name}\b", refused.value.what)
    found = OPEN.read(json.dumps(document).encode())
    assert found.value.title == "t"
    assert found.raw == document


def test_a_document_that_is_written_again_keeps_what_is_not_known_here() -> None:
    document = {**DOCUMENT, "colour": "red", "parts": [{"name": "a", "weight": 2}]}
    found = OPEN.read(json.dumps(document).encode())
    assert OPEN.rewritten(found, Whole("u", found.value.parts, {})) == {**document, "title": "u", "notes": {}}


def test_an_older_version_is_read_as_what_it_says_today() -> None:
    assert STRICT.from_json({"version": 1, "name": "t"}) == Whole("t")
    with pytest.raises(Invalid, match="version None"):
        STRICT.from_json({"name": "t"})
    found = OPEN.read(b'{"version": 1, "name": "t", "colour": "red"}')
    assert found.value == Whole("t")
    assert OPEN.rewritten(found, Whole("t", (Part("a"),))) == {
        "version": 3,
        "title": "t",
        "colour": "red",
        "parts": [{"name": "a", "size": 0}],
    }


def test_text_that_is_no_utf_8_is_written_and_read_back() -> None:
    name = b"/d/\xff".decode(errors="surrogateescape")
    value = Whole(name, (), {"ü": 1.0})
    assert STRICT.decode(STRICT.encode(value)) == value
    assert STRICT.to_json(value)["title"] == name
    for written in (encode_json, compact):
        assert parse_json(written([name, "ü"])) == json.loads(written([name, "ü"])) == [name, "ü"]


@pytest.mark.parametrize(("text", "written"), [("a b", b"a b"), (b"\xff".decode(errors="surrogateescape"), rb"\udcff")])
def test_compact_json_has_no_white_space(text: str, written: bytes) -> None:
    assert compact({"a": [1, None], "b": {"c": text}}) == b'{"a":[1,null],"b":{"c":"' + written + b'"}}'


_AT_ONCE = """
import sys
import threading
from dataclasses import make_dataclass

from statecore.documents import DocumentType

sys.setswitchinterval(1e-6)
DOCUMENT = b'{"version": 0, "many": [{"inner": [{"f1": 3}, {}]}], "one": {}}'
failed = []


def read(kind, go):
    go.wait()
    try:
        assert kind.decode(DOCUMENT).many[0].inner[0].f1 == 3
    except BaseException as error:
        failed.append(error)


for number in range(100):
    inner = make_dataclass("Inner", [(f"f{at}", int | None, None) for at in range(12)], frozen=True)
    middle = make_dataclass("Middle", [("inner", tuple[inner, ...], ()), ("first", inner | None, None)], frozen=True)
    outer = make_dataclass("Outer", [("many", tuple[middle, ...]), ("one", middle)], frozen=True)
    kind, go = DocumentType("document", 0, outer, "Look.", is_open=True), threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(kind, go)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
sys.exit(repr(failed[0]) if failed else 0)
"""


def test_a_type_is_first_read_by_many_threads_at_once() -> None:
    """In a process of its own: msgspec crashes where nobody keeps them apart."""
    done = subprocess.run([sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, timeout=1200)
    assert (done.returncode, done.stderr) == (0, "")
