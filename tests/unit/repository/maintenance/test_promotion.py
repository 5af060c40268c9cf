"""A replica becomes a primary: no copy goes into it any more, and what copies knew of its heads is void."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from statecore.documents import encode_json
from statecore.errors import Fenced, Invalid
from statecore.faults import REPLICA_PROMOTION_POINTS, FaultInjected, InjectedFault
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, Role
from statecore.repository.head import HEAD, Retention
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.copier import Copier
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_ancestry import EPOCHS_OF_PROMOTION
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin
from statecore.repository.maintenance.promotion import PromotionPlan, plan_promotion, promote
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import Repository, create_replica, create_repository, open_repository
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import fetched


class Pair:
    """A primary of two applications, and its replica."""

    def __init__(self, directory: Path) -> None:
        self.primary_url, self.url = (directory / "primary").as_uri(), (directory / "replica").as_uri()
        self.path = directory / "replica"
        self._scratch = directory
        for name in ("orders", "payments"):
            Publishing(self.primary_url, directory, name).publish(10)
        self.copy()

    def copy(self) -> None:
        source = open_repository(self.primary_url)
        replica = create_replica(object_store_of(self.url), source).repository
        for name in ("orders", "payments"):
            assert Copier(ApplicationRepository(source, name), ApplicationRepository(replica, name)).run().error is None

    @property
    def replica(self) -> Repository:
        return open_repository(self.url)

    def publishing(self, name: str = "orders") -> Publishing:
        return Publishing(self.url, self._scratch, name)

    @property
    def epochs(self) -> list[int]:
        return [ApplicationRepository(self.replica, name).head().epoch for name in ("orders", "payments")]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_promoted_replica_is_published_to_and_not_copied_into(pair: Pair) -> None:
    with raises(Invalid, "repository-is-replica"):
        pair.publishing().begin()
    assert list(plan_promotion(pair.replica).heads) == ["orders", "payments"]
    assert (pair.epochs, pair.replica.descriptor.role) == ([0, 0], Role.REPLICA)
    assert plan_promotion(pair.replica) == promote(pair.replica)
    descriptor = pair.replica.descriptor
    assert (pair.epochs, descriptor.role, descriptor.copy_of) == (
        [EPOCHS_OF_PROMOTION, EPOCHS_OF_PROMOTION],
        Role.PRIMARY,
        "",
    )
    assert descriptor.id == open_repository(pair.primary_url).descriptor.id
    orders = pair.publishing()
    assert orders.publish(10).earlier
    assert orders.publish(20).snapshot == orders.app_repository.head().snapshots[0].snapshot
    assert len(fetched(orders.app_repository)) == 2
    with raises(Invalid, "copy-target-invalid"):
        pair.copy()
    assert promote(pair.replica) == PromotionPlan("")
    assert pair.epochs == [EPOCHS_OF_PROMOTION, EPOCHS_OF_PROMOTION]


def test_pins_and_the_retention_of_a_promoted_replica_survive_the_loss_of_its_head(pair: Pair) -> None:
    primary = Publishing(pair.primary_url, pair.path.parent)
    pinned = primary.publish(20).snapshot
    pin(primary.app_repository, pinned, "audit")
    forget(primary.app_repository, Retention(last=3, monthly=24))
    pair.copy()
    promote(pair.replica)
    (pair.path / "apps/orders/HEAD").unlink()
    orders = ApplicationRepository(pair.replica, "orders")
    apply_repair(orders, plan_repair(orders))
    head = orders.head()
    assert [(one.snapshot, one.note) for one in head.snapshots if one.pinned] == [(pinned, "audit")]
    assert head.keep == Retention(last=3, monthly=24)


def test_what_an_unfinished_copy_has_left_shows_no_head_that_has_gone_back(pair: Pair) -> None:
    primary = Publishing(pair.primary_url, pair.path.parent)
    (pair.path.parent / "primary/apps/orders/HEAD").unlink()
    apply_repair(primary.app_repository, plan_repair(primary.app_repository))
    for end in (20, 30, 40):
        primary.publish(end)
    source, replica = open_repository(pair.primary_url), pair.replica
    with pytest.raises(FaultInjected):
        Copier(
            ApplicationRepository(source, "orders"),
            ApplicationRepository(replica, "orders"),
            faults=InjectedFault("copy.before-head"),
        ).run()
    promote(pair.replica)
    orders = pair.publishing()
    mine = orders.publish(50).snapshot
    Collector(orders.app_repository, min_age_ms=0).run()
    assert plan_repair(orders.app_repository).problem is None
    assert orders.app_repository.head().snapshots[0].snapshot == mine


@pytest.mark.parametrize("point", REPLICA_PROMOTION_POINTS)
def test_a_killed_promotion_is_gone_on_with(pair: Pair, point: str) -> None:
    with pytest.raises(FaultInjected):
        promote(pair.replica, InjectedFault(point))
    with raises(Invalid, "copy-target-invalid"):
        pair.copy()
    promote(pair.replica)
    assert min(pair.epochs) > 0
    assert not plan_promotion(pair.replica).copy_of
    pair.publishing("payments").publish(20)


def test_a_copy_that_began_before_is_fenced(pair: Pair) -> None:
    source, replica = open_repository(pair.primary_url), pair.replica
    Publishing(pair.primary_url, pair.path.parent).publish(20)
    promote(pair.replica)
    for name in ("orders", "payments"):
        error = Copier(ApplicationRepository(source, name), ApplicationRepository(replica, name)).run().error
        assert error is not None
        assert error.code == "replica-diverged"
    (pair.path / "apps/orders/HEAD").unlink()
    with raises(Fenced, "repository-replaced"):
        Copier(ApplicationRepository(source, "orders"), ApplicationRepository(replica, "orders")).run()


def test_a_damaged_head_is_left_to_a_repair(pair: Pair) -> None:
    (pair.path / "apps/orders/HEAD").write_bytes(b"{}")
    assert plan_promotion(pair.replica).damaged["orders"].code == "head-damaged"
    done = promote(pair.replica)
    assert (list(done.damaged), list(done.heads)) == (["orders"], ["payments"])
    orders = ApplicationRepository(pair.replica, "orders")
    apply_repair(orders, plan_repair(orders))
    assert pair.epochs == [1, EPOCHS_OF_PROMOTION]


@pytest.mark.parametrize("target", ["the source", "a primary", "another replica"])
def test_what_is_no_replica_of_the_source_is_refused(pair: Pair, tmp_path: Path, target: str) -> None:
    source = open_repository(pair.primary_url)
    url = {"the source": pair.primary_url}.get(target, (tmp_path / "other").as_uri())
    if target == "a primary":
        create_repository(url)
    if target == "another replica":
        create_repository((tmp_path / "another").as_uri())
        create_replica(object_store_of(url), open_repository((tmp_path / "another").as_uri()))
    before = object_store_of(url).blobs.get(DESCRIPTOR_NAME)
    with raises(Invalid, "copy-target-invalid"):
        create_replica(object_store_of(url), source)
    assert object_store_of(url).blobs.get(DESCRIPTOR_NAME) == before


@pytest.mark.parametrize("other", ["options", "link", "way"])
def test_a_replica_of_itself_by_another_url_is_refused(pair: Pair, tmp_path: Path, other: str) -> None:
    replica = pair.replica.object_store
    path = Path(urlsplit(replica.url).path)
    (tmp_path / "link").symlink_to(path)
    urls = {"options": f"{replica.url}?copy=1", "link": (tmp_path / "link").as_uri()}
    url = urls.get(other, f"{path.parent.as_uri()}/absent/../{path.name}")
    before = replica.blobs.get(DESCRIPTOR_NAME)
    with raises(Invalid, "copy-target-invalid"):
        create_replica(object_store_of(url), pair.replica)
    assert replica.blobs.get(DESCRIPTOR_NAME) == before


def test_heads_of_another_repository_are_refused_before_anything_is_put(pair: Pair, tmp_path: Path) -> None:
    other = Publishing((tmp_path / "other").as_uri(), tmp_path)
    other.publish(10)
    (tmp_path / "other" / DESCRIPTOR_NAME).unlink()
    with raises(Invalid, "copy-target-invalid"):
        create_replica(object_store_of((tmp_path / "other").as_uri()), open_repository(pair.primary_url))
    assert not (tmp_path / "other" / DESCRIPTOR_NAME).exists()


def test_a_lost_descriptor_is_made_again_by_a_copy(pair: Pair) -> None:
    (pair.path / DESCRIPTOR_NAME).unlink()
    pair.copy()
    assert (pair.replica.descriptor.role, pair.replica.descriptor.copy_of) == (Role.REPLICA, pair.primary_url)


def test_unknown_fields_of_a_descriptor_survive(pair: Pair) -> None:
    path = pair.path / DESCRIPTOR_NAME
    document = {**DESCRIPTOR.to_json(replace(pair.replica.descriptor)), "colour": "red"}
    path.write_bytes(json.dumps(DESCRIPTOR.sealed(document)).encode())
    promote(pair.replica)
    assert json.loads(path.read_bytes())["colour"] == "red"


@pytest.mark.parametrize("of", ["descriptor", "head"])
@pytest.mark.parametrize("needs", [{"read": ["later"], "write": []}, {"read": [], "write": ["later"]}])
def test_what_a_newer_release_has_to_do_is_refused_before_anything_is_changed(
    pair: Pair, of: str, needs: dict[str, list[str]]
) -> None:
    replica = pair.replica
    kind, path = (DESCRIPTOR, DESCRIPTOR_NAME) if of == "descriptor" else (HEAD, "apps/payments/HEAD")
    document = json.loads((pair.path / path).read_bytes()) | {"needs": needs}
    (pair.path / path).write_bytes(encode_json(kind.sealed(document)))
    before = files(pair.path)
    with raises(Invalid, "format-unsupported"):
        promote(pair.replica if of == "descriptor" else replica)
    assert files(pair.path) == before


def files(path: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
