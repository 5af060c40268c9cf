"""Heads: damaged or foreign ones are refused, and unknown fields are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.documents import encode_json
from statecore.errors import Corrupted, Invalid
from statecore.repository.head import HEAD, Head, SnapshotEntry, decoded_head, encoded_head
from tests.harness.raising import raises
from tests.harness.simulated_store import all_flips

REPAIR = "statecore repo repair-head --repository file:///r --application-id orders"
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=8)
ENTRIES = st.builds(
    SnapshotEntry,
    read_at_ms=st.none() | LONGS,
    tasks=LONGS,
    file_bytes=LONGS,
    new_bytes=LONGS,
    **dict.fromkeys(("snapshot", "sha256", "identity", "created_at", "request_id", "origin"), TEXT),
)
HEADS = st.builds(
    Head,
    epoch=LONGS,
    generation=LONGS,
    repository_id=TEXT,
    application_id=TEXT,
    snapshots=st.lists(ENTRIES, max_size=3, unique_by=lambda entry: entry.snapshot).map(tuple),
)


def entry(name: str) -> SnapshotEntry:
    return SnapshotEntry(name, "a" * 64, "b" * 64, "2026-11-23T00:00:00.000Z", 5, f"q-{name}", "restore", 1, 10, 10)


HEAD_OF_TWO = Head("r1", "orders", 1, 2, (entry("s2"), entry("s1")))


@settings(deadline=None, max_examples=100)
@given(HEADS, st.none() | HEADS)
def test_a_head_is_read_as_it_was_written_whatever_was_there_before(head: Head, before: Head | None) -> None:
    document = encoded_head(head, None if before is None else HEAD.to_json(before))
    assert decoded_head(document, head.repository_id, head.application_id, REPAIR).value == head


def test_the_newest_is_the_first_and_others_are_found_by_name() -> None:
    assert HEAD_OF_TWO.newest == entry("s2")
    assert (HEAD_OF_TWO.entry("s1"), HEAD_OF_TWO.entry("s3")) == (entry("s1"), None)
    assert replace(HEAD_OF_TWO, snapshots=()).newest is None


def test_every_flipped_bit_is_found() -> None:
    document = encoded_head(HEAD_OF_TWO, None)
    for damaged in all_flips(document):
        with pytest.raises((Corrupted, Invalid)) as caught:
            decoded_head(damaged, "r1", "orders", REPAIR)
        assert caught.value.action == REPAIR or isinstance(caught.value, Invalid)
        if isinstance(caught.value, Invalid):  # then it is the version that was hit
            assert "version" in caught.value.what


def test_a_head_that_broke_off_is_damaged() -> None:
    document = encoded_head(HEAD_OF_TWO, None)
    for size in range(0, len(document), 7):
        with raises(Corrupted, "head-damaged", application_id="orders"):
            decoded_head(document[:size], "r1", "orders", REPAIR)


@pytest.mark.parametrize("version", [0, 9, None])
def test_a_version_that_is_not_known_is_refused_by_name_and_is_no_damage(version: int | None) -> None:
    document = HEAD.sealed({**HEAD.to_json(HEAD_OF_TWO), "version": version})
    with pytest.raises(Invalid, match=f"has version {version}, and this release supports 1"):
        decoded_head(encode_json(document), "r1", "orders", REPAIR)


@pytest.mark.parametrize(("repository", "application"), [("r2", "orders"), ("r1", "payments")])
def test_a_head_that_was_copied_from_elsewhere_is_refused(repository: str, application: str) -> None:
    found = {"found_application_id": "orders", "found_repository_id": "r1"}
    with raises(Invalid, "head-foreign", application_id=application, repository_id=repository, **found) as caught:
        decoded_head(encoded_head(HEAD_OF_TWO, None), repository, application, REPAIR)
    assert "copied" in caught.value.action
    assert caught.value.action.endswith(REPAIR)


def test_unknown_fields_of_the_head_are_kept() -> None:
    before: dict[str, Any] = HEAD.to_json(HEAD_OF_TWO)
    before |= {"retention": {"days": 30}, "lease": None}
    before["keep"]["last_of_a_tag"] = 3
    before["snapshots"][0]["pinned_by"] = "somebody"
    after = replace(HEAD_OF_TWO, generation=3, snapshots=(entry("s3"), *HEAD_OF_TWO.snapshots))
    document = encoded_head(after, HEAD.sealed(before))
    read = decoded_head(document, "r1", "orders", REPAIR)
    assert read.value == after
    assert (read.raw["retention"], read.raw["lease"]) == ({"days": 30}, None)
    assert [one.get("pinned_by") for one in read.raw["snapshots"]] == [None, "somebody", None]
    assert read.raw["keep"] == before["keep"]
    # What is not known is under the seal, too.
    with pytest.raises(Corrupted, match="SHA-256 differs"):
        decoded_head(document.replace(b'"days": 30', b'"days": 31'), "r1", "orders", REPAIR)


def test_a_forgotten_snapshot_loses_its_entry_and_unknown_fields() -> None:
    before = HEAD.to_json(HEAD_OF_TWO)
    before["snapshots"][1]["pinned_by"] = "somebody"
    document = encoded_head(replace(HEAD_OF_TWO, snapshots=(entry("s2"),)), before)
    assert "pinned_by" not in document.decode()
    assert [one["snapshot"] for one in json.loads(document)["snapshots"]] == ["s2"]
