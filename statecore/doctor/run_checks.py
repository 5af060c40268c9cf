"""What is to be said of a state directory: all checks over what was read of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.custom import custom
from statecore.doctor.checks.damage import damage
from statecore.doctor.checks.declared import declared, kind, transactional
from statecore.doctor.checks.families import families
from statecore.doctor.checks.grace_buffer import miskeyed
from statecore.doctor.checks.offset_files import store_files, task_files
from statecore.doctor.checks.offsets import bookkeeping, unlogged
from statecore.doctor.checks.releases import half_migrated, releases
from statecore.doctor.checks.segments import segments
from statecore.doctor.checks.stray_files import surroundings, unfinished, unread
from statecore.doctor.findings import Finding
from statecore.doctor.inspection_reader import InspectionReader
from statecore.doctor.views import StoreView, TaskView
from statecore.formats.kinds import StoreKind


def run_checks(sight: InspectionReader, how: CheckContext) -> tuple[tuple[StoreView, ...], list[Finding]]:
    """The stores that were looked at, each with its findings, and what there is to say beyond single stores.

    Args:
        sight: what was read.
        how: under which circumstances it is judged.
    """
    beyond: list[Finding] = []
    by_task: dict[str, list[StoreView]] = {}
    for store in sight.stores:
        by_task.setdefault(store.task, []).append(store)
    of_stores = [_of_store(store, sight.tasks[store.task], how) for store in sight.stores]
    there = Counter(place.task for place in sight.places)
    whole_tasks = {task for task in sight.tasks if task and len(by_task.get(task, ())) == there[task]}
    for name, task in sight.tasks.items():
        stores = [one for one in by_task.get(name, ()) if one.kind is not StoreKind.CUSTOM]
        if name in whole_tasks and (stores or sight.holder is None):
            beyond += [*task_files(task, stores, how), *half_migrated(task, stores, how)]
        if name in whole_tasks or not name:
            beyond += surroundings(task, stores, how)
    if sight.spec is not None:
        beyond += transactional(sight.spec, sight.stores, how)
    if sight.spec is not None and sight.whole:
        beyond += [one for one in declared(sight.spec, sight.places, how) if not _comes_and_goes(one, sight)]
    beyond += unfinished(sight.journal, sight.left)
    everything = [*beyond, *(one for found in of_stores for one in found)]
    nowhere_else = unlogged(sight.stores, everything, how)
    of_unlogged = {(one.task, one.store): one for one in nowhere_else}
    stores_judged = tuple(
        replace(store, findings=(*found, *_given(of_unlogged.get((store.task, store.store)))))
        for store, found in zip(sight.stores, of_stores, strict=True)
    )
    return stores_judged, beyond


def _comes_and_goes(finding: Finding, sight: InspectionReader) -> bool:
    """Whether it is of a directory that whoever is at work makes, or takes away with its task, at this moment."""
    if finding.code != "store-absent":
        return False
    return sight.holder is not None or any(one.in_use for one in sight.stores if finding.task in ("", one.task))


def _given(finding: Finding | None) -> list[Finding]:
    return [] if finding is None else [finding]


def _of_store(store: StoreView, task: TaskView, how: CheckContext) -> list[Finding]:
    """What is wrong with one store of one task, what is worst for it first."""
    if store.kind is StoreKind.CUSTOM:
        return custom(store, task, how)
    return [
        *kind(store),
        *damage(store, task, how),
        *miskeyed(store),
        *segments(store, how),
        *families(store),
        *releases(store, task, how),
        *bookkeeping(store, task, how),
        *store_files(store, task),
        *unread(store),
    ]
