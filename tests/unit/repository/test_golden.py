"""A repository of format version 1, made once (``tests/golden/make_repository.py``): every later release reads it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.collection import Collector
from statecore.repository.listing import list_snapshots
from tests.golden.make_repository import ARCHIVE, CONTENTS, contents_of
from tests.harness.second_reader import read_repository

SNAPSHOTS = json.loads(CONTENTS.read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "repository", filter="data")
    return tmp_path / "repository"


@pytest.fixture
def orders(root: Path) -> ApplicationRepository:
    return ApplicationRepository.open(root.as_uri(), "orders")


def test_this_release_and_a_reader_of_the_page_alone_find_the_same(root: Path, orders: ApplicationRepository) -> None:
    assert contents_of(orders) == SNAPSHOTS
    assert [one.damage for one in list_snapshots(orders, orders.head())] == [{}, {}]
    found = read_repository(root)["orders"]
    assert {
        snapshot: {
            f"{task} {store['store']}": store["identity"] for task, of in tasks.items() for store in of["stores"]
        }
        for snapshot, tasks in found.items()
    } == {
        snapshot: {store: identity for store, (identity, *_) in stores.items()}
        for snapshot, stores in SNAPSHOTS.items()
    }
    head = orders.head()
    assert ([one.pinned for one in head.snapshots], head.keep.last, head.collection) == ([False, True], 1, 2)


@pytest.mark.parametrize("number", range(len(SNAPSHOTS)))
def test_every_snapshot_is_fetched(root: Path, tmp_path: Path, number: int) -> None:
    snapshot = sorted(SNAPSHOTS)[number]
    request = FetchRequest(
        application_id="orders", repository=root.as_uri(), snapshot=snapshot, state_dir=str(tmp_path / "state")
    )
    report = run_fetch(request)
    found = {f"{task} {store.store}": store for store in report.stores for task in [store.task]}
    assert found.keys() == SNAPSHOTS[snapshot].keys()
    for name, (_, rows, digest, _) in SNAPSHOTS[snapshot].items():
        assert rows in (None, found[name].rows)
        assert digest in (None, found[name].digest)


def test_its_garbage_is_collected_and_nothing_else(root: Path, orders: ApplicationRepository) -> None:
    done = [Collector(orders, min_age_ms=0).run() for _ in range(3)]
    assert done[0].deleted.blobs > 0
    assert (done[-1].deleted.blobs, done[-1].listed.blobs, done[-1].unknown) == (0, 0, [])
    assert read_repository(root)["orders"].keys() == SNAPSHOTS.keys()
