"""What follows from the declaration of a store."""

from __future__ import annotations

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import ENDLESS_INTERVAL_MS
from statecore.isolation import IsolationLevel
from statecore.spec.model import (
    ApplicationSpec,
    ProcessingGuarantee,
    StoreSpec,
    retention_of,
    segment_interval_of,
    task_of,
)

PLAIN = StoreSpec("b", StoreKind.KEY_VALUE, 3, "app-b-changelog")


def test_a_store_has_the_tasks_of_its_subtopology_and_a_global_one_has_none() -> None:
    everywhere = StoreSpec("g", StoreKind.KEY_VALUE, -1, "products")
    assert [task_of(PLAIN, 0), task_of(PLAIN, 1), task_of(everywhere, 5)] == ["3_0", "3_1", "global"]


def test_a_task_has_the_stores_of_its_subtopology() -> None:
    other = StoreSpec("c", StoreKind.KEY_VALUE, 2, "app-c-changelog")
    everywhere = StoreSpec("g", StoreKind.KEY_VALUE, -1, "products")
    spec = ApplicationSpec("app", "", ProcessingGuarantee.AT_LEAST_ONCE, (PLAIN, other), (everywhere,))
    found = [spec.stores_of(task) for task in ("3_0", "2_9", "4_0", "global")]
    assert found == [(PLAIN,), (other,), (), (everywhere,)]


def test_the_segment_interval_is_derived_from_the_retention_unless_declared() -> None:
    derived = StoreSpec("w", StoreKind.WINDOW, 0, "app-w-changelog", retention_ms=600_000)
    declared = StoreSpec("w", StoreKind.WINDOW, 0, "app-w-changelog", retention_ms=600_000, segment_interval_ms=60_000)
    assert [segment_interval_of(one) for one in (derived, declared, PLAIN)] == [300_000, 60_000, None]


def test_rows_of_a_grace_buffer_never_expire_and_have_one_segment() -> None:
    buffer = StoreSpec("s", StoreKind.GRACE_BUFFER, 0, "app-s-changelog")
    assert (retention_of(buffer), segment_interval_of(buffer)) == (ENDLESS_INTERVAL_MS, ENDLESS_INTERVAL_MS)
    assert retention_of(PLAIN) is None


def test_only_exactly_once_reads_what_is_committed() -> None:
    found = {guarantee: guarantee.isolation for guarantee in ProcessingGuarantee}
    assert found == {
        ProcessingGuarantee.EXACTLY_ONCE_V2: IsolationLevel.READ_COMMITTED,
        ProcessingGuarantee.AT_LEAST_ONCE: IsolationLevel.READ_UNCOMMITTED,
    }
