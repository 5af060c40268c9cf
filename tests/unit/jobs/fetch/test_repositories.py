"""From which of several repositories a fetch takes a snapshot."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head
from statecore.repository.maintenance.copier import Copier, CopyOutcome
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import create_replica
from tests.unit.jobs.fetch.fetching import fetch, files_of, flipped, refused
from tests.unit.jobs.published import CUT, Shop, expected, rows_in


class Replica:
    """A replica of a shop's repository."""

    def __init__(self, shop: Shop, path: Path) -> None:
        self._shop, self.path, self.url = shop, path, path.as_uri()
        self.copy()

    def copy(self) -> None:
        source = self._shop.app_repository
        replica = create_replica(object_store_of(self.url), source.repository).repository
        assert Copier(source, ApplicationRepository(replica, "orders")).run().outcome is CopyOutcome.COPIED


@pytest.fixture
def replica(own_shop: Shop, tmp_path: Path) -> Replica:
    return Replica(own_shop, tmp_path / "replica")


def test_of_equal_repositories_the_first_is_taken(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    report = fetch(own_shop, state_dir, replicas=(replica.url,), plan_only=True)
    assert (report.repository, report.skipped_snapshots) == (own_shop.url, ())


def test_a_replica_is_taken_when_the_first_is_gone(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    newest = own_shop.app_repository.head().snapshots[0].snapshot
    shutil.rmtree(own_shop.root / "repository")
    report = fetch(own_shop, state_dir, replicas=(replica.url,))
    assert (report.repository, report.snapshot) == (replica.url, newest)
    assert rows_in(state_dir) == expected(300)


@pytest.mark.parametrize("where", ["HEAD", "manifests"])
def test_a_replica_is_taken_when_the_first_is_damaged(
    own_shop: Shop, replica: Replica, state_dir: Path, where: str
) -> None:
    newest = own_shop.app_repository.head().snapshots[0].snapshot
    place = own_shop.root / "repository/apps/orders" / where
    for path in place.iterdir() if place.is_dir() else [place]:
        flipped(path)
    report = fetch(own_shop, state_dir, replicas=(replica.url,), plan_only=True)
    assert (report.repository, report.snapshot) == (replica.url, newest)


def test_a_replica_is_taken_when_the_first_does_not_answer(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    class Silent(ApplicationRepository):
        def read_head(self) -> None:
            raise Retryable("It does not answer.", code="object-store-unreachable", action="Try again.")

    silent = Silent(own_shop.app_repository.repository, "orders")
    report = fetch(own_shop, state_dir, app_repository=silent, replicas=(replica.url,), plan_only=True)
    assert report.repository == replica.url
    nowhere = (replica.path / "nowhere").as_uri()
    refused(Retryable, "object-store-unreachable", own_shop, state_dir, app_repository=silent, replicas=(nowhere,))


def test_the_newest_snapshot_is_taken(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    third = Shop(own_shop.root, _made=2).publish([350], cut=1_795_252_600.0).snapshot
    assert fetch(own_shop, state_dir, replicas=(replica.url,), plan_only=True).repository == own_shop.url
    other = Shop(own_shop.root)
    (own_shop.root / "repository").rename(own_shop.root / "newer")
    replica.path.rename(own_shop.root / "repository")
    newer = (own_shop.root / "newer").as_uri()
    report = fetch(other, state_dir, replicas=(newer,), plan_only=True)
    assert (report.repository, report.snapshot) == (newer, third)


def test_files_that_are_damaged_are_taken_from_the_replica(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    newest = own_shop.app_repository.head().snapshots[0].snapshot
    flipped(files_of(own_shop)["file"])
    report = fetch(own_shop, state_dir, replicas=(replica.url,))
    assert (report.repository, report.snapshot) == (replica.url, newest)
    assert rows_in(state_dir) == expected(300)


@pytest.mark.parametrize("kind", [Invalid, Retryable])
@pytest.mark.parametrize("plan_only", [False, True])
def test_files_that_a_repository_does_not_give_are_taken_from_the_replica(
    own_shop: Shop,
    replica: Replica,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[StatecoreError],
    plan_only: bool,
) -> None:
    """As of objects that were archived, or whose key is gone; the documents can be read."""
    primary = ApplicationRepository.open(own_shop.url, "orders")

    def without_files(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(name: str, *rest: Any) -> Any:
            if "/files/" in name or "/packs/" in name:
                raise kind("It is not given.", code="object-store-refused", action="Ask again.", blob=name)
            return method(name, *rest)

        return call

    for method in ("get", "head"):
        monkeypatch.setattr(primary.blobs, method, without_files(getattr(primary.blobs, method)))
    fetched = {"app_repository": primary, "plan_only": plan_only}
    report = fetch(own_shop, state_dir, replicas=(replica.url,), **fetched)
    newest = primary.head().snapshots[0].snapshot
    assert (report.repository, report.snapshot, report.skipped_snapshots) == (replica.url, newest, ())
    assert plan_only or rows_in(state_dir) == expected(300)
    nowhere = (replica.path / "nowhere").as_uri()
    for replicas in ((), (nowhere,)):
        other = state_dir.with_name(f"other-{len(replicas)}")
        refused(kind, "object-store-refused", own_shop, other, replicas=replicas, **fetched)


def test_a_repository_whose_snapshot_is_damaged_is_not_said_to_lack_it(
    own_shop: Shop, replica: Replica, state_dir: Path
) -> None:
    flipped(files_of(own_shop)["file"])
    report = fetch(own_shop, state_dir, replicas=(replica.url,))
    (why,) = [note for note in report.notes if replica.url in note and own_shop.url in note]
    newest, older, *_ = own_shop.app_repository.head().snapshots
    assert (newest.snapshot in why, older.snapshot in why) == (True, False)


def test_only_where_all_have_none_there_is_none(own_shop: Shop, replica: Replica, state_dir: Path) -> None:
    shutil.rmtree(own_shop.root / "repository")
    flipped(replica.path / "apps/orders/HEAD")
    refused(Corrupted, "head-damaged", own_shop, state_dir, replicas=(replica.url,))
    shutil.rmtree(replica.path)
    refused(NotFound, "repository-not-found", own_shop, state_dir, replicas=(replica.url,))


def test_of_a_primary_and_its_replica_that_is_taken_which_is_further_whatever_the_clocks_said(
    own_shop: Shop, replica: Replica, state_dir: Path
) -> None:
    own_shop.publish([300], cut=CUT + 10_000)
    replica.copy()
    newest = own_shop.publish([400]).snapshot
    made = [entry.created_at for entry in own_shop.app_repository.head().snapshots]
    assert made[0] < made[1]
    report = fetch(own_shop, state_dir, replicas=(replica.url,), plan_only=True)
    assert (report.repository, report.snapshot) == (own_shop.url, newest)


def test_where_a_repair_has_decided_that_is_taken_which_was_published_last(
    own_shop: Shop, replica: Replica, state_dir: Path
) -> None:
    """The replica still has what the repair of the primary has left out."""
    published_last = own_shop.publish([300], cut=CUT + 10_000).snapshot
    own_shop.publish([400])
    replica.copy()

    def repaired(head: Head) -> Head:
        return replace(head, epoch=head.epoch + 1, generation=head.generation + 1, snapshots=head.snapshots[1:])

    own_shop.app_repository.change_head(repaired)
    report = fetch(own_shop, state_dir, replicas=(replica.url,), plan_only=True)
    assert (report.repository, report.snapshot) == (own_shop.url, published_last)
