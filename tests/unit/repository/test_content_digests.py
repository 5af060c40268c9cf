"""What stores hold is known or not known, and never a guess."""

from __future__ import annotations

import pytest

from statecore.errors import Retryable
from statecore.images.model import StoreDigest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import save_digest, saved_digest, saved_digests
from tests.harness.simulated_store import Network, Storage, all_flips

IDENTITY, OTHER = "a" * 64, "b" * 64
CONTENT = StoreDigest(3, 40, "c" * 32)


def test_what_was_kept_is_known_and_of_others_nothing(shelf: ApplicationRepository) -> None:
    assert saved_digest(shelf, IDENTITY) is None
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    assert saved_digest(shelf, IDENTITY) == CONTENT
    assert saved_digest(shelf, OTHER) is None


def test_it_is_kept_once(shelf: ApplicationRepository, storage: Storage, network: Network) -> None:
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    before = dict(storage.blobs)
    save_digest(shelf, IDENTITY, CONTENT, "another release")
    assert storage.blobs == before


def test_what_was_damaged_is_not_known_and_is_found_out_again(shelf: ApplicationRepository, storage: Storage) -> None:
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    name = shelf.names.content(IDENTITY)
    document = storage.blobs[name][0]
    for damaged in (*all_flips(document), document[:-9], b""):
        storage.blobs[name] = (damaged, 0.0)
        assert saved_digest(shelf, IDENTITY) is None
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    assert saved_digest(shelf, IDENTITY) == CONTENT


def test_what_is_known_of_another_store_is_not_known_of_this_one(
    shelf: ApplicationRepository, storage: Storage
) -> None:
    save_digest(shelf, OTHER, CONTENT, "tests")
    storage.blobs[shelf.names.content(IDENTITY)] = storage.blobs[shelf.names.content(OTHER)]
    assert saved_digest(shelf, IDENTITY) is None


def test_of_several_stores_those_that_are_known_are_told(shelf: ApplicationRepository) -> None:
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    assert saved_digests(shelf, []) == {}
    assert saved_digests(shelf, [OTHER, IDENTITY]) == {IDENTITY: CONTENT}


def test_who_could_not_look_does_not_say_that_nothing_is_known(shelf: ApplicationRepository, network: Network) -> None:
    save_digest(shelf, IDENTITY, CONTENT, "tests")
    network.fault = lambda request, possible: "refused"  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        saved_digest(shelf, IDENTITY)
    with pytest.raises(Retryable):
        saved_digests(shelf, [OTHER, IDENTITY])
