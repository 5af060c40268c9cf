"""Builds the stores of an application from its changelogs, as the reference of a diff."""

from __future__ import annotations

from collections.abc import Iterable

from statecore.formats.offsets import next_offset
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.context import JobContext
from statecore.jobs.diff.comparable_stores import comparable_stores, comparison_notes
from statecore.jobs.diff.reference import Reference, StoreOffsets
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.restore.planned_restore import PlanLimit
from statecore.jobs.restore.request import NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import are_known


def build_reference(
    context: JobContext[DiffRequest],
    engine: Engine,
    scratch: StateDirectory,
    offsets: StoreOffsets,
    tasks: Iterable[str],
) -> Reference:
    """Build the stores of the directory up to their offsets, and declared ones that its ``tasks`` lack."""
    request, spec = context.request, context.declared
    assert spec is not None  # the request has one
    stores, left = comparable_stores(request, spec, offsets, tasks)
    words = f"the changelogs on {spec.bootstrap_servers}"
    if not stores:
        return Reference(scratch, words, spec, frozenset(), left, scratch=scratch.state_dir)
    ends: dict[TopicPartition, int] = {}
    for (task, _), one in stores.items():
        for part, offset in one.offsets.items() if are_known(one.offsets) else ():
            ends[part] = max(ends.get(part, 0), next_offset(offset, is_global=task == GLOBAL))
    notes = tuple(comparison_notes(context, spec, stores))
    restore = RestoreRequest(
        spec=request.spec,
        spec_path=request.spec_path,
        state_dir=str(scratch.state_dir),
        stores=tuple(sorted({store for _, store in stores})),
        start_from=NOTHING,
        versioned=VersionedStart.LATEST,
        memory_budget=request.memory_budget,
        transaction_wait=request.transaction_wait,
        timeout=request.timeout,
    )
    run_restore(restore, engine, context.progress, limit=PlanLimit(frozenset(stores), ends))
    return Reference(scratch, words, spec, frozenset(stores), left, notes, scratch.state_dir)
