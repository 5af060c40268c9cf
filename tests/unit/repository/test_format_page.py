"""``docs/repository-format.md`` says every name, document and field as the code has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from statecore.documents import encode_json, plain
from statecore.faults import PUBLISH_POINTS
from statecore.images.model import Run
from statecore.repository import content_digests as contents
from statecore.repository import descriptor, head, key_document, manifest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.encryption import KEY_DOCUMENT_NAME
from statecore.repository.layout import Layout
from statecore.repository.maintenance import divergence_record, garbage, retention_record, verification_record
from statecore.repository.publish.upload import PACK_BYTES, SMALL
from tests.unit.repository.published import Publishing

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "repository-format.md").read_text()

DOCUMENTS = (
    descriptor.DESCRIPTOR,
    key_document.KEY_DOCUMENT,
    head.HEAD,
    manifest.MANIFEST,
    manifest.TASK_MANIFEST,
    contents._DOCUMENT,
    garbage.GARBAGE_LIST,
    verification_record.RECORD,
    retention_record.RECORD,
    divergence_record.RECORD,
)

SHA = "ab" * 32


def rows(below: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    table = re.search(rf"^#+ {re.escape(below)}\n.*?\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", PAGE, re.DOTALL | re.MULTILINE)
    assert table, below
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def reached(kind: type, found: dict[str, type] | None = None) -> dict[str, type]:
    """The dataclass, and all that its fields are made of, by name."""
    found = {} if found is None else found
    found[kind.__name__] = kind
    pending = list(get_type_hints(kind).values())
    while pending:
        one = pending.pop()
        pending += get_args(one)
        if is_dataclass(one) and isinstance(one, type) and one.__name__ not in found:
            reached(one, found)
    return found


TYPES = {name: kind for document in DOCUMENTS for name, kind in reached(document.type).items()}


def in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        (one,) = [arg for arg in get_args(hint) if arg is not NoneType]
        return f"{in_words(one)} or null"
    if get_origin(hint) is tuple:
        return f"list of {in_words(get_args(hint)[0])}"
    if get_origin(hint) is Mapping:
        return "object"
    if issubclass(hint, Enum) or hint is str:
        return "text"
    if hint is bool:
        return "true or false"
    return "number" if hint is int else str(hint.__name__)


def where_missing(one: Field[Any]) -> str:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    return "—" if default is MISSING else f"`{json.dumps(plain(default))}`"


def test_the_page_has_every_type_of_every_document_and_no_other() -> None:
    described = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(TYPES)
    assert Run.__name__ in described


@pytest.mark.parametrize("name", sorted(TYPES))
def test_the_fields_of_a_type_are_those_of_the_page(name: str) -> None:
    kind = TYPES[name]
    hints = get_type_hints(kind)
    expected = [[f"`{one.name}`", in_words(hints[one.name]), where_missing(one)] for one in fields(kind)]
    described = rows(name)
    assert [cells[:3] for cells in described] == expected
    assert all(len(cells) == 4 and cells[3] for cells in described)


def test_the_documents_are_those_of_the_page() -> None:
    expected = [
        [one.name, str(one.version), "yes" if one.is_open else "no", "yes" if one.is_sealed else "no"]
        for one in DOCUMENTS
    ]
    assert rows("Documents") == expected


def test_the_names_are_those_of_the_page() -> None:
    names = Layout("orders", 7)
    made = [
        descriptor.DESCRIPTOR_NAME,
        KEY_DOCUMENT_NAME,
        names.head,
        names.manifest("S"),
        names.task_manifests(SHA),
        names.file(SHA),
        names.pack(SHA),
        names.content("I"),
        names.job("R", "W"),
        names.in_progress_marker("R"),
        names.verified,
        names.retention,
        names.diverged,
        names.garbage_list(1, 2, SHA),
        f"{names.staging('P')}/...",
    ]
    placeholders = {
        "<application id>": "orders",
        "<snapshot>": "S",
        "<sha256>": SHA,
        "<2 hex>": SHA[:2],
        "<identity>": "I",
        "<request>": "R",
        "<what>": "W",
        "<plan>": "P",
        "<n>": "7",
        "<epoch>": "000001",
        "<generation>": "000000000002",
    }
    described = [cells[0].strip("`") for cells in rows("Names")]
    for placeholder, value in placeholders.items():
        described = [name.replace(placeholder, value) for name in described]
    assert described == made
    public = {name for name in vars(Layout) if not name.startswith("_")}
    others = {
        "application_id",
        "kind_of",
        "records",
        "root",
        "manifests",
        "stagings",
        "requests",
        "in_progress_markers",
        "garbage_lists",
        "listed",
    }  # prefixes of names that are there
    assert len(public - others) == len(made) - 2, "a name that the page does not have"
    assert f"{SMALL >> 20} MiB that were put together, up to {PACK_BYTES >> 20} MiB" in PAGE


def test_the_seal_is_as_the_page_says() -> None:
    (formula,) = re.findall(r"Python's `(json\.dumps\(.*?\))`", PAGE)
    document = manifest.MANIFEST.sealed({"version": 0, "b": ["ü", 1], "a": None})
    rest = {name: value for name, value in json.loads(encode_json(document)).items() if name != "seal"}
    assert document["seal"] == sha256(eval(formula, {"json": json, "rest": rest}).encode()).hexdigest()


class _Counted:
    """A place's blobs or pointers, and what was asked of them."""

    def __init__(self, asked: Any, log: list[str]) -> None:
        self._asked, self._log = asked, log

    def __getattr__(self, name: str) -> Any:
        if name != "hash_in_name":  # no request
            self._log.append(name)
        return getattr(self._asked, name)


def test_publishing_takes_as_many_requests_as_the_page_says(tmp_path: Path) -> None:
    said = re.search(
        r"(\d) reads when the job begins.*and (\d) writes .*So (\d) where .* a first snapshot takes (\d)", PAGE, re.S
    )
    assert said
    begin, writes, usual, first = map(int, said.groups())
    publishing = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    place, log = publishing.app_repository.repository.object_store, list[str]()
    counted: Any = place._replace(blobs=_Counted(place.blobs, log), pointers=_Counted(place.pointers, log))
    app_repository = publishing.app_repository
    publishing.app_repository = ApplicationRepository(
        app_repository.repository._replace(object_store=counted), app_repository.application_id
    )
    for end, expected in ((10, first), (20, usual), (30, usual)):
        log.clear()
        publishing.publish(end, tuple(range(5)))
        assert log[:begin] == ["read", "get"] if end > 10 else log[0] == "read"
        assert log[-writes - 1 :] == ["put_if_absent", "put_if_absent", "get", "swap"]
        assert len(log) - 5 == expected, "five files, each a write"


def test_the_steps_are_those_at_which_tests_kill() -> None:
    said = re.findall(r"`(publish\.[a-z-]+)`", PAGE.partition("## The order of writes")[2])
    assert tuple(said) == PUBLISH_POINTS
