"""Fetches a snapshot as the reference of a diff."""

from __future__ import annotations

from collections.abc import Iterable

from statecore.changelog.delete_retention import ENDLESS_MS
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.reference import Reference
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.repository.listing import entry_of
from statecore.repository.recorded_spec import recorded_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.words import shortened_list


def fetch_reference(context: JobContext[DiffRequest], scratch: StateDirectory, existing: Iterable[Key]) -> Reference:
    """Fetch the tasks of the snapshot that are compared with the ``existing`` stores of the directory."""
    request, repository = context.request, context.repository
    entry = entry_of(repository, repository.head(), request.with_snapshot or "")
    manifest = repository.manifest(entry).value
    spec = context.declared or recorded_spec(manifest)
    in_snapshot, in_directory = {one.task for one in manifest.task_manifests}, {task for task, _ in existing}
    asked = set(request.tasks) or in_directory
    notes = []
    if lacking := sorted(in_snapshot - in_directory - set(request.tasks)):
        notes.append(f"Not compared, because the directory lacks these tasks: {shortened_list(lacking, 10)}.")
    words = f"the snapshot {entry.snapshot} in {repository.url}"
    if not asked & in_snapshot:
        return Reference(scratch, words, spec, notes=tuple(notes), scratch=scratch.state_dir)
    fetch = FetchRequest(
        repository=repository.url,
        application_id=scratch.application_id,
        state_dir=str(scratch.state_dir),
        tasks=tuple(sorted(asked & in_snapshot)),
        snapshot=entry.snapshot,
        versioned=VersionedStart.LATEST,
        max_age=ENDLESS_MS,  # nothing starts from it
        memory_budget=request.memory_budget,
    )
    report = run_fetch(fetch, context.progress)
    left = {
        (one.task, one.store): "the snapshot has no rows of it: Kafka Streams restores it"
        for one in report.stores
        if one.restored_by_kafka_streams
    }
    return Reference(scratch, words, spec, left_out=left, notes=tuple(notes), scratch=scratch.state_dir)
