from __future__ import annotations

import pytest

from statecore.conversion.model import affected_databases


@pytest.mark.parametrize(
    ("count", "total", "segmented", "words"),
    [
        (1, 1, False, "its database"),
        (3, 3, True, "its segments"),
        (1, 1, True, "its segment"),
        (2, 3, True, "2 of its segments"),
    ],
)
def test_databases_are_named_alike_however_many_segments_a_task_has(
    count: int, total: int, segmented: bool, words: str
) -> None:
    assert affected_databases(count, total, segmented=segmented) == words
