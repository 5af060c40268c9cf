"""Content digests of fetched stores: from the snapshot, from the repository's digest files, or computed now."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from statecore import __version__
from statecore.errors import Corrupted, StatecoreError
from statecore.images.model import StoreDigest
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import save_digest, saved_digests


class FetchedContents:
    """Known content digests of stores, without reading the stores."""

    def __init__(self, repository: ApplicationRepository) -> None:
        self._repository = repository
        self._digests: dict[str, StoreDigest] = {}

    def look_up(self, stores: Iterable[StoreToFetch]) -> None:
        """Look up digests that the snapshot does not have; errors are ignored."""
        asked = {
            store.snapshot.identity for store in stores if not store.placed_empty and store.snapshot.content is None
        }
        with suppress(StatecoreError):
            self._digests.update(saved_digests(self._repository, sorted(asked)))

    def of(self, store: StoreToFetch) -> StoreDigest | None:
        """Digest of a store; ``None`` if unknown, and for a store that is placed empty."""
        if store.placed_empty:
            return None
        return store.snapshot.content or self._digests.get(store.snapshot.identity)

    def compare(self, store: StoreToFetch, built: StoreDigest | None) -> None:
        """Raise ``Corrupted`` if a built store differs from its known digest."""
        known = self.of(store)
        if store.placed_empty or known is None or built is None or known == built:
            return
        raise Corrupted(
            f"Store {store.snapshot.store!r} of task {store.task} has {built.rows:,} rows with digest {built.digest}; "
            f"the snapshot records {known.rows:,} with {known.digest}.",
            code="content-digest-mismatch",
            action=f"{self._repository.fallback_advice} Report this.",
            task=store.task,
            store=store.snapshot.store,
            expected=known.digest,
            found=built.digest,
        )

    def save(self, built: Iterable[tuple[StoreToFetch, StoreDigest | None]]) -> None:
        """Record computed digests in the repository for later fetches, unless a newer release has to write there.

        Errors (read-only access) are ignored.
        """
        found = {
            store.snapshot.identity: content
            for store, content in built
            if content is not None and not store.placed_empty and self.of(store) is None
        }
        if found and self._may_write():
            for identity, content in found.items():
                with suppress(StatecoreError):
                    save_digest(self._repository, identity, content, __version__)

    def _may_write(self) -> bool:
        try:
            head = self._repository.read_head()
            self._repository.check_needs(None if head is None else head.head)
        except StatecoreError:
            return False
        return True
