"""When a snapshot is confirmed to which nothing is to be appended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.jobs.checkpoint.confirmation import reason_to_confirm
from statecore.repository.manifest import Extent, Manifest, ReadPosition, TaskManifestReference
from statecore.repository.publish.snapshot_composition import compose
from statecore.spec.model import ProcessingGuarantee
from tests.unit.jobs.published import spec

HOUR = 3_600_000
NOW = 1_700_000_000_000


def newest(**tasks: tuple[int | None, int | None]) -> Manifest:
    """A snapshot with a read time and a delete retention of each task."""
    references = tuple(
        TaskManifestReference(task.removeprefix("task_"), "", "", Extent("blob", 0, 1), 0, *known)
        for task, known in tasks.items()
    )
    guarantee = ProcessingGuarantee.AT_LEAST_ONCE
    return Manifest("newest", "", "orders", 0, 1, None, "", "", "checkpoint", "", guarantee, {}, "", references)


def code(known: tuple[int | None, int | None], retention_ms: int | None, delete_retention_ms: int | None) -> str | None:
    """The code of the reason to confirm one task now, by a position with this recorded retention."""
    positions = {"0_0": ReadPosition(NOW, retention_ms)}
    why = reason_to_confirm(newest(task_0_0=known), positions, delete_retention_ms)
    return None if why is None else why.code


@pytest.mark.parametrize(
    ("read_at_ms", "delete_retention_ms", "expected"),
    [
        (NOW - HOUR, 4 * HOUR, None),
        (NOW - HOUR - 1, 4 * HOUR, "confirmation-due"),
        (None, 4 * HOUR, "base-age-unknown"),
        (NOW, 0, None),
        (NOW - 1, 0, "confirmation-due"),
        (NOW - 1000 * HOUR, None, None),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("retention_ms", [None, 4 * HOUR])
def test_a_snapshot_is_confirmed_when_a_quarter_of_the_delete_retention_is_over(
    read_at_ms: int | None, delete_retention_ms: int | None, retention_ms: int | None, expected: str | None
) -> None:
    assert code((read_at_ms, retention_ms), retention_ms, delete_retention_ms) == expected


def test_a_lowered_delete_retention_is_published_at_once() -> None:
    assert code((NOW - 1, 2 * HOUR + 1), 2 * HOUR, 99 * HOUR) == "retention-lowered"
    assert code((NOW - 1, 2 * HOUR), 2 * HOUR, 99 * HOUR) is None
    assert code((NOW - 1, None), 2 * HOUR, 99 * HOUR) is None


@pytest.mark.parametrize("read_at_ms", [None, NOW - 1000 * HOUR])
def test_a_time_of_this_machine_confirms_nothing_that_has_one_of_the_cluster(read_at_ms: int | None) -> None:
    """A publication keeps the recorded time then, so there is nothing to publish however old it is."""
    assert code((read_at_ms, 4 * HOUR), None, 4 * HOUR) is None


def test_a_lower_retention_than_that_of_a_later_time_is_not_published() -> None:
    assert code((NOW + 1, 4 * HOUR), 2 * HOUR, 2 * HOUR) is None


def test_the_age_is_that_of_the_tasks_which_a_publication_would_confirm() -> None:
    positions = {"0_0": ReadPosition(NOW, None), "0_1": ReadPosition(NOW, None), "0_9": ReadPosition(NOW, None)}
    aged = (NOW - 9 * HOUR, 4 * HOUR)
    young = newest(task_0_0=aged, task_0_1=(NOW - HOUR, None), task_0_2=(None, None))
    assert reason_to_confirm(young, positions, 4 * HOUR) is None
    why = reason_to_confirm(newest(task_0_0=aged, task_0_1=(NOW - HOUR - 1, None)), positions, 4 * HOUR)
    assert why is not None
    assert (why.code, why.context) == ("confirmation-due", {"retention_ms": 4 * HOUR})
    assert reason_to_confirm(None, positions, 4 * HOUR) is None
    assert reason_to_confirm(young, {}, 4 * HOUR) is None


TIMES = st.sampled_from([None, NOW - 9 * HOUR, NOW - 1, NOW, NOW + 1])
RETENTIONS = st.sampled_from([None, HOUR, 2 * HOUR])


@settings(deadline=None)
@given(st.tuples(TIMES, RETENTIONS), st.tuples(TIMES, RETENTIONS), RETENTIONS, RETENTIONS)
def test_what_is_found_worth_confirming_changes_the_snapshot(
    first: tuple[int | None, int | None],
    second: tuple[int | None, int | None],
    retention_ms: int | None,
    delete_retention_ms: int | None,
) -> None:
    manifest = newest(task_0_0=first, task_0_1=second)
    positions = dict.fromkeys(["0_0", "0_1"], ReadPosition(NOW, retention_ms))
    composed = compose(
        (),
        {one.task: one for one in manifest.task_manifests},
        lambda _: {},
        spec(),
        unchanged=(),
        whole=False,
        tasks=None,
        read_positions=positions,
    )
    why = reason_to_confirm(manifest, positions, delete_retention_ms)
    assert composed.is_changed or why is None
