from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.model import LogOffsets
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base, Refused
from statecore.jobs.restore.base_candidates import RestoreCandidates, cost
from statecore.jobs.restore.request import RestoreRequest
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.jobs.published import Shop

CHANGELOG = TopicPartition("changelog", 0)
LOGS = {CHANGELOG: LogOffsets(100, 1100, 1100)}
KEY = ("0_0", "plain")


def here(end: int) -> Base:
    return Base("here", {CHANGELOG: BaseEnd(CHANGELOG, "", end, -1, None)}, frozenset(), databases={None: "/s"})


def test_a_base_in_the_directory_costs_its_tail_and_no_base_the_whole_log() -> None:
    assert cost(here(1000), LOGS) == 100
    assert cost(None, LOGS) == 1000


def test_a_snapshot_also_costs_its_download(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    snapshot = shop.publish([40]).snapshot
    (found,) = candidates(shop).of(KEY)
    assert isinstance(found, Base)
    assert found.name == snapshot
    assert found.snapshot is not None
    end = next(iter(found.ends.values()))
    logs = {end.topic_partition: LogOffsets(0, 100, 100)}
    assert cost(found, logs) == pytest.approx(60 + found.snapshot.file_bytes / 200)


def candidates(shop: Shop, directory: StateDirectory | None = None, **asked: Any) -> RestoreCandidates:
    request = RestoreRequest(spec_path="stores.yaml", state_dir="/s", repository=shop.url, **asked)
    return RestoreCandidates(request, shop.declared, directory, shop.app_repository, {})


def test_snapshots_with_other_ends_are_tried_in_order(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    older, newer = shop.publish([40]).snapshot, shop.publish([40, 90]).snapshot
    assert [one.name for one in candidates(shop).of(KEY) if isinstance(one, Base)] == [newer, older]
    assert [one.name for one in candidates(shop, start_from=older).of(KEY) if isinstance(one, Base)] == [older]
    assert [one.name for one in candidates(shop, start_from="newest").of(KEY) if isinstance(one, Base)] == [newer]


def test_an_unknown_snapshot_is_not_found(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with pytest.raises(NotFound, match="has no snapshot"):
        candidates(shop, start_from="20261101T000000Z-0badcafe")
    assert not list(candidates(shop, start_from="newest").of(KEY)), "there is none: all is read"
    there = shop.publish([40]).snapshot
    with pytest.raises(NotFound, match=f"0badcafe.*It has {there}"):
        candidates(shop, start_from="20261101T000000Z-0badcafe")


def test_the_base_of_a_plan_is_found_after_any_number_of_newer_snapshots(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first = shop.publish([10]).snapshot
    for end in range(20, 100, 10):
        shop.publish([10, end])
    assert candidates(shop).named(KEY, first) is not None
    assert len(list(candidates(shop).of(KEY))) == 5


@pytest.mark.parametrize("start", ["newest", "20261123T010203Z-5f3a9c21"])
def test_a_snapshot_without_a_repository_is_refused(tmp_path: Path, start: str) -> None:
    request = RestoreRequest(spec_path="stores.yaml", state_dir="/s", start_from=start)
    with pytest.raises(Invalid, match="The repository of snapshot"):
        RestoreCandidates(request, Shop(tmp_path).declared, None, None, {})


def test_start_from_none_reads_no_snapshot(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish([40])
    found = candidates(shop, start_from="none")
    assert not list(found.of(KEY))
    assert not found.newest


def test_a_snapshot_of_a_differently_declared_store_is_refused_with_the_reason(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish([40])
    stores = tuple(
        replace(store, kind=StoreKind.TIMESTAMPED_KEY_VALUE) if store.name == "plain" else store
        for store in shop.declared.stores
    )
    shop.declared = replace(shop.declared, stores=stores)
    (found,) = candidates(shop).of(KEY)
    assert isinstance(found, Refused)
    assert "timestamped-key-value" in found.why


@pytest.mark.parametrize("start", ["yesterday", "", "NEWEST", "20261123T010203Z", "../x"])
def test_an_invalid_start_is_refused(start: str) -> None:
    with raises(Invalid, "start-from-invalid"):
        RestoreRequest(spec_path="stores.yaml", state_dir="/s", start_from=start)
