"""What the stores of a fetch hold: as the snapshot says, as somebody has kept it beside, or as it is found out now."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from statecore import __version__
from statecore.errors import Corrupted, StatecoreError
from statecore.images.model import StoreDigest
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.content_digests import keep_content, known_contents


class FetchedContents:
    """What is known of stores without reading them.

    Args:
        shelf: where they come from.
    """

    def __init__(self, shelf: ApplicationRepository) -> None:
        self._shelf = shelf
        self._kept: dict[str, StoreDigest] = {}

    def look_for(self, stores: Iterable[StoreToFetch]) -> None:
        """Ask of those of which the snapshot does not know it; in vain where nobody can look."""
        asked = {store.snapshot.identity for store in stores if not store.left and store.snapshot.content is None}
        with suppress(StatecoreError):
            self._kept.update(known_contents(self._shelf, sorted(asked)))

    def of(self, store: StoreToFetch) -> StoreDigest | None:
        """What a store holds; ``None`` where nobody knows, and of one that is placed empty."""
        if store.left:
            return None
        return store.snapshot.content or self._kept.get(store.snapshot.identity)

    def compare(self, store: StoreToFetch, built: StoreDigest | None) -> None:
        """Make sure that what was known of a store is what was built.

        Raises:
            Corrupted: it is not.
        """
        said = self.of(store)
        if store.left or said is None or built is None or said == built:
            return
        raise Corrupted(
            f"Store {store.snapshot.store!r} of task {store.task} holds {built.rows} rows with digest {built.digest}, "
            f"and the snapshot says {said.rows} with {said.digest}.",
            code="content-digest-mismatch",
            action=f"{self._shelf.instead} Report this.",
            task=store.task,
            store=store.snapshot.store,
            expected=said.digest,
            found=built.digest,
        )

    def keep(self, built: Iterable[tuple[StoreToFetch, StoreDigest | None]]) -> None:
        """Keep what was found out of stores, for the next one; in vain for who may only read."""
        for store, content in built:
            if content is not None and not store.left and self.of(store) is None:
                with suppress(StatecoreError):
                    keep_content(self._shelf, store.snapshot.identity, content, __version__)
