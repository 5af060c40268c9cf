"""Forgetting: one swap of the head by a retention, which later publications keep to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.repository.head import Retention
from statecore.repository.maintenance.forget import forget, plan_forget
from statecore.repository.maintenance.pins import pin
from statecore.repository.maintenance.reverted_head import check_not_reverted
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import Snapshots

DAY_S = 86_400
TWO = Retention(last=2, hourly=0, daily=0, weekly=0)


@pytest.fixture
def five(orders: Snapshots) -> list[str]:
    """Snapshots, newest first."""
    for number in range(5):
        orders.publish(f"request-{number}", {"0_0": {"left": 50 * (number + 1)}})
    return [entry.snapshot for entry in orders.app_repository.head().snapshots]


def named(orders: Snapshots) -> list[str]:
    return [entry.snapshot for entry in orders.app_repository.head().snapshots]


def test_what_a_retention_does_not_keep_is_left_out_and_later_heads_keep_to_it(
    orders: Snapshots, five: list[str]
) -> None:
    assert [one.entry.snapshot for one in plan_forget(orders.app_repository, TWO).forgotten] == five[2:]
    assert named(orders) == five, "a plan changes nothing"
    done = forget(orders.app_repository, TWO)
    assert ([one.entry.snapshot for one in done.forgotten], named(orders)) == (five[2:], five[:2])
    orders.publish("later", {"0_0": {"left": 300}})
    assert named(orders)[1:] == five[:1]
    orders.fetched()


def test_without_a_retention_that_of_the_head_is_applied(orders: Snapshots, five: list[str]) -> None:
    assert not forget(orders.app_repository).is_changed
    forget(orders.app_repository, TWO)
    generation = orders.app_repository.head().generation
    assert forget(orders.app_repository).keep == TWO
    assert orders.app_repository.head().generation == generation


def test_a_pinned_snapshot_stays(orders: Snapshots, five: list[str]) -> None:
    pin(orders.app_repository, five[4])
    forget(orders.app_repository, TWO)
    assert named(orders) == [*five[:2], five[4]]


def test_a_retention_that_keeps_nothing_is_refused(orders: Snapshots, five: list[str]) -> None:
    for apply in (plan_forget, forget):
        with raises(Invalid, "retention-empty"):
            apply(orders.app_repository, Retention(0, 0, 0, 0))
    assert named(orders) == five


def test_without_a_snapshot_there_is_nothing_to_forget(orders: Snapshots) -> None:
    with raises(NotFound, "snapshots-not-found"):
        forget(orders.app_repository, TWO)


def test_who_publishes_at_the_same_time_loses_nothing(orders: Snapshots, five: list[str]) -> None:
    swap, storage = orders.storage.swap, orders.storage

    def after_another(*all_: object) -> str | None:
        storage.swap = swap  # type: ignore[method-assign]
        orders.publish("between", {"0_0": {"left": 300}})
        return swap(*all_)  # type: ignore[arg-type]

    storage.swap = after_another  # type: ignore[method-assign]
    forget(orders.app_repository, TWO)
    assert named(orders)[1:] == five[:1]
    assert orders.requests[0] == "between"


def test_snapshots_are_forgotten_by_name_and_no_others(orders: Snapshots, five: list[str]) -> None:
    planned = plan_forget(orders.app_repository, snapshots=[five[1], five[3]])
    assert [one.entry.snapshot for one in planned.forgotten] == [five[1], five[3]]
    assert named(orders) == five, "a plan changes nothing"
    before = orders.app_repository.head()
    forget(orders.app_repository, snapshots=[five[1], five[3]])
    after = orders.app_repository.head()
    assert named(orders) == [five[0], five[2], five[4]]
    assert (after.generation, after.keep) == (before.generation + 1, before.keep)
    orders.publish("later", {"0_0": {"left": 300}})
    assert named(orders)[1:] == [five[0], five[2], five[4]]
    orders.fetched()
    check_not_reverted(orders.app_repository, orders.app_repository.head())


@pytest.mark.parametrize(
    ("which", "code"), [(0, "snapshot-kept"), (3, "snapshot-kept"), (None, "snapshot-not-found")], ids=str
)
def test_by_name_the_newest_a_pinned_and_an_unknown_one_are_refused(
    orders: Snapshots, five: list[str], which: int | None, code: str
) -> None:
    pin(orders.app_repository, five[3])
    snapshot = "20200101T000000Z-00000000" if which is None else five[which]
    for apply in (plan_forget, forget):
        with pytest.raises(StatecoreError) as caught:
            apply(orders.app_repository, snapshots=[five[2], snapshot])
        assert caught.value.code == code
    assert named(orders) == five


def test_one_that_is_pinned_meanwhile_is_not_forgotten(
    orders: Snapshots, five: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, storage = orders.storage.swap, orders.storage

    def after_another(*all_: object) -> str | None:
        monkeypatch.setattr(storage, "swap", swap)
        pin(orders.app_repository, five[2])
        return swap(*all_)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "swap", after_another)
    with raises(Invalid, "snapshot-kept"):
        forget(orders.app_repository, snapshots=[five[2]])
    assert named(orders) == five


def test_ages_are_compared_with_the_time_at_which_the_object_store_got_the_newest(tmp_path: Path) -> None:
    """So a machine whose clock is ahead forgets nothing of others: neither by what it publishes, nor afterwards."""
    published = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    within = Retention(1, 0, 0, 0, within_ms=30 * DAY_S * 1000)
    for days in (-10, -5, 400, 800):
        published.first_second = int(time.time()) + days * DAY_S
        published.publish(1000 + days)
        forget(published.app_repository, within)
    assert len(published.app_repository.head().snapshots) == 4
    assert not plan_forget(published.app_repository, within).forgotten
    (manifest,) = (tmp_path / "repository/apps/orders/manifests").glob(
        f"{published.app_repository.head().snapshots[0].snapshot}.json"
    )
    os.utime(manifest, (time.time() + 22 * DAY_S,) * 2)
    assert len(plan_forget(published.app_repository, within).forgotten) == 1
