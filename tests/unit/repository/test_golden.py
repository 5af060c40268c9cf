"""Repositories of format version 1, made once (``tests/golden/make_repository.py``): every later release reads them."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.listing import list_snapshots
from statecore.repository.maintenance.collection import Collector
from tests.golden.make_repository import ENCRYPTED, KEY, PLAIN, archive, contents_file, contents_of
from tests.harness.second_reader import read_repository
from tests.unit.repository.encrypted import encrypted_url


@dataclass(frozen=True)
class Golden:
    """A repository that was unpacked.

    Attributes:
        root: its directory.
        url: its URL, with the key of an encrypted one.
        key: that key.
        snapshots: what the stores of each snapshot hold.
    """

    root: Path
    url: str
    key: bytes
    snapshots: dict[str, dict[str, list[Any]]]

    @property
    def orders(self) -> ApplicationRepository:
        return ApplicationRepository.open(self.url, "orders")


@pytest.fixture(params=[PLAIN, ENCRYPTED])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    name, root = request.param, tmp_path / "repository"
    with tarfile.open(archive(name)) as packed:
        packed.extractall(root, filter="data")
    snapshots = json.loads(contents_file(name).read_text())
    if name == PLAIN:
        return Golden(root, root.as_uri(), b"", snapshots)
    return Golden(root, encrypted_url(root, ENCRYPTED), KEY, snapshots)


def test_this_release_and_a_reader_of_the_page_alone_find_the_same(golden: Golden) -> None:
    orders = golden.orders
    assert contents_of(orders) == golden.snapshots
    assert [one.damage for one in list_snapshots(orders, orders.head())] == [{}, {}]
    found = read_repository(golden.root, golden.key)["orders"]
    assert {
        snapshot: {
            f"{task} {store['store']}": store["identity"] for task, of in tasks.items() for store in of["stores"]
        }
        for snapshot, tasks in found.items()
    } == {
        snapshot: {store: identity for store, (identity, *_) in stores.items()}
        for snapshot, stores in golden.snapshots.items()
    }
    head = orders.head()
    assert ([one.pinned for one in head.snapshots], head.keep.last, head.collection) == ([False, True], 1, 2)


@pytest.mark.parametrize("number", [0, 1])
def test_every_snapshot_is_fetched(golden: Golden, tmp_path: Path, number: int) -> None:
    snapshot = sorted(golden.snapshots)[number]
    request = FetchRequest(
        application_id="orders", repository=golden.url, snapshot=snapshot, state_dir=str(tmp_path / "state")
    )
    report = run_fetch(request)
    found = {f"{task} {store.store}": store for store in report.stores for task in [store.task]}
    assert found.keys() == golden.snapshots[snapshot].keys()
    for name, (_, rows, digest, _) in golden.snapshots[snapshot].items():
        assert rows in (None, found[name].rows)
        assert digest in (None, found[name].digest)


def test_its_garbage_is_collected_and_nothing_else(golden: Golden) -> None:
    done = [Collector(golden.orders, min_age_ms=0).run() for _ in range(3)]
    assert done[0].deleted.blobs > 0
    assert (done[-1].deleted.blobs, done[-1].listed.blobs, done[-1].unknown) == (0, 0, [])
    assert read_repository(golden.root, golden.key)["orders"].keys() == golden.snapshots.keys()
