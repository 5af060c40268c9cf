"""Two clusters with an application of one id: the snapshots of one are not replaced, and not fetched, by the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from tests.harness.broker import Broker
from tests.harness.raising import raises
from tests.harness.shop_application import Shop

pytestmark = pytest.mark.integration


def blobs_of(shop: Shop) -> dict[str, int]:
    """Names and sizes of all that is in the repository."""
    return {blob.name: blob.size for blob in shop.app_repository.blobs.list()}


@contextmanager
def refused(shop: Shop, there: Shop) -> Iterator[None]:
    """A job is refused, and neither snapshots nor blobs of the other cluster have changed."""
    before, head = blobs_of(there), there.app_repository.head()
    ids = {"expected": cluster_id(there), "found": cluster_id(shop)}
    with raises(Invalid, "cluster-changed", **ids) as caught:
        yield
    assert all(one in caught.value.what for one in ids.values())
    assert blobs_of(there) == before
    assert there.app_repository.head() == head


def cluster_id(shop: Shop) -> str:
    """What the brokers say."""
    with Cluster(shop.servers) as cluster:
        return cluster.cluster_id()


def restore(shop: Shop, **more: Any) -> Any:
    request = RestoreRequest(**{"spec": shop.spec, "repository": shop.url, "transaction_wait": 0.0, **more})
    return run_restore(request, InProcessEngine())


def test_of_two_clusters_with_one_application_id_only_one_publishes_and_fetches(broker: Broker, tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as other:
        shop = Shop.small(broker.bootstrap_servers, tmp_path / "production")
        twin = Shop.small(other.bootstrap_servers, tmp_path / "test", application_id=shop.application_id, url=shop.url)
        shop.put({f"key-{number}": "production" for number in range(30)})
        twin.put({f"key-{number}": "test" for number in range(40)})  # ahead, so that no offset betrays it
        shop.checkpoint()
        newest = shop.app_repository.head().newest
        assert newest is not None
        assert shop.app_repository.manifest(newest).value.cluster_id == cluster_id(shop) != cluster_id(twin) != ""

        with refused(twin, shop):
            twin.checkpoint()
        with refused(twin, shop):
            restore(twin, plan_only=True)
        for start in ("none", "cheapest"):
            with refused(twin, shop):
                restore(twin, start_from=start)
        with refused(twin, shop):
            restore(twin, accept_cluster=cluster_id(shop))
        restore(twin, repository=None, state_dir=str(tmp_path / "state"))
        backup = BackupRequest(spec=twin.spec, repository=shop.url, state_dir=str(tmp_path / "state"))
        with refused(twin, shop):
            run_backup(backup)
        with refused(twin, shop):
            twin.fetched()

        shop.put({"more": "production"})
        shop.checkpoint()
        assert len(shop.snapshots()) == 2
        assert shop.fetched() == shop.restored()

        with refused(twin, shop):
            restore(twin, accept_cluster=cluster_id(twin), partitions=(0,))
        moved = restore(twin, accept_cluster=cluster_id(twin))
        assert [store.base for store in moved.stores] == [""], "no store of the other cluster"
        assert shop.snapshots()[0] == moved.published.snapshot
        assert twin.fetched() == twin.restored()
        twin.checkpoint()
        with refused(shop, twin):
            shop.checkpoint()
