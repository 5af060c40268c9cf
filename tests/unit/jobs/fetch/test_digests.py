"""What the stores of a fetch hold is known or not, and what was known has to be what was built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.images.model import StoreDigest
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.repository.content_digests import save_digest, saved_digest
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD
from tests.harness.raising import raises
from tests.unit.jobs.published import Shop
from tests.unit.repository.encrypted import rewrite_sealed

ONE, OTHER = StoreDigest(3, 40, "c" * 32), StoreDigest(4, 50, "d" * 32)


def stores_of(shop: Shop) -> list[StoreToFetch]:
    newest = shop.app_repository.head().newest
    assert newest is not None
    parts = shop.app_repository.task_manifests(shop.app_repository.manifest(newest).value.task_manifests).values()
    return [
        StoreToFetch(read.manifest.task, store, placed_empty=False) for read in parts for store in read.manifest.stores
    ]


def test_what_the_snapshot_does_not_say_is_asked_for_and_what_is_found_out_is_kept(tmp_path: Path) -> None:
    shop = Shop(tmp_path, whole=False)
    shop.publish([50])
    known, unknown, *_ = stores_of(shop)
    save_digest(shop.app_repository, known.snapshot.identity, ONE, "tests")
    contents = FetchedContents(shop.app_repository)
    assert contents.of(known) is None
    contents.look_up([known, unknown])
    assert (contents.of(known), contents.of(unknown)) == (ONE, None)
    assert contents.of(replace(known, placed_empty=True)) is None
    contents.save([(known, OTHER), (unknown, OTHER), (replace(unknown, placed_empty=True), ONE)])
    assert saved_digest(shop.app_repository, known.snapshot.identity) == ONE, "what was known stays"
    assert saved_digest(shop.app_repository, unknown.snapshot.identity) == OTHER


def test_what_was_known_and_is_not_there_is_damage(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish([50])
    store = next(store for store in stores_of(shop) if store.snapshot.store == "plain")
    contents = FetchedContents(shop.app_repository)
    said = contents.of(store)
    assert said is not None
    for built in (said, None):
        contents.compare(store, built)
    contents.compare(replace(store, placed_empty=True), ONE)
    with raises(
        Corrupted, "content-digest-mismatch", task=store.task, store="plain", expected=said.digest, found=ONE.digest
    ):
        contents.compare(store, ONE)


@pytest.mark.parametrize("document", ["head", "descriptor"])
def test_what_is_found_out_is_not_kept_where_a_newer_release_has_to_write(tmp_path: Path, document: str) -> None:
    shop = Shop(tmp_path, whole=False)
    shop.publish([50])
    needs = {"read": [], "write": ["leases"]}
    if document == "head":
        rewrite_sealed(tmp_path / "repository" / shop.app_repository.names.head, HEAD, needs=needs)
    else:
        rewrite_sealed(tmp_path / "repository" / DESCRIPTOR_NAME, DESCRIPTOR, needs=needs)
    store = stores_of(shop)[0]
    FetchedContents(shop.app_repository).save([(store, ONE)])
    assert saved_digest(shop.app_repository, store.snapshot.identity) is None
