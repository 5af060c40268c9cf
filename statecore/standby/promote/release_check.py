"""Checks that the application's Kafka Streams release can open a standby copy, which has databases of 4.3 and later.

4.2 and older open no database with the column family for offsets. An empty directory does not tell the release.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT, OFFSETS_COLUMN_FAMILY
from statecore.spec.model import ApplicationSpec
from statecore.statedir.database_state import read_database_state
from statecore.statedir.store_places import StorePlace, declared_at


class WrittenBy:
    """Releases that wrote the stores of an application; each store is read once, when needed."""

    def __init__(self, application: ApplicationSpec, places: Mapping[str, Mapping[str, StorePlace]]) -> None:
        self._application, self._places = application, places
        self._releases_of = cache(self._read_releases)

    def refuse_older(self, task: str) -> None:
        """Refuse a task if older releases alone wrote its stores or, where these tell nothing, all others."""
        older, newer = self._releases_of(task)
        if not older and not newer:
            others = [self._releases_of(one) for one in self._places]
            if not any(is_newer for _, is_newer in others):
                older = next((one for one, _ in others if one), None)
        if older:
            raise Invalid(
                f"{older} was written by Kafka Streams 4.2 or older, which cannot open the databases of a standby "
                "copy: they have the format of 4.3 and later.",
                code="release-too-old",
                action=f"Run statecore migrate --to {CURRENT.name} on the application's directory, then this again. "
                "If the application stays on the older release, run statecore migrate --to that release before it "
                "starts.",
                task=task,
                path=str(older),
            )

    def _read_releases(self, task: str) -> tuple[Path | None, bool]:
        """A declared store of a task written by an older release, if any, and whether 4.3 or later wrote any."""
        older: Path | None = None
        newer = False
        for place in self._places.get(task, {}).values():
            store = declared_at(self._application, task, place.store)
            if store is None or store.kind is StoreKind.CUSTOM or store.kind.is_segmented is not place.segmented:
                continue
            for database in place.databases[-1:]:
                with suppress(Corrupted):
                    is_newer = OFFSETS_COLUMN_FAMILY in read_database_state(database).column_families
                    newer, older = newer or is_newer, older if is_newer else place.path
        return older, newer
