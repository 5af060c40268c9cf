"""Plans a fetch: which tasks of a snapshot are placed, which are kept, and how; notes for the operator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress

from statecore.errors import Invalid, StatecoreError
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.select import FoundSnapshot
from statecore.jobs.fetch.store_to_fetch import StoreToFetch, stores_to_fetch
from statecore.repository.compatibility import GUARANTEE, Difference, differences
from statecore.spec.model import ApplicationSpec, retention_of
from statecore.spec.units import format_duration
from statecore.statedir.manifest_check import check_manifest
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import StoreDirectory, why_partially_deleted
from statecore.words import WARNING, shortened_list

_SHOWN = 5


def plan_fetch(
    found: FoundSnapshot,
    request: FetchRequest,
    directory: StateDirectory,
    declared: ApplicationSpec | None,
    newest: ApplicationSpec,
) -> FetchPlan:
    stores = stores_to_fetch(found.task_manifests.values(), request.versioned)
    existing = {store.key for store in stores if _exists(store, directory)}
    kept = set() if request.replace else {task for task, _ in existing}
    rest = tuple(store for store in stores if store.task not in kept)
    _refuse_redeclared(found, rest, declared, newest)
    notes = []
    if kept:
        notes.append("Tasks that the directory already has are kept; use --replace to replace them.")
    notes += [
        f"The kept task {store.task} lacks the store {store.snapshot.store}; Kafka Streams restores it."
        for store in stores
        if store.task in kept and store.key not in existing and not store.placed_empty
    ]
    if kept and not (request.plan_only and directory.in_use_by()):  # files of a running application come and go
        notes += _damage_notes([store for store in stores if store.key in existing], directory)
    if not stores:
        notes.append("The snapshot has no task for this instance.")
    left = sorted({store.snapshot.store for store in rest if store.placed_empty})
    if left:
        notes.append(f"Placed empty, for Kafka Streams to restore: {', '.join(left)}.")
    if declared is not None:
        notes += _difference_notes(found, rest, declared)
    return FetchPlan(found, rest, tuple(sorted(kept)), tuple(notes), _digest(rest))


def _digest(stores: Sequence[StoreToFetch]) -> str:
    document = [
        [*store.key, store.snapshot.identity, sorted([str(part), offset] for part, offset in store.offsets.items())]
        for store in stores
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:16]


def _exists(store: StoreToFetch, directory: StateDirectory) -> bool:
    path = directory.store_path(store.task, store.snapshot.store, store.snapshot.kind)
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _damage_notes(stores: Sequence[StoreToFetch], directory: StateDirectory) -> list[str]:
    """Warnings of kept stores whose files cannot be whole, by names and MANIFEST alone: no database is opened.

    They are no error: an init container would keep the application from starting with its other tasks.
    """
    notes = []
    for store in sorted(stores, key=lambda store: store.key):
        with suppress(StatecoreError):  # this user may not read it
            if why := _why_damaged(store, directory):
                notes.append(
                    f"{WARNING}the kept store {store.snapshot.store} of task {store.task} is damaged: {why} statecore "
                    f"doctor --state-dir {directory.state_dir} says what the application would do; --task {store.task} "
                    "--replace replaces the task."
                )
    return notes


def _why_damaged(store: StoreToFetch, directory: StateDirectory) -> str:
    name, kind = store.snapshot.store, store.snapshot.kind
    place = StoreDirectory(name, directory.store_path(store.task, name, kind), kind.is_segmented)
    if why := why_partially_deleted(place, store.snapshot.segmentation):
        return why
    for database in place.databases:
        checked = check_manifest(database, None)
        if checked is not None and checked.missing:
            return f"{database} lacks {shortened_list(checked.missing, _SHOWN)}, which its MANIFEST names."
    return ""


def _refuse_redeclared(
    found: FoundSnapshot, stores: Sequence[StoreToFetch], declared: ApplicationSpec | None, newest: ApplicationSpec
) -> None:
    """Refuse stores that Kafka Streams would not find, or would open with other properties.

    Without a given spec, the newest snapshot's processing guarantee counts: tasks that it inherited, and older
    snapshots, may have rows of aborted transactions from before the application was made exactly-once.
    """
    tasks: dict[tuple[str, Difference], list[str]] = {}
    for store in stores:
        for difference in differences(store.task, store.snapshot, declared or newest, empty=store.placed_empty):
            if declared is not None or difference.what == GUARANTEE:
                tasks.setdefault((store.snapshot.store, difference), []).append(store.task)
    if not tasks:
        return
    lines = [
        f"store {store!r} ({', '.join(its[:_SHOWN])}{', ...' if len(its) > _SHOWN else ''}): its {one.what} is "
        f"{one.found} there, and the spec declares {one.declared}"
        for (store, one), its in tasks.items()
    ]
    problems = [
        {"store": store, "tasks": its, "property": one.what, "found": one.found, "declared": one.declared}
        for (store, one), its in tasks.items()
    ]
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    if declared is not None:
        wrong, code = (
            f"The snapshot {found.entry.snapshot} does not match the application that {declared.source} declares",
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
        action="Correct the spec if it is wrong. If the application has changed, publish a new snapshot (statecore "
        "restore --repository), or let Kafka Streams restore these tasks.",
        snapshot=found.entry.snapshot,
        problems=problems,
    )


def _difference_notes(found: FoundSnapshot, stores: Sequence[StoreToFetch], declared: ApplicationSpec) -> list[str]:
    """Notes on harmless differences between the snapshot and the spec."""
    notes = []
    absent = sorted({store.snapshot.store for store in stores if declared.store(store.snapshot.store) is None})
    if absent:
        notes.append(
            f"The spec does not declare {', '.join(absent)}, which the snapshot has: placed anyway. If the "
            "application no longer has it, it only takes disk space."
        )
    shorter = {}
    for store in stores:
        known = declared.store(store.snapshot.store)
        retention = None if known is None or store.placed_empty else retention_of(known)
        if retention is not None and (store.snapshot.retention_ms or 0) > retention:
            shorter[store.snapshot.store] = (store.snapshot.retention_ms or 0, retention)
    notes += [
        f"The snapshot retains rows of {store} for {format_duration(existing)}, and the spec declares "
        f"{format_duration(now)}: Kafka Streams expires the older ones."
        for store, (existing, now) in sorted(shorter.items())
    ]
    if stores and declared.processing_guarantee is not found.spec.processing_guarantee:
        notes.append(
            f"The snapshot was made under {found.spec.processing_guarantee}, and the spec declares "
            f"{declared.processing_guarantee}."
        )
    return notes
