"""Next offsets compared with the logs that there are."""

from __future__ import annotations

import pytest

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.global_stores.offset_validation import why_invalid, why_recreated, why_unknown
from statecore.global_stores.state import RecoveryReason

LOG = LogOffsets(5, 9, 10)


@pytest.mark.parametrize("position", [5, 9, 10])
def test_an_offset_from_the_start_to_the_end_is_one_of_the_log(position: int) -> None:
    assert why_invalid({0: position}, {0: LOG}) is None
    assert why_invalid({0: position}, {0: LOG}, {0: position}) is None
    assert why_invalid({0: position}, {0: LOG}, {0: None}) is None


@pytest.mark.parametrize(
    ("positions", "ends", "reason"),
    [
        ({0: 4}, {}, RecoveryReason.BELOW_LOG_START),
        ({0: 11}, {}, RecoveryReason.BEYOND_LOG_END),
        ({0: 7, 3: 0}, {}, RecoveryReason.PARTITION_GONE),
        ({0: 8}, {0: 7}, RecoveryReason.LOG_DIVERGED),
    ],
)
def test_any_other_is_not_and_the_sentence_names_it(positions, ends, reason) -> None:
    found = why_invalid(positions, {0: LOG}, ends)
    assert found is not None
    assert found.reason is reason
    assert found.trusted
    assert str(max(positions, key=lambda at: at)) in found.text


def test_a_partition_that_the_store_does_not_know_is_no_reason() -> None:
    assert why_invalid({}, {0: LOG}) is None


@pytest.mark.parametrize("stored", [{}, {0: -4}, {0: 3, 1: -4}, {0: -1}])
def test_rows_of_which_no_offset_is_known_are_not_trusted(stored: dict[int, int]) -> None:
    found = why_unknown(stored)
    assert found is not None
    assert found.reason is RecoveryReason.OFFSET_UNKNOWN
    assert not found.trusted
    assert why_unknown({0: 3}) is None


@pytest.mark.parametrize(("built_of", "is_valid"), [(None, True), ("id-1", True), ("id-2", False)])
def test_rows_of_a_topic_with_another_id_are_not_its_own(built_of: str | None, is_valid: bool) -> None:
    found = why_recreated(built_of, TopicDescription("rates", "id-1", 1, {}))
    assert is_valid is (found is None)
    assert found is None or found.reason is RecoveryReason.TOPIC_RECREATED
