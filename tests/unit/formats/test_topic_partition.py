"""Which topic ids are known, and which are of one topic."""

from __future__ import annotations

import pytest

from statecore.formats.topic_partition import is_known_topic_id, is_same_topic

ID, OTHER, NIL = "a" * 32, "b" * 32, "0" * 32


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (ID, ID, True),
        (ID, OTHER, False),
        (ID, "", True),
        (NIL, OTHER, True),
        (NIL, "", True),
        (ID[:-1] + "0", ID, False),
    ],
)
def test_an_unknown_id_is_taken_for_the_same_topic(one: str, other: str, is_same: bool) -> None:
    assert is_same_topic(one, other) is is_same_topic(other, one) is is_same


@pytest.mark.parametrize(("topic_id", "is_known"), [(ID, True), (ID[:-1] + "0", True), ("", False), (NIL, False)])
def test_an_id_that_no_broker_gave_is_unknown(topic_id: str, is_known: bool) -> None:
    assert is_known_topic_id(topic_id) is is_known
