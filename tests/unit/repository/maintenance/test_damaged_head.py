"""What is read of a damaged head."""

from __future__ import annotations

import json

import pytest

from statecore.repository.head import Retention
from statecore.repository.maintenance.damaged_head import (
    salvaged_needs,
    salvaged_numbers,
    salvaged_pins,
    salvaged_retention,
)
from statecore.repository.needs import NO_NEEDS, Needs


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"{}", b'{"keep": 5, "snapshots": 5, "epoch": "x"}'])
def test_of_what_cannot_be_read_nothing_is_known(content: bytes) -> None:
    assert (salvaged_numbers(content), salvaged_pins(content), salvaged_retention(content)) == ({}, {}, None)
    assert salvaged_needs(content) == NO_NEEDS


@pytest.mark.parametrize(
    ("needs", "known"),
    [
        ({"read": ["a", "b"], "write": ["c"]}, Needs(("a", "b"), ("c",))),
        ({"read": "a", "write": ["c", 7]}, Needs((), ("c", "7"))),
        (["a"], NO_NEEDS),
    ],
)
def test_needs_are_read_as_far_as_they_can_be(needs: object, known: Needs) -> None:
    assert salvaged_needs(json.dumps({"needs": needs}).encode()) == known


def test_numbers_pins_and_the_retention_are_read_and_no_number_makes_less_stay() -> None:
    entries = [{"snapshot": "a", "pinned": True, "note": "x"}, {"snapshot": "b"}, {"snapshot": "c", "pinned": True}, 5]
    keep = {"last": 15, "hourly": 0, "daily": "7", "monthly": 12, "within_ms": -1, "weekly": True}
    numbers = {"epoch": 1, "generation": 7, "collection": 3, "other": 4}
    content = json.dumps({**numbers, "snapshots": entries, "keep": keep}).encode()
    assert salvaged_numbers(content) == {"epoch": 1, "generation": 7, "collection": 3}
    assert salvaged_pins(content) == {"a": "x", "c": ""}
    assert salvaged_retention(content) == Retention(last=15, monthly=12)
