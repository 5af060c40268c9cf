"""Whether a store of a snapshot is what an application declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statecore.formats.kinds import StoreKind
from statecore.repository.compatibility import Difference, differences
from statecore.repository.manifest import StoredEnd, StoreSnapshot
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec

DECLARED = StoreSpec("clicks", StoreKind.WINDOW, 0, "orders-clicks-changelog", retention_ms=600_000)
STORE = StoreSnapshot(
    "clicks",
    StoreKind.WINDOW,
    "i",
    (StoredEnd("orders-clicks-changelog", 1, "", 9, 10),),
    "read_uncommitted",
    retention_ms=600_000,
    segment_interval_ms=300_000,
)
ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2


def found(
    declared: StoreSpec | None = DECLARED,
    store: StoreSnapshot = STORE,
    *,
    task: str = "0_1",
    guarantee: ProcessingGuarantee = ALOS,
    empty: bool = False,
) -> tuple[Difference, ...]:
    stores = () if declared is None else (declared,)
    return differences(task, store, ApplicationSpec("orders", "broker:9092", guarantee, stores), empty=empty)


def test_a_store_that_is_as_it_is_declared_or_not_declared_at_all_differs_in_nothing() -> None:
    assert found() == ()
    assert found(None) == ()
    assert found(store=replace(STORE, retention_ms=None, segment_interval_ms=None)) == ()


OF_ITS_NAME = [
    ({"kind": StoreKind.SESSION}, Difference("kind", "window", "session")),
    ({"subtopology": 1}, Difference("task", "0_1", "1_1")),
    ({"subtopology": -1}, Difference("task", "0_1", "global")),
    ({"changelog": "clicks"}, Difference("changelog", "orders-clicks-changelog", "clicks")),
    (
        {"changelog": "none"},
        Difference("changelog", "orders-clicks-changelog", "none: it is not logged, and nothing would be restored"),
    ),
]


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(("changes", "difference"), OF_ITS_NAME)
def test_what_decides_the_path_of_a_store_counts_with_and_without_data(
    changes: dict[str, Any], difference: Difference, empty: bool
) -> None:
    assert difference in found(replace(DECLARED, **changes), empty=empty)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"retention_ms": 1_200_000, "segment_interval_ms": 300_000}, [Difference("retention", "10m", "20m")]),
        ({"retention_ms": 300_000, "segment_interval_ms": 300_000}, []),
        ({"segment_interval_ms": 60_000}, [Difference("segment interval", "5m", "1m")]),
        ({"retention_ms": 300_000}, [Difference("segment interval", "5m", "150s")]),
    ],
)
def test_segment_interval_and_retention_must_match_the_declaration(
    changes: dict[str, Any], expected: list[Difference]
) -> None:
    declared = replace(DECLARED, **changes)
    assert list(found(declared)) == expected
    assert found(declared, empty=True) == ()


@pytest.mark.parametrize(
    ("read", "guarantee", "is_different"),
    [
        ("read_uncommitted", EOS, True),
        ("read_committed", EOS, False),
        ("read_committed", ALOS, False),
        ("read_uncommitted", ALOS, False),
    ],
)
def test_what_was_read_uncommitted_is_of_no_use_under_exactly_once(
    read: str, guarantee: ProcessingGuarantee, is_different: bool
) -> None:
    seen = found(store=replace(STORE, isolation=read), guarantee=guarantee)
    assert [one.what for one in seen] == (["processing guarantee"] if is_different else [])
    assert found(store=replace(STORE, isolation=read), guarantee=guarantee, empty=True) == ()


def test_an_undecided_declaration_matches_everything() -> None:
    undecided = StoreSpec("clicks", StoreKind.UNKNOWN, 0, "?")
    assert found(undecided) == ()


def test_a_global_store_is_of_its_topic() -> None:
    ends = tuple(StoredEnd("names", partition, "", 10, 10) for partition in (0, 1))
    store = StoreSnapshot("names", StoreKind.KEY_VALUE, "i", ends, "read_uncommitted")
    declared = StoreSpec("names", StoreKind.KEY_VALUE, -1, "names")
    assert found(declared, store, task="global") == ()
    (one,) = found(replace(declared, changelog="people"), store, task="global")
    assert one == Difference("changelog", "names", "people")
