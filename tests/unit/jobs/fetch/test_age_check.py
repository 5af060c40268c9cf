"""Without brokers the age of a snapshot decides whether its tail can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS
from statecore.errors import Invalid
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.manifest import StoreSnapshot
from tests.harness.raising import raises
from tests.unit.jobs.fetch.fetching import Topics, request_for
from tests.unit.jobs.published import CUT, Shop

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass
class Retaining(Shop):
    """A shop whose snapshots record how long deletes are kept."""

    delete_retention_ms: int | None = DAY_MS

    def store(self, *given: Any, **more: Any) -> StoreSnapshot:
        return replace(super().store(*given, **more), delete_retention_ms=self.delete_retention_ms)


@pytest.fixture
def shop(tmp_path: Path) -> Retaining:
    made = Retaining(tmp_path)
    made.publish([100])
    return made


def fetch(shop: Shop, age_ms: int, *, cluster: Any = None, **changes: Any) -> FetchReport:
    """What a fetch does so long after the snapshot was read."""
    request = request_for(shop, shop.root / "state", **changes)
    return run_fetch(request, clock=lambda: CUT + age_ms / 1000, connect=cluster)


@pytest.mark.parametrize("plan_only", [True, False])
def test_a_store_that_is_older_than_deletes_are_kept_is_refused(shop: Retaining, plan_only: bool) -> None:
    too_old = DAY_MS + CLOCK_MARGIN_MS + 1
    with raises(Invalid, "snapshot-too-old", age_ms=too_old, max_age_ms=DAY_MS):
        fetch(shop, too_old, plan_only=plan_only)
    assert not list(shop.root.glob("state/orders/0_*"))


def test_a_younger_one_is_fetched_and_its_age_is_told(shop: Retaining) -> None:
    report = fetch(shop, 3 * HOUR_MS)
    assert report.placed
    (note,) = report.notes
    assert ("3 hours" in note, "24h" in note) == (True, True)


def test_a_maximal_age_of_the_request_replaces_the_recorded_one(shop: Retaining) -> None:
    with raises(Invalid, "snapshot-too-old", max_age_ms=HOUR_MS):
        fetch(shop, 2 * HOUR_MS, max_age=HOUR_MS)
    assert fetch(shop, 9 * DAY_MS, max_age=10 * DAY_MS).placed


def test_where_no_retention_was_recorded_it_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish([100])
    report = fetch(shop, 9 * DAY_MS)
    assert report.placed
    assert [all(name in note for name in ("clicks", "names", "plain")) for note in report.notes] == [False, True]


def test_with_brokers_they_decide_unless_the_request_does(shop: Retaining) -> None:
    unchanged = Topics(lambda _: 100)
    servers = {"bootstrap_servers": "localhost:9", "cluster": unchanged}
    with raises(Invalid, "snapshot-too-old", max_age_ms=DAY_MS):
        fetch(shop, 2 * DAY_MS, max_age=DAY_MS, **servers)
    assert fetch(shop, 2 * DAY_MS, **servers).placed


def test_a_new_snapshot_is_fetched_under_the_request_id_of_an_earlier_try(shop: Retaining) -> None:
    first = fetch(shop, 0, request_id="constant", replace=True)
    assert not fetch(shop, 0, request_id="constant", replace=True).placed
    newer = shop.publish([150])
    again = fetch(shop, 0, request_id="constant", replace=True)
    assert (again.placed, again.snapshot) == (True, newer.snapshot)
    assert first.snapshot != newer.snapshot


@pytest.mark.parametrize("max_age", [None, DAY_MS])
def test_a_clock_that_is_behind_the_snapshot_proves_no_age(
    shop: Retaining, tmp_path: Path, max_age: int | None
) -> None:
    request = request_for(shop, tmp_path / "state", max_age=max_age)
    with raises(Invalid, "clock-behind", age_ms=-30 * DAY_MS):
        run_fetch(request, clock=lambda: CUT - 30 * DAY_MS // 1000)
    assert not list((tmp_path / "state").glob("*/0_*"))
