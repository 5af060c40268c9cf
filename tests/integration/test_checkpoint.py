"""``checkpoint``: a snapshot is advanced by the tails of the changelogs, and is what a restore of them makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.shop import Shop

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap_servers, tmp_path)


def test_checkpoint_after_checkpoint_holds_what_a_restore_of_the_logs_makes(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    assert first.published is not None
    assert {store.parent for store in first.stores} == {""}
    for _ in range(3):
        before = shop.stores_there()
        shop.write(60)
        report = shop.checkpoint()
        assert report.published is not None
        assert all(store.parent for store in report.stores)
        for key, store in shop.stores_there().items():
            for old in before[key].databases:
                new = next((one for one in store.databases if one.segment == old.segment), None)
                assert new is None or [run for run in new.runs if run in old.runs] == list(old.runs)
        assert shop.fetched() == shop.restored()


def test_nothing_is_published_where_nothing_is_new(shop: Shop) -> None:
    shop.write()
    first = shop.checkpoint()
    again = shop.checkpoint()
    assert first.published is not None
    assert again.published is None
    assert shop.snapshots() == [first.published.snapshot]


def test_runs_stay_few_and_hold_the_same(shop: Shop) -> None:
    shop.write(600)
    shop.checkpoint()
    folds, most = 0, 0
    for _ in range(16):
        shop.write(30)
        report = shop.checkpoint()
        folds += any("runs were folded" in note for note in report.notes)
        for (task, _), store in shop.stores_there().items():
            partitions = shop.partitions if task == "global" else 1
            most = max(most, *(len(one.runs) // partitions for one in store.databases))
    assert folds
    assert most <= 13
    assert shop.fetched() == shop.restored()
