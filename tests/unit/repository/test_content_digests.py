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


def test_what_was_kept_is_known_and_of_others_nothing(app_repository: ApplicationRepository) -> None:
    assert saved_digest(app_repository, IDENTITY) is None
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    assert saved_digest(app_repository, IDENTITY) == CONTENT
    assert saved_digest(app_repository, OTHER) is None


def test_it_is_kept_once(app_repository: ApplicationRepository, storage: Storage, network: Network) -> None:
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    before = dict(storage.blobs)
    save_digest(app_repository, IDENTITY, CONTENT, "another release")
    assert storage.blobs == before


def test_what_was_damaged_is_not_known_and_is_found_out_again(
    app_repository: ApplicationRepository, storage: Storage
) -> None:
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    name = app_repository.names.content(IDENTITY)
    document = storage.blobs[name][0]
    for damaged in (*all_flips(document), document[:-9], b""):
        storage.blobs[name] = (damaged, 0.0)
        assert saved_digest(app_repository, IDENTITY) is None
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    assert saved_digest(app_repository, IDENTITY) == CONTENT


def test_what_is_known_of_another_store_is_not_known_of_this_one(
    app_repository: ApplicationRepository, storage: Storage
) -> None:
    save_digest(app_repository, OTHER, CONTENT, "tests")
    storage.blobs[app_repository.names.content(IDENTITY)] = storage.blobs[app_repository.names.content(OTHER)]
    assert saved_digest(app_repository, IDENTITY) is None


def test_digests_are_returned_for_the_stores_that_have_one(app_repository: ApplicationRepository) -> None:
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    assert saved_digests(app_repository, []) == {}
    assert saved_digests(app_repository, [OTHER, IDENTITY]) == {IDENTITY: CONTENT}


def test_an_unreachable_store_does_not_make_digests_unknown(
    app_repository: ApplicationRepository, network: Network
) -> None:
    save_digest(app_repository, IDENTITY, CONTENT, "tests")
    network.fault = lambda request, possible: "refused"  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        saved_digest(app_repository, IDENTITY)
    with pytest.raises(Retryable):
        saved_digests(app_repository, [OTHER, IDENTITY])
