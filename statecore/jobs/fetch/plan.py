"""What a fetch does with the tasks of a snapshot: which are placed, which are kept, and what is to be said of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecore.errors import Invalid, NotFound
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot
from statecore.jobs.fetch.store_to_fetch import StoreToFetch, stores_to_fetch
from statecore.repository.compatibility import GUARANTEE, Difference, differences
from statecore.spec.derived import retention_of
from statecore.spec.duration import format_duration
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec
from statecore.statedir.state_directory import StateDirectory

_SHOWN = 5


@dataclass(frozen=True)
class FetchPlan:
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

    def without(self, tasks: Sequence[str]) -> FetchPlan:
        """All but some tasks, which an earlier try of the request has placed."""
        placed = tuple(sorted(set(tasks) & {store.task for store in self.stores}))
        notes = (f"An earlier try of this request has placed {', '.join(placed)}.",) if placed else ()
        rest = tuple(store for store in self.stores if store.task not in placed)
        return replace(self, stores=rest, kept=(*self.kept, *placed), notes=(*self.notes, *notes))


def todo_of(
    found: FoundSnapshot,
    request: FetchRequest,
    directory: StateDirectory,
    declared: ApplicationSpec | None,
    newest: ApplicationSpec,
) -> FetchPlan:
    """What is done with a snapshot.

    Args:
        found: the snapshot, with the tasks that are asked for.
        request: whether what is there is replaced.
        directory: what is there.
        declared: the spec that was given, if one was.
        newest: that of the snapshot that was looked at first.

    Raises:
        Invalid: the spec declares a store that is to be placed as something else than it is.
    """
    stores = stores_to_fetch(found.parts.values(), request.versioned)
    there = {store.key for store in stores if _is_there(store, directory)}
    kept = set() if request.replace else {task for task, _ in there}
    rest = tuple(store for store in stores if store.task not in kept)
    _refuse_redeclared(found, rest, declared, newest)
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
    if declared is not None:
        notes += _harmless(found, rest, declared)
    return FetchPlan(found, rest, tuple(sorted(kept)), tuple(notes), _digest(rest))


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
        Invalid: there is no such file, it cannot be read, it is of another application, or it is no spec.
    """
    if request.spec_path is None:
        return None
    try:
        spec = load_spec(request.spec_path)
    except NotFound as error:  # which would say that there is no snapshot
        raise Invalid(
            error.what, code="spec-missing", action="Name the file, or see why it is not there.", **error.context
        ) from error
    if spec.application_id != request.application_id:
        raise Invalid(
            f"{request.spec_path} is the spec of {spec.application_id}, and {request.application_id} was asked for.",
            code="spec-application-mismatch",
            action="Give the spec of this application, or its application id.",
            application_id=request.application_id,
            found=spec.application_id,
        )
    return spec


def _refuse_redeclared(
    found: FoundSnapshot, stores: Sequence[StoreToFetch], declared: ApplicationSpec | None, newest: ApplicationSpec
) -> None:
    """Refuse what Kafka Streams would not find, or would take for something else than it is.

    Where no spec was given, that of the newest snapshot counts as far as rows of aborted transactions go: tasks that it
    took over, and older snapshots, may be from before the application was made exactly-once.
    """
    tasks: dict[tuple[str, Difference], list[str]] = {}
    for store in stores:
        for difference in differences(store.task, store.snapshot, declared or newest, empty=store.left):
            if declared is not None or difference.what == GUARANTEE:
                tasks.setdefault((store.snapshot.store, difference), []).append(store.task)
    if not tasks:
        return
    lines = [
        f"store {store!r} ({', '.join(its[:_SHOWN])}{', ...' if len(its) > _SHOWN else ''}): its {one.what} is "
        f"{one.there} there, and the spec declares {one.declared}"
        for (store, one), its in tasks.items()
    ]
    problems = [
        {"store": store, "tasks": its, "property": one.what, "found": one.there, "declared": one.declared}
        for (store, one), its in tasks.items()
    ]
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    if declared is not None:
        wrong, code = (
            f"The snapshot {found.entry.snapshot} is not of the application that {declared.source} declares",
            "snapshot-spec-mismatch",
        )
    else:
        wrong, code = (
            f"The snapshot {found.entry.snapshot} has tasks from before its application was made exactly-once",
            "snapshot-before-exactly-once",
        )
    raise Invalid(
        f"{wrong}:\n  " + "\n  ".join([*lines[:_SHOWN], *more]) + "\n",
        code=code,
        action="Correct the spec where it is wrong. Where the application has changed, publish a snapshot of what it "
        "is now (statecore restore --repository), or let Kafka Streams restore these tasks.",
        snapshot=found.entry.snapshot,
        problems=problems,
    )


def _harmless(found: FoundSnapshot, stores: Sequence[StoreToFetch], declared: ApplicationSpec) -> list[str]:
    """What is not as it is declared, and does no harm."""
    notes = []
    absent = sorted({store.snapshot.store for store in stores if declared.store(store.snapshot.store) is None})
    if absent:
        notes.append(
            f"The spec does not declare {', '.join(absent)}, which the snapshot has: placed as it is. If the "
            "application has it no more, it takes room and no more than that."
        )
    shorter = {}
    for store in stores:
        known = declared.store(store.snapshot.store)
        retention = None if known is None or store.left else retention_of(known)
        if retention is not None and (store.snapshot.retention_ms or 0) > retention:
            shorter[store.snapshot.store] = (store.snapshot.retention_ms or 0, retention)
    notes += [
        f"The snapshot keeps rows of {store} for {format_duration(there)}, and the spec says {format_duration(now)}: "
        "Kafka Streams lets the older ones expire."
        for store, (there, now) in sorted(shorter.items())
    ]
    if stores and declared.processing_guarantee is not found.spec.processing_guarantee:
        notes.append(
            f"The snapshot was made under {found.spec.processing_guarantee}, and the spec says "
            f"{declared.processing_guarantee}."
        )
    return notes
