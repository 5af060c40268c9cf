"""What a fetch does with the tasks of a snapshot: which are placed, which are kept, and what is to be said of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.jobs.fetch_request import FetchRequest
from statecore.jobs.fetch_snapshot import FoundSnapshot
from statecore.jobs.store_to_fetch import StoreToFetch, stores_to_fetch
from statecore.placement.state_directory import StateDirectory
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec


@dataclass(frozen=True)
class Todo:
    """What is done with one snapshot.

    Attributes:
        found: the snapshot.
        stores: what is placed.
        kept: tasks that are left as they are.
        notes: what the operator should know of that.
        plan_id: digest of all that the request places, also of what an earlier try has placed: sixteen hex digits.
    """

    found: FoundSnapshot
    stores: tuple[StoreToFetch, ...]
    kept: tuple[str, ...]
    notes: tuple[str, ...]
    plan_id: str

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that are needed; one that two stores have counts once."""
        return sum({one.sha256: one.extent.bytes for store in self.stores for one in store.wanted}.values())

    def without(self, tasks: Sequence[str]) -> Todo:
        """All but some tasks, which an earlier try of the request has placed."""
        placed = tuple(sorted(set(tasks) & {store.task for store in self.stores}))
        notes = (f"An earlier try of this request has placed {', '.join(placed)}.",) if placed else ()
        rest = tuple(store for store in self.stores if store.task not in placed)
        return replace(self, stores=rest, kept=(*self.kept, *placed), notes=(*self.notes, *notes))


def todo_of(
    found: FoundSnapshot, request: FetchRequest, directory: StateDirectory, declared: ApplicationSpec | None
) -> Todo:
    """What is done with a snapshot.

    Args:
        found: the snapshot, with the tasks that are asked for.
        request: whether what is there is replaced.
        directory: what is there.
        declared: the spec that was given, if one was.

    Raises:
        Invalid: the spec declares a store as something else than it is.
    """
    stores = stores_to_fetch(found.parts.values(), request.versioned)
    _refuse_redeclared(stores, declared)
    there = {store.key for store in stores if _is_there(store, directory)}
    kept = set() if request.replace else {task for task, _ in there}
    rest = tuple(store for store in stores if store.task not in kept)
    notes = []
    if kept:
        notes.append(
            f"The directory has {', '.join(sorted(kept))} already, kept as it is; --replace replaces what is there."
        )
    notes += [
        f"Task {store.task}, which is kept, lacks the store {store.snapshot.store}; Kafka Streams restores it."
        for store in stores
        if store.task in kept and store.key not in there and not store.left
    ]
    if not stores:
        notes.append("The snapshot has nothing of what was asked for: this instance has no share of it.")
    left = sorted({store.snapshot.store for store in rest if store.left})
    if left:
        notes.append(f"Placed empty, for Kafka Streams to restore: {', '.join(left)}.")
    if declared is not None and declared.processing_guarantee is not found.spec.processing_guarantee:
        notes.append(
            f"The snapshot was made under {found.spec.processing_guarantee}, and the spec says "
            f"{declared.processing_guarantee}."
        )
    return Todo(found, rest, tuple(sorted(kept)), tuple(notes), _digest(rest))


def _digest(stores: Sequence[StoreToFetch]) -> str:
    document = [
        [*store.key, store.snapshot.identity, sorted([str(part), offset] for part, offset in store.offsets.items())]
        for store in stores
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:16]


def _is_there(store: StoreToFetch, directory: StateDirectory) -> bool:
    path = directory.store_path(store.task, store.snapshot.store, store.snapshot.kind)
    return any(path.iterdir()) if path.is_dir() else path.exists()


def declared_spec(request: FetchRequest) -> ApplicationSpec | None:
    """The spec that was given, if one was.

    Raises:
        Invalid: it is of another application, or is none.
        NotFound: there is no such file.
    """
    if request.spec_path is None:
        return None
    spec = load_spec(request.spec_path)
    if spec.application_id != request.application_id:
        raise Invalid(
            f"{request.spec_path} is the spec of {spec.application_id}, and {request.application_id} was asked for.",
            action="Give the spec of this application, or its application id.",
        )
    return spec


def _refuse_redeclared(stores: Sequence[StoreToFetch], declared: ApplicationSpec | None) -> None:
    """Refuse what Kafka Streams would open as another kind than it is."""
    for store in stores:
        known = None if declared is None else declared.store(store.snapshot.store)
        if known is not None and known.kind not in (store.snapshot.kind, StoreKind.UNKNOWN):
            raise Invalid(
                f"The snapshot has store {store.snapshot.store!r} as {store.snapshot.kind}, and the spec declares it "
                f"as {known.kind}.",
                action="Correct the spec; where the application has changed, rebuild the store from its changelog "
                "(statecore restore).",
                store=store.snapshot.store,
            )
