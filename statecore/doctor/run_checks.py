"""Runs all checks over an inspected state directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.custom import check_custom_store
from statecore.doctor.checks.damage import check_damage
from statecore.doctor.checks.declared import check_declarations, check_kind, check_transactional
from statecore.doctor.checks.families import check_families
from statecore.doctor.checks.grace_buffer import check_grace_buffer
from statecore.doctor.checks.offset_files import check_store_files, check_task_files
from statecore.doctor.checks.offsets import check_offsets, check_unlogged
from statecore.doctor.checks.releases import check_half_migrated, check_releases
from statecore.doctor.checks.segments import check_segments
from statecore.doctor.checks.stray_files import check_interrupted_jobs, check_stray_files, check_unsupported_store
from statecore.doctor.findings import Finding
from statecore.doctor.inspection_reader import DirectoryReading
from statecore.doctor.views import StoreView, TaskView
from statecore.formats.kinds import StoreKind


def run_checks(reading: DirectoryReading, context: CheckContext) -> tuple[tuple[StoreView, ...], list[Finding]]:
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
            beyond += [*check_task_files(task, stores, context), *check_half_migrated(task, stores, context)]
        if name in whole_tasks or not name:
            beyond += check_stray_files(task, stores, context)
    if reading.spec is not None:
        beyond += check_transactional(reading.spec, reading.stores, context)
    if reading.spec is not None and reading.is_complete:
        beyond += [
            one for one in check_declarations(reading.spec, reading.places, context) if not _is_transient(one, reading)
        ]
    beyond += check_interrupted_jobs(reading.journal, reading.job_leftovers)
    everything = [*beyond, *(one for found in of_stores for one in found)]
    without_changelog = check_unlogged(reading.stores, everything, context)
    of_unlogged = {(one.task, one.store): one for one in without_changelog}
    stores_judged = tuple(
        replace(store, findings=(*found, *_as_list(of_unlogged.get((store.task, store.store)))))
        for store, found in zip(reading.stores, of_stores, strict=True)
    )
    return stores_judged, beyond


def _is_transient(finding: Finding, reading: DirectoryReading) -> bool:
    """Whether a running process creates this directory just now, or deletes it with its task."""
    if finding.code != "store-absent":
        return False
    return reading.holder is not None or any(one.in_use for one in reading.stores if finding.task in ("", one.task))


def _as_list(finding: Finding | None) -> list[Finding]:
    return [] if finding is None else [finding]


def _of_store(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    if store.kind is StoreKind.CUSTOM:
        return check_custom_store(store, task, context)
    return [
        *check_kind(store),
        *check_damage(store, task, context),
        *check_grace_buffer(store),
        *check_segments(store, context),
        *check_families(store),
        *check_releases(store, task, context),
        *check_offsets(store, task, context),
        *check_store_files(store, task),
        *check_unsupported_store(store),
    ]
