"""Plan of a fetch: the stores that are placed, and the tasks that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecore.jobs.fetch.select import FoundSnapshot
from statecore.jobs.fetch.store_to_fetch import StoreToFetch, bytes_of_files


@dataclass(frozen=True)
class FetchPlan:
    """The plan for one snapshot.

    Attributes:
        kept: tasks that stay unchanged; see :meth:`without`.
        plan_id: digest of all that the request places, including what an earlier attempt placed: sixteen hex digits.
    """

    found: FoundSnapshot
    stores: tuple[StoreToFetch, ...]
    kept: tuple[str, ...]
    notes: tuple[str, ...]
    plan_id: str

    @property
    def file_bytes(self) -> int:
        """Bytes of the required files; a file shared by two stores counts once."""
        return bytes_of_files(self.stores)

    def without(self, tasks: Sequence[str]) -> FetchPlan:
        """The plan without tasks that an earlier attempt of the request placed."""
        placed = tuple(sorted(set(tasks) & {store.task for store in self.stores}))
        notes = (f"An earlier attempt of this request placed {', '.join(placed)}.",) if placed else ()
        rest = tuple(store for store in self.stores if store.task not in placed)
        return replace(self, stores=rest, kept=(*self.kept, *placed), notes=(*self.notes, *notes))
