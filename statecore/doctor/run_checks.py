"""Runs all checks over an inspected state directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.custom import custom
from statecore.doctor.checks.damage import damage
from statecore.doctor.checks.declared import check_kind, declared, transactional
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


def run_checks(reading: InspectionReader, context: CheckContext) -> tuple[tuple[StoreView, ...], list[Finding]]:
    """The inspected stores, each with its findings, and the findings beyond single stores."""
    beyond: list[Finding] = []
    by_task: dict[str, list[StoreView]] = {}
    for store in reading.stores:
        by_task.setdefault(store.task, []).append(store)
    of_stores = [_of_store(store, reading.tasks[store.task], context) for store in reading.stores]
    store_counts = Counter(place.task for place in reading.places)
    whole_tasks = {task for task in reading.tasks if task and len(by_task.get(task, ())) == store_counts[task]}
    for name, task in reading.tasks.items():
        stores = [one for one in by_task.get(name, ()) if one.kind is not StoreKind.CUSTOM]
        if name in whole_tasks and (stores or reading.holder is None):
            beyond += [*task_files(task, stores, context), *half_migrated(task, stores, context)]
        if name in whole_tasks or not name:
            beyond += surroundings(task, stores, context)
    if reading.spec is not None:
        beyond += transactional(reading.spec, reading.stores, context)
    if reading.spec is not None and reading.whole:
        beyond += [one for one in declared(reading.spec, reading.places, context) if not _comes_and_goes(one, reading)]
    beyond += unfinished(reading.journal, reading.left)
    everything = [*beyond, *(one for found in of_stores for one in found)]
    without_changelog = unlogged(reading.stores, everything, context)
    of_unlogged = {(one.task, one.store): one for one in without_changelog}
    stores_judged = tuple(
        replace(store, findings=(*found, *_as_list(of_unlogged.get((store.task, store.store)))))
        for store, found in zip(reading.stores, of_stores, strict=True)
    )
    return stores_judged, beyond


def _comes_and_goes(finding: Finding, reading: InspectionReader) -> bool:
    """Whether a running process creates this directory just now, or deletes it with its task."""
    if finding.code != "store-absent":
        return False
    return reading.holder is not None or any(one.in_use for one in reading.stores if finding.task in ("", one.task))


def _as_list(finding: Finding | None) -> list[Finding]:
    return [] if finding is None else [finding]


def _of_store(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    if store.kind is StoreKind.CUSTOM:
        return custom(store, task, context)
    return [
        *check_kind(store),
        *damage(store, task, context),
        *miskeyed(store),
        *segments(store, context),
        *families(store),
        *releases(store, task, context),
        *bookkeeping(store, task, context),
        *store_files(store, task),
        *unread(store),
    ]
